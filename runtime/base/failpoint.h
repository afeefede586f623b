/* SPDX-License-Identifier: Apache-2.0
 * Failpoints: named places between two states at which a test makes a process die, a call fail, time pass or bytes
 * change. In builds without TCK_FAILPOINTS the macros below are constants. What is to happen is set in the environment:
 *
 * TIERCKPT_FAILPOINTS="publish.moved=kill@3;uring.write=EIO;save.sealed=sleep:500"
 *
 * An action takes effect the n-th time (@n, default 1) that this process passes the failpoint: kill (SIGKILL), EIO
 * or ENOSPC (the call there fails with it, without being made), sleep:MS, corrupt (one bit of the data there
 * changes). A process that its supervisor restarts would start counting again, and die again. So each failpoint that
 * has taken effect leaves a file of its name in TIERCKPT_FAILPOINT_DIR, and has no effect while that file exists. */
#ifndef TCK_BASE_FAILPOINT_H
#define TCK_BASE_FAILPOINT_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef TCK_FAILPOINTS

#include "base/failpoint_names.h"

#define FAILPOINT_ID(area, point, what, where) FAILPOINT_##area##_##point,
enum failpoint { FAILPOINT_LIST(FAILPOINT_ID) FAILPOINT_COUNT };
#undef FAILPOINT_ID

/* A place where a process may die or be delayed. */
#define failpoint(area, point) failpoint_pass(FAILPOINT_##area##_##point)
/* Before a call that can fail: true, with errno set, if it is to fail without being made. */
#define failpoint_fails(area, point) failpoint_pass_call(FAILPOINT_##area##_##point)
/* Where there are bytes that other code relies on. */
#define failpoint_bytes(area, point, data, len) failpoint_pass_bytes(FAILPOINT_##area##_##point, data, len)

/* Reads the environment; TCK_ERR_CONFIG with a text that names what is wrong. No failpoint has any effect before
 * this was called. */
must_check tck_status_t failpoints_read(struct error *err);

/* For each point a line "name<TAB>what<TAB>where", to standard output. */
void failpoints_print(void);

void failpoint_pass(enum failpoint which);
bool failpoint_pass_call(enum failpoint which);
void failpoint_pass_bytes(enum failpoint which, void *data, size_t len);

#else

#define failpoint(area, point)                  ((void)0)
#define failpoint_fails(area, point)            (false)
#define failpoint_bytes(area, point, data, len) ((void)0)
#define failpoints_print()                      ((void)0)

must_check static inline tck_status_t failpoints_read(struct error *err)
{
    (void)err;
    return TCK_OK;
}

#endif
#endif

/* SPDX-License-Identifier: Apache-2.0
 * The supervisor's files in its directory, and the name that nobody can delete (base/anchor.h): there is one
 * supervisor, and its agent finds it again although a cleaner of temporary files has deleted them. */
#ifndef TCK_AGENT_SUPERVISOR_PLACE_H
#define TCK_AGENT_SUPERVISOR_PLACE_H

#include "base/status.h"

#include <stdint.h>

struct place;

/* notify_fd is for the caller to read from. */
struct supervisor_place {
    struct place *place;
    int dir_fd, anchor_fd, notify_fd; /* anchor_fd -1: there is no such name here */
    uint64_t looked_ms;
    const char *log;
};

/* dir, log: the present directory and a file in it ("-": none), valid as long as the place. TCK_ERR_EXIST if there is a
 * supervisor. */
must_check tck_status_t supervisor_place_take(struct supervisor_place *p, const char *dir, const char *log,
                                              struct error *err);
/* After it another supervisor can take the place. */
void supervisor_place_free(struct supervisor_place *p);
/* Ends attempts to find out whether there is a supervisor: nothing is said to them. */
void supervisor_place_answer(const struct supervisor_place *p);
/* To be called about once a second, or more often. */
void supervisor_place_tick(struct supervisor_place *p);

#endif

/* SPDX-License-Identifier: Apache-2.0
 * Errors inside the project: a status to branch on and a text that names the thing, built as the error climbs. */
#ifndef TCK_BASE_STATUS_H
#define TCK_BASE_STATUS_H

#include "tierckpt.h"

#define must_check             TCK_MUST_CHECK
#define printf_like(fmt, args) __attribute__((format(printf, fmt, args)))

#define ERROR_TEXT_BYTES 512

struct error {
    tck_status_t code;
    char text[ERROR_TEXT_BYTES];
};

/* Sets code and text (printf format, %m works) and returns code. err may be NULL: then only the code is kept. The
 * place that detects an error sets it; callers add what they were doing with error_prefix and pass it on. */
tck_status_t error_set(struct error *err, tck_status_t code, const char *fmt, ...) printf_like(3, 4);

/* Puts "<fmt>: " before the text; returns the code unchanged. err must not be NULL: only it knows the code. */
tck_status_t error_prefix(struct error *err, const char *fmt, ...) printf_like(2, 3);

/* The status that an errno stands for: ENOSPC -> NOSPC, ENOENT -> NOENT, EACCES -> DENIED, ... else IO. */
tck_status_t status_of_errno(int errnum);

/* The fixed text of a status; never NULL. */
const char *status_text(tck_status_t status);

#endif

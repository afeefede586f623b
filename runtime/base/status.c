/* SPDX-License-Identifier: Apache-2.0
 * Building error texts, and the texts and errno values that belong to a status. */
#include "base/status.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Both formatters go through a local buffer because an argument may point into the error's own text. */

tck_status_t error_set(struct error *err, tck_status_t code, const char *fmt, ...)
{
    int saved_errno = errno;
    char text[ERROR_TEXT_BYTES];
    va_list args;

    if (err != NULL) {
        va_start(args, fmt);
        vsnprintf(text, sizeof(text), fmt, args);
        va_end(args);
        err->code = code;
        memcpy(err->text, text, sizeof(text));
    }
    errno = saved_errno;
    return code;
}

/* Appends as much of `more` as fits into an error's text. */
static void text_append(char text[ERROR_TEXT_BYTES], const char *more)
{
    size_t len = strlen(text);
    size_t take = strnlen(more, ERROR_TEXT_BYTES - 1 - len);

    memcpy(text + len, more, take);
    text[len + take] = '\0';
}

tck_status_t error_prefix(struct error *err, const char *fmt, ...)
{
    int saved_errno = errno;
    char text[ERROR_TEXT_BYTES];
    va_list args;

    if (err == NULL) {
        return TCK_ERR_INTERNAL;
    }
    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    text_append(text, ": ");
    text_append(text, err->text);
    memcpy(err->text, text, sizeof(text));
    errno = saved_errno;
    return err->code;
}

tck_status_t status_of_errno(int errnum)
{
    switch (errnum) {
    case ENOSPC:
    case EDQUOT:
        return TCK_ERR_NOSPC;
    case ENOENT:
        return TCK_ERR_NOENT;
    case EACCES:
    case EPERM:
        return TCK_ERR_DENIED;
    case EEXIST:
        return TCK_ERR_EXIST;
    case ETIMEDOUT:
        return TCK_ERR_TIMEDOUT;
    case ECONNREFUSED:
    case ECONNRESET:
    case EPIPE:
    case EHOSTUNREACH:
    case ENETUNREACH:
        return TCK_ERR_UNREACHABLE;
    case ENOMEM:
        return TCK_ERR_NOMEM;
    case EINVAL:
        return TCK_ERR_INVAL;
    case EBUSY:
    case EAGAIN:
        return TCK_ERR_BUSY;
    case EOPNOTSUPP:
    case ENOSYS:
        return TCK_ERR_UNSUPPORTED;
    default:
        return TCK_ERR_IO;
    }
}

const char *status_text(tck_status_t status)
{
    switch (status) {
#define STATUS_CASE(name, value, text) \
    case TCK_##name:                   \
        return text;
        TCK_STATUS_MAP(STATUS_CASE)
#undef STATUS_CASE
    }
    return "unknown status";
}

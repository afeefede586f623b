/* SPDX-License-Identifier: Apache-2.0
 * Put before each file when clang-tidy reads it. Its analyzer sees one file at a time; this tells it what callers build
 * on: error_set and error_prefix never return TCK_OK, nor do oob_exchange and oob_agree when they were
 * given something else. */
#include "base/status.h"
#include "client/oob.h"

#define not_ok(call)                       \
    ({                                     \
        tck_status_t code_ = (call);       \
        __builtin_assume(code_ != TCK_OK); \
        code_;                             \
    })
#define error_set(...)    not_ok((error_set)(__VA_ARGS__))
#define error_prefix(...) not_ok((error_prefix)(__VA_ARGS__))
#define not_ok_after(call, oob, status, ...)                     \
    ({                                                           \
        tck_status_t before_ = (status);                         \
        tck_status_t after_ = (call)(oob, before_, __VA_ARGS__); \
        __builtin_assume(before_ == TCK_OK || after_ != TCK_OK); \
        after_;                                                  \
    })
#define oob_exchange(oob, status, ...) not_ok_after(oob_exchange, oob, status, __VA_ARGS__)
#define oob_agree(oob, status, err)    not_ok_after(oob_agree, oob, status, err)

/* SPDX-License-Identifier: Apache-2.0
 * The one function that libFuzzer calls, how a target reports that a property does not hold, and the property of every
 * struct made of a table (base/schema.h). */
#ifndef TCK_TESTS_FUZZ_H
#define TCK_TESTS_FUZZ_H

#include "base/buf.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define MUST_HOLD(condition) ((condition) ? (void)0 : __builtin_trap())

/* try_<type>: any bytes are refused, or the one encoding of what they decode to. */
#define FUZZ_CODEC(type)                                                          \
    static void try_##type(const uint8_t *data, size_t size)                      \
    {                                                                             \
        struct type m;                                                            \
        if (type##_decode(data, size, &m) != TCK_OK) {                            \
            return;                                                               \
        }                                                                         \
        struct writer w = writer_new(0);                                          \
        type##_encode(&m, &w);                                                    \
        MUST_HOLD(!w.failed && w.len == size && memcmp(w.data, data, size) == 0); \
        writer_free(&w);                                                          \
        type##_free(&m);                                                          \
    }

#endif

/* SPDX-License-Identifier: Apache-2.0
 * Properties of every encoding, checked with one value: decoding returns the same value, neither a prefix nor an
 * extension decodes, and bytes with a flipped bit are either refused or decode to another value that encodes to exactly
 * those bytes. */
#ifndef TCK_TESTS_CODEC_H
#define TCK_TESTS_CODEC_H

#include "base/buf.h"

struct codec {
    size_t size; /* of the struct */
    void (*encode)(const void *value, struct writer *w);
    tck_status_t (*decode)(const void *bytes, size_t len, void *out);
    void (*release)(void *value); /* frees what decode allocated; may be NULL */
};

void codec_check(const struct codec *codec, const void *value);
/* Asserts that exactly these bytes, in hexadecimal digits, were written. */
void codec_bytes(const struct writer *w, const char *hex);

/* <type>_codec, of a struct made of a table (base/schema.h). */
#define CODEC_OF(type)                                                                                       \
    static void any_##type##_encode(const void *value, struct writer *w)                                     \
    {                                                                                                        \
        type##_encode(value, w);                                                                             \
    }                                                                                                        \
    static tck_status_t any_##type##_decode(const void *bytes, size_t len, void *out)                        \
    {                                                                                                        \
        return type##_decode(bytes, len, out);                                                               \
    }                                                                                                        \
    static void any_##type##_free(void *value)                                                               \
    {                                                                                                        \
        type##_free(value);                                                                                  \
    }                                                                                                        \
    static const struct codec type##_codec = {sizeof(struct type), any_##type##_encode, any_##type##_decode, \
                                              any_##type##_free};

#endif

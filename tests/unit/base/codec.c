/* SPDX-License-Identifier: Apache-2.0 */
#include "codec.h"
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Memory of exactly len bytes, so that AddressSanitizer sees a read past them. */
static uint8_t *copy_exact(const uint8_t *bytes, size_t len)
{
    uint8_t *exact = malloc(len == 0 ? 1 : len);
    cr_assert_not_null(exact);
    memcpy(exact, bytes, len);
    return exact;
}

/* Returns true if the bytes decode; the value, which may point into them, must then encode to the same bytes again. */
static bool decodes(const struct codec *codec, const uint8_t *bytes, size_t len)
{
    void *value = calloc(1, codec->size);
    cr_assert_not_null(value);
    uint8_t *exact = copy_exact(bytes, len);
    tck_status_t status = codec->decode(exact, len, value);
    if (status == TCK_OK) {
        struct writer w = writer_new(0);
        codec->encode(value, &w);
        cr_assert(!w.failed && w.len == len && memcmp(w.data, bytes, len) == 0, "%zu bytes have two encodings", len);
        writer_free(&w);
        if (codec->release != NULL) {
            codec->release(value);
        }
    } else {
        cr_assert_eq(status, TCK_ERR_PROTO, "%zu bytes: status %d", len, status);
    }
    free(exact);
    free(value);
    return status == TCK_OK;
}

void codec_check(const struct codec *codec, const void *value)
{
    struct writer w = writer_new(0);
    codec->encode(value, &w);
    cr_assert_not(w.failed);
    size_t len = w.len;
    cr_assert(decodes(codec, w.data, len), "the value itself does not decode");
    for (size_t part = 0; part < len; part++) {
        cr_assert_not(decodes(codec, w.data, part), "%zu of %zu bytes decode", part, len);
    }
    for (size_t bit = 0; bit < 8 * len; bit++) {
        w.data[bit / 8] ^= (uint8_t)(1u << (bit % 8));
        decodes(codec, w.data, len);
        w.data[bit / 8] ^= (uint8_t)(1u << (bit % 8));
    }
    write_u8(&w, 0);
    cr_assert_not(decodes(codec, w.data, len + 1), "a byte after the end is accepted");
    writer_free(&w);
}

void codec_bytes(const struct writer *w, const char *hex)
{
    char *actual = calloc(2 * w->len + 1, 1);
    cr_assert_not_null(actual);
    cr_assert_not(w->failed);
    for (size_t i = 0; i < w->len; i++) {
        snprintf(actual + 2 * i, 3, "%02x", w->data[i]);
    }
    cr_assert_str_eq(actual, hex);
    free(actual);
}

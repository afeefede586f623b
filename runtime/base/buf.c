/* SPDX-License-Identifier: Apache-2.0
 * The bounded reader and the growing writer. All integers are little endian and need no alignment. */
#include "base/buf.h"

#include <stdlib.h>
#include <string.h>

#define WRITER_FIRST_BYTES 64

struct reader reader_of(const void *data, size_t len)
{
    return (struct reader){.data = data, .len = len};
}

size_t reader_left(const struct reader *r)
{
    return r->failed ? 0 : r->len - r->pos;
}

bool reader_done(const struct reader *r)
{
    return !r->failed && r->pos == r->len;
}

const void *read_bytes(struct reader *r, size_t len)
{
    const uint8_t *at;

    if (r->failed || len > r->len - r->pos) {
        r->failed = true;
        return NULL;
    }
    if (r->data == NULL) {
        return ""; /* len is 0 here, but NULL would say that bytes are missing */
    }
    at = r->data + r->pos;
    r->pos += len;
    return at;
}

void read_into(struct reader *r, void *out, size_t len)
{
    const void *at = read_bytes(r, len);

    if (at == NULL) {
        memset(out, 0, len);
    } else {
        memcpy(out, at, len);
    }
}

void read_str(struct reader *r, char *out, size_t cap)
{
    uint16_t len = read_u16(r);
    const char *text = read_bytes(r, len);

    if (text == NULL || len >= cap || memchr(text, '\0', len) != NULL) {
        r->failed = true;
        if (cap > 0) {
            out[0] = '\0';
        }
        return;
    }
    memcpy(out, text, len);
    out[len] = '\0';
}

struct writer writer_new(size_t max)
{
    return (struct writer){.max = max};
}

struct writer writer_over(void *data, size_t cap)
{
    return (struct writer){.data = data, .cap = cap, .max = cap};
}

/* Makes room for len more bytes; false (and failed) if the limit or the memory does not allow it. */
static bool writer_reserve(struct writer *w, size_t len)
{
    size_t limit = w->max == 0 ? SIZE_MAX : w->max;
    size_t cap = w->cap > 0 ? w->cap : limit < WRITER_FIRST_BYTES ? limit : WRITER_FIRST_BYTES;
    uint8_t *data;

    if (w->failed || len > limit - w->len) {
        w->failed = true;
        return false;
    }
    if (w->data != NULL && len <= w->cap - w->len) {
        return true;
    }
    while (cap - w->len < len) {
        cap = cap > limit / 2 ? limit : cap * 2;
    }
    data = realloc(w->data, cap);
    if (data == NULL) {
        w->failed = true;
        return false;
    }
    w->data = data;
    w->cap = cap;
    return true;
}

void write_bytes(struct writer *w, const void *data, size_t len)
{
    if (len == 0 || !writer_reserve(w, len)) {
        return;
    }
    memcpy(w->data + w->len, data, len);
    w->len += len;
}

void write_str(struct writer *w, const char *s)
{
    size_t len = strlen(s);

    if (len > UINT16_MAX) {
        w->failed = true;
        return;
    }
    write_u16(w, (uint16_t)len);
    write_bytes(w, s, len);
}

void writer_free(struct writer *w)
{
    free(w->data);
    *w = writer_new(w->max);
}

void *writer_take(struct writer *w, size_t *len_out)
{
    void *data;

    if (!writer_reserve(w, 0)) { /* also gives an empty writer bytes to hand out: NULL means failed */
        writer_free(w);
        return NULL;
    }
    data = w->data;
    *len_out = w->len;
    *w = writer_new(w->max);
    return data;
}

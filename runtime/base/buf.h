/* SPDX-License-Identifier: Apache-2.0
 * Bounded cursors: every byte that comes from or goes to a wire, a header page or a catalog value goes through
 * these. Little endian. Once a read runs past the end or a write does not fit, the cursor stays failed and reads
 * give zeros, so a decoder checks once, at its end. */
#ifndef TCK_BASE_BUF_H
#define TCK_BASE_BUF_H

#include "base/status.h"
#include <endian.h>
#include <stdbool.h>
#include <string.h>

struct reader {
    const uint8_t *data;
    size_t len, pos;
    bool failed;
};

struct reader reader_of(const void *data, size_t len);
/* A view of the next len bytes, NULL if they are not there. */
const void *read_bytes(struct reader *r, size_t len);
/* Copies the next len bytes, or as many zeros if they are not there. */
void read_into(struct reader *r, void *out, size_t len);
/* A u16 length, then that many bytes, none NUL; copied with a NUL into out. Fails if cap is too small. */
void read_str(struct reader *r, char *out, size_t cap);
/* True if nothing failed and nothing is left. */
bool reader_done(const struct reader *r);
/* How a decoder ends: TCK_OK if reader_done, else TCK_ERR_PROTO. */
size_t reader_left(const struct reader *r);

/* Grows by itself up to max bytes (0: no limit). data is the writer's until writer_free or writer_take. */
struct writer {
    uint8_t *data;
    size_t len, cap, max;
    bool failed;
};

struct writer writer_new(size_t max);
/* Writes into cap bytes of the caller's. It fails instead of allocating, and is never freed. */
struct writer writer_over(void *data, size_t cap);
void write_bytes(struct writer *w, const void *data, size_t len);
void write_str(struct writer *w, const char *s);
void writer_free(struct writer *w);
/* Hands the bytes to the caller, who frees them; the writer is empty afterwards. NULL if it failed. */
void *writer_take(struct writer *w, size_t *len_out);

/* Numbers: inline, because they are most of what is encoded. */
#define BUF_NUMBER(name, type, to_little, from_little)        \
    static inline type read_##name(struct reader *r)          \
    {                                                         \
        type v = 0;                                           \
        if (r->failed || sizeof(v) > r->len - r->pos) {       \
            r->failed = true;                                 \
            return 0;                                         \
        }                                                     \
        memcpy(&v, r->data + r->pos, sizeof(v));              \
        r->pos += sizeof(v);                                  \
        return from_little(v);                                \
    }                                                         \
    static inline void write_##name(struct writer *w, type v) \
    {                                                         \
        v = to_little(v);                                     \
        if (sizeof(v) > w->cap - w->len || w->failed) {       \
            write_bytes(w, &v, sizeof(v));                    \
            return;                                           \
        }                                                     \
        memcpy(w->data + w->len, &v, sizeof(v));              \
        w->len += sizeof(v);                                  \
    }
#define BUF_SAME_BYTE(v) (v)
BUF_NUMBER(u8, uint8_t, BUF_SAME_BYTE, BUF_SAME_BYTE)
BUF_NUMBER(u16, uint16_t, htole16, le16toh)
BUF_NUMBER(u32, uint32_t, htole32, le32toh)
BUF_NUMBER(u64, uint64_t, htole64, le64toh)
#undef BUF_NUMBER
#undef BUF_SAME_BYTE

/* Fails unless the byte is 0 or 1. */
static inline bool read_bool(struct reader *r)
{
    uint8_t v = read_u8(r);
    r->failed |= v > 1;
    return v == 1;
}

#endif

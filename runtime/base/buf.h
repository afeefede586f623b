/* SPDX-License-Identifier: Apache-2.0
 * Bounded cursors: every byte that comes from or goes to a wire, a header page or a catalog value passes here. Little
 * endian. Once a read runs past the end or a write does not fit, the cursor stays failed and reads give zeros, so a
 * decoder checks once, at its end. */
#ifndef TCK_BASE_BUF_H
#define TCK_BASE_BUF_H

#include "base/status.h"
#include <stdbool.h>

struct reader {
    const uint8_t *data;
    size_t len, pos;
    bool failed;
};

struct reader reader_of(const void *data, size_t len);
uint8_t read_u8(struct reader *r);
uint16_t read_u16(struct reader *r);
uint32_t read_u32(struct reader *r);
uint64_t read_u64(struct reader *r);
/* A view of the next len bytes, NULL if they are not there. */
const void *read_bytes(struct reader *r, size_t len);
/* Copies the next len bytes, or as many zeros if they are not there. */
void read_into(struct reader *r, void *out, size_t len);
/* A u16 length, then that many bytes, none NUL; copied with a NUL into out. Fails if cap is too small. */
void read_str(struct reader *r, char *out, size_t cap);
/* Fails unless the byte is 0 or 1. */
bool read_bool(struct reader *r);
/* True if nothing failed and nothing is left. */
bool reader_done(const struct reader *r);
/* How a decoder ends: TCK_OK if reader_done, else TCK_ERR_PROTO. */
must_check tck_status_t reader_status(const struct reader *r);
size_t reader_left(const struct reader *r);

/* Grows by itself up to max bytes (0: no limit). data is the writer's until writer_free or writer_take. */
struct writer {
    uint8_t *data;
    size_t len, cap, max;
    bool failed;
};

struct writer writer_new(size_t max);
void write_u8(struct writer *w, uint8_t v);
void write_u16(struct writer *w, uint16_t v);
void write_u32(struct writer *w, uint32_t v);
void write_u64(struct writer *w, uint64_t v);
void write_bytes(struct writer *w, const void *data, size_t len);
void write_str(struct writer *w, const char *s);
void writer_free(struct writer *w);
/* Hands the bytes to the caller, who frees them; the writer is empty after. NULL if it failed. */
void *writer_take(struct writer *w, size_t *len_out);

#endif

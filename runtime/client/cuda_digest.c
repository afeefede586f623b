/* SPDX-License-Identifier: Apache-2.0
 * Digests of records on a device: which piece contributes to which chunk, the kernel launches, and the host's share. */
#include "client/cuda_digest.h"

#include "base/digest.h"
#include "cuda/kernels_core.h"

#include <stdlib.h>

#define PIECE_BYTES (256u << 10) /* one block of the kernel handles one piece */

_Static_assert(DIGEST_CHUNK == CHUNK_BYTES, "the device and the host cut an image into the same chunks");

static bool lies_here(const struct record *record, int device)
{
    return record->memory == TCK_CUDA && record->device == device && record->bytes > 0;
}

/* Size of the piece that begins at an offset of the image: chunks are multiples of pieces. */
static uint64_t piece_size(uint64_t offset, uint64_t left)
{
    uint64_t room = PIECE_BYTES - offset % PIECE_BYTES;

    return left < room ? left : room;
}

static uint64_t pieces_of(const struct record *record)
{
    return record->bytes / PIECE_BYTES + 2;
}

static void add_record(struct device_digest *digest, const struct record *record, uint64_t addr)
{
    for (uint64_t at = 0; at < record->bytes;) {
        uint64_t offset = record->image_offset + at, bytes = piece_size(offset, record->bytes - at);

        digest->pieces[digest->count++] = (struct gather_piece){.addr = addr + at, .offset = offset, .bytes = bytes};
        at += bytes;
    }
}

tck_status_t device_digest_build(const struct layout *layout, const struct shard *shard, int device,
                                 const uint64_t *addrs, struct device_digest *out, struct error *err)
{
    uint64_t pieces = 0;

    *out = (struct device_digest){.image_bytes = shard->image_bytes, .stale = true};
    for (uint32_t i = 0; i < shard->record_count; i++) {
        const struct record *record = &layout->records[shard->records[i]];

        pieces += lies_here(record, device) ? pieces_of(record) : 0;
    }
    out->pieces = pieces < UINT32_MAX ? calloc(pieces + 1, sizeof(*out->pieces)) : NULL;
    if (out->pieces == NULL) {
        return error_set(err, TCK_ERR_NOMEM, "no memory for the digests of %u records", shard->record_count);
    }
    for (uint32_t i = 0; i < shard->record_count; i++) {
        const struct record *record = &layout->records[shard->records[i]];

        if (lies_here(record, device)) {
            add_record(out, record, addrs[shard->records[i]]);
        }
    }
    return TCK_OK;
}

static int compare_offsets(const void *a, const void *b)
{
    const struct gather_piece *x = a, *y = b;

    return x->offset < y->offset ? -1 : x->offset > y->offset;
}

void device_digest_relocate(struct device_digest *digest, const struct record *record, uint64_t addr)
{
    struct gather_piece key = {.offset = record->image_offset};
    struct gather_piece *piece = bsearch(&key, digest->pieces, digest->count, sizeof(key), compare_offsets);

    for (uint64_t at = 0; piece != NULL && at < record->bytes; at += piece++->bytes) {
        piece->addr = addr + at;
    }
    digest->stale = true;
}

/* ---- on the device ------------------------------------------------------------------------------------------- */

static uint64_t sum_bytes(const struct device_digest *digest)
{
    return chunk_count(digest->image_bytes) * sizeof(*digest->sums);
}

static int allocate(struct device_digest *digest, const struct cuda_calls *calls)
{
    int rc = calls->device_alloc((void **)&digest->table, digest->count * sizeof(*digest->table));

    if (rc == 0) {
        rc = calls->device_alloc((void **)&digest->sums_there, sum_bytes(digest));
    }
    return rc == 0 ? calls->host_alloc((void **)&digest->sums, sum_bytes(digest)) : rc;
}

int device_digest_upload(struct device_digest *digest, const struct cuda_calls *calls, void *stream)
{
    int rc = 0;

    if (digest->count == 0 || !digest->stale) {
        return 0;
    }
    if (digest->table == NULL) {
        rc = allocate(digest, calls);
    }
    if (rc == 0) {
        rc = calls->copy(digest->table, digest->pieces, digest->count * sizeof(*digest->table), stream);
    }
    if (rc == 0) {
        rc = calls->stream_sync(stream);
    }
    digest->stale = rc != 0;
    return rc;
}

int device_digest_make(const struct device_digest *digest, const struct cuda_calls *calls, void *stream)
{
    int rc;

    if (digest->count == 0) {
        return 0;
    }
    rc = calls->zero(digest->sums_there, sum_bytes(digest), stream);
    if (rc == 0) {
        rc = calls->digest_pieces(stream, digest->table, digest->count, digest->image_bytes, digest->sums_there);
    }
    return rc == 0 ? calls->copy(digest->sums, digest->sums_there, sum_bytes(digest), stream) : rc;
}

void device_digest_free(struct device_digest *digest, const struct cuda_calls *calls)
{
    if (digest->table != NULL) {
        calls->device_free(digest->table);
    }
    if (digest->sums_there != NULL) {
        calls->device_free(digest->sums_there);
    }
    if (digest->sums != NULL) {
        calls->host_free(digest->sums);
    }
    free(digest->pieces);
    *digest = (struct device_digest){0};
}

/* ---- on the host --------------------------------------------------------------------------------------------- */

/* Adds the CRCs of the image's bytes between two offsets. */
static void add_stretch(const uint8_t *bytes_from, uint64_t from, uint64_t to, uint64_t image_bytes, uint32_t *sums)
{
    while (from < to) {
        uint32_t chunk = (uint32_t)(from / CHUNK_BYTES);
        uint64_t end = (uint64_t)chunk * CHUNK_BYTES + chunk_size(image_bytes, chunk);
        uint64_t bytes = (to < end ? to : end) - from;
        uint32_t crc = ~crc32c(~0u, bytes_from, bytes); /* begins with 0 and is not inverted, so that of zeros it
                                                             is 0 */

        if (crc != 0) {
            sums[chunk] ^= digest_core_shift(crc, end - from - bytes);
        }
        from += bytes;
        bytes_from += bytes;
    }
}

void host_digest_add(const struct layout *layout, const struct shard *shard, const uint8_t *image, uint32_t *sums)
{
    add_stretch(image, 0, shard->header_bytes, shard->image_bytes, sums);
    for (uint32_t i = 0; i < shard->record_count; i++) {
        const struct record *record = &layout->records[shard->records[i]];
        uint64_t at = record->image_offset, bytes = record->memory == TCK_HOST ? record->bytes : 0;

        /* Not as they are in the image, where a copy under way may have put zeros over them. */
        add_stretch(record->head, at - record->head_bytes, at, shard->image_bytes, sums);
        add_stretch(image + at, at, at + bytes, shard->image_bytes, sums);
    }
}

struct hash128 digest_of_sums(uint32_t *sums, uint64_t image_bytes)
{
    for (uint32_t i = 0; i < chunk_count(image_bytes); i++) {
        sums[i] = digest_core_finish(sums[i], chunk_size(image_bytes, i));
    }
    return digest_root(sums, image_bytes);
}

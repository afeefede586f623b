/* SPDX-License-Identifier: Apache-2.0 */
#include "client/shared_headers.h"

#include "base/digest.h"
#include "base/log.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define ALL_BYTES   (16u << 20) /* of all ranks in one exchange */
#define ROUND_LEAST 4096u
#define ROUND_MOST  (1u << 20)

/* What a rank says about its part before it is exchanged. */
struct part_card {
    struct hash128 manifest; /* of the files that it lists */
    uint64_t bytes;
    struct hash128 sum;   /* of these bytes */
    uint64_t has_no_part; /* of .index: this rank could not read it, or finds none */
};

struct sharing {
    const struct oob *oob;
    struct tck_published *published;
    struct headers headers;
    struct writer mine;
    struct part_card *cards; /* of all ranks */
    uint8_t **parts;         /* of all ranks, as received */
};

static struct headers_part part_of(const struct sharing *s, uint32_t rank)
{
    return (struct headers_part){rank, s->oob->world_size};
}

/* The order of the files counts, too, because ranks share them out by their index. */
static struct hash128 manifest_hash(const struct manifest *manifest)
{
    struct hash128 hash = {manifest->file_count, manifest->world_size};
    for (uint32_t i = 0; i < manifest->file_count; i++) {
        struct hash128 of[4] = {hash, manifest->files[i].shard, manifest->files[i].root, {manifest->files[i].bytes, i}};
        hash = hash128_of(of, sizeof(of));
    }
    return hash;
}

static tck_status_t read_own_part(struct sharing *s, struct error *err)
{
    struct headers_part part = part_of(s, s->oob->rank);
    tck_status_t status = headers_new(s->published->found.manifest.file_count, &s->headers, err);
    if (status == TCK_OK) {
        status = headers_read(&s->headers, &s->published->chunks, part, err);
    }
    if (status == TCK_OK) {
        headers_pack(&s->headers, part, &s->mine);
    }
    return status == TCK_OK && s->mine.failed ? error_set(err, TCK_ERR_NOMEM, "no memory for headers") : status;
}

static tck_status_t name_version(const struct sharing *s, tck_status_t status, struct error *err)
{
    struct version v = s->published->found.manifest.version;
    return status == TCK_OK ? TCK_OK
                            : error_prefix(err, "version %" PRIu64 ".%" PRIu64 " has another layout", v.term, v.step);
}

static tck_status_t exchange_cards(struct sharing *s, tck_status_t status, bool has_no_part, struct error *err)
{
    struct part_card mine = {.bytes = s->mine.len, .has_no_part = has_no_part};
    if (status == TCK_OK) {
        mine.manifest = manifest_hash(&s->published->found.manifest);
        mine.sum = hash128_of(s->mine.data, s->mine.len);
        s->cards = calloc(s->oob->world_size, sizeof(*s->cards));
        s->parts = calloc(s->oob->world_size, sizeof(*s->parts));
    }
    if (status == TCK_OK && (s->cards == NULL || s->parts == NULL)) {
        status = error_set(err, TCK_ERR_NOMEM, "no memory for headers of %" PRIu32 " ranks", s->oob->world_size);
    }
    return oob_exchange(s->oob, status, &mine, s->cards, sizeof(mine), err);
}

static bool all_see_the_same(const struct sharing *s)
{
    bool same = true;
    for (uint32_t r = 1; r < s->oob->world_size; r++) {
        same = same && hash128_is(s->cards[r].manifest, s->cards[0].manifest);
    }
    return same;
}

static uint64_t most_bytes(const struct sharing *s)
{
    uint64_t most = 0;
    for (uint32_t r = 0; r < s->oob->world_size; r++) {
        most = s->cards[r].bytes > most ? s->cards[r].bytes : most;
    }
    return most;
}

static size_t round_bytes(const struct sharing *s)
{
    size_t bytes = ALL_BYTES / s->oob->world_size;
    bytes = bytes < ROUND_LEAST ? ROUND_LEAST : bytes;
    return bytes < ROUND_MOST ? bytes : ROUND_MOST;
}

static tck_status_t make_room(struct sharing *s, struct error *err)
{
    for (uint32_t r = 0; r < s->oob->world_size; r++) {
        s->parts[r] = malloc(s->cards[r].bytes + 1);
        if (s->parts[r] == NULL) {
            return error_set(err, TCK_ERR_NOMEM, "no memory for headers of %" PRIu64 " bytes", s->cards[r].bytes);
        }
    }
    return TCK_OK;
}

/* The bytes of a part that are in this round. */
static size_t in_round(uint64_t bytes, uint64_t at, size_t round)
{
    uint64_t left = bytes > at ? bytes - at : 0;
    return left < round ? (size_t)left : round;
}

static void copy_round(uint8_t *to, uint64_t to_at, const uint8_t *from, uint64_t from_at, size_t bytes)
{
    if (to != NULL && from != NULL && bytes > 0) {
        memcpy(to + to_at, from + from_at, bytes);
    }
}

/* In rounds, so that the ranks' longest parts need no memory for all ranks at a time. */
static tck_status_t exchange_parts(struct sharing *s, struct error *err)
{
    size_t round = round_bytes(s);
    uint64_t most = most_bytes(s);
    uint8_t *mine = calloc(1, round), *all = malloc(s->oob->world_size * round);
    tck_status_t status = make_room(s, err);
    if (status == TCK_OK && (mine == NULL || all == NULL)) {
        status = error_set(err, TCK_ERR_NOMEM, "no memory to exchange headers");
    }
    for (uint64_t at = 0; at < most; at += round) {
        copy_round(mine, 0, s->mine.data, at, in_round(s->mine.len, at, round));
        status = oob_exchange(s->oob, status, mine, all, round, err);
        for (uint32_t r = 0; r < s->oob->world_size && status == TCK_OK; r++) {
            copy_round(s->parts[r], at, all, r * round, in_round(s->cards[r].bytes, at, round));
        }
        if (status != TCK_OK) {
            break;
        }
    }
    free(mine);
    free(all);
    return status;
}

static tck_status_t check_part(const struct sharing *s, uint32_t rank, struct error *err)
{
    const struct part_card *card = &s->cards[rank];
    return hash128_is(hash128_of(s->parts[rank], card->bytes), card->sum)
               ? TCK_OK
               : error_set(err, TCK_ERR_PROTO, "the headers that rank %" PRIu32 " has read arrived damaged", rank);
}

static tck_status_t take_parts(struct sharing *s, struct error *err)
{
    tck_status_t status = TCK_OK;
    for (uint32_t r = 0; r < s->oob->world_size && status == TCK_OK; r++) {
        status = check_part(s, r, err);
        if (status == TCK_OK) {
            status = headers_unpack(&s->headers, part_of(s, r), s->parts[r], s->cards[r].bytes, err);
        }
    }
    return status == TCK_OK ? table_of(&s->published->table, &s->published->chunks, &s->headers, err) : status;
}

static tck_status_t read_alone(struct sharing *s, struct error *err)
{
    return table_read(&s->published->table, &s->published->chunks, err);
}

static void sharing_free(struct sharing *s)
{
    for (uint32_t r = 0; s->parts != NULL && r < s->oob->world_size; r++) {
        free(s->parts[r]);
    }
    free(s->parts);
    free(s->cards);
    writer_free(&s->mine);
    headers_free(&s->headers);
}

static tck_status_t share_headers(struct sharing *s, struct error *err)
{
    tck_status_t status = name_version(s, read_own_part(s, err), err);
    status = exchange_cards(s, status, false, err);
    if (status == TCK_OK && !all_see_the_same(s)) {
        log_warn("the ranks do not see the same files of this version: each reads all headers itself");
        return name_version(s, read_alone(s, err), err);
    }
    if (status == TCK_OK) {
        status = exchange_parts(s, err);
    }
    return status == TCK_OK ? name_version(s, take_parts(s, err), err) : status;
}

/* ---- .index ---------------------------------------------------------------------------------------------------- */

/* A rank's part is every chunk whose number is its own modulo the ranks. */
static tck_status_t read_own_chunks(struct sharing *s, struct error *err)
{
    struct chunks *chunks = &s->published->chunks;
    uint64_t bytes = chunks->from.manifest->index.bytes;
    uint8_t *chunk = malloc(CHUNK_BYTES);
    tck_status_t status =
        chunk == NULL ? error_set(err, TCK_ERR_NOMEM, "no memory to read " VERSION_INDEX_NAME) : TCK_OK;
    for (uint64_t i = s->oob->rank; i < chunk_count(bytes) && status == TCK_OK; i += s->oob->world_size) {
        uint32_t len = chunk_size(bytes, (uint32_t)i);
        status = chunks_read(chunks, chunks_index(chunks), i * CHUNK_BYTES, len, chunk, err);
        if (status == TCK_OK) {
            write_bytes(&s->mine, chunk, len);
        }
    }
    free(chunk);
    return status == TCK_OK && s->mine.failed ? error_set(err, TCK_ERR_NOMEM, "no memory for " VERSION_INDEX_NAME)
                                              : status;
}

/* Puts the chunks that a rank has read into their places. */
static tck_status_t place_chunks(const struct sharing *s, uint32_t rank, uint8_t *index, struct error *err)
{
    uint64_t bytes = s->published->found.manifest.index.bytes, at = 0;
    tck_status_t status = check_part(s, rank, err);
    for (uint64_t i = rank; i < chunk_count(bytes) && status == TCK_OK; i += s->oob->world_size) {
        uint32_t len = chunk_size(bytes, (uint32_t)i);
        if (len > s->cards[rank].bytes - at) {
            status = error_set(err, TCK_ERR_PROTO, "rank %" PRIu32 " has read another " VERSION_INDEX_NAME, rank);
        } else {
            memcpy(index + i * CHUNK_BYTES, s->parts[rank] + at, len);
            at += len;
        }
    }
    return status;
}

static tck_status_t take_chunks(struct sharing *s, struct error *err)
{
    struct tck_published *published = s->published;
    const struct manifest *manifest = &published->found.manifest;
    uint8_t *index = malloc(manifest->index.bytes + 1);
    tck_status_t status = index == NULL ? error_set(err, TCK_ERR_NOMEM, "no memory for " VERSION_INDEX_NAME)
                                        : headers_new(manifest->file_count, &s->headers, err);
    for (uint32_t r = 0; r < s->oob->world_size && status == TCK_OK; r++) {
        status = place_chunks(s, r, index, err);
    }
    if (status == TCK_OK) {
        status = headers_of_index(&s->headers, manifest, index, manifest->index.bytes, err);
    }
    free(index);
    return status == TCK_OK ? table_of(&published->table, &published->chunks, &s->headers, err) : status;
}

static bool all_have_parts(const struct sharing *s)
{
    bool all = all_see_the_same(s);
    for (uint32_t r = 0; r < s->oob->world_size; r++) {
        all = all && s->cards[r].has_no_part == 0;
    }
    return all;
}

/* *made_out: all ranks have made the table. Without that, whatever the reason, they need the headers of the files. */
static tck_status_t share_index(struct sharing *s, tck_status_t status, bool *made_out, struct error *err)
{
    struct error why = {0};
    bool there = status == TCK_OK && s->published->found.manifest.index.bytes > 0;
    if (there) {
        why.code = read_own_chunks(s, &why);
    }
    status = exchange_cards(s, status, !there || why.code != TCK_OK, err);
    if (status == TCK_OK && all_have_parts(s)) {
        status = exchange_parts(s, err);
        if (status == TCK_OK) {
            why.code = take_chunks(s, &why);
            struct error of_any = why;
            *made_out = oob_agree(s->oob, why.code, &of_any) == TCK_OK;
        }
    }
    if (there && why.code != TCK_OK) {
        headers_without_index(&s->published->chunks, &why);
    }
    if (!*made_out && s->published != NULL) {
        table_free(&s->published->table);
    }
    return status;
}

tck_status_t shared_headers_read(const struct oob *oob, tck_status_t status, struct tck_published *published,
                                 struct error *err)
{
    bool made = false;
    struct sharing index = {.oob = oob, .published = published, .mine = writer_new(0)};
    status = share_index(&index, status, &made, err);
    sharing_free(&index);
    if (status == TCK_OK && !made) {
        struct sharing s = {.oob = oob, .published = published, .mine = writer_new(0)};
        status = share_headers(&s, err);
        sharing_free(&s);
    }
    return oob_agree(oob, status, err);
}

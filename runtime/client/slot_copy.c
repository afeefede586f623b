/* SPDX-License-Identifier: Apache-2.0
 * Copy lists and the threads that carry them out. All threads of a run take batches from one counter until none is
 * left; the caller is one of them and returns when the last has finished. So is a thread that waits for the run. */
#include "client/slot_copy.h"

#include "base/digest.h"
#include "base/thread.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* ---- lists --------------------------------------------------------------------------------------------------- */

static uint64_t pieces_of(uint64_t bytes)
{
    return (bytes + COPY_BATCH_BYTES - 1) / COPY_BATCH_BYTES;
}

/* The others are copied by their devices, or not by this list. */
static bool is_ours(const struct record *record, const uint8_t *addr)
{
    return record->memory == TCK_HOST && addr != NULL;
}

static void add_pieces(struct copy_list *list, const struct record *record, uint8_t *addr)
{
    for (uint64_t at = 0; at < record->bytes; at += COPY_BATCH_BYTES) {
        uint64_t left = record->bytes - at;
        struct piece *piece = &list->pieces[list->piece_count++];

        *piece = (struct piece){.offset = record->image_offset + at,
                                .addr = addr + at,
                                .bytes = left < COPY_BATCH_BYTES ? left : COPY_BATCH_BYTES};
    }
    list->bytes += record->bytes;
}

static void cut_batches(struct copy_list *list)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < list->piece_count; i++) {
        bytes += list->pieces[i].bytes;
        if (i == 0 || bytes > COPY_BATCH_BYTES) {
            list->batches[list->batch_count++] = (struct batch){.first = i};
            bytes = list->pieces[i].bytes;
        }
        list->batches[list->batch_count - 1].count++;
    }
}

tck_status_t copy_list_build(const struct layout *layout, const struct shard *shard, uint8_t *const *addrs,
                             struct copy_list *out, struct error *err)
{
    struct copy_list list = {0};
    uint64_t count = 1; /* an empty list has arrays too */

    for (uint32_t i = 0; i < shard->record_count; i++) {
        const struct record *record = &layout->records[shard->records[i]];

        count += is_ours(record, addrs[shard->records[i]]) ? pieces_of(record->bytes) : 0;
    }
    if (count <= UINT32_MAX) {
        list.pieces = calloc(count, sizeof(*list.pieces));
        list.batches = calloc(count, sizeof(*list.batches));
    }
    if (list.pieces == NULL || list.batches == NULL) {
        copy_list_free(&list);
        return error_set(err, TCK_ERR_NOMEM, "no memory for a copy list of %u records", shard->record_count);
    }
    for (uint32_t i = 0; i < shard->record_count; i++) {
        const struct record *record = &layout->records[shard->records[i]];
        uint8_t *addr = addrs[shard->records[i]];

        if (is_ours(record, addr)) {
            add_pieces(&list, record, addr);
        }
    }
    cut_batches(&list);
    *out = list;
    return TCK_OK;
}

static int compare_offsets(const void *a, const void *b)
{
    const struct piece *x = a, *y = b;

    return x->offset < y->offset ? -1 : x->offset > y->offset;
}

void copy_list_move(struct copy_list *list, const struct record *record, uint8_t *addr)
{
    struct piece key = {.offset = record->image_offset};
    struct piece *piece = bsearch(&key, list->pieces, list->piece_count, sizeof(key), compare_offsets);

    for (uint64_t at = 0; at < record->bytes && piece != NULL; at += COPY_BATCH_BYTES) {
        piece->addr = addr + at;
        piece++;
    }
}

void copy_list_free(struct copy_list *list)
{
    free(list->pieces);
    free(list->batches);
    *list = (struct copy_list){0};
}

/* ---- runs ---------------------------------------------------------------------------------------------------- */

enum work { TO_SLOT, FROM_SLOT, CHECKED_FROM_SLOT, DIGEST };

/* One list being copied, or one image being digested; lives on the caller's stack. */
struct run {
    enum work work;
    const struct copy_list *list; /* DIGEST: none */
    uint8_t *image;               /* only read if the work is not TO_SLOT */
    uint64_t image_bytes;         /* DIGEST, CHECKED_FROM_SLOT */
    uint32_t *crcs;               /* DIGEST: of each chunk, computed; */
    const uint32_t *expected;     /* CHECKED_FROM_SLOT: or given */
    _Atomic uint32_t bad_chunk;   /* CHECKED_FROM_SLOT: one that has another CRC; NONE32: none */
    uint32_t batch_count;         /* of the list; or chunks */
    uint32_t helpers_max;         /* that may take part */
    _Atomic uint32_t next_batch;
};

struct copier {
    struct host_copy *host;              /* owned */
    uint32_t helper_count, save_helpers; /* those for a save among them */
    pthread_t *helpers;
    pthread_mutex_t lock; /* of all below */
    pthread_cond_t begun, ended;
    pthread_cond_t news; /* a run has begun, or a stage was noted */
    enum copy_stage stage;
    struct run *run;  /* NULL: none */
    uint64_t run_seq; /* so that a helper joins each run once */
    uint32_t joined;  /* helpers that have come to the run */
    uint32_t busy;    /* those still in it */
    bool stop;
};

static void copy_batch(const struct copier *copier, const struct run *run, uint32_t i)
{
    const struct batch *batch = &run->list->batches[i];
    const struct piece *pieces = &run->list->pieces[batch->first];

    if (run->work == TO_SLOT) {
        host_copy_to_slot(copier->host, pieces, batch->count, run->image);
    } else {
        host_copy_from_slot(copier->host, pieces, batch->count, run->image);
    }
}

static void digest_chunk(const struct run *run, uint32_t i)
{
    run->crcs[i] = chunk_crc(run->image, run->image_bytes, i);
}

/* The first piece that ends behind this place in the image. */
static uint32_t piece_at(const struct copy_list *list, uint64_t place)
{
    uint32_t low = 0, high = list->piece_count;

    while (low < high) {
        uint32_t middle = low + (high - low) / 2;

        if (list->pieces[middle].offset + list->pieces[middle].bytes > place) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return low;
}

static void copy_chunk(const struct copier *copier, struct run *run, uint32_t i)
{
    uint64_t begin = (uint64_t)i * CHUNK_BYTES, end = begin + chunk_size(run->image_bytes, i);
    uint32_t first = piece_at(run->list, begin);
    uint32_t crc = host_copy_checked(copier->host, &run->list->pieces[first], run->list->piece_count - first,
                                     run->image, begin, end);

    if (crc != run->expected[i]) {
        atomic_store(&run->bad_chunk, i);
        atomic_store(&run->next_batch, run->batch_count); /* what is left need not be copied */
    }
}

static void take_part(const struct copier *copier, struct run *run)
{
    for (;;) {
        uint32_t i = atomic_fetch_add_explicit(&run->next_batch, 1, memory_order_relaxed);

        if (i >= run->batch_count) {
            return;
        }
        if (run->work == DIGEST) {
            digest_chunk(run, i);
        } else if (run->work == CHECKED_FROM_SLOT) {
            copy_chunk(copier, run, i);
        } else {
            copy_batch(copier, run, i);
        }
    }
}

/* Takes part in the run under way. With the lock held, which is released meanwhile. */
static void join_run(struct copier *copier, uint64_t *seen)
{
    struct run *run = copier->run;

    *seen = copier->run_seq;
    copier->busy++;
    pthread_mutex_unlock(&copier->lock);
    take_part(copier, run);
    pthread_mutex_lock(&copier->lock);
    copier->busy--;
    pthread_cond_signal(&copier->ended);
}

static void *helper_main(void *arg)
{
    struct copier *copier = arg;
    uint64_t seen = 0;

    pthread_mutex_lock(&copier->lock);
    while (!copier->stop) {
        if (copier->run == NULL || copier->run_seq == seen || copier->joined == copier->run->helpers_max) {
            pthread_cond_wait(&copier->begun, &copier->lock);
            continue;
        }
        copier->joined++;
        join_run(copier, &seen);
    }
    pthread_mutex_unlock(&copier->lock);
    return NULL;
}

void copier_note(struct copier *copier, enum copy_stage stage)
{
    pthread_mutex_lock(&copier->lock);
    copier->stage = stage;
    pthread_cond_broadcast(&copier->news);
    pthread_mutex_unlock(&copier->lock);
}

void copier_help(struct copier *copier, enum copy_stage until)
{
    uint64_t seen = 0;

    pthread_mutex_lock(&copier->lock);
    while (copier->stage < until) {
        if (copier->run == NULL || copier->run_seq == seen) {
            pthread_cond_wait(&copier->news, &copier->lock);
        } else {
            join_run(copier, &seen);
        }
    }
    pthread_mutex_unlock(&copier->lock);
}

static void begin(struct copier *copier, struct run *run)
{
    pthread_mutex_lock(&copier->lock);
    copier->run = run;
    copier->run_seq++;
    copier->joined = 0;
    if (run->helpers_max > 0) {
        pthread_cond_broadcast(&copier->begun);
    }
    pthread_cond_broadcast(&copier->news);
    pthread_mutex_unlock(&copier->lock);
}

/* Ends the run: late helpers do not find it, and those in it have left. */
static void end(struct copier *copier)
{
    pthread_mutex_lock(&copier->lock);
    copier->run = NULL;
    while (copier->busy > 0) {
        pthread_cond_wait(&copier->ended, &copier->lock);
    }
    pthread_mutex_unlock(&copier->lock);
}

static void carry_out(struct copier *copier, struct run *run)
{
    bool waited_for = run->work == TO_SLOT; /* by a thread that may help */
    bool alone = run->batch_count < 2 || (run->helpers_max == 0 && !waited_for);

    if (!alone) {
        begin(copier, run);
    }
    take_part(copier, run);
    if (!alone) {
        end(copier);
    }
}

void copy_to_slot(struct copier *copier, const struct copy_list *list, uint8_t *image)
{
    struct run run = {.work = TO_SLOT,
                      .list = list,
                      .image = image,
                      .batch_count = list->batch_count,
                      .helpers_max = copier->save_helpers};

    carry_out(copier, &run);
}

void copy_from_slot(struct copier *copier, const struct copy_list *list, const uint8_t *image)
{
    struct run run = {.work = FROM_SLOT,
                      .list = list,
                      .image = (uint8_t *)(uintptr_t)image,
                      .batch_count = list->batch_count,
                      .helpers_max = copier->helper_count};

    carry_out(copier, &run);
}

tck_status_t copy_from_slot_checked(struct copier *copier, const struct copy_list *list, const uint8_t *image,
                                    uint64_t bytes, const uint32_t *crcs, struct error *err)
{
    struct run run = {.work = CHECKED_FROM_SLOT,
                      .list = list,
                      .image = (uint8_t *)(uintptr_t)image,
                      .image_bytes = bytes,
                      .expected = crcs,
                      .bad_chunk = NONE32,
                      .batch_count = chunk_count(bytes),
                      .helpers_max = copier->helper_count};

    carry_out(copier, &run);
    if (atomic_load(&run.bad_chunk) != NONE32) {
        return error_set(err, TCK_ERR_CORRUPT, "chunk %u of %u does not match its CRC", atomic_load(&run.bad_chunk),
                         run.batch_count);
    }
    return TCK_OK;
}

tck_status_t copy_digest(struct copier *copier, const uint8_t *image, uint64_t bytes, struct hash128 *out,
                         struct error *err)
{
    struct run run = {.work = DIGEST,
                      .image = (uint8_t *)(uintptr_t)image,
                      .image_bytes = bytes,
                      .crcs = malloc((chunk_count(bytes) + (size_t)1) * sizeof(*run.crcs)),
                      .batch_count = chunk_count(bytes),
                      .helpers_max = copier->helper_count};

    if (run.crcs == NULL) {
        return error_set(err, TCK_ERR_NOMEM, "no memory for the digests of a shard");
    }
    carry_out(copier, &run);
    *out = digest_root(run.crcs, bytes);
    free(run.crcs);
    return TCK_OK;
}

/* ---- threads ------------------------------------------------------------------------------------------------- */

static tck_status_t start_helpers(struct copier *copier, uint32_t count, struct error *err)
{
    copier->helpers = calloc(count + (size_t)1, sizeof(*copier->helpers));
    if (copier->helpers == NULL) {
        return error_set(err, TCK_ERR_NOMEM, "no memory for %u copy threads", count);
    }
    while (copier->helper_count < count) {
        int rc = thread_start(&copier->helpers[copier->helper_count], helper_main, copier);

        if (rc != 0) {
            errno = rc;
            return error_set(err, status_of_errno(rc), "start copy thread %u: %m", copier->helper_count);
        }
        copier->helper_count++;
    }
    return TCK_OK;
}

tck_status_t copier_new(struct copy_threads threads, struct copier **out, struct error *err)
{
    uint32_t most = threads.save > threads.restore ? threads.save : threads.restore;
    struct copier *copier = calloc(1, sizeof(*copier));
    tck_status_t status;

    if (copier == NULL) {
        return error_set(err, TCK_ERR_NOMEM, "no memory for the copy engine");
    }
    status = host_copy_new(&copier->host, err);
    if (status != TCK_OK) {
        free(copier);
        return status;
    }
    copier->save_helpers = threads.save > 0 ? threads.save - 1 : 0;
    pthread_mutex_init(&copier->lock, NULL);
    pthread_cond_init(&copier->begun, NULL);
    pthread_cond_init(&copier->ended, NULL);
    pthread_cond_init(&copier->news, NULL);
    copier->stage = COPYING_OVER;
    status = start_helpers(copier, most > 0 ? most - 1 : 0, err);
    if (status != TCK_OK) {
        copier_free(copier);
        return status;
    }
    *out = copier;
    return TCK_OK;
}

void copier_free(struct copier *copier)
{
    if (copier == NULL) {
        return;
    }
    pthread_mutex_lock(&copier->lock);
    copier->stop = true;
    pthread_cond_broadcast(&copier->begun);
    pthread_mutex_unlock(&copier->lock);
    for (uint32_t i = 0; i < copier->helper_count; i++) {
        pthread_join(copier->helpers[i], NULL);
    }
    pthread_cond_destroy(&copier->news);
    pthread_cond_destroy(&copier->ended);
    pthread_cond_destroy(&copier->begun);
    pthread_mutex_destroy(&copier->lock);
    host_copy_free(copier->host);
    free(copier->helpers);
    free(copier);
}

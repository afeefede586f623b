/* SPDX-License-Identifier: Apache-2.0
 * The copy engine: lists of pieces made once at registration, carried out in batches by the calling thread and, if
 * configured, a few more. No allocation and no look-up while copying. */
#ifndef TCK_CLIENT_COPY_H
#define TCK_CLIENT_COPY_H

#include "base/layout.h"
#include "client/host_copy.h"

#define COPY_BATCH_BYTES (8u << 20) /* a copy can be given up after each batch */

struct batch {
    uint32_t first, count; /* pieces */
};

/* The pieces of one shard by image offset, none longer than a batch. */
struct copy_list {
    struct piece *pieces;
    struct batch *batches;
    uint32_t piece_count, batch_count;
    uint64_t bytes;
};

/* Lists the records in host memory; addrs: the address of each record of the layout, NULL: it is left out. Freed with
 * copy_list_free. */
must_check tck_status_t copy_list_build(const struct layout *layout, const struct shard *shard, uint8_t *const *addrs,
                                        struct copy_list *out, struct error *err);
/* Updates the list after the record of this shard has moved. */
void copy_list_move(struct copy_list *list, const struct record *record, uint8_t *addr);
void copy_list_free(struct copy_list *list);

/* The threads of one copy engine. */
struct copier;

/* Numbers of threads, the calling one included: for copy_to_slot, during which training goes on, and for the others,
 * for which it waits. */
struct copy_threads {
    uint32_t save, restore;
};

/* Threads sleep until they are needed. */
must_check tck_status_t copier_new(struct copy_threads threads, struct copier **out, struct error *err);
void copier_free(struct copier *copier);

/* How far the copying of a snapshot is. */
enum copy_stage {
    COPYING_BEGUN,
    COPYING_EAGER_OVER, /* nothing is read any more that may change after the save call, */
    COPYING_OVER,       /* nor after the fence, in host memory; or there is no snapshot */
};

void copier_note(struct copier *copier, enum copy_stage stage);
/* Waits until this stage or a later one is noted, and takes part in copies to slots meanwhile. */
void copier_help(struct copier *copier, enum copy_stage until);

/* Copies the whole list. */
void copy_to_slot(struct copier *copier, const struct copy_list *list, uint8_t *image);
void copy_from_slot(struct copier *copier, const struct copy_list *list, const uint8_t *image);
/* The same, and checks the image against the CRCs of its chunks, while it is read once: TCK_ERR_CORRUPT if a chunk has
 * another one. Then the copy was stopped, and any of the records may have been written, also with the wrong bytes. */
must_check tck_status_t copy_from_slot_checked(struct copier *copier, const struct copy_list *list,
                                               const uint8_t *image, uint64_t bytes, const uint32_t *crcs,
                                               struct error *err);
/* Computes the image's root, as digest_image does, with all threads. */
must_check tck_status_t copy_digest(struct copier *copier, const uint8_t *image, uint64_t bytes, struct hash128 *out,
                                    struct error *err);

#endif

/* SPDX-License-Identifier: Apache-2.0
 * The unit that all tiers move: one version of one shard in a slot, on its way to or from a peer's memory (peer.h) or
 * storage (persistent.h). Their put and get calls are made in the loop's thread and return at once; done runs later in
 * the same thread, exactly once, unless the call itself returned an error. A put is done only when the other side has
 * verified the bytes (peer) or they are synced to the device (storage), a get only when every chunk was checked. Until
 * then the item and its buffers remain the caller's, who must neither change nor reuse them. */
#ifndef TCK_TIERS_TIER_H
#define TCK_TIERS_TIER_H

#include "base/digest.h"
#include "base/loop.h"
#include "base/pool.h"
#include "base/progress.h"

/* An older version of the same shard that the receiver of a put should have already. What is the same in both is copied
 * from that one there, if it has it with this root, and else sent like the rest. */
struct tier_base {
    struct version version;
    struct hash128 root;
    const uint8_t *same; /* one bit per chunk: whether its bytes are equal in both versions (base/same_chunks.h) */
    uint64_t not_sent;   /* filled in when done: the bytes that the receiver has copied from it, */
    uint64_t more;       /* and those that tier_pace.more was called for */
};

/* Follows a get while it runs, so that what has arrived can be passed on. All in the loop's thread. */
struct tier_watch {
    /* From a peer: crcs is filled in, and matches root. From storage, they are in the manifest. */
    void (*digests)(void *ctx, struct hash128 root);
    /* Chunk `i` is in place, with its CRC in crcs: from a peer it has been checked, from storage it has yet to be
     * compared with the manifest. */
    void (*chunk)(void *ctx, uint32_t i);
    void *ctx;
};

/* One version of one shard, in a slot. */
struct tier_item {
    struct version version;
    struct hash128 shard;
    uint64_t image_bytes;
    uint8_t *image;            /* get: filled; put: read */
    uint32_t *crcs;            /* chunk_count(image_bytes) entries; get: filled, put: read */
    struct hash128 root;       /* put: of crcs; get: the expected one (all zero if unknown), filled in when done */
    struct progress *progress; /* of calls to storage, and bytes; the caller's until done. NULL: not tracked */
    uint64_t *sent;            /* put to a peer: sent bytes are added, landed or not; NULL: not counted */
    uint64_t *shared;          /* put into a directory: bytes that the file shares with an older one instead of being
                                  written, filled in when done; NULL: not counted */
    struct tier_base *base;    /* put to a peer: the caller's until done; NULL: none */
    const uint8_t *base_image; /* of an offered copy: where its base is here; NULL: all of it has to be sent */
    const struct tier_watch *watch; /* get: the caller's until done; NULL: none */
    const uint8_t *here; /* of a pulled copy that still arrives: a bit per chunk that can be sent; NULL: all can */
};

/* Throttles puts, so that they disturb the training as little as possible. All in the loop's thread. */
struct tier_pace {
    /* Whether so many bytes may be sent now; if so, they count as sent. Else the tier asks again in
     * peers_resume or persistent_resume. NULL: nothing is throttled. */
    bool (*take)(void *ctx, uint64_t bytes);
    /* So many bytes of a put that has begun have to be sent although they are the same in its base: the receiver does
     * not have it, or has it damaged. NULL: they are not counted. */
    void (*more)(void *ctx, uint64_t bytes);
    /* So many bytes of a put to storage that has begun need not be written. NULL: they are not counted. */
    void (*less)(void *ctx, uint64_t bytes);
    void *ctx;
};

typedef void tier_done_fn(void *ctx, const struct error *outcome); /* outcome->code TCK_OK: done, verified */

#endif

/* SPDX-License-Identifier: Apache-2.0
 * This rank's shards in the agent's memory: the mapped slots. They belong to the holder of session.lock. */
#ifndef TCK_CLIENT_SLOTS_H
#define TCK_CLIENT_SLOTS_H

#include "base/layout.h"
#include "base/page.h"
#include "base/seal.h"
#include "client/session.h"

/* Pins mapped slots for devices. */
struct slot_pins {
    void *ctx;
    bool (*pin)(void *ctx, void *base, size_t bytes, uint32_t page_bytes); /* false: it cannot be */
    void (*unpin)(void *ctx, void *base);
};

/* The slots of one shard. */
struct shard_slots {
    struct msg_segment segment;
    uint8_t *base; /* NULL: not mapped */
    size_t bytes;
    bool pinnable; /* devices copy to and from it */
    bool pinned;
    bool root_made; /* on devices, of the snapshot under way: */
    struct hash128 root;
    struct seal *seals; /* one per slot, NULL: not mapped */
    struct page_window seals_window;
    dev_t dev; /* which memory it is, */
    ino_t ino; /* the same after the agent restarted */
};

struct slots {
    uint32_t count;
    struct shard_slots *shards; /* in the order of the layout's shards */
    struct slot_pins pins;      /* set before slots_adopt */
};

/* Takes over the agent's answer to REGISTER (segments is freed) and maps the slots of all shards that this rank
 * stores. Memory that is mapped already stays where it is. Also on failure the slots are to be closed by
 * slots_close. */
must_check tck_status_t slots_adopt(struct slots *slots, struct session *session, const struct layout *layout,
                                    struct msg_segments *segments, struct error *err);
/* Maps the slots of a shard that another rank of this node stores, for reading; not its seals. */
must_check tck_status_t slots_map(struct slots *slots, uint32_t shard, struct session *session, struct error *err);
void slots_unmap(struct slots *slots, uint32_t shard);
void slots_close(struct slots *slots);

static inline uint8_t *slot_image(const struct shard_slots *shard, uint32_t slot)
{
    return shard->base + slot * shard->segment.slot_stride;
}

/* Writes the constant part of an image: the header, and heads and zeros between the records. */
void slot_prepare(const struct shard_slots *slots, uint32_t slot, const struct layout *layout,
                  const struct shard *shard);
/* Writes the heads again: copies from devices put zeros between the records that they copy together. */
void image_put_heads(uint8_t *image, const struct layout *layout, const struct shard *shard);

#endif

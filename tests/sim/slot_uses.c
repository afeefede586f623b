/* SPDX-License-Identifier: Apache-2.0
 * Tracks the users of slots' bytes: trainers that copy, chunks in flight between agents, reads from storage. Until they
 * have ended, a slot must not be given to any other user. */
#include "sim.h"

#include <stdlib.h>

struct slot_use {
    struct slot_use *next;
    const void *who;
    const uint8_t *at;
    const char *what;
    const struct host *agent; /* NULL: the use does not end with an agent */
    uint32_t life;
};

static struct slot_use *uses;
static const char restores[] = "a trainer still restores from it";

void slot_use_begin(const void *who, const void *at, const char *what, const struct host *agent)
{
    if (sim.measure) {
        return; /* the world is too large for this check */
    }
    struct slot_use *use = malloc(sizeof(*use));
    if (use == NULL) {
        abort();
    }
    *use = (struct slot_use){uses, who, at, what, agent, agent != NULL ? agent->life : 0};
    uses = use;
}

static void remove_use(struct slot_use **at)
{
    struct slot_use *use = *at;
    *at = use->next;
    free(use);
}

void slot_use_end(const void *who)
{
    struct slot_use **at = &uses;
    while (*at != NULL) {
        if ((*at)->who == who) {
            remove_use(at);
        } else {
            at = &(*at)->next;
        }
    }
}

/* Readers find wrong bytes, whatever happens to the slot. */
void slot_use_damaged(const void *image)
{
    struct slot_use **at = &uses;
    while (*at != NULL) {
        if ((*at)->at == image && (*at)->what == restores) {
            remove_use(at);
        } else {
            at = &(*at)->next;
        }
    }
}

void slot_use_restore(const void *who, const void *at)
{
    slot_use_begin(who, at, restores, NULL);
}

static void check_unused(const uint8_t *image, uint64_t bytes, const char *done)
{
    struct slot_use **at = &uses;
    while (*at != NULL) {
        const struct slot_use *use = *at;
        if (use->agent != NULL && use->agent->life != use->life) { /* the use ended with its agent */
            remove_use(at);
            continue;
        }
        if (use->at >= image && use->at < image + bytes) {
            sim_violation("%s %s, although %s", sim.current->name, done, use->what);
        }
        at = &(*at)->next;
    }
}

void slot_use_removed(const uint8_t *at, uint64_t bytes)
{
    check_unused(at, bytes, "removes the pages of a slot");
}

void __real_segment_write_header(struct segment *segment, uint32_t slot, const struct slot_header *header);
void __wrap_segment_write_header(struct segment *segment, uint32_t slot, const struct slot_header *header);

void __wrap_segment_write_header(struct segment *segment, uint32_t slot, const struct slot_header *header)
{
    const struct slot_header *before = segment_header(segment, slot);
    bool filled = header->state == SLOT_FILLING || header->state == SLOT_RECEIVING;
    judge_header(before, header);
    pressure_header(before, header);
    if (filled && (before->state != header->state || !version_is(before->version, header->version))) {
        check_unused(segment_image(segment, slot), segment_info(segment).image_bytes, "gives a slot away");
        if (!pressure_has_pages(segment_image(segment, slot), segment_info(segment).slot_stride)) {
            sim_violation("%s fills slot %u of a segment, which has no pages", sim.current->name, slot);
        }
    }
    __real_segment_write_header(segment, slot, header);
    struct hash128 shard = segment_info(segment).shard;
    judge_memory_changed(sim.current, &shard);
}

/* SPDX-License-Identifier: Apache-2.0
 * What has happened since this agent started, counted where it happens by the composition (actions.c, peer_messages.c,
 * open_parts.c). Parts count what only they see themselves; report.c puts all of it together. */
#ifndef TCK_AGENT_TALLY_H
#define TCK_AGENT_TALLY_H

#include "base/stall.h"
#include "base/world.h"
#include "core/protocol.h"

#define TALLY_STAGES              (STAGE_FAILED + 1)
#define TALLY_REFUSAL(name, text) TALLY_REFUSAL_##name,
enum { TALLY_REFUSAL_NONE, REFUSAL_MAP(TALLY_REFUSAL) TALLY_REFUSALS };
#undef TALLY_REFUSAL

struct tally {
    uint64_t saves_begun;                   /* by trainers of this node */
    uint64_t saves_refused[TALLY_REFUSALS]; /* by enum refusal; entry 0 is not used */
    uint64_t versions[TALLY_STAGES];        /* that have come to this stage on this node */
    uint64_t stage_wall_ms[TALLY_STAGES];   /* when the last one did; 0: none did */
    uint64_t digested_bytes;                /* of shards that trainers have saved */
    uint64_t copied_bytes;                  /* sent to the nodes that hold copies, and acknowledged */
    uint64_t unchanged_out_bytes;           /* of these copies that were not sent: the nodes had them in their bases */
    uint64_t received_bytes;                /* of copies that this node holds for others */
    uint64_t unchanged_in_bytes;            /* of these that were not sent: this node had them in the copies' bases */
    uint64_t pulled_bytes;                  /* sent to nodes that have asked for a copy */
    struct version draining;                /* VERSION_NONE: nothing is */
    uint64_t drain_attempt;
    uint64_t draining_since_ms; /* clock_ms */
    struct stalls stalls;       /* of trainers of this node that have disconnected */
    /* The shortest times of this term, as others may have been throttled (agent/pace). */
    uint64_t drain_ms;        /* from the decision until the version was published; 0: none was */
    struct version saving;    /* the newest one that a trainer of this node has begun to save */
    uint64_t saving_since_ms; /* clock_ms */
    uint64_t commit_ms;       /* the shortest time from a save until it was committed; 0: none was */
    uint64_t restarts;        /* terms that followed one on this node, and had all of its agents */
    uint64_t node_losses;     /* terms that did not have one of these agents */
    uint64_t several_losses;  /* and that did not have several of them */
    uint64_t node_ms;         /* the time of all nodes in the terms before this one */
    uint64_t joined_ms;       /* clock_ms; when this one was joined; 0: none was */
};

static inline void tally_shortest(uint64_t *shortest_ms, uint64_t ms)
{
    *shortest_ms = *shortest_ms == 0 || ms < *shortest_ms ? ms : *shortest_ms;
}

static inline void tally_save_begun(struct tally *tally, struct version version, uint64_t now_ms)
{
    tally->saves_begun++;
    if (version_cmp(version, tally->saving) > 0) {
        tally->saving = version;
        tally->saving_since_ms = now_ms;
    }
}

static inline void tally_committed(struct tally *tally, struct version version, uint64_t now_ms)
{
    if (version_is(version, tally->saving)) {
        tally_shortest(&tally->commit_ms, now_ms - tally->saving_since_ms + 1); /* rounded up, as 0 means unknown */
    }
}

/* The time of all nodes since this agent first joined a term. */
static inline uint64_t tally_node_ms(const struct tally *tally, uint64_t nodes, uint64_t now_ms)
{
    return tally->node_ms + (tally->joined_ms != 0 ? nodes * (now_ms - tally->joined_ms) : 0);
}

/* A term is joined; before: the one that it follows, NULL: none. A start that follows the end of the job is no failure,
 * but it cannot be distinguished from one here. */
static inline void tally_joined(struct tally *tally, const struct world *before, const struct world *world,
                                uint64_t now_ms)
{
    uint64_t replaced = 0;
    tally->commit_ms = tally->drain_ms = 0;
    if (before == NULL || before->term >= world->term) {
        tally->joined_ms = now_ms;
        return;
    }
    for (uint32_t n = 0; n < before->node_count; n++) {
        replaced += world_find_agent(world, before->nodes[n].agent_id) < 0;
    }
    tally->node_ms = tally_node_ms(tally, before->node_count, now_ms);
    tally->joined_ms = now_ms;
    tally->restarts += replaced == 0;
    tally->node_losses += replaced == 1;
    tally->several_losses += replaced > 1;
}

/* Notes since when the drain of this decision is under way, and how long the one before it took. */
static inline void tally_decided(struct tally *tally, const struct decision *d, uint64_t now_ms)
{
    bool same = version_is(tally->draining, d->drain) && tally->drain_attempt == d->drain_attempt;
    if (!same && !version_none(tally->draining) && version_cmp(d->published, tally->draining) >= 0) {
        tally_shortest(&tally->drain_ms, now_ms - tally->draining_since_ms + 1); /* rounded up, as 0 means unknown */
    }
    if (!same) {
        tally->draining = d->drain;
        tally->drain_attempt = d->drain_attempt;
        tally->draining_since_ms = now_ms;
    }
}

#endif

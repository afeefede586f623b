/* SPDX-License-Identifier: Apache-2.0
 * Fetches one shard of one version into a slot of this node when the coordinator's recovery requests it: from this
 * node's memory, another agent's, or storage. */
#ifndef TCK_AGENT_FETCH_H
#define TCK_AGENT_FETCH_H

#include "agent/replication/check.h"
#include "agent/state/restore_timeout.h"
#include "agent/state/wire.h"

struct config;
struct peer;
struct peer_offer;
struct peers;
struct persistent;
struct storage_ops;
struct term_context;
struct tier_item;

struct fetches;

/* A shard that a fetch has brought. One that was here already, perhaps since an earlier request for it, comes from this
 * node's memory. */
struct arrival {
    uint32_t shard; /* number in the world */
    struct version version;
    enum source_kind source;
    const char *from; /* the other node; "": none */
    uint64_t bytes;
    bool repairs; /* it was fetched to repair a copy, without a request of the coordinator */
};

/* Dependencies. */
struct fetches_setup {
    const struct config *config;
    struct term_context *const *term; /* the current term */
    struct peers *peers;
    struct persistent *persistent;
    struct pool *io;
    struct storage_ops *storage_ops;
    struct check_setup check;
    const bool *leaving; /* the agent is exiting: no fetch is retried */
    /* A fetch has brought a shard; one that repairs a copy has ended. */
    void (*arrived)(void *ctx, struct term_context *tc, const struct arrival *what);
    void (*repaired)(void *ctx, bool ok);
    void *ctx;
};

/* Shards that this agent has fetched since it started, by enum source_kind. */
struct fetch_counts {
    uint64_t shards[SOURCE_KINDS], bytes[SOURCE_KINDS];
    uint64_t failed;
};

must_check tck_status_t fetches_new(const struct fetches_setup *setup, struct fetches **out, struct error *err);
void fetches_free(struct fetches *fs);

void fetch_handle_ask(struct fetches *fs, struct term_context *tc, const struct wire_fetch *ask);
/* A fetch that this node starts itself: its result is reported to `repaired`, not to the coordinator. */
void fetch_repair(struct fetches *fs, struct term_context *tc, const struct wire_fetch *ask);
/* Another agent (its id) pulls a copy that is being fetched here: fills in the item, with what has arrived so far; more
 * is passed on as it arrives. False: there is none that can be passed on. */
must_check bool fetch_lend(struct fetches *fs, const struct peer_offer *want, uint64_t to, struct tier_item *out);
/* That pull has ended; or one of a copy that was whole. */
void fetch_returned(struct fetches *fs, const struct tier_item *item);
/* All ranks have copied this version out of their slots and found no damage in it. */
void fetches_proven(const struct term_context *tc, struct version version);
struct fetch_tally fetch_tally(const struct fetches *fs, const struct term_context *tc, struct version version);
struct fetch_counts fetches_counts(const struct fetches *fs);
/* Bytes of this term's fetches, repairs included: how many have arrived of those that were asked for so far. */
void fetch_bytes(const struct fetches *fs, const struct term_context *tc, uint64_t *done_out, uint64_t *total_out);
/* True if no fetch is in progress. */
bool fetches_none(const struct fetches *fs);
/* True if one waits for a slot that was given back because memory is short. */
bool fetches_lack_memory(const struct fetches *fs);
/* A peer came up or went down: updates queued fetches that have it as their source. */
void fetch_peer_changed(struct fetches *fs, struct peer *peer);
void fetch_tick(struct fetches *fs);
/* Drops fetches that wait for a slot or a session, because their term is over. */
void fetch_reset(struct fetches *fs);

#endif

/* SPDX-License-Identifier: Apache-2.0
 * The agents for the tests of the peer tier. */
#include "peer_rig.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PATIENCE_MS 60000

struct loop *rig_loop;
static struct pool *pool;
static struct loop_timer *restore_timeout, *nap;
static bool napping;

static void on_patience(void *ctx)
{
    (void)ctx;
    cr_assert_fail("nothing happens");
}

static void on_nap(void *ctx)
{
    napping = false;
    loop_stop(ctx);
}

void rig_open(void)
{
    struct error err;
    link_environment("lo");
    link_environment_family(false);
    cr_assert_eq(loop_new(&rig_loop, &err), TCK_OK, "%s", err.text);
    cr_assert_eq(pool_new(rig_loop, 1, &pool, &err), TCK_OK, "%s", err.text);
    cr_assert_eq(loop_timer_add(rig_loop, on_patience, NULL, &restore_timeout), TCK_OK);
    cr_assert_eq(loop_timer_add(rig_loop, on_nap, rig_loop, &nap), TCK_OK);
}

void rig_close(void)
{
    loop_timer_remove(nap);
    loop_timer_remove(restore_timeout);
    pool_free(pool);
    loop_free(rig_loop);
}

void rig_run_until(const size_t *counter, size_t value)
{
    loop_timer_set(restore_timeout, PATIENCE_MS, false);
    while (*counter < value) {
        loop_run(rig_loop);
    }
    loop_timer_stop(restore_timeout);
}

void rig_run_ms(uint64_t ms)
{
    napping = true;
    loop_timer_set(nap, ms, false);
    while (napping) {
        loop_run(rig_loop);
    }
}

/* ---- an agent's callbacks ---- */

static size_t on_beat(void *ctx, struct peer *to, uint8_t *out, size_t cap)
{
    const struct agent *agent = ctx;
    (void)to;
    cr_assert_geq(cap, 4);
    memcpy(out, "beat", 4);
    return agent->beat_silent ? 0 : 4;
}

static void on_beat_got(void *ctx, struct peer *from, const uint8_t *data, size_t len)
{
    struct agent *agent = ctx;
    (void)from;
    cr_assert(len == 4 && memcmp(data, "beat", 4) == 0);
    agent->beats++;
    loop_stop(rig_loop);
}

static void on_up(void *ctx, struct peer *peer)
{
    struct agent *agent = ctx;
    agent->ups++;
    agent->last_peer = peer;
    cr_assert(peer_is_up(peer));
    loop_stop(rig_loop);
}

static void on_down(void *ctx, struct peer *peer, const char *why)
{
    struct agent *agent = ctx;
    agent->downs++;
    cr_assert_not(peer_is_up(peer));
    cr_assert_not_null(why);
    loop_stop(rig_loop);
}

static void on_message(void *ctx, struct peer *peer, uint16_t type, const void *data, size_t len)
{
    struct agent *agent = ctx;
    (void)peer;
    agent->messages++;
    agent->last_type = type;
    free(agent->last);
    agent->last = malloc(len + 1);
    memcpy(agent->last, data, len);
    agent->last_len = len;
    loop_stop(rig_loop);
}

static tck_status_t on_offered(void *ctx, struct peer *from, const struct peer_offer *offer, struct tier_item *item,
                               struct error *err)
{
    struct agent *agent = ctx;
    (void)from;
    agent->offers++;
    if (agent->answer != TCK_OK) {
        return error_set(err, agent->answer, "the test refuses");
    }
    if (agent->slot.bytes != offer->image_bytes) {
        return error_set(err, TCK_ERR_NOSPC, "no slot of this size");
    }
    *item = slot_item(&agent->slot);
    if (agent->base != NULL && version_is(offer->base, RIG_BASE) && hash128_is(offer->base_root, agent->base->root)) {
        item->base_image = agent->base->image;
    }
    return TCK_OK;
}

static bool on_base_bad(void *ctx, struct peer *from, const struct tier_item *item, uint32_t chunk)
{
    struct agent *agent = ctx;
    (void)from;
    cr_assert_eq(item->base_image, agent->base->image);
    agent->bad_bases++;
    agent->bad_chunk = chunk;
    return true;
}

static tck_status_t on_stored(void *ctx, struct peer *from, const struct peer_offer *offer, const struct error *outcome)
{
    struct agent *agent = ctx;
    (void)from;
    agent->stored++;
    agent->from_base = offer->from_base;
    agent->stored_outcome = *outcome;
    loop_stop(rig_loop);
    return TCK_OK;
}

static tck_status_t on_pulled(void *ctx, struct peer *from, const struct peer_offer *want, struct tier_item *item,
                              struct error *err)
{
    struct agent *agent = ctx;
    (void)from;
    (void)want;
    agent->pulled++;
    if (agent->answer != TCK_OK) {
        return error_set(err, agent->answer, "the test refuses");
    }
    *item = slot_item(&agent->slot);
    item->here = agent->here;
    item->crcs = agent->undigested ? NULL : item->crcs;
    item->root = agent->undigested ? (struct hash128){0, 0} : item->root;
    return TCK_OK;
}

static void on_pull_done(void *ctx, struct peer *from, const struct tier_item *item)
{
    struct agent *agent = ctx;
    (void)from;
    (void)item;
    agent->pull_dones++;
    loop_stop(rig_loop);
}

static bool on_relays(void *ctx, uint64_t from, uint64_t to)
{
    const struct agent *agent = ctx;
    return !agent->relays_nothing && from != to;
}

/* ---- agents ---- */

void agent_open(struct agent *agent, uint64_t id, const char *job, uint8_t secret)
{
    struct peers_setup setup = {.loop = rig_loop,
                                .pool = pool,
                                .job = job == NULL ? RIG_JOB : job,
                                .self = {.agent_id = id},
                                .device = "lo",
                                .address = "127.0.0.1",
                                .heartbeat_ms = RIG_HEARTBEAT_MS,
                                .timeout_ms = RIG_TIMEOUT_MS,
                                .round_ms = RIG_TIMEOUT_MS,
                                .transfer_timeout_ms = RIG_TRANSFER_MS,
                                .held_timeout_ms = 2 * RIG_TRANSFER_MS,
                                .pace = agent->pace,
                                .ctx = agent,
                                .beat = on_beat,
                                .beat_got = on_beat_got,
                                .up = on_up,
                                .down = on_down,
                                .message = on_message,
                                .offered = on_offered,
                                .stored = on_stored,
                                .base_bad = on_base_bad,
                                .pulled = on_pulled,
                                .pull_done = on_pull_done,
                                .relays = on_relays};
    struct error err;
    memset(setup.secret.bytes, secret, sizeof(setup.secret.bytes));
    snprintf(setup.self.name, sizeof(setup.self.name), "node%u", (unsigned)id);
    snprintf(setup.self.domain, sizeof(setup.self.domain), "rack%u", (unsigned)id);
    cr_assert_eq(peers_new(&setup, &agent->peers, &err), TCK_OK, "%s", err.text);
}

void agent_close(struct agent *agent)
{
    peers_free(agent->peers);
    slot_free(&agent->slot);
    free(agent->last);
    memset(agent, 0, sizeof(*agent));
}

struct peer *agent_want(struct agent *agent, const struct agent *other)
{
    struct peer *peer;
    struct error err;
    cr_assert_eq(peers_want(agent->peers, peers_self(other->peers), &peer, &err), TCK_OK, "%s", err.text);
    return peer;
}

void agents_meet(struct agent *a, struct agent *b, struct peer **b_of_a, struct peer **a_of_b)
{
    *b_of_a = agent_want(a, b);
    *a_of_b = agent_want(b, a);
    rig_run_until(&a->ups, 1);
    rig_run_until(&b->ups, 1);
}

/* ---- slots ---- */

void slot_empty(struct slot *slot, uint64_t bytes)
{
    slot->bytes = bytes;
    slot->image = calloc(1, bytes);
    slot->crcs = calloc(chunk_count(bytes), sizeof(*slot->crcs));
    cr_assert(slot->image != NULL && slot->crcs != NULL);
    slot->root = (struct hash128){0, 0};
}

void slot_fill(struct slot *slot, uint64_t bytes)
{
    uint64_t value = 88172645463325252u;
    slot_empty(slot, bytes);
    for (uint64_t i = 0; i + sizeof(value) <= bytes; i += sizeof(value)) {
        value ^= value << 13;
        value ^= value >> 7;
        value ^= value << 17;
        memcpy(slot->image + i, &value, sizeof(value));
    }
    slot->root = digest_image(slot->image, bytes, slot->crcs);
}

void slot_free(struct slot *slot)
{
    free(slot->image);
    free(slot->crcs);
}

struct tier_item slot_item(const struct slot *slot)
{
    return (struct tier_item){.version = {1, 7},
                              .shard = {3, 4},
                              .image_bytes = slot->bytes,
                              .image = slot->image,
                              .crcs = slot->crcs,
                              .root = slot->root};
}

void outcome_done(void *ctx, const struct error *err)
{
    struct outcome *outcome = ctx;
    outcome->calls++;
    outcome->err = *err;
    loop_stop(rig_loop);
}

/* SPDX-License-Identifier: Apache-2.0
 * Checks that save_dir is one directory for all nodes: each node must see the claim that one of them has made before
 * its trainers join. Storage that does not answer in time does not keep trainers from joining.
 */
#include "agent/membership/save_dir_check.h"

#include "agent/storage/health.h"
#include "agent/storage/storage_ops.h"
#include "base/clock.h"

#include <inttypes.h>
#include <stdlib.h>

#define LOOKS        5 /* a network file system may show another node's file late */
#define LOOK_EACH_MS 200
#define LOOK_MOST_MS 3000 /* storage may hang */

struct look_for_claim {
    struct storage_op storage;
    struct agent *agent;
    uint64_t term;
    tck_status_t status;
    struct error err;
};

static void look_work(void *ctx)
{
    struct look_for_claim *look = ctx;
    progress_begin(&look->storage.progress);
    look->status = persistent_find_claim(look->agent->persistent, look->term, &look->err);
    progress_end(&look->storage.progress);
}

static void settle(struct agent *agent, enum claim_sight sight)
{
    agent->connectivity.claim = sight;
    agent->hooks->save_dir_checked(agent);
}

/* Only a missing file proves anything; other errors of storage do not. */
static void on_checked(struct agent *agent, tck_status_t status)
{
    struct connectivity *m = &agent->connectivity;
    if (status == TCK_ERR_NOENT && ++m->looks < LOOKS) {
        m->look_again_ms = clock_ms() + LOOK_EACH_MS;
    } else {
        settle(agent, status == TCK_ERR_NOENT ? CLAIM_ABSENT : CLAIM_SEEN);
    }
}

static bool is_wanted(const struct look_for_claim *look)
{
    const struct connectivity *m = &look->agent->connectivity;
    return m->claim_term == look->term && m->claim == CLAIM_LOOKED_FOR;
}

static void look_done(void *ctx, bool canceled)
{
    struct look_for_claim *look = ctx;
    bool late = look->storage.late;
    storage_end(&look->storage);
    if (!canceled && !late && is_wanted(look)) {
        on_checked(look->agent, look->status);
    }
    free(look);
}

static void look_give_up(void *ctx, const struct error *why)
{
    struct look_for_claim *look = ctx;
    health_storage_failed(look->agent, 0, why);
    if (is_wanted(look)) {
        settle(look->agent, CLAIM_SEEN);
    }
}

/* False: the check cannot be made. */
static bool start_look(struct agent *agent)
{
    struct error ignored;
    struct look_for_claim *look = storage_hangs(agent, NULL, &ignored) ? NULL : calloc(1, sizeof(*look));
    if (!look) {
        return false;
    }
    *look = (struct look_for_claim){.agent = agent, .term = agent->connectivity.claim_term};
    look->storage =
        (struct storage_op){.what = "the check for another node's claim", .give_up = look_give_up, .ctx = look};
    storage_begin(&look->storage, agent, NULL);
    if (pool_submit(agent->io, look_work, look_done, look) != TCK_OK) {
        storage_end(&look->storage);
        free(look);
        return false;
    }
    return true;
}

void save_dir_check_tick(struct agent *agent)
{
    struct connectivity *m = &agent->connectivity;
    if (m->claim != CLAIM_LOOKED_FOR || m->look_again_ms == 0 || clock_ms() < m->look_again_ms) {
        return;
    }
    m->look_again_ms = 0;
    if (!start_look(agent)) {
        settle(agent, CLAIM_SEEN);
    }
}

void save_dir_check_begin(struct agent *agent, const struct world *world)
{
    struct connectivity *m = &agent->connectivity;
    if (world->node_count < 2 || m->claim_term == world->term) {
        return;
    }
    m->claim_term = world->term;
    m->claim_since_ms = clock_ms();
    m->looks = 0;
    m->look_again_ms = 0;
    snprintf(m->claimer, sizeof(m->claimer), "%s", world->nodes[0].name);
    m->claim = start_look(agent) ? CLAIM_LOOKED_FOR : CLAIM_SEEN;
}

bool save_dir_check_is_open(const struct agent *agent)
{
    const struct connectivity *m = &agent->connectivity;
    return m->claim_term == m->term && m->claim == CLAIM_LOOKED_FOR && clock_ms() - m->claim_since_ms < LOOK_MOST_MS;
}

bool save_dir_is_not_shared(const struct agent *agent, struct error *err)
{
    const struct connectivity *m = &agent->connectivity;
    if (m->claim_term != m->term || m->claim != CLAIM_ABSENT) {
        return false;
    }
    (void)error_set(err, TCK_ERR_CONFIG,
                    "node %s does not see in save_dir what node %s has written there (the claim of term %" PRIu64
                    "): %s must "
                    "be one directory that is shared by all nodes of the job",
                    agent->config.node, m->claimer, m->term, agent->config.save_dir);
    return true;
}

/* SPDX-License-Identifier: Apache-2.0
 * Checks that save_dir is one directory for all nodes: each node must see the claim that one of them has made before
 * its trainers join. Storage that does not answer in time does not keep trainers from joining.
 */
#include "agent/membership/save_dir_check.h"

#include "agent/storage/health.h"
#include "agent/storage/storage_ops.h"
#include "base/clock.h"
#include "tiers/persistent.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define LOOKS        5 /* a network file system may show another node's file late */
#define LOOK_EACH_MS 200
#define LOOK_MOST_MS 3000 /* storage may hang */

enum sight { SEEN, LOOKED_FOR, ABSENT };

struct save_dir_check {
    struct save_dir_check_setup needs;
    uint64_t term, since_ms; /* whose claim was looked for in save_dir, and since when */
    enum sight sight;
    uint32_t looks;            /* attempts that have not found it */
    uint64_t look_again_ms;    /* 0: not to be looked for again, or a look is under way */
    char claimer[CONFIG_NAME]; /* node whose agent has made it */
};

struct look_for_claim {
    struct storage_op storage;
    struct save_dir_check *check;
    uint64_t term;
    tck_status_t status;
    struct error err;
};

static void look_work(void *ctx)
{
    struct look_for_claim *look = ctx;
    progress_begin(&look->storage.progress);
    look->status = persistent_find_claim(look->check->needs.persistent, look->term, &look->err);
    progress_end(&look->storage.progress);
}

static void settle(struct save_dir_check *check, enum sight sight)
{
    check->sight = sight;
    check->needs.settled(check->needs.ctx);
}

/* Only a missing file proves anything; other errors of storage do not. */
static void on_checked(struct save_dir_check *check, tck_status_t status)
{
    if (status == TCK_ERR_NOENT && ++check->looks < LOOKS) {
        check->look_again_ms = clock_ms() + LOOK_EACH_MS;
    } else {
        settle(check, status == TCK_ERR_NOENT ? ABSENT : SEEN);
    }
}

static bool is_wanted(const struct look_for_claim *look)
{
    return look->check->term == look->term && look->check->sight == LOOKED_FOR;
}

static void look_done(void *ctx, bool canceled)
{
    struct look_for_claim *look = ctx;
    bool late = look->storage.late;
    storage_end(&look->storage);
    if (!canceled && !late && is_wanted(look)) {
        on_checked(look->check, look->status);
    }
    free(look);
}

static void look_give_up(void *ctx, const struct error *why)
{
    struct look_for_claim *look = ctx;
    health_storage_failed(look->check->needs.health, 0, why);
    if (is_wanted(look)) {
        settle(look->check, SEEN);
    }
}

/* False: the check cannot be made. */
static bool start_look(struct save_dir_check *check)
{
    struct error ignored;
    bool hangs = storage_hangs(check->needs.storage_ops, NULL, &ignored);
    struct look_for_claim *look = hangs ? NULL : calloc(1, sizeof(*look));
    if (look == NULL) {
        return false;
    }
    *look = (struct look_for_claim){.check = check, .term = check->term};
    look->storage =
        (struct storage_op){.what = "the check for another node's claim", .give_up = look_give_up, .ctx = look};
    storage_begin(&look->storage, check->needs.storage_ops, NULL);
    if (pool_submit(check->needs.io, look_work, look_done, look) != TCK_OK) {
        storage_end(&look->storage);
        free(look);
        return false;
    }
    return true;
}

void save_dir_check_tick(struct save_dir_check *check)
{
    if (check->sight != LOOKED_FOR || check->look_again_ms == 0 || clock_ms() < check->look_again_ms) {
        return;
    }
    check->look_again_ms = 0;
    if (!start_look(check)) {
        settle(check, SEEN);
    }
}

void save_dir_check_begin(struct save_dir_check *check, const struct world *world)
{
    if (world->node_count < 2 || check->term == world->term) {
        return;
    }
    check->term = world->term;
    check->since_ms = clock_ms();
    check->looks = 0;
    check->look_again_ms = 0;
    snprintf(check->claimer, sizeof(check->claimer), "%s", world->nodes[0].name);
    check->sight = start_look(check) ? LOOKED_FOR : SEEN;
}

bool save_dir_check_is_open(const struct save_dir_check *check, uint64_t term)
{
    return check->term == term && check->sight == LOOKED_FOR && clock_ms() - check->since_ms < LOOK_MOST_MS;
}

bool save_dir_is_not_shared(const struct save_dir_check *check, uint64_t term, struct error *err)
{
    const struct config *config = check->needs.config;
    if (check->term != term || check->sight != ABSENT) {
        return false;
    }
    (void)error_set(err, TCK_ERR_CONFIG,
                    "node %s does not see in save_dir what node %s has written there (the claim of term %" PRIu64
                    "): %s must "
                    "be one directory that is shared by all nodes of the job",
                    config->node, check->claimer, term, config->save_dir);
    return true;
}

tck_status_t save_dir_check_new(const struct save_dir_check_setup *setup, struct save_dir_check **out,
                                struct error *err)
{
    struct save_dir_check *check = calloc(1, sizeof(*check));
    if (check == NULL) {
        return error_set(err, TCK_ERR_NOMEM, "agent: out of memory");
    }
    check->needs = *setup;
    *out = check;
    return TCK_OK;
}

void save_dir_check_free(struct save_dir_check *check)
{
    free(check);
}

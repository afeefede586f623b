/* SPDX-License-Identifier: Apache-2.0
 * Checks that save_dir is one directory for all nodes: each node must see the claim that one of them has made before
 * its trainers join. If storage does not answer in time, trainers may join without the check.
 */
#include "agent/membership/save_dir_check.h"

#include "agent/storage/health.h"
#include "agent/storage/storage_ops.h"
#include "base/clock.h"
#include "tiers/persistent.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define CLAIM_TRIES 5 /* a network file system may show another node's file with a delay */
#define RETRY_MS    200
#define WAIT_MAX_MS 3000 /* storage may hang */

enum claim_state { CLAIM_SEEN, CLAIM_SOUGHT, CLAIM_ABSENT };

struct save_dir_check {
    struct save_dir_check_setup needs;
    uint64_t term, since_ms; /* whose claim was looked for in save_dir, and since when */
    enum claim_state claim_state;
    uint32_t tries;            /* attempts that did not find it */
    uint64_t retry_ms;         /* time of the next attempt; 0: none is due, or one is in progress */
    char claimer[CONFIG_NAME]; /* node whose agent made it */
};

struct claim_search {
    struct storage_op storage;
    struct save_dir_check *check;
    uint64_t term;
    tck_status_t status;
    struct error err;
};

static void search_work(void *ctx)
{
    struct claim_search *search = ctx;
    progress_begin(&search->storage.progress);
    search->status = persistent_find_claim(search->check->needs.persistent, search->term, &search->err);
    progress_end(&search->storage.progress);
}

static void settle(struct save_dir_check *check, enum claim_state claim_state)
{
    check->claim_state = claim_state;
    check->needs.settled(check->needs.ctx);
}

/* Only a missing file proves that save_dir differs; other storage errors do not. */
static void on_checked(struct save_dir_check *check, tck_status_t status)
{
    if (status == TCK_ERR_NOENT && ++check->tries < CLAIM_TRIES) {
        check->retry_ms = clock_ms() + RETRY_MS;
    } else {
        settle(check, status == TCK_ERR_NOENT ? CLAIM_ABSENT : CLAIM_SEEN);
    }
}

static bool is_wanted(const struct claim_search *search)
{
    return search->check->term == search->term && search->check->claim_state == CLAIM_SOUGHT;
}

static void search_done(void *ctx, bool canceled)
{
    struct claim_search *search = ctx;
    bool late = search->storage.late;
    storage_end(&search->storage);
    if (!canceled && !late && is_wanted(search)) {
        on_checked(search->check, search->status);
    }
    free(search);
}

static void search_give_up(void *ctx, const struct error *why)
{
    struct claim_search *search = ctx;
    health_storage_failed(search->check->needs.health, 0, why);
    if (is_wanted(search)) {
        settle(search->check, CLAIM_SEEN);
    }
}

/* False: the check cannot be made. */
static bool start_search(struct save_dir_check *check)
{
    struct error ignored;
    bool hangs = storage_hangs(check->needs.storage_ops, NULL, &ignored);
    struct claim_search *search = hangs ? NULL : calloc(1, sizeof(*search));
    if (search == NULL) {
        return false;
    }
    *search = (struct claim_search){.check = check, .term = check->term};
    search->storage =
        (struct storage_op){.what = "the check for another node's claim", .give_up = search_give_up, .ctx = search};
    storage_begin(&search->storage, check->needs.storage_ops, NULL);
    if (pool_submit(check->needs.io, search_work, search_done, search) != TCK_OK) {
        storage_end(&search->storage);
        free(search);
        return false;
    }
    return true;
}

void save_dir_check_tick(struct save_dir_check *check)
{
    if (check->claim_state != CLAIM_SOUGHT || check->retry_ms == 0 || clock_ms() < check->retry_ms) {
        return;
    }
    check->retry_ms = 0;
    if (!start_search(check)) {
        settle(check, CLAIM_SEEN);
    }
}

void save_dir_check_begin(struct save_dir_check *check, const struct world *world)
{
    if (world->node_count < 2 || check->term == world->term) {
        return;
    }
    check->term = world->term;
    check->since_ms = clock_ms();
    check->tries = 0;
    check->retry_ms = 0;
    snprintf(check->claimer, sizeof(check->claimer), "%s", world->nodes[0].name);
    check->claim_state = start_search(check) ? CLAIM_SOUGHT : CLAIM_SEEN;
}

bool save_dir_check_is_pending(const struct save_dir_check *check, uint64_t term)
{
    return check->term == term && check->claim_state == CLAIM_SOUGHT && clock_ms() - check->since_ms < WAIT_MAX_MS;
}

bool save_dir_is_not_shared(const struct save_dir_check *check, uint64_t term, struct error *err)
{
    const struct config *config = check->needs.config;
    if (check->term == term && persistent_may_be_shared(check->needs.persistent, err) != TCK_OK) {
        return true;
    }
    if (check->term != term || check->claim_state != CLAIM_ABSENT) {
        return false;
    }
    (void)error_set(err, TCK_ERR_CONFIG,
                    "node %s cannot see in save_dir what node %s wrote there (the claim of term %" PRIu64 "): %s must "
                    "be one directory shared by all nodes of the job",
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

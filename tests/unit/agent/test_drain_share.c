/* SPDX-License-Identifier: Apache-2.0
 * What a node writes of a version, in which order, and what it says when it has to end before all is written. Node 1 of
 * three has six shards, of which it writes five. */
#include "agent/drain/drain_share.h"

#include "agent/driver/term.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SELF   1
#define SHARDS 6

static const struct version version = {5, 10}, before = {5, 8};

/* Shard 0 has a twin at node 0 and a holder, 1 and 5 nothing else, 2 a holder, 3 is written by its other owner, 4 has a
 * twin and no holder. */
static uint32_t owners[] = {0, SELF, SELF, SELF, 0, SELF, SELF, 2, SELF};
static struct shard_placement placed[SHARDS] = {
    {.owner_count = 2, .first_owner = 0, .holder_count = 1, .holders = {2}},
    {.owner_count = 1, .first_owner = 2},
    {.owner_count = 1, .first_owner = 3, .holder_count = 1, .holders = {0}},
    {.owner_count = 2, .first_owner = 4},
    {.owner_count = 2, .first_owner = 6},
    {.owner_count = 1, .first_owner = 8},
};
static struct node_shard shards[SHARDS];
static struct local_shard local[SHARDS];
static struct world_shard world_shards[SHARDS];
static uint32_t ranks[SHARDS] = {4, 5, 6, 0, 4, 7};
static struct lost_node lost[3];
static struct slot slots[SHARDS];
static struct term_context tc;
static struct drain_place places[SHARDS];

uint32_t node_slot_of(const struct node *node, uint32_t shard, struct version of)
{
    (void)node;
    cr_assert(version_is(of, version));
    return shard;
}

const struct slot *node_slot(const struct node *node, uint32_t slot)
{
    (void)node;
    return &slots[slot];
}

static void set_up(void)
{
    for (uint32_t i = 0; i < SHARDS; i++) {
        shards[i] = (struct node_shard){.world_shard = i, .drains_here = i != 3};
        world_shards[i] = (struct world_shard){.first_rank = i, .rank_count = 1};
        slots[i].root = (struct hash128){i + 1, 7};
    }
    tc = (struct term_context){
        .self = SELF, .shards = shards, .local_shards = local, .lost = lost, .setup = {.shard_count = SHARDS}};
    tc.world = (struct world){.shard_count = SHARDS, .shards = world_shards, .shard_ranks = ranks};
    tc.placement = (struct placement){.shard_count = SHARDS, .shards = placed, .owners = owners};
}

TestSuite(drain_share, .init = set_up);

static void expect(const uint32_t *wanted, const uint32_t *elsewhere)
{
    cr_assert_eq(drain_share(&tc, version, places), SHARDS - 1);
    for (uint32_t i = 0; i < SHARDS - 1; i++) {
        cr_expect_eq(places[i].shard, wanted[i], "place %u has shard %u", i, places[i].shard);
        cr_expect_eq(places[i].elsewhere, elsewhere[i], "shard %u has %u copies", places[i].shard, places[i].elsewhere);
    }
}

static void written(uint32_t shard, struct version of, struct hash128 root)
{
    local[shard].drained = root;
    local[shard].drained_version = of;
}

Test(drain_share, counts_twins_and_holders_on_other_nodes)
{
    expect((const uint32_t[]){1, 5, 2, 4, 0}, (const uint32_t[]){0, 0, 1, 1, 2});
}

Test(drain_share, a_node_that_is_down_has_no_copy)
{
    lost[0].since_ms = 1;
    expect((const uint32_t[]){1, 2, 5, 0, 4}, (const uint32_t[]){0, 0, 0, 1, 1});
}

/* So an attempt that follows a failed one begins with what that one has not written. */
Test(drain_share, the_same_bytes_on_storage_count_as_a_copy)
{
    written(1, before, slots[1].root);
    expect((const uint32_t[]){5, 1, 2, 4, 0}, (const uint32_t[]){0, 1, 1, 1, 2});
}

Test(drain_share, other_bytes_on_storage_do_not_count)
{
    written(1, before, slots[2].root);
    expect((const uint32_t[]){1, 5, 2, 4, 0}, (const uint32_t[]){0, 0, 1, 1, 2});
}

/* ---- what is logged ------------------------------------------------------------------------------------------------
 */

static char *logged(void)
{
    static char text[2048];
    char path[] = "/tmp/tck_share.XXXXXX";
    struct error err = {0};
    int fd = mkstemp(path);
    cr_assert_geq(fd, 0);
    cr_assert_eq(log_open(path, LOG_INFO, "a", &err), TCK_OK, "%s", err.text);
    drain_warn_unpublished(&tc, version);
    ssize_t len = read(fd, text, sizeof(text) - 1);
    cr_assert_geq(len, 0);
    text[len] = '\0';
    close(fd);
    unlink(path);
    return text;
}

static void expect_log(const char *wanted)
{
    const char *text = logged();
    cr_assert_not_null(strstr(text, wanted), "%s", text);
}

Test(drain_share, names_what_has_no_copy_elsewhere_whether_it_is_written_or_not)
{
    written(5, version, slots[5].root);
    expect_log(
        "version 5.10 was not published in time: of this node's 5 shards, 1 are written to storage, and 2 have no "
        "copy on another node that is up: of rank 5, 7\n");
    lost[0].since_ms = 1;
    expect_log("and 3 have no copy on another node that is up: of rank 5, 6, 7\n");
}

Test(drain_share, the_file_of_an_older_version_is_not_one_of_this_version)
{
    written(5, before, slots[5].root);
    expect_log("of this node's 5 shards, 0 are written to storage, ");
}

Test(drain_share, shards_of_one_rank_name_it_once)
{
    ranks[5] = 5;
    expect_log("and 2 have no copy on another node that is up: of rank 5\n");
}

Test(drain_share, says_nothing_on_a_node_that_writes_nothing)
{
    for (uint32_t i = 0; i < SHARDS; i++) {
        shards[i].drains_here = false;
    }
    cr_assert_str_empty(logged());
}

Test(drain_share, a_long_list_is_cut_off)
{
    static struct node_shard many[40];
    static struct local_shard local_many[40];
    static struct shard_placement placed_many[40];
    static struct world_shard world_many[40];
    static uint32_t ranks_many[40];
    for (uint32_t i = 0; i < 40; i++) {
        many[i] = (struct node_shard){.world_shard = i, .drains_here = true};
        world_many[i] = (struct world_shard){.first_rank = i, .rank_count = 1};
        ranks_many[i] = 1000000 + i;
    }
    tc.shards = many;
    tc.local_shards = local_many;
    tc.setup.shard_count = 40;
    tc.world.shards = world_many;
    tc.world.shard_ranks = ranks_many;
    tc.placement.shards = placed_many;
    const char *text = logged();
    cr_assert_not_null(strstr(text, "40 have no copy on another node that is up: of rank 1000000, "), "%s", text);
    cr_assert_not_null(strstr(text, ", 1000015, ...\n"), "%s", text);
}

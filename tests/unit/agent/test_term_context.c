/* SPDX-License-Identifier: Apache-2.0
 * How an agent forms a term from a world and the memory that it finds. This node is b: its rank 1 owns shard 2, and it
 * holds shard 1 of node a as a replica. */
#include "../wish.h"
#include "agent/driver/protocol_driver.h"
#include "agent/driver/term_context.h"
#include "agent/driver/twins.h"
#include "agent/ipc/ipc_server.h"
#include "base/config.h"
#include "base/seal.h"
#include "tiers/memory.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#define TERM        5
#define SLOTS       3
#define IMAGE_BYTES 4096
#define CAP_BYTES   ((uint64_t)64 << 20)

static const struct hash128 held = {1, 1}, own = {2, 1};
static const struct version now = {TERM, 20}, before = {TERM - 1, 10};

static struct config config;
static struct memory *memory;
static struct term_context *tc;
static struct world world;
static struct placement placement;

/* ---- what term context.c needs of the rest of the agent --------------------------------------------------------- */

static struct event fed;
static uint32_t fed_count;
static struct client *connected;

void driver_step_node(struct term_context *term_context, const struct event *event)
{
    (void)term_context;
    fed = *event;
    fed_count++;
}

struct client *client_of_rank(struct client *clients, uint64_t term, uint32_t rank)
{
    (void)clients;
    (void)term;
    (void)rank;
    return connected;
}

void twins_free(struct term_context *term_context)
{
    (void)term_context;
}

/* ---- memory that an agent before it left ---------------------------------------------------------------------- */

static struct segment *segment_of(struct hash128 shard)
{
    struct segment *segment;
    struct error err = {0};
    cr_assert_eq(add_segment(memory, wish_of(shard, IMAGE_BYTES, SLOTS, SLOTS), &segment, &err), TCK_OK, "%s",
                 err.text);
    return segment;
}

static void build_world(void)
{
    struct rank_hello hellos[2] = {{.node = {.name = "a", .domain = "a", .agent_id = 1}},
                                   {.node = {.name = "b", .domain = "b", .agent_id = 2}}};
    struct shard_info infos[2] = {{.id = held, .image_bytes = IMAGE_BYTES}, {.id = own, .image_bytes = IMAGE_BYTES}};
    const uint32_t counts[2] = {1, 1};
    struct error err = {0};
    cr_assert_eq(world_build(TERM, hellos, 2, &world, &err), TCK_OK, "%s", err.text);
    cr_assert_eq(world_add_shards(&world, infos, counts, &err), TCK_OK, "%s", err.text);
    cr_assert_eq(placement_build(&world, 2, &placement, &err), TCK_OK, "%s", err.text);
}

static void set_up(void)
{
    struct memory_setup setup = {.job = "job", .cap_bytes = CAP_BYTES, .hugetlb_mount = "", .threads = 1};
    struct error err = {0};
    strcpy(config.node, "b");
    config.version_timeout_ms = 1000;
    cr_assert_eq(memory_new(&setup, &memory, &err), TCK_OK, "%s", err.text);
    (void)segment_of(held);
    (void)segment_of(own);
    build_world();
}

static void tear_down(void)
{
    if (tc == NULL) {
        placement_free(&placement);
        world_free(&world);
    }
    term_context_free(tc);
    memory_free(memory);
}

TestSuite(term_context, .init = set_up, .fini = tear_down);

static void left(struct hash128 shard, uint32_t slot, enum slot_state state, struct version version)
{
    struct slot_header header = {.state = state, .version = version, .root = {7, 7}, .to_storage = true};
    segment_write_header(segment_of(shard), slot, &header);
}

/* Seals a slot as its trainer does, which maps the page of seals. */
static void seal(uint32_t slot, struct version version)
{
    int fd = segment_info(segment_of(own)).meta_fd;
    struct stat st;
    cr_assert_eq(fstat(fd, &st), 0);
    struct seal *seals = mmap(NULL, SEALS_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, st.st_size - SEALS_BYTES);
    cr_assert_neq((void *)seals, MAP_FAILED);
    seal_set(&seals[slot], version, NULL);
    munmap(seals, SEALS_BYTES);
}

static tck_status_t try_to_form(const struct decision *decision, struct error *err)
{
    static struct client *clients;
    const struct term_setup forms = {.config = &config, .memory = memory, .clients = &clients};
    return term_context_new(&forms, &world, &placement, decision, &tc, err);
}

static void form(const struct decision *decision)
{
    struct error err = {0};
    cr_assert_eq(try_to_form(decision, &err), TCK_OK, "%s", err.text);
}

static const struct slot *slot_at(struct hash128 shard, uint32_t slot)
{
    return node_slot(tc->node, tc->local_shards[term_context_shard(tc, shard)].first_slot + slot);
}

/* ---- claims --------------------------------------------------------------------------------------------------- */

Test(term_context, gives_each_shard_its_local_shard)
{
    form(NULL);
    uint32_t mine = term_context_shard(tc, own), theirs = term_context_shard(tc, held);
    cr_assert_eq(tc->self, 1);
    cr_assert_eq(tc->shards[mine].storing_rank, 0);
    cr_assert_eq(tc->shards[mine].holder_count, 1);
    cr_assert_eq(tc->shards[mine].holders[0], 0);
    cr_assert(tc->shards[mine].drains_here);
    cr_assert_not(tc->shards[mine].held);
    cr_assert_eq(tc->shards[theirs].storing_rank, NONE32);
    cr_assert_eq(tc->shards[theirs].holder_count, 0);
    cr_assert(tc->shards[theirs].held);
    cr_assert_eq(term_context_shard(tc, (struct hash128){3, 3}), NONE32);
    cr_assert_not(term_context_is_coordinator(tc));
}

Test(term_context, lists_the_shards_of_a_rank_and_no_others)
{
    (void)segment_of((struct hash128){0, 9});
    form(NULL);
    uint32_t at = 0;
    cr_assert_eq(tc->in_world_count, 2);
    cr_assert_eq(term_context_next_of(tc, tc->ranks[0], &at), term_context_shard(tc, own));
    cr_assert_eq(term_context_next_of(tc, tc->ranks[0], &at), NONE32);
    at = 0;
    cr_assert_eq(term_context_next_of(tc, 0, &at), term_context_shard(tc, held));
    cr_assert_eq(term_context_next_of(tc, 0, &at), NONE32);
}

/* Three ranks of this node, two of which have eight shards together; one has a shard of the size of two of them. */
static void build_world_of_a_group(void)
{
    struct rank_hello hellos[4] = {{.node = {.name = "a", .domain = "a", .agent_id = 1}}};
    struct shard_info infos[1 + 8 + 9], *at = infos;
    const uint32_t counts[4] = {1, 8, 9, 0};
    struct error err = {0};
    *at++ = (struct shard_info){.id = held, .image_bytes = IMAGE_BYTES};
    for (uint32_t rank = 1; rank < 4; rank++) {
        hellos[rank] = (struct rank_hello){.node = {.name = "b", .domain = "b", .agent_id = 2}};
        for (uint64_t i = 0; i < 8 && rank < 3; i++) {
            *at++ = (struct shard_info){.id = {10, i}, .image_bytes = IMAGE_BYTES};
        }
    }
    *at = (struct shard_info){.id = {11, 9}, .image_bytes = 2 * IMAGE_BYTES};
    placement_free(&placement);
    world_free(&world);
    cr_assert_eq(world_build(TERM, hellos, 4, &world, &err), TCK_OK, "%s", err.text);
    cr_assert_eq(world_add_shards(&world, infos, counts, &err), TCK_OK, "%s", err.text);
    cr_assert_eq(placement_build(&world, 2, &placement, &err), TCK_OK, "%s", err.text);
}

Test(term_context, the_ranks_that_have_the_same_shards_save_about_as_many_bytes_each)
{
    uint32_t saves[3] = {0};
    struct error err = {0};
    struct segment *segment;
    build_world_of_a_group();
    for (uint64_t i = 8; i > 0; i--) { /* in whatever order the segments were made */
        (void)segment_of((struct hash128){10, i - 1});
    }
    cr_assert_eq(add_segment(memory, wish_of((struct hash128){11, 9}, 2 * IMAGE_BYTES, SLOTS, SLOTS), &segment, &err),
                 TCK_OK);
    form(NULL);
    for (uint32_t i = 0; i < tc->in_world_count; i++) {
        uint32_t rank = tc->shards[tc->in_world[i]].storing_rank;
        if (rank != NONE32) {
            saves[rank] +=
                (uint32_t)(tc->world.shards[tc->shards[tc->in_world[i]].world_shard].image_bytes / IMAGE_BYTES);
        }
    }
    cr_assert_eq(saves[0], 5);
    cr_assert_eq(saves[1], 5);
    cr_assert_eq(saves[2], 0);
}

Test(term_context, a_segment_that_the_world_does_not_know_has_no_local_shard)
{
    const struct hash128 leftover = {0, 9};
    (void)segment_of(leftover);
    form(NULL);
    cr_assert_eq(tc->shards[term_context_shard(tc, leftover)].world_shard, NONE32);
}

Test(term_context, refuses_a_world_without_this_node_and_leaves_it_to_the_caller)
{
    struct error err = {0};
    strcpy(config.node, "c");
    cr_assert_eq(try_to_form(NULL, &err), TCK_ERR_PROTO);
    cr_assert_not_null(strstr(err.text, "does not contain node c"), "%s", err.text);
    cr_assert_eq(world.world_size, 2);
}

Test(term_context, takes_over_what_is_verified_or_sealed)
{
    left(own, 0, SLOT_VERIFIED, before);
    left(own, 1, SLOT_SEALED, now);
    left(held, 2, SLOT_VERIFIED, now);
    form(NULL);
    cr_assert_eq(slot_at(own, 0)->state, SLOT_VERIFIED);
    cr_assert(version_is(slot_at(own, 0)->version, before));
    cr_assert(hash128_is(slot_at(own, 0)->root, (struct hash128){7, 7}));
    cr_assert_eq(slot_at(own, 1)->state, SLOT_SEALED);
    cr_assert(version_is(slot_at(own, 1)->version, now));
    cr_assert(slot_at(own, 1)->to_storage);
    cr_assert_eq(slot_at(held, 2)->state, SLOT_VERIFIED);
    cr_assert_eq(slot_at(own, 2)->state, SLOT_FREE);
}

Test(term_context, takes_a_slot_that_was_being_filled_for_sealed_only_by_its_seal)
{
    left(own, 0, SLOT_FILLING, now);
    left(own, 1, SLOT_FILLING, (struct version){TERM, 21});
    seal(0, now);
    seal(1, now);
    form(NULL);
    cr_assert_eq(slot_at(own, 0)->state, SLOT_SEALED);
    cr_assert_eq(slot_at(own, 1)->state, SLOT_FILLING, "that is the seal of another version");
}

Test(term_context, forgets_what_was_arriving_and_quarantines_what_trainers_of_older_terms_left_unfinished)
{
    left(held, 0, SLOT_RECEIVING, now);
    left(own, 0, SLOT_FILLING, before);
    form(NULL);
    cr_assert_eq(slot_at(held, 0)->state, SLOT_FREE);
    cr_assert_eq(slot_at(own, 0)->state, SLOT_QUARANTINED);
}

Test(term_context, applies_the_kept_decision_before_anything_else)
{
    struct decision kept = {.term = TERM, .seq = 9, .horizon = 21};
    form(&kept);
    cr_assert_eq(tc->queue_count, 1);
    cr_assert_eq(tc->queue[0].event.type, EVENT_DECISION);
    cr_assert_eq(tc->queue[0].event.decision.seq, 9);
}

Test(term_context, has_digests_to_make_only_for_older_terms)
{
    left(own, 0, SLOT_SEALED, now);
    left(own, 1, SLOT_VERIFIED, before);
    form(NULL);
    cr_assert_not(term_context_digests_due(tc), "its own term asks no inventory for them");
    term_context_free(tc);
    left(own, 2, SLOT_SEALED, before);
    build_world();
    form(NULL);
    cr_assert(term_context_digests_due(tc));
}

Test(term_context, finds_the_seal_of_a_trainer_that_is_gone)
{
    left(own, 0, SLOT_FILLING, now);
    form(NULL);
    term_context_report_seals(tc);
    cr_assert_eq(fed_count, 0, "it was still copying");
    seal(0, now);
    term_context_report_seals(tc);
    cr_assert_eq(fed_count, 1);
    cr_assert_eq(fed.type, EVENT_SEAL);
    cr_assert_eq(fed.rank, 0);
    cr_assert(version_is(fed.version, now));
}

Test(term_context, leaves_the_report_to_a_connected_trainer)
{
    struct client client = {0};
    left(own, 0, SLOT_FILLING, now);
    form(NULL);
    seal(0, now);
    connected = &client;
    term_context_report_seals(tc);
    cr_assert_eq(fed_count, 0);
}

/* SPDX-License-Identifier: Apache-2.0
 * The world: ranks are grouped into nodes and their lists of shards into one layout, and both survive encoding. */
#include "base/world.h"
#include "codec.h"
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct rank_hello hello(const char *node, uint64_t agent_id)
{
    struct rank_hello h = {.node = {.agent_id = agent_id}, .term_seen = 3};
    snprintf(h.node.name, sizeof(h.node.name), "%s", node);
    snprintf(h.node.domain, sizeof(h.node.domain), "rack-%s", node);
    snprintf(h.node.address, sizeof(h.node.address), "10.0.0.%u:4000", (unsigned)agent_id);
    return h;
}

/* Four ranks: 0 and 2 on zeta, 1 and 3 on alpha. */
static struct world four_ranks(void)
{
    const struct rank_hello hellos[] = {hello("zeta", 1), hello("alpha", 2), hello("zeta", 1), hello("alpha", 2)};
    struct world world;
    struct error err = {0};
    cr_assert_eq(world_build(7, hellos, 4, &world, &err), TCK_OK, "%s", err.text);
    return world;
}

static struct shard_info info(uint64_t id, uint64_t bytes)
{
    return (struct shard_info){.id = {id, id + 1}, .image_bytes = bytes};
}

Test(world, numbers_nodes_by_their_first_rank)
{
    struct world world = four_ranks();
    cr_assert_eq(world.term, 7);
    cr_assert_eq(world.node_count, 2);
    cr_assert_str_eq(world.nodes[0].name, "zeta");
    cr_assert_str_eq(world.nodes[1].name, "alpha");
    cr_assert_str_eq(world.nodes[1].domain, "rack-alpha");
    cr_assert_eq(world.nodes[1].agent_id, 2);
    const uint32_t want[] = {0, 1, 0, 1};
    cr_assert_eq(memcmp(world.node_of_rank, want, sizeof(want)), 0);
    cr_assert_eq(world_find_node(&world, "alpha"), 1);
    cr_assert_eq(world_find_node(&world, "beta"), -1);
    world_free(&world);
}

Test(world, finds_each_node_by_its_agent)
{
    static const uint64_t agents[] = {900, UINT64_MAX, 3, 77, 0, 41};
    enum { NODES = sizeof(agents) / sizeof(agents[0]) };
    struct rank_hello hellos[NODES];
    struct world world;
    struct error err = {0};
    for (uint32_t i = 0; i < NODES; i++) {
        const char name[] = {(char)('a' + i), '\0'};
        hellos[i] = hello(name, agents[i]);
    }
    cr_assert_eq(world_build(1, hellos, NODES, &world, &err), TCK_OK, "%s", err.text);
    struct writer w = writer_new(0);
    world_encode(&world, &w);
    struct reader r = reader_of(w.data, w.len);
    struct world sent;
    cr_assert_eq(world_decode(&r, &sent, &err), TCK_OK, "%s", err.text);
    for (uint32_t i = 0; i < NODES; i++) {
        cr_assert_eq(world_find_agent(&world, agents[i]), i);
        cr_assert_eq(world_find_agent(&sent, agents[i]), i);
    }
    cr_assert_eq(world_find_agent(&world, 42), -1);
    cr_assert_eq(world_find_agent(&world, UINT64_MAX - 1), -1);
    writer_free(&w);
    world_free(&world);
    world_free(&sent);
}

Test(world, refuses_one_node_name_under_two_agents)
{
    const struct rank_hello hellos[] = {hello("a", 1), hello("b", 2), hello("a", 3)};
    struct world world;
    struct error err = {0};
    cr_assert_eq(world_build(1, hellos, 3, &world, &err), TCK_ERR_CONFIG);
    cr_assert_not_null(strstr(err.text, "node \"a\": ranks 0 and 2"), "%s", err.text);
}

Test(world, refuses_an_impossible_size)
{
    struct world world;
    struct error err = {0};
    cr_assert_eq(world_build(1, NULL, 0, &world, &err), TCK_ERR_INVAL);
    cr_assert_eq(world_build(1, NULL, WORLD_RANKS_MAX + 1, &world, &err), TCK_ERR_INVAL);
}

Test(world, gathers_twins_under_one_shard)
{
    struct world world = four_ranks();
    struct error err = {0};
    const uint32_t counts[] = {2, 1, 0, 2};
    const struct shard_info infos[] = {info(9, 4096), info(5, 8192), info(9, 4096), info(1, 4096), info(9, 4096)};
    cr_assert_eq(world_add_shards(&world, infos, counts, &err), TCK_OK, "%s", err.text);
    cr_assert_eq(world.shard_count, 3);
    cr_assert_eq(world_find_shard(&world, infos[3].id), 0);
    cr_assert_eq(world_find_shard(&world, infos[1].id), 1);
    cr_assert_eq(world_find_shard(&world, infos[0].id), 2);
    cr_assert_eq(world_find_shard(&world, (struct hash128){9, 9}), -1);
    const struct world_shard *twins = &world.shards[2];
    const uint32_t want[] = {0, 1, 3};
    cr_assert_eq(twins->rank_count, 3);
    cr_assert_eq(memcmp(&world.shard_ranks[twins->first_rank], want, sizeof(want)), 0);
    cr_assert_eq(world.shards[1].image_bytes, 8192);
    world_free(&world);
}

Test(world, has_the_same_layout_wherever_the_ranks_sit)
{
    struct world a = four_ranks(), b = four_ranks();
    struct error err = {0};
    const uint32_t one_each[] = {1, 1, 0, 0}, all_last[] = {0, 0, 0, 2};
    const struct shard_info infos[] = {info(1, 4096), info(2, 4096)}, other[] = {info(2, 4096), info(1, 4096)},
                            longer[] = {info(1, 4096), info(2, 8192)};
    cr_assert(hash128_is(a.layout, (struct hash128){0, 0}));
    cr_assert_eq(world_add_shards(&a, infos, one_each, &err), TCK_OK);
    cr_assert_eq(world_add_shards(&b, other, all_last, &err), TCK_OK);
    cr_assert(hash128_is(a.layout, b.layout));
    cr_assert_not(hash128_is(a.layout, (struct hash128){0, 0}));
    cr_assert_eq(world_add_shards(&b, longer, one_each, &err), TCK_OK);
    cr_assert_not(hash128_is(a.layout, b.layout));
    world_free(&a);
    world_free(&b);
}

static void expect_layout_error(const struct shard_info *infos, const uint32_t counts[4], const char *reason)
{
    struct world world = four_ranks();
    struct error err = {0};
    cr_assert_eq(world_add_shards(&world, infos, counts, &err), TCK_ERR_LAYOUT);
    cr_assert_not_null(strstr(err.text, reason), "%s", err.text);
    cr_assert_eq(world.shard_count, 0);
    world_free(&world);
}

Test(world, refuses_twins_of_different_size)
{
    const uint32_t counts[] = {1, 1, 0, 0};
    const struct shard_info infos[] = {info(1, 4096), info(1, 8192)};
    expect_layout_error(infos, counts, "4096 bytes on rank 0 and 8192 on rank 1");
}

Test(world, refuses_a_private_shard_on_two_ranks)
{
    const uint32_t counts[] = {1, 0, 1, 0};
    struct shard_info infos[] = {info(1, 4096), info(1, 4096)};
    infos[1].private_to_rank = 1;
    expect_layout_error(infos, counts, "no replica group but is on ranks 0 and 2");
}

Test(world, refuses_a_shard_twice_on_one_rank)
{
    const uint32_t counts[] = {0, 2, 0, 0};
    const struct shard_info infos[] = {info(1, 4096), info(1, 4096)};
    expect_layout_error(infos, counts, "is listed twice by rank 1");
}

Test(world, refuses_images_too_large_to_number_their_chunks)
{
    const uint32_t counts[] = {1, 0, 0, 0};
    const struct shard_info infos[] = {info(1, UINT64_MAX)};
    expect_layout_error(infos, counts, "the limit is");
}

Test(world, refuses_too_many_shards)
{
    const uint32_t counts[] = {UINT32_MAX, UINT32_MAX, 1, 1};
    expect_layout_error(NULL, counts, "the limit is");
}

Test(world, keeps_the_old_shards_when_new_ones_are_refused)
{
    struct world world = four_ranks();
    struct error err = {0};
    const uint32_t good[] = {1, 1, 0, 0}, bad[] = {2, 0, 0, 0};
    const struct shard_info infos[] = {info(1, 4096), info(2, 4096)}, twice[] = {info(1, 4096), info(1, 4096)};
    cr_assert_eq(world_add_shards(&world, infos, good, &err), TCK_OK);
    struct hash128 layout = world.layout;
    cr_assert_eq(world_add_shards(&world, twice, bad, &err), TCK_ERR_LAYOUT);
    cr_assert_eq(world.shard_count, 2);
    cr_assert(hash128_is(world.layout, layout));
    world_free(&world);
}

Test(world, builds_and_decodes_sixteen_thousand_ranks)
{
    enum { RANKS = 16384, SHARDS = 3 };
    struct rank_hello *hellos = calloc(RANKS, sizeof(*hellos));
    struct shard_info *infos = calloc((size_t)RANKS * SHARDS, sizeof(*infos));
    uint32_t *counts = calloc(RANKS, sizeof(*counts));
    struct world world, back;
    struct error err = {0};
    for (uint32_t r = 0; r < RANKS; r++) {
        char name[16];
        snprintf(name, sizeof(name), "n%u", r / 8);
        hellos[r] = hello(name, r / 8);
        counts[r] = SHARDS;
        for (uint32_t i = 0; i < SHARDS; i++) {
            infos[r * SHARDS + i] = info((r % 64) * SHARDS + i, 4096); /* 256 twins each */
        }
    }
    cr_assert_eq(world_build(1, hellos, RANKS, &world, &err), TCK_OK, "%s", err.text);
    cr_assert_eq(world_add_shards(&world, infos, counts, &err), TCK_OK, "%s", err.text);
    cr_assert_eq(world.node_count, RANKS / 8);
    cr_assert_eq(world.shard_count, 64 * SHARDS);
    struct writer w = writer_new(0);
    world_encode(&world, &w);
    struct reader r = reader_of(w.data, w.len);
    cr_assert_eq(world_decode(&r, &back, &err), TCK_OK, "%s", err.text);
    cr_assert(hash128_is(world.layout, back.layout));
    writer_free(&w);
    world_free(&world);
    world_free(&back);
    free(hellos);
    free(infos);
    free(counts);
}

static void encode_world(const void *value, struct writer *w)
{
    world_encode(value, w);
}

static tck_status_t decode_world(const void *bytes, size_t len, void *out)
{
    struct reader r = reader_of(bytes, len);
    tck_status_t status = world_decode(&r, out, NULL);
    if (status == TCK_OK && !reader_done(&r)) {
        world_free(out);
        return TCK_ERR_PROTO;
    }
    return status;
}

static void release_world(void *value)
{
    world_free(value);
}

static const struct codec world_codec = {sizeof(struct world), encode_world, decode_world, release_world};

Test(world, survives_encoding_without_shards)
{
    struct world world = four_ranks();
    codec_check(&world_codec, &world);
    world_free(&world);
}

Test(world, survives_encoding_with_shards)
{
    struct world world = four_ranks(), back;
    struct error err = {0};
    const uint32_t counts[] = {2, 1, 0, 1};
    const struct shard_info infos[] = {info(9, 4096), info(5, 8192), info(9, 4096), info(9, 4096)};
    cr_assert_eq(world_add_shards(&world, infos, counts, &err), TCK_OK, "%s", err.text);
    codec_check(&world_codec, &world);
    struct writer w = writer_new(0);
    world_encode(&world, &w);
    cr_assert_eq(decode_world(w.data, w.len, &back), TCK_OK);
    cr_assert_eq(back.shard_count, 2);
    cr_assert_eq(back.shards[1].rank_count, 3);
    cr_assert(hash128_is(back.layout, world.layout));
    cr_assert_str_eq(back.nodes[1].address, "10.0.0.2:4000");
    writer_free(&w);
    world_free(&world);
    world_free(&back);
}

Test(world, refuses_counts_that_their_bytes_cannot_hold)
{
    struct writer w = writer_new(0);
    struct world world;
    struct error err = {0};
    write_u64(&w, 1);
    write_u32(&w, WORLD_RANKS_MAX);
    write_u32(&w, WORLD_RANKS_MAX); /* nodes, of which none follows */
    struct reader r = reader_of(w.data, w.len);
    cr_assert_eq(world_decode(&r, &world, &err), TCK_ERR_PROTO);
    cr_assert_str_eq(err.text, "malformed description of the world at byte 16 of 16");
    writer_free(&w);
}

Test(world, refuses_an_encoding_with_one_node_name_twice)
{
    struct world world = four_ranks();
    strcpy(world.nodes[1].name, "zeta");
    struct writer w = writer_new(0);
    world_encode(&world, &w);
    struct world back;
    cr_assert_eq(decode_world(w.data, w.len, &back), TCK_ERR_PROTO);
    writer_free(&w);
    world_free(&world);
}

static void encode_hello(const void *value, struct writer *w)
{
    write_rank_hello(w, value);
}

static tck_status_t decode_hello(const void *bytes, size_t len, void *out)
{
    struct reader r = reader_of(bytes, len);
    struct rank_hello hello = read_rank_hello(&r);
    memcpy(out, &hello, sizeof(hello));
    return reader_done(&r) ? TCK_OK : TCK_ERR_PROTO;
}

Test(world, hello_survives_encoding)
{
    static const struct codec codec = {sizeof(struct rank_hello), encode_hello, decode_hello, NULL};
    struct rank_hello h = hello("node-1", 42), back;
    uint8_t bytes[RANK_HELLO_BYTES];
    struct writer w = writer_over(bytes, sizeof(bytes));
    codec_check(&codec, &h);
    write_rank_hello(&w, &h);
    cr_assert_eq(w.len, sizeof(bytes));
    cr_assert_eq(decode_hello(bytes, sizeof(bytes), &back), TCK_OK);
    cr_assert_str_eq(back.node.name, "node-1");
    cr_assert_eq(back.node.agent_id, 42);
    cr_assert_eq(back.term_seen, 3);
}

Test(world, hello_with_an_unsafe_or_endless_name_is_refused)
{
    struct rank_hello h = hello("../up", 1), back;
    uint8_t bytes[RANK_HELLO_BYTES];
    struct writer w = writer_over(bytes, sizeof(bytes));
    write_rank_hello(&w, &h);
    cr_assert_eq(decode_hello(bytes, sizeof(bytes), &back), TCK_ERR_PROTO);
    h = hello("ok", 1);
    w = writer_over(bytes, sizeof(bytes));
    write_rank_hello(&w, &h);
    memset(bytes, 'a', CONFIG_NAME);
    cr_assert_eq(decode_hello(bytes, sizeof(bytes), &back), TCK_ERR_PROTO);
}

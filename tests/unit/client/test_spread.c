/* SPDX-License-Identifier: Apache-2.0
 * The routes of shards between twins, in hand-written cases and in random worlds. */
#include "client/spread.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RANKS  24
#define SHARDS 40
#define WORLDS 3000

/* A world of which only the shards and their ranks matter. */
struct scene {
    struct world world;
    struct world_shard shards[SHARDS];
    uint32_t ranks[SHARDS * RANKS];
    struct hash128 roots[SHARDS * RANKS];
};

static struct hash128 root_of(uint32_t shard)
{
    return (struct hash128){shard + UINT64_C(1), 77};
}

static void begin(struct scene *s, uint32_t world_size)
{
    memset(s, 0, sizeof(*s));
    s->world = (struct world){.world_size = world_size, .shards = s->shards, .shard_ranks = s->ranks};
}

static uint32_t entries(const struct scene *s)
{
    uint32_t count = s->world.shard_count;

    return count == 0 ? 0 : s->shards[count - 1].first_rank + s->shards[count - 1].rank_count;
}

/* A shard of the ranks in text: an upper-case letter has it, a lower-case one lacks it ("Abd": ranks 0, 1, 3). */
static void shard(struct scene *s, const char *text, uint64_t bytes)
{
    uint32_t first = entries(s), number = s->world.shard_count++;

    s->shards[number] = (struct world_shard){
        .id = root_of(number), .image_bytes = bytes, .first_rank = first, .rank_count = (uint32_t)strlen(text)};
    for (uint32_t i = 0; text[i] != '\0'; i++) {
        bool here = text[i] < 'a';

        s->ranks[first + i] = (uint32_t)(text[i] - (here ? 'A' : 'a'));
        s->roots[first + i] = here ? root_of(number) : (struct hash128){0};
    }
}

static struct spread plan(const struct scene *s)
{
    struct spread spread;
    struct error err = {0};

    cr_assert_eq(spread_plan(&s->world, s->roots, &spread, &err), TCK_OK, "%s", err.text);
    return spread;
}

Test(spread, sends_nothing_where_every_rank_has_its_shards)
{
    struct scene s;
    begin(&s, 4);
    shard(&s, "AB", 10);
    shard(&s, "C", 10);
    struct spread spread = plan(&s);
    cr_assert_eq(spread.route_count, 0);
    cr_assert_eq(spread.member_count, 0);
    spread_free(&spread);
}

Test(spread, sends_a_shard_from_the_rank_that_has_it_to_those_that_lack_it)
{
    struct scene s;
    begin(&s, 5);
    shard(&s, "aBce", 10);
    struct spread spread = plan(&s);
    cr_assert_eq(spread.route_count, 1);
    const struct spread_route *route = &spread.routes[0];
    cr_assert_eq(route->root, 1);
    cr_assert_eq(route->count, 3);
    cr_assert(hash128_is(route->digest, root_of(0)));
    cr_assert_eq(spread_rank_at(&spread, route, 0), 1);
    cr_assert_eq(spread_rank_at(&spread, route, 3), 4);
    cr_assert_eq(spread_place(&spread, route, 2), 2);
    cr_assert_eq(spread_place(&spread, route, 3), NONE32);
    spread_free(&spread);
}

Test(spread, leaves_ranks_out_that_need_nothing_and_give_nothing)
{
    struct scene s;
    begin(&s, 6);
    shard(&s, "Ab", 10);
    shard(&s, "CD", 10);
    shard(&s, "E", 10);
    struct spread spread = plan(&s);
    cr_assert_eq(spread.member_count, 2);
    cr_assert_eq(spread_member(&spread, 1), 1);
    cr_assert_eq(spread_member(&spread, 2), NONE32);
    cr_assert_eq(spread_member(&spread, 5), NONE32);
    spread_free(&spread);
}

Test(spread, shares_the_sending_among_those_that_can_by_bytes)
{
    struct scene s;
    begin(&s, 3);
    shard(&s, "ABc", 100);
    shard(&s, "ABc", 30);
    shard(&s, "ABc", 40);
    shard(&s, "ABc", 50);
    struct spread spread = plan(&s);
    const uint32_t want[] = {0, 1, 1, 1};
    for (uint32_t i = 0; i < 4; i++) {
        cr_assert_eq(spread.routes[i].root, want[i], "route %u: %u", i, spread.routes[i].root);
    }
    spread_free(&spread);
}

Test(spread, counts_what_the_ranks_of_a_route_pass_before_it)
{
    struct scene s;
    begin(&s, 5);
    shard(&s, "Ab", 100);
    shard(&s, "De", 5);
    shard(&s, "bC", 30);
    shard(&s, "Cd", 7);
    struct spread spread = plan(&s);
    const uint64_t want[] = {0, 0, 100, 130};
    for (uint32_t i = 0; i < 4; i++) {
        cr_assert_eq(spread.routes[i].ahead, want[i], "route %u: %lu", i, (unsigned long)spread.routes[i].ahead);
    }
    spread_free(&spread);
}

static void refused(const struct scene *s, tck_status_t status, const char *text)
{
    struct spread spread;
    struct error err = {0};

    cr_assert_eq(spread_plan(&s->world, s->roots, &spread, &err), status);
    cr_assert_not_null(strstr(err.text, text), "%s", err.text);
}

Test(spread, refuses_a_shard_that_nobody_has)
{
    struct scene s;
    begin(&s, 2);
    shard(&s, "ab", 10);
    refused(&s, TCK_ERR_NOENT, "no rank has shard");
}

Test(spread, refuses_to_choose_between_twins_that_differ)
{
    struct scene s;
    begin(&s, 3);
    shard(&s, "ABc", 10);
    s.roots[1].lo++;
    refused(&s, TCK_ERR_CORRUPT, "ranks 0 and 1 have different bytes");
}

Test(spread, lets_twins_that_differ_be_when_nobody_needs_theirs)
{
    struct scene s;
    begin(&s, 2);
    shard(&s, "AB", 10);
    s.roots[1].lo++;
    struct spread spread = plan(&s);
    cr_assert_eq(spread.route_count, 0);
    spread_free(&spread);
}

/* ---- worlds made by chance ------------------------------------------------------------------------------------- */

static uint32_t chance(uint64_t *seed, uint32_t below)
{
    *seed = *seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(*seed >> 33) % below;
}

/* Groups of random ranks, each with at least one rank that has the shard. */
static void make(struct scene *s, uint64_t *seed)
{
    begin(s, 1 + chance(seed, RANKS));
    uint32_t shards = chance(seed, SHARDS), rare = 1 + chance(seed, 8);
    for (uint32_t n = 0; n < shards; n++) {
        char text[RANKS + 1] = "";
        uint32_t count = 0;
        for (uint32_t r = 0; r < s->world.world_size; r++) {
            if (chance(seed, 3) == 0) {
                text[count++] = (char)((chance(seed, rare) == 0 ? 'A' : 'a') + (char)r);
            }
        }
        if (count > 0) {
            uint32_t holder = chance(seed, count);
            text[holder] = (char)(text[holder] < 'a' ? text[holder] : text[holder] - 'a' + 'A');
            shard(s, text, 1 + chance(seed, 1000));
        }
    }
}

/* Every rank that lacks a shard gets it once, from one that had it at first. */
static void check_each_gets_what_it_lacks(const struct scene *s, const struct spread *spread)
{
    for (uint32_t n = 0; n < s->world.shard_count; n++) {
        const struct world_shard *shard = &s->shards[n];
        for (uint32_t i = shard->first_rank; i < shard->first_rank + shard->rank_count; i++) {
            bool lacks = s->roots[i].hi == 0;
            uint32_t got = 0, gave = 0;
            for (uint32_t k = 0; k < spread->route_count; k++) {
                const struct spread_route *route = &spread->routes[k];
                uint32_t place = route->shard == n ? spread_place(spread, route, s->ranks[i]) : NONE32;
                got += place != NONE32 && place > 0;
                gave += place == 0;
                cr_assert(route->shard != n || hash128_is(route->digest, root_of(n)));
            }
            cr_assert_eq(got, lacks, "rank %u gets shard %u %u times", s->ranks[i], n, got);
            cr_assert(gave <= 1 && !(lacks && gave > 0), "rank %u sends shard %u %u times", s->ranks[i], n, gave);
        }
    }
}

/* No rank is in the route of a shard that it does not have or need, and the members are exactly the ranks that are in a
 * route. */
static void check_members(const struct scene *s, const struct spread *spread)
{
    for (uint32_t r = 0; r < s->world.world_size; r++) {
        uint32_t in = 0;
        for (uint32_t k = 0; k < spread->route_count; k++) {
            const struct spread_route *route = &spread->routes[k];
            const struct world_shard *shard = &s->shards[route->shard];
            bool has = false;
            for (uint32_t i = shard->first_rank; i < shard->first_rank + shard->rank_count; i++) {
                has |= s->ranks[i] == r;
            }
            bool part = spread_place(spread, route, r) != NONE32;
            cr_assert(has || !part, "rank %u is in the route of a shard that is not its own", r);
            in += part;
        }
        cr_assert_eq(spread_member(spread, r) != NONE32, in > 0, "rank %u", r);
    }
}

/* Every rank is at its next route; a route is done when all its ranks are at it. No route may be left over. */
static void check_comes_to_an_end(const struct scene *s, const struct spread *spread)
{
    uint32_t at[RANKS] = {0};
    bool moved = true;
    while (moved) {
        moved = false;
        for (uint32_t r = 0; r < s->world.world_size; r++) {
            while (at[r] < spread->route_count && spread_place(spread, &spread->routes[at[r]], r) == NONE32) {
                at[r]++;
            }
        }
        for (uint32_t k = 0; k < spread->route_count; k++) {
            const struct spread_route *route = &spread->routes[k];
            bool all = true;
            for (uint32_t place = 0; place <= route->count; place++) {
                all &= at[spread_rank_at(spread, route, place)] == k;
            }
            for (uint32_t place = 0; all && place <= route->count; place++) {
                at[spread_rank_at(spread, route, place)]++;
                moved = true;
            }
        }
    }
    for (uint32_t r = 0; r < s->world.world_size; r++) {
        cr_assert_eq(at[r], spread->route_count, "rank %u waits at route %u for ever", r, at[r]);
    }
}

static bool meet(const struct scene *s, const struct spread *spread, uint32_t j, uint32_t k)
{
    for (uint32_t r = 0; r < s->world.world_size; r++) {
        if (spread_place(spread, &spread->routes[j], r) != NONE32 &&
            spread_place(spread, &spread->routes[k], r) != NONE32) {
            return true;
        }
    }
    return false;
}

/* A rank waits for the earlier routes that share a rank with its own, and for the routes that those wait for. */
static void check_what_is_ahead(const struct scene *s, const struct spread *spread)
{
    for (uint32_t k = 0; k < spread->route_count; k++) {
        uint64_t ahead = 0;
        for (uint32_t j = 0; j < k; j++) {
            uint64_t until = spread->routes[j].ahead + s->shards[spread->routes[j].shard].image_bytes;
            ahead = until > ahead && meet(s, spread, j, k) ? until : ahead;
        }
        cr_assert_eq(spread->routes[k].ahead, ahead, "route %u", k);
    }
}

static void check_again_the_same(const struct scene *s, const struct spread *spread)
{
    struct spread again = plan(s);
    cr_assert_eq(again.route_count, spread->route_count);
    cr_assert_eq(again.member_count, spread->member_count);
    for (uint32_t k = 0; k < again.route_count; k++) {
        const struct spread_route *a = &again.routes[k], *b = &spread->routes[k];
        cr_assert(a->shard == b->shard && a->root == b->root && a->first == b->first && a->count == b->count);
    }
    spread_free(&again);
}

static void for_worlds(void (*check)(const struct scene *, const struct spread *))
{
    struct scene *s = malloc(sizeof(*s));
    uint64_t seed = 1;
    for (uint32_t i = 0; i < WORLDS; i++) {
        make(s, &seed);
        struct spread spread = plan(s);
        check(s, &spread);
        spread_free(&spread);
    }
    free(s);
}

Test(spread, gives_every_rank_each_shard_that_it_lacks_once_from_one_that_has_it)
{
    for_worlds(check_each_gets_what_it_lacks);
}

Test(spread, has_nobody_wait_for_a_rank_that_takes_no_part)
{
    for_worlds(check_members);
}

Test(spread, has_an_order_without_deadlock)
{
    for_worlds(check_comes_to_an_end);
}

Test(spread, counts_all_that_a_route_waits_for)
{
    for_worlds(check_what_is_ahead);
}

Test(spread, is_the_same_on_every_rank)
{
    for_worlds(check_again_the_same);
}

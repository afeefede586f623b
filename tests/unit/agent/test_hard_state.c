/* SPDX-License-Identifier: Apache-2.0 */
#include "../base/codec.h"
#include "agent/recovery/kept_inventory.h"
#include "agent/state/hard_state.h"
#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* A descriptor store within this process. */
struct shelf {
    char names[8][64];
    int fds[8];
    int count;
};

static void shelf_remove(void *ctx, const char *name)
{
    struct shelf *s = ctx;
    for (int i = 0; i < s->count; i++) {
        if (strcmp(s->names[i], name) == 0) {
            close(s->fds[i]);
            s->count--;
            memcpy(s->names[i], s->names[s->count], sizeof(s->names[i]));
            s->fds[i] = s->fds[s->count];
        }
    }
}

static tck_status_t shelf_store(void *ctx, const char *name, int fd, struct error *err)
{
    (void)err;
    struct shelf *s = ctx;
    shelf_remove(s, name);
    snprintf(s->names[s->count], sizeof(s->names[0]), "%s", name);
    s->fds[s->count++] = dup(fd);
    return TCK_OK;
}

static struct hard_state *open_state(struct shelf *s)
{
    struct hard_state_setup setup = {.store_fd = shelf_store, .drop_fd = shelf_remove, .ctx = s};
    struct hard_state *state = NULL;
    struct error err;
    cr_assert_eq(hard_state_new(&setup, &state, &err), TCK_OK);
    for (int i = 0; i < s->count; i++) {
        cr_assert(hard_state_adopt(state, s->names[i], dup(s->fds[i])));
    }
    cr_assert_eq(hard_state_ready(state, &err), TCK_OK, "%s", err.text);
    return state;
}

static struct world small_world(uint64_t term)
{
    struct rank_hello hello = {.term_seen = 0};
    strcpy(hello.node.name, "a");
    strcpy(hello.node.domain, "a");
    strcpy(hello.node.address, "127.0.0.1:1");
    hello.node.agent_id = 5;
    struct world world;
    struct error err;
    cr_assert_eq(world_build(term, &hello, 1, &world, &err), TCK_OK, "%s", err.text);
    return world;
}

Test(state, survives_the_agent_with_identity_term_and_decision)
{
    struct shelf shelf = {0};
    struct hard_state *first = open_state(&shelf);
    struct kept kept = *hard_state_get(first);
    cr_assert_neq(kept.agent_id, 0);
    kept.term = (struct term_state){.adopted = 4, .joined = 4};
    kept.port = 40123;
    kept.save_dir = 0x1234567890abcdef;
    kept.reserve = (struct reserve){.first = 8, .last = 11, .given = {.to = 99, .term = 7, .last = 11}};
    kept.claimed = 7;
    kept.claimed_pid = 4711;
    kept.base = (struct version){3, 20};
    kept.base_term = 4;
    kept.changes.of[0] = (struct key_change){1000, "20"};
    strcpy(kept.overridden.of[0], "10");
    strcpy(kept.passed_over, "version 3.30 was committed, and no copy of it was found");
    kept.decision = (struct decision){.term = 4, .seq = 8, .watermark = {4, 20}, .horizon = 21};
    hard_state_put(first, &kept);
    hard_state_free(first);
    struct hard_state *second = open_state(&shelf);
    cr_assert_eq(hard_state_get(second)->agent_id, kept.agent_id);
    cr_assert_eq(hard_state_get(second)->term.joined, 4);
    cr_assert_eq(hard_state_get(second)->decision.watermark.step, 20);
    cr_assert_eq(hard_state_get(second)->port, 40123);
    cr_assert_eq(hard_state_get(second)->save_dir, 0x1234567890abcdef);
    cr_assert(reserve_has(&hard_state_get(second)->reserve, 11));
    cr_assert_eq(hard_state_get(second)->reserve.given.to, 99);
    cr_assert_eq(hard_state_get(second)->reserve.given.last, 11);
    cr_assert_eq(hard_state_get(second)->claimed, 7);
    cr_assert_eq(hard_state_get(second)->claimed_pid, 4711);
    cr_assert_eq(hard_state_get(second)->base_term, 4);
    cr_assert_str_eq(hard_state_get(second)->changes.of[0].value, "20");
    cr_assert_str_eq(hard_state_get(second)->overridden.of[0], "10");
    cr_assert_str_eq(hard_state_passed_over(second, kept.base), kept.passed_over);
    cr_assert_str_eq(hard_state_passed_over(second, (struct version){3, 21}), "");
    hard_state_free(second);
}

Test(state, keeps_what_a_base_replaced_until_another_one_is_chosen)
{
    struct shelf shelf = {0};
    struct hard_state *state = open_state(&shelf);
    hard_state_put_base(state, 4, (struct version){3, 20}, "version 3.30 is damaged");
    cr_assert_str_eq(hard_state_passed_over(state, (struct version){3, 20}), "version 3.30 is damaged");
    cr_assert_eq(hard_state_get(state)->base_term, 4);
    hard_state_put_base(state, 5, (struct version){3, 20}, "version 3.30 is damaged");
    cr_assert_eq(hard_state_get(state)->base_term, 5, "the same base may be chosen again");
    hard_state_put_base(state, 6, (struct version){4, 40}, "");
    cr_assert_str_eq(hard_state_passed_over(state, (struct version){3, 20}), "");
    hard_state_free(state);
}

/* The machine that decided it may be lost before any trainer has the answer. */
Test(state, what_a_base_replaced_is_in_the_inventory)
{
    struct shelf shelf = {0};
    struct hard_state *state = open_state(&shelf);
    hard_state_put_base(state, 4, (struct version){3, 20}, "version 3.30 is damaged");
    struct inventory inv = kept_inventory(state, &(struct node_info){.agent_id = 7});
    cr_assert_str_eq(inv.passed_over, "version 3.30 is damaged");
    cr_assert_eq(inv.base_term, 4);
    cr_assert_eq(inv.base.step, 20);
    cr_assert_eq(inv.node.agent_id, 7);
    hard_state_free(state);
}

Test(state, knows_the_newest_commit_of_former_terms_too)
{
    struct shelf shelf = {0};
    struct hard_state *first = open_state(&shelf);
    struct kept kept = *hard_state_get(first);
    kept.term = (struct term_state){.adopted = 4, .joined = 4};
    kept.watermark = (struct version){3, 50};
    hard_state_put(first, &kept);
    hard_state_free(first);
    struct hard_state *second = open_state(&shelf);
    cr_assert(version_is(hard_state_watermark(second), (struct version){3, 50}));
    kept.decision = (struct decision){.term = 4, .seq = 8, .watermark = {3, 40}};
    hard_state_put(second, &kept);
    cr_assert(version_is(hard_state_watermark(second), (struct version){3, 40}), "an older step was restored since");
    hard_state_free(second);
}

/* The first bytes of the head's first page, up to the last field. */
static void head_is(const struct shelf *shelf, size_t len, const char *hex)
{
    uint8_t page[4096];
    struct writer w = writer_new(0);
    cr_assert_eq(pread(shelf->fds[0], page, sizeof(page), 0), (ssize_t)sizeof(page));
    write_bytes(&w, page, len);
    codec_bytes(&w, hex);
    writer_free(&w);
    for (size_t i = len; i < sizeof(page) - 4; i++) {
        cr_assert_eq(page[i], 0);
    }
}

/* An agent of the same format that replaces this one reads the state that it left: changing these bytes changes the
 * format of the state. */
Test(state, keeps_the_bytes_of_its_head)
{
    struct shelf shelf = {0};
    struct hard_state *state = open_state(&shelf);
    struct kept kept = {
        .agent_id = 0x1122334455667788,
        .term = {.adopted = 5, .joined = 4},
        .watermark = {3, 50},
        .decision = {.term = 4, .seq = 8, .watermark = {4, 20}, .horizon = 41, .open_count = 1, .open = {40}},
        .save_dir = 0x1234567890abcdef,
        .reserve = {.first = 8, .last = 11, .follows = 6, .given = {.to = 99, .term = 7, .last = 12, .follows = 3}},
        .claimed = 7,
        .claimed_pid = 4711,
        .port = 40123,
        .base = {3, 18},
        .base_term = 4,
        .passed_over = "one"};
    hard_state_put(state, &kept); /* the second write; the first is made at the start */
    head_is(&shelf, 285,
            "746b737461746531050000000200000000000000887766554433221105000000000000000400000000000000"
            "0300000000000000320000000000000001040000000000000008000000000000000000000000000000000000"
            "0000000000000000040000000000000014000000000000002900000000000000000000000000000001280000"
            "0000000000000000000000000000000000000000000000000000000000000000000000000000000000000000"
            "0000bb9cefcdab907856341208000000000000000b0000000000000063000000000000000700000000000000"
            "0c00000000000000030000000000000006000000000000000700000000000000671200000300000000000000120000000000000003"
            "006f6e650400000000000000");
    kept.decision = (struct decision){0};
    hard_state_put(state, &kept);
    hard_state_put(state, &kept);
    head_is(&shelf, 168,
            "746b737461746531050000000400000000000000887766554433221105000000000000000400000000000000"
            "0300000000000000320000000000000000bb9cefcdab907856341208000000000000000b0000000000000063"
            "0000000000000007000000000000000c00000000000000030000000000000006000000000000000700000000"
            "000000671200000300000000000000120000000000000003006f6e650400000000000000");
    hard_state_free(state);
}

Test(state, a_torn_head_falls_back_to_the_one_before)
{
    struct shelf shelf = {0};
    struct hard_state *first = open_state(&shelf);
    struct kept kept = *hard_state_get(first);
    kept.term.adopted = 1;
    hard_state_put(first, &kept);
    kept.term.adopted = 2;
    hard_state_put(first, &kept);
    hard_state_free(first);
    uint8_t page[4096];
    for (off_t at = 0; at < 8192; at += 4096) { /* the page with sequence number 2 is torn */
        cr_assert_eq(pread(shelf.fds[0], page, sizeof(page), at), (ssize_t)sizeof(page));
        uint64_t adopted;
        memcpy(&adopted, page + 28, sizeof(adopted));
        if (adopted == 2) {
            page[100] ^= 1;
            cr_assert_eq(pwrite(shelf.fds[0], page, sizeof(page), at), (ssize_t)sizeof(page));
        }
    }
    struct hard_state *second = open_state(&shelf);
    cr_assert_eq(hard_state_get(second)->term.adopted, 1);
    hard_state_free(second);
}

Test(state, keeps_the_world_of_the_newest_term_only)
{
    struct shelf shelf = {0};
    struct hard_state *first = open_state(&shelf);
    struct error err;
    for (uint64_t term = 1; term <= 2; term++) {
        struct world world = small_world(term);
        cr_assert_eq(hard_state_put_world(first, &world, &err), TCK_OK, "%s", err.text);
        world_free(&world);
    }
    struct kept kept = *hard_state_get(first);
    kept.term = (struct term_state){.adopted = 2, .joined = 2};
    hard_state_put(first, &kept);
    hard_state_free(first);
    cr_assert_eq(shelf.count, 2, "head and one world, not %d files", shelf.count);
    struct hard_state *second = open_state(&shelf);
    struct world world;
    cr_assert_eq(hard_state_world(second, &world, &err), TCK_OK, "%s", err.text);
    cr_assert_eq(world.term, 2);
    world_free(&world);
    hard_state_free(second);
}

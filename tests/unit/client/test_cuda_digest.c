/* SPDX-License-Identifier: Apache-2.0
 * digest = device: the roots that seals have for records on the stand-in's devices. */
#include "base/digest.h"
#include "cuda_rig.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct rig rig;

static void open_rig(const char *settings)
{
    rig_open_with(&rig, settings);
}

static void close_rig(void)
{
    rig_close(&rig);
}

TestSuite(cuda_digest, .fini = close_rig, .timeout = 120);

/* Beyond a chunk, at odd places, eager ones, host memory between them. */
static void add_some_of_all(void)
{
    static const uint64_t sizes[] = {9000001, 262144, 262143, 70001, 4096, 333, 64, 63, 1, 0, 17};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        rig_add(&rig, (int)(i % STANDIN_DEVICES), sizes[i], false);
        if (i % 3 == 0) {
            rig_add(&rig, RIG_HOST, 5000 * i + 9, false);
        }
        if (i % 4 == 1) {
            rig_add(&rig, 0, 11 + i, true);
        }
    }
}

static struct sealed newest_seal(void)
{
    const struct fake_shard *shard = &rig.agent.shards[0];
    return seal_read(&shard->seals[shard->sealed_slot]);
}

/* As the agent makes it. */
static struct hash128 root_of_image(void)
{
    uint64_t bytes = rig.agent.shards[0].bytes;
    uint32_t *crcs = calloc(chunk_count(bytes), sizeof(*crcs));
    cr_assert_not_null(crcs);
    struct hash128 root = digest_image(fake_agent_image(&rig.agent, 0), bytes, crcs);
    free(crcs);
    return root;
}

static void expect_root(uint64_t step)
{
    struct sealed sealed = newest_seal();
    cr_assert_eq(sealed.version.step, step);
    cr_assert(sealed.has_root);
    cr_assert(hash128_is(sealed.root, root_of_image()), "step %d", (int)step);
}

Test(cuda_digest, the_seal_names_the_root_that_the_image_has)
{
    open_rig(",\"digest\":\"device\"");
    add_some_of_all();
    rig_register(&rig, true);
    for (uint64_t step = 1; step <= 4; step++) {
        rig_fill(&rig, (uint8_t)(step * 37));
        rig_save(&rig, step);
        expect_root(step);
    }
}

Test(cuda_digest, it_is_made_of_what_the_device_had_and_not_of_what_arrived)
{
    open_rig(",\"digest\":\"device\"");
    rig_add(&rig, 0, 5u << 20, false);
    rig_register(&rig, true);
    rig_fill(&rig, 3);
    standin_damage_next_copy();
    rig_save(&rig, 1);
    cr_assert(newest_seal().has_root);
    cr_assert_not(hash128_is(newest_seal().root, root_of_image()));
    rig_save(&rig, 2);
    expect_root(2);
}

static void await_roots(uint64_t step)
{
    for (int waited_ms = 0; atomic_load(&rig.agent.roots_step) < step; waited_ms++) {
        cr_assert_lt(waited_ms, RIG_PATIENCE_MS);
        usleep(1000);
    }
}

Test(cuda_digest, the_agent_knows_the_root_while_the_bytes_are_still_on_the_device)
{
    open_rig(",\"digest\":\"device\"");
    add_some_of_all();
    rig_register(&rig, true);
    for (uint64_t step = 1; step <= 3; step++) {
        rig_fill(&rig, (uint8_t)(step * 41));
        standin_gate_from(1000);
        standin_gate(false);
        rig_ok(&rig, tck_snapshot(rig.client, step, TCK_SAVE_MEMORY));
        await_roots(step);
        cr_assert_eq(rig.agent.roots_seals, (int)step - 1, "before the seal");
        standin_gate(true);
        rig_ok(&rig, tck_fence(rig.client));
        rig_ok(&rig, tck_wait(rig.client, step, TCK_STAGE_COMMITTED, RIG_PATIENCE_MS));
        expect_root(step);
        cr_assert(hash128_is(rig.agent.shards[0].early, newest_seal().root));
    }
}

Test(cuda_digest, roots_that_were_not_made_are_not_reported)
{
    open_rig("");
    add_some_of_all();
    rig_register(&rig, true);
    rig_fill(&rig, 1);
    rig_save(&rig, 1);
    cr_assert_eq(rig.agent.roots_step, 0);
}

Test(cuda_digest, a_device_that_fails_while_it_makes_them_costs_the_snapshot_and_nobody_is_told)
{
    open_rig(",\"digest\":\"device\"");
    rig_add(&rig, 0, 5u << 20, false);
    rig_register(&rig, true);
    rig_fill(&rig, 3);
    standin_break_at(1); /* what brings the digests to the host */
    rig_ok(&rig, tck_snapshot(rig.client, 1, TCK_SAVE_MEMORY));
    rig_ok(&rig, tck_fence(rig.client));
    cr_assert_eq(tck_wait(rig.client, 1, TCK_STAGE_COPIED, RIG_PATIENCE_MS), TCK_ERR_CANCELED);
    cr_assert_eq(rig.agent.roots_step, 0);
    cr_assert_eq(rig.agent.seals, 0);
}

Test(cuda_digest, a_record_that_has_moved_counts_where_it_is_now)
{
    open_rig(",\"digest\":\"device\"");
    add_some_of_all();
    rig_register(&rig, true);
    struct tensor *first = &rig.tensors[0];
    first->addr = standin_alloc(first->device, first->bytes);
    rig_ok(&rig, tck_set_address(rig.client, first->number, first->addr));
    rig_fill(&rig, 8);
    rig_save(&rig, 1);
    expect_root(1);
    cr_assert(rig_image_holds(&rig, 8));
}

Test(cuda_digest, it_counts_the_heads_of_records)
{
    open_rig(",\"digest\":\"device\"");
    rig.heads = true;
    add_some_of_all();
    rig_register(&rig, true);
    for (uint64_t step = 1; step <= 4; step++) {
        rig_fill(&rig, (uint8_t)(step * 37));
        rig_save(&rig, step);
        expect_root(step);
    }
}

Test(cuda_digest, slots_that_are_not_pinned_have_it_too)
{
    open_rig(",\"digest\":\"device\"");
    standin_refuse_pins(true);
    add_some_of_all();
    rig_register(&rig, true);
    rig_fill(&rig, 5);
    rig_save(&rig, 1);
    expect_root(1);
}

Test(cuda_digest, without_the_option_there_is_none)
{
    open_rig("");
    rig_add(&rig, 0, 100000, false);
    rig_register(&rig, true);
    rig_fill(&rig, 5);
    rig_save(&rig, 1);
    cr_assert_eq(newest_seal().version.step, 1);
    cr_assert_not(newest_seal().has_root);
}

Test(cuda_digest, a_shard_without_records_on_devices_has_none)
{
    open_rig(",\"digest\":\"device\"");
    rig_add(&rig, RIG_HOST, 100000, false);
    rig_register(&rig, false);
    rig_fill(&rig, 5);
    rig_save(&rig, 1);
    cr_assert_not(newest_seal().has_root);
}

/* SPDX-License-Identifier: Apache-2.0
 * Records on devices, with the stand-in instead of CUDA: order, fences, refusals, aborts and fallbacks.
 */
#include "client/cuda.h"
#include "client/cuda_device.h"
#include "cuda_rig.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <sched.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static struct rig rig;
cuda_calls_fn tierckpt_cuda_calls; /* the stand-in's */

static void setup(void)
{
    rig_open(&rig);
}

static void teardown(void)
{
    rig_close(&rig);
}

TestSuite(cuda, .init = setup, .fini = teardown, .timeout = 120);

/* Of all kinds: beyond a staging buffer, odd, tiny, empty, between host records. */
static void add_some_of_all(int device)
{
    static const uint64_t sizes[] = {5000001, 262144, 262143, 70001, 65536, 4096, 333, 64, 63, 1, 0, 17};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        rig_add(&rig, device, sizes[i], false);
        if (i % 3 == 0) {
            rig_add(&rig, RIG_HOST, 9 + i, false);
        }
        if (i % 4 == 1) {
            rig_add(&rig, device, 11 + i, true);
        }
    }
}

Test(cuda, every_size_and_kind_comes_into_the_image_bit_for_bit)
{
    add_some_of_all(0);
    rig_register(&rig, true);
    for (uint64_t step = 1; step <= 4; step++) {
        rig_fill(&rig, (uint8_t)step);
        rig_save(&rig, step);
        cr_assert(rig_image_holds(&rig, (uint8_t)step), "step %d", (int)step);
    }
}

Test(cuda, heads_of_records_on_devices_and_of_others_come_into_the_image)
{
    rig.heads = true;
    add_some_of_all(0);
    rig_register(&rig, true);
    for (uint64_t step = 1; step <= 4; step++) {
        rig_fill(&rig, (uint8_t)step);
        rig_save(&rig, step);
        cr_assert(rig_image_holds(&rig, (uint8_t)step), "step %d", (int)step);
    }
}

Test(cuda, records_of_two_devices_make_one_snapshot)
{
    add_some_of_all(0);
    add_some_of_all(1);
    rig_register(&rig, true);
    rig_fill(&rig, 7);
    rig_save(&rig, 1);
    cr_assert(rig_image_holds(&rig, 7));
}

Test(cuda, many_small_records_take_one_gather_and_one_copy_for_each_filled_buffer)
{
    for (int i = 0; i < 5000; i++) {
        rig_add(&rig, 0, 4096, false);
    }
    rig_register(&rig, true);
    rig_fill(&rig, 9);
    struct standin_counts before = standin_count();
    rig_save(&rig, 1);
    struct standin_counts after = standin_count();
    unsigned fills = (unsigned)((5000u * 4096u + MOVE_GATHERED_MOST - 1) / MOVE_GATHERED_MOST);
    cr_assert_eq(after.gathers - before.gathers, fills);
    cr_assert_eq(after.copies - before.copies, fills);
    cr_assert(rig_image_holds(&rig, 9));
}

Test(cuda, small_records_with_heads_are_gathered_too)
{
    rig.heads = true;
    for (int i = 0; i < 1000; i++) {
        rig_add(&rig, 0, 4096, false);
    }
    rig_register(&rig, true);
    rig_fill(&rig, 9);
    struct standin_counts before = standin_count();
    rig_save(&rig, 1);
    struct standin_counts after = standin_count();
    cr_assert_eq(after.gathers - before.gathers, 1);
    cr_assert_eq(after.copies - before.copies, 1);
    cr_assert(rig_image_holds(&rig, 9));
}

Test(cuda, a_small_record_by_itself_is_copied_from_where_it_lies)
{
    static const uint64_t sizes[] = {4096, 65536, 65537, 262143};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        rig_add(&rig, 0, sizes[i], false);
        rig_add(&rig, RIG_HOST, 100, false);
    }
    rig_register(&rig, true);
    cr_assert_lt(standin_count().device_bytes, MOVE_GATHERED_MOST);
    rig_fill(&rig, 9);
    rig_save(&rig, 1);
    cr_assert_eq(standin_count().gathers, 0);
    cr_assert(rig_image_holds(&rig, 9));
    rig_fill(&rig, 10);
    rig_ok(&rig, tck_restore(rig.client, TCK_NEWEST, NULL));
    cr_assert_eq(standin_count().scatters, 0);
    cr_assert(rig_holds(&rig, 9));
}

Test(cuda, a_save_copies_what_the_training_had_put_on_its_stream_before_it)
{
    add_some_of_all(0);
    rig_register(&rig, true);
    rig_fill(&rig, 1);
    rig_launch_fill(&rig, 2); /* may not have run yet */
    rig_save(&rig, 1);
    cr_assert(rig_image_holds(&rig, 2));
}

/* The next optimizer step is put on the stream while copies are half finished. */
static void race(bool fenced)
{
    rig_add(&rig, 0, 3u << 20, false);
    rig_register(&rig, true);
    rig_fill(&rig, 1);
    standin_gate(false);
    rig_ok(&rig, tck_snapshot(rig.client, 1, TCK_SAVE_MEMORY));
    if (fenced) {
        rig_ok(&rig, tck_fence(rig.client)); /* returns, although the copy is not over */
    }
    standin_await_at_gate(1);
    rig_launch_fill(&rig, 2);
    if (!fenced) {
        rig_sync(&rig);
    }
    standin_gate(true);
    rig_sync(&rig);
    rig_ok(&rig, tck_wait(rig.client, 1, TCK_STAGE_COMMITTED, RIG_PATIENCE_MS));
    cr_assert(rig_holds(&rig, 2));
}

Test(cuda, an_optimizer_step_after_the_fence_cannot_overtake_the_copy)
{
    race(true);
    cr_assert(rig_image_holds(&rig, 1));
}

Test(cuda, without_the_fence_it_overtakes_and_the_image_is_torn)
{
    race(false);
    cr_assert_not(rig_image_holds(&rig, 1));
    cr_assert_not(rig_image_holds(&rig, 2));
    rig_ok(&rig, tck_fence(rig.client));
}

Test(cuda, the_fence_waits_itself_where_nobody_said_which_stream_it_is)
{
    rig_add(&rig, 0, 3u << 20, false);
    rig_register(&rig, false);
    rig_fill(&rig, 1);
    rig_ok(&rig, tck_snapshot(rig.client, 1, TCK_SAVE_MEMORY));
    rig_ok(&rig, tck_fence(rig.client));
    rig_ok(&rig, tck_wait(rig.client, 1, TCK_STAGE_COPIED, 0));
    rig_launch_fill(&rig, 2);
    rig_sync(&rig);
    rig_ok(&rig, tck_wait(rig.client, 1, TCK_STAGE_COMMITTED, RIG_PATIENCE_MS));
    cr_assert(rig_image_holds(&rig, 1));
}

static void *grant_when_asked(void *arg)
{
    (void)arg;
    while (atomic_load(&rig.agent.begins) == 0) {
        sched_yield();
    }
    atomic_store(&rig.agent.mode, FAKE_GRANTS);
    return NULL;
}

Test(cuda, a_fence_before_the_slots_are_granted_lets_nothing_overtake)
{
    pthread_t thread;
    rig_add(&rig, 0, 3u << 20, false);
    rig_register(&rig, true);
    rig_fill(&rig, 1);
    atomic_store(&rig.agent.mode, FAKE_HOLDS);
    rig_ok(&rig, tck_snapshot(rig.client, 1, TCK_SAVE_MEMORY));
    cr_assert_eq(pthread_create(&thread, NULL, grant_when_asked, NULL), 0);
    rig_ok(&rig, tck_fence(rig.client)); /* until the copies are on their way */
    rig_launch_fill(&rig, 2);
    rig_sync(&rig);
    pthread_join(thread, NULL);
    rig_ok(&rig, tck_wait(rig.client, 1, TCK_STAGE_COMMITTED, RIG_PATIENCE_MS));
    cr_assert(rig_image_holds(&rig, 1));
    cr_assert(rig_holds(&rig, 2));
}

Test(cuda, a_fence_lets_the_training_go_on_when_no_slots_are_granted)
{
    rig_add(&rig, 0, 3u << 20, false);
    rig_register(&rig, true);
    rig_fill(&rig, 1);
    atomic_store(&rig.agent.mode, FAKE_HANGS);
    rig_ok(&rig, tck_snapshot(rig.client, 1, TCK_SAVE_MEMORY));
    rig_ok(&rig, tck_fence(rig.client)); /* until the agent's time is over */
    cr_assert_eq(tck_wait(rig.client, 1, TCK_STAGE_COPIED, 0), TCK_ERR_CANCELED);
    rig_launch_fill(&rig, 2);
    rig_sync(&rig);
    atomic_store(&rig.agent.mode, FAKE_GRANTS);
    cr_assert(rig_holds(&rig, 2));
}

Test(cuda, eager_records_are_saved_as_they_were_at_the_call)
{
    rig_add(&rig, 0, 70000, true);
    rig_register(&rig, true);
    rig_fill(&rig, 1);
    rig_ok(&rig, tck_snapshot(rig.client, 1, TCK_SAVE_MEMORY));
    rig_launch_fill(&rig, 2); /* before the fence, as eager records may */
    rig_ok(&rig, tck_fence(rig.client));
    rig_ok(&rig, tck_wait(rig.client, 1, TCK_STAGE_COMMITTED, RIG_PATIENCE_MS));
    cr_assert(rig_image_has(&rig, &rig.tensors[0], 1));
}

Test(cuda, a_save_waits_for_the_copies_that_a_fence_has_left_under_way)
{
    add_some_of_all(0);
    rig_register(&rig, true);
    for (uint64_t step = 1; step <= 30; step++) {
        rig_launch_fill(&rig, (uint8_t)step);
        rig_ok(&rig, tck_snapshot(rig.client, step, TCK_SAVE_MEMORY));
        rig_ok(&rig, tck_fence(rig.client));
    }
    rig_ok(&rig, tck_wait(rig.client, 30, TCK_STAGE_COMMITTED, RIG_PATIENCE_MS));
    cr_assert(rig_image_holds(&rig, 30));
}

Test(cuda, a_moved_record_is_copied_from_its_new_place)
{
    add_some_of_all(0);
    rig_register(&rig, true);
    rig_fill(&rig, 1);
    rig_save(&rig, 1);
    for (uint32_t i = 0; i < rig.count; i++) {
        struct tensor *tensor = &rig.tensors[i];
        if (tensor->device == 0 && tensor->bytes > 0) {
            tensor->addr = standin_alloc(0, tensor->bytes);
            rig_ok(&rig, tck_set_address(rig.client, tensor->number, tensor->addr));
        }
    }
    rig_fill(&rig, 2);
    rig_save(&rig, 2);
    cr_assert(rig_image_holds(&rig, 2));
}

Test(cuda, a_record_cannot_move_to_another_device)
{
    rig_add(&rig, 0, 100, false);
    rig_add(&rig, 1, 100, false);
    rig_register(&rig, true);
    void *elsewhere = standin_alloc(1, 100);
    cr_assert_eq(tck_set_address(rig.client, rig.tensors[0].number, elsewhere), TCK_ERR_INVAL);
    cr_assert(strstr(tck_errmsg(rig.client), "t00000") != NULL, "%s", tck_errmsg(rig.client));
}

/* ---- slots --------------------------------------------------------------------------------------------------- */

Test(cuda, slots_are_pinned_once_and_not_any_more_after_the_detach)
{
    add_some_of_all(0);
    rig_register(&rig, true);
    rig_fill(&rig, 1);
    rig_save(&rig, 1);
    rig_save(&rig, 2);
    cr_assert_eq(standin_count().pins, 1);
    cr_assert_eq(standin_count().host_bytes, 0);
    cr_assert_eq(seals_pins(rig.agent.shards[0].seals), PINS_MADE, "or the agent may remove their pages");
    tck_detach(rig.client, 1);
    cr_assert_eq(seals_pins(rig.agent.shards[0].seals), PINS_NONE);
    struct standin_counts counts = standin_count();
    cr_assert_eq(counts.unpins, 1);
    cr_assert_eq(counts.device_bytes, 0);
    cr_assert_eq(counts.streams, 0);
    cr_assert_eq(counts.events, 0);
    rig.client = NULL;
}

static off_t bytes_in_memory(int fd)
{
    struct stat st;
    cr_assert_eq(fstat(fd, &st), 0);
    return st.st_blocks * 512;
}

/* Both mapping and pinning would allocate what the agent has given back because memory is short. */
Test(cuda, slots_that_were_given_back_get_no_pages_and_are_not_pinned)
{
    rig.agent.gave_back = true;
    rig_add(&rig, 0, 4u << 20, false);
    rig_register(&rig, true);
    const struct fake_shard *shard = &rig.agent.shards[0];
    cr_assert_eq(bytes_in_memory(shard->fd), (off_t)shard->bytes * (FAKE_SLOTS - 1));
    cr_assert_eq(standin_count().pins, 0);
    cr_assert_eq(seals_pins(shard->seals), PINS_NONE);
    rig_fill(&rig, 1);
    rig_save(&rig, 1);
    cr_assert(rig_image_holds(&rig, 1));
}

Test(cuda, only_slots_of_shards_with_records_on_devices_are_pinned)
{
    static uint8_t bytes[5000];
    tck_record_t apart = {.struct_size = sizeof(apart),
                          .key = "apart",
                          .dtype = TCK_U8,
                          .ndim = 1,
                          .global_shape = {sizeof(bytes)},
                          .local_shape = {sizeof(bytes)},
                          .addr = bytes,
                          .replica_group = "others"};
    add_some_of_all(0);
    rig_ok(&rig, tck_add_record(rig.client, &apart, NULL));
    rig_register(&rig, true);
    rig_fill(&rig, 4);
    rig_save(&rig, 1);
    cr_assert_eq(rig.client->layout.shard_count, 2);
    cr_assert_eq(standin_count().pins, 1);
    cr_assert_neq(seals_pins(rig.agent.shards[0].seals), seals_pins(rig.agent.shards[1].seals));
    rig_fill(&rig, 5);
    memset(bytes, 5, sizeof(bytes));
    rig_ok(&rig, tck_restore(rig.client, TCK_NEWEST, NULL));
    cr_assert(rig_holds(&rig, 4));
    cr_assert_eq(bytes[0], 0);
}

Test(cuda, slots_that_cannot_be_pinned_are_filled_through_bounded_buffers)
{
    standin_refuse_pins(true);
    rig_add(&rig, 0, 40u << 20, false);
    add_some_of_all(0);
    rig_register(&rig, true);
    for (uint64_t step = 1; step <= 2; step++) {
        rig_launch_fill(&rig, (uint8_t)step);
        rig_save(&rig, step);
        cr_assert(rig_image_holds(&rig, (uint8_t)step));
    }
    cr_assert_eq(standin_count().pins, 0);
    cr_assert_eq(seals_pins(rig.agent.shards[0].seals), PINS_NONE);
    cr_assert_eq(standin_count().host_bytes, RING_PARTS * (RING_PART_BYTES + 1u));
    rig_fill(&rig, 99);
    rig_ok(&rig, tck_restore(rig.client, TCK_NEWEST, NULL));
    cr_assert(rig_holds(&rig, 2));
}

/* ---- refusals ------------------------------------------------------------------------------------------------ */

Test(cuda, without_the_module_the_error_names_the_record_and_the_file)
{
    uint8_t byte = 0;
    tck_record_t record = {
        .struct_size = sizeof(record), .key = "decoder.weight", .dtype = TCK_U8, .addr = &byte, .memory = TCK_CUDA};
    rig.client->cuda_module = "/nonexistent/libtierckpt_cuda.so";
    cr_assert_eq(tck_add_record(rig.client, &record, NULL), TCK_ERR_UNSUPPORTED);
    cr_assert(strstr(tck_errmsg(rig.client), "decoder.weight") != NULL, "%s", tck_errmsg(rig.client));
    cr_assert(strstr(tck_errmsg(rig.client), "/nonexistent/libtierckpt_cuda.so") != NULL, "%s", tck_errmsg(rig.client));
    cr_assert_eq(rig.client->layout.record_count, 0);
}

Test(cuda, addresses_and_devices_that_are_not_there_are_refused)
{
    uint8_t byte = 0;
    tck_record_t record = {
        .struct_size = sizeof(record), .key = "w", .dtype = TCK_U8, .addr = &byte, .memory = TCK_CUDA};
    cr_assert_eq(tck_add_record(rig.client, &record, NULL), TCK_ERR_INVAL);
    record.device = STANDIN_DEVICES;
    cr_assert_eq(tck_add_record(rig.client, &record, NULL), TCK_ERR_INVAL);
    record.memory = (tck_memory_t)9;
    cr_assert_eq(tck_add_record(rig.client, &record, NULL), TCK_ERR_INVAL);
    cr_assert_eq(tck_set_stream(rig.client, 1, NULL), TCK_ERR_INVAL);
    cr_assert_eq(tck_set_stream(rig.client, 0, NULL), TCK_ERR_INVAL, "no record lies there");
    cr_assert_eq(standin_count().streams, 0);
    cr_assert_eq(standin_count().events, 0);
}

#define AS_OFTEN_AS_WANTED 1000000

static atomic_int enters_left;

static int enter_or_not(int device, struct cuda_place *before_out)
{
    return atomic_fetch_sub(&enters_left, 1) <= 0 ? STANDIN_REFUSED : tierckpt_cuda_calls()->enter(device, before_out);
}

static void alter_enter(struct cuda_calls *altered)
{
    *altered = *tierckpt_cuda_calls();
    altered->enter = enter_or_not;
    struct device *cuda = NULL;
    rig_ok(&rig, cuda_new_with(altered, &cuda, NULL));
    devices_add(&rig.client->devices, cuda);
}

Test(cuda, a_device_that_could_not_be_opened_does_not_pass_for_open)
{
    struct cuda_calls altered;
    uint8_t byte = 0;
    tck_record_t record = {
        .struct_size = sizeof(record), .key = "w", .dtype = TCK_U8, .addr = &byte, .memory = TCK_CUDA};
    alter_enter(&altered);
    cr_assert_eq(tck_add_record(rig.client, &record, NULL), TCK_ERR_IO);
    cr_assert_eq(tck_set_stream(rig.client, 0, NULL), TCK_ERR_INVAL);
    atomic_store(&enters_left, AS_OFTEN_AS_WANTED);
    add_some_of_all(0);
    rig_register(&rig, true);
    rig_fill(&rig, 4);
    rig_save(&rig, 1);
    cr_assert(rig_image_holds(&rig, 4));
    tck_detach(rig.client, 1); /* while the altered table is there */
    rig.client = NULL;
}

/* A snapshot whose last call, the wait for its copies, cannot reach the device. */
static void save_without_a_finish(struct cuda_calls *altered, bool pinned)
{
    alter_enter(altered);
    atomic_store(&enters_left, AS_OFTEN_AS_WANTED);
    standin_refuse_pins(!pinned);
    rig_add(&rig, 0, 3u << 20, false);
    rig_register(&rig, true);
    rig_fill(&rig, 1);
    standin_gate(false);
    atomic_store(&enters_left, 4); /* mark, start, copy, end: not the finish */
    rig_ok(&rig, tck_snapshot(rig.client, 1, TCK_SAVE_MEMORY));
    cr_assert_eq(tck_wait(rig.client, 1, TCK_STAGE_COPIED, RIG_PATIENCE_MS), TCK_ERR_CANCELED);
    atomic_store(&enters_left, AS_OFTEN_AS_WANTED);
    standin_await_at_gate(1);
}

Test(cuda, a_device_that_cannot_be_waited_for_never_writes_into_a_later_slot)
{
    struct cuda_calls altered;
    save_without_a_finish(&altered, false);
    standin_gate(true);
    rig_ok(&rig, tck_fence(rig.client));
    rig_ok(&rig, tck_snapshot(rig.client, 2, TCK_SAVE_MEMORY));
    rig_ok(&rig, tck_fence(rig.client));
    cr_assert_eq(tck_wait(rig.client, 2, TCK_STAGE_COPIED, RIG_PATIENCE_MS), TCK_ERR_CANCELED);
    cr_assert(strstr(tck_errmsg(rig.client), "no longer used") != NULL, "%s", tck_errmsg(rig.client));
    tck_detach(rig.client, 1); /* while the altered table is there */
    rig.client = NULL;
}

static void *open_gate_soon(void *arg)
{
    usleep(50 * 1000);
    standin_gate(true);
    return arg;
}

static void detach_while_a_copy_ends(bool pinned)
{
    struct cuda_calls altered;
    pthread_t thread;
    save_without_a_finish(&altered, pinned);
    cr_assert_eq(standin_count().pins > 0, pinned);
    cr_assert_eq(pthread_create(&thread, NULL, open_gate_soon, NULL), 0);
    tck_detach(rig.client, 1); /* the stand-in ends the test if a copy is still under way */
    rig.client = NULL;
    pthread_join(thread, NULL);
    cr_assert_eq(standin_count().host_bytes, 0);
    cr_assert_eq(standin_count().events, 0);
}

Test(cuda, a_device_that_could_not_be_waited_for_is_at_rest_before_staging_memory_is_given_back)
{
    detach_while_a_copy_ends(false);
}

Test(cuda, a_device_that_could_not_be_waited_for_is_at_rest_before_slots_are_unpinned)
{
    detach_while_a_copy_ends(true);
}

Test(cuda, a_caller_that_knows_of_no_devices_means_host_memory)
{
    uint8_t byte = 3;
    tck_record_t record = {.key = "w", .dtype = TCK_U8, .addr = &byte, .memory = (tck_memory_t)9, .device = 9};
    record.struct_size = offsetof(tck_record_t, device);
    rig_ok(&rig, tck_add_record(rig.client, &record, NULL));
    cr_assert_eq(rig.client->layout.records[0].memory, TCK_HOST);
}

Test(cuda, a_save_in_a_graph_capture_is_refused_and_the_capture_stays_intact)
{
    add_some_of_all(0);
    rig_register(&rig, true);
    rig_fill(&rig, 1);
    standin_capture(rig.streams[0]);
    cr_assert_eq(tck_snapshot(rig.client, 1, TCK_SAVE_MEMORY), TCK_ERR_INVAL);
    cr_assert(strstr(tck_errmsg(rig.client), "captured") != NULL, "%s", tck_errmsg(rig.client));
    cr_assert(standin_capture_end(rig.streams[0]));
    rig_save(&rig, 2);
    cr_assert(rig_image_holds(&rig, 1));
}

Test(cuda, a_fence_in_a_graph_capture_is_refused_while_a_snapshot_is_under_way_and_can_be_repeated)
{
    rig_add(&rig, 0, 3u << 20, false);
    rig_register(&rig, true);
    rig_fill(&rig, 1);
    standin_capture(rig.streams[0]);
    rig_ok(&rig, tck_fence(rig.client)); /* nothing to wait for */
    cr_assert(standin_capture_end(rig.streams[0]));
    standin_gate(false);
    rig_ok(&rig, tck_snapshot(rig.client, 1, TCK_SAVE_MEMORY));
    standin_await_at_gate(1);
    standin_capture(rig.streams[0]);
    cr_assert_eq(tck_fence(rig.client), TCK_ERR_INVAL);
    cr_assert(standin_capture_end(rig.streams[0]));
    rig_ok(&rig, tck_fence(rig.client));
    rig_launch_fill(&rig, 2);
    standin_gate(true);
    rig_sync(&rig);
    rig_ok(&rig, tck_wait(rig.client, 1, TCK_STAGE_COMMITTED, RIG_PATIENCE_MS));
    cr_assert(rig_image_holds(&rig, 1));
}

/* ---- faults -------------------------------------------------------------------------------------------------- */

static void breaks_at(unsigned copy)
{
    add_some_of_all(0);
    rig_register(&rig, true);
    rig_fill(&rig, 1);
    rig_save(&rig, 1);
    int seals = atomic_load(&rig.agent.seals);
    standin_break_at(copy);
    rig_fill(&rig, 2);
    rig_ok(&rig, tck_snapshot(rig.client, 2, TCK_SAVE_MEMORY));
    rig_ok(&rig, tck_fence(rig.client));
    cr_assert_eq(tck_wait(rig.client, 2, TCK_STAGE_COPIED, RIG_PATIENCE_MS), TCK_ERR_CANCELED);
    cr_assert(strstr(tck_errmsg(rig.client), "CUDA device 0") != NULL, "%s", tck_errmsg(rig.client));
    cr_assert(strstr(tck_errmsg(rig.client), "illegal memory access") != NULL, "%s", tck_errmsg(rig.client));
    rig_ok(&rig, tck_snapshot(rig.client, 3, TCK_SAVE_MEMORY)); /* training is not held up */
    rig_ok(&rig, tck_fence(rig.client));
    cr_assert_eq(tck_wait(rig.client, 3, TCK_STAGE_COPIED, RIG_PATIENCE_MS), TCK_ERR_CANCELED);
    tck_version_t version;
    rig_ok(&rig, tck_query(rig.client, &version)); /* by now the agent has heard what came before it */
    cr_assert_eq(atomic_load(&rig.agent.abandoned_step), 2);
    cr_assert_eq(atomic_load(&rig.agent.seals), seals);
    cr_assert_eq(version.step, 1);
    cr_assert(rig_image_holds(&rig, 1));
}

Test(cuda, a_device_that_fails_in_mid_copy_aborts_the_snapshot_which_is_never_sealed)
{
    breaks_at(2);
}

Test(cuda, the_same_with_slots_that_are_not_pinned)
{
    standin_refuse_pins(true);
    breaks_at(3);
}

Test(cuda, the_device_that_is_current_stays_so)
{
    add_some_of_all(1);
    rig_register(&rig, true);
    standin_make_current(0);
    rig_fill(&rig, 1);
    rig_save(&rig, 1);
    rig_ok(&rig, tck_restore(rig.client, TCK_NEWEST, NULL));
    cr_assert_eq(standin_current(), 0);
}

/* ---- restoring ----------------------------------------------------------------------------------------------- */

Test(cuda, a_restore_puts_every_byte_back)
{
    add_some_of_all(0);
    add_some_of_all(1);
    rig_register(&rig, true);
    rig_fill(&rig, 5);
    rig_save(&rig, 1);
    rig_fill(&rig, 6);
    rig_ok(&rig, tck_restore(rig.client, TCK_NEWEST, NULL));
    cr_assert(rig_holds(&rig, 5));
}

Test(cuda, a_restore_comes_after_what_the_training_had_put_on_its_stream)
{
    add_some_of_all(0);
    rig_register(&rig, true);
    rig_fill(&rig, 5);
    rig_save(&rig, 1);
    rig_launch_fill(&rig, 6);
    rig_ok(&rig, tck_restore(rig.client, TCK_NEWEST, NULL));
    rig_sync(&rig);
    cr_assert(rig_holds(&rig, 5));
}

Test(cuda, an_image_that_fails_its_checks_leaves_device_memory_untouched)
{
    add_some_of_all(0);
    rig_register(&rig, true);
    rig_fill(&rig, 5);
    rig_save(&rig, 1);
    rig_fill(&rig, 6);
    fake_agent_image(&rig.agent, 0)[20] ^= 1;
    cr_assert_eq(tck_restore(rig.client, TCK_NEWEST, NULL), TCK_ERR_LAYOUT);
    cr_assert(rig_holds(&rig, 6));
}

Test(cuda, a_restore_onto_a_device_that_fails_says_so)
{
    add_some_of_all(0);
    rig_register(&rig, true);
    rig_fill(&rig, 5);
    rig_save(&rig, 1);
    standin_break_at(2);
    cr_assert_eq(tck_restore(rig.client, TCK_NEWEST, NULL), TCK_ERR_IO);
    cr_assert(strstr(tck_errmsg(rig.client), "CUDA device 0") != NULL, "%s", tck_errmsg(rig.client));
}

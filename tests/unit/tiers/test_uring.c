/* SPDX-License-Identifier: Apache-2.0
 * Transfers by io_uring and by the pool both carry every byte, and end exactly once, whatever fails. */
#include "tiers/io_depth.h"
#include "tiers/uring.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MIB (1u << 20)

static struct loop *loop;
static struct pool *pool;
static struct uring *uring;
static char dir[64];

static int pauses; /* of either direction */

void __real_io_depth_paused(struct io_depth *d);
void __wrap_io_depth_paused(struct io_depth *d);

void __wrap_io_depth_paused(struct io_depth *d)
{
    pauses += d->quickest_ns > 0;
    __real_io_depth_paused(d);
}

static void open_engine(enum uring_way way)
{
    struct error err = {0};
    cr_assert_eq(loop_new(&loop, &err), TCK_OK, "%s", err.text);
    cr_assert_eq(pool_new(loop, 2, &pool, &err), TCK_OK, "%s", err.text);
    cr_assert_eq(uring_new(loop, pool, way, &uring, &err), TCK_OK, "%s", err.text);
}

static void close_engine(void)
{
    uring_free(uring);
    pool_free(pool);
    loop_free(loop);
}

static void make_dir(void)
{
    snprintf(dir, sizeof(dir), "uring-XXXXXX");
    cr_assert_not_null(mkdtemp(dir));
}

static void remove_dir(void)
{
    rmdir(dir);
}

TestSuite(uring, .init = make_dir, .fini = remove_dir);

static int open_file(const char *name, int flags)
{
    char path[128];
    snprintf(path, sizeof(path), "%s/%s", dir, name);
    int fd = open(path, flags, 0600);
    cr_assert(fd >= 0, "%s: %m", path);
    return fd;
}

static void remove_file(const char *name)
{
    char path[128];
    snprintf(path, sizeof(path), "%s/%s", dir, name);
    unlink(path);
}

static uint8_t *buffer(size_t bytes, unsigned seed)
{
    uint8_t *data = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
    cr_assert_not_null(data);
    for (size_t i = 0; i < bytes; i++) {
        data[i] = (uint8_t)((i * 31 + i / 4096 + seed) & 0xff);
    }
    return data;
}

struct waiting {
    int left; /* transfers that have to end before the loop stops */
    int ended, parts;
    uint64_t part_mask;
    struct error last;
};

static void ended(void *ctx, const struct error *outcome)
{
    struct waiting *waiting = ctx;
    waiting->ended++;
    waiting->last = *outcome;
    if (--waiting->left == 0) {
        loop_stop(loop);
    }
}

static void part_arrived(void *ctx, uint32_t i)
{
    struct waiting *waiting = ctx;
    waiting->parts++;
    waiting->part_mask |= UINT64_C(1) << i;
}

static struct error run_one(struct uring_transfer ask)
{
    struct waiting waiting = {.left = 1};
    struct error err = {0};
    ask.done = ended;
    ask.ctx = &waiting;
    ask.name = "file";
    cr_assert_eq(uring_start(uring, &ask, &err), TCK_OK, "%s", err.text);
    cr_assert_eq(waiting.ended, 0, "done ran inside the call");
    loop_run(loop);
    cr_assert_eq(waiting.ended, 1);
    return waiting.last;
}

static void check_round_trip(enum uring_way way, size_t bytes, int direct)
{
    uint8_t *data = buffer(bytes, 3), *back = buffer(bytes, 77);
    open_engine(way);
    int fd = open_file("a", O_RDWR | O_CREAT | direct);
    struct error outcome = run_one((struct uring_transfer){URING_WRITE, .fd = fd, .data = data, .bytes = bytes});
    cr_assert_eq(outcome.code, TCK_OK, "%s", outcome.text);
    outcome = run_one((struct uring_transfer){URING_READ, .fd = fd, .data = back, .bytes = bytes});
    cr_assert_eq(outcome.code, TCK_OK, "%s", outcome.text);
    cr_assert(memcmp(data, back, bytes) == 0);
    close(fd);
    remove_file("a");
    close_engine();
    free(data);
    free(back);
}

Test(uring, reads_back_what_it_wrote_without_the_page_cache)
{
    check_round_trip(URING_IF_ALLOWED, 33 * MIB + 4096, O_DIRECT);
}

Test(uring, reads_back_what_the_pool_wrote)
{
    check_round_trip(URING_NEVER, 33 * MIB + 4096, O_DIRECT);
}

Test(uring, transfers_any_size_through_the_page_cache)
{
    check_round_trip(URING_IF_ALLOWED, 1, 0);
    check_round_trip(URING_IF_ALLOWED, 4 * MIB + 17, 0);
    check_round_trip(URING_NEVER, 4 * MIB + 17, 0);
}

static void check_parts(enum uring_way way)
{
    size_t bytes = 21 * MIB;
    struct waiting waiting = {.left = 1};
    uint8_t *data = buffer(bytes, 0);
    open_engine(way);
    int fd = open_file("a", O_RDWR | O_CREAT);
    cr_assert_eq(ftruncate(fd, (off_t)bytes), 0);
    struct uring_transfer ask = {URING_READ,   fd,    "file",   data, bytes, NULL,
                                 part_arrived, ended, &waiting, NULL, NULL,  NULL};
    cr_assert_eq(uring_start(uring, &ask, NULL), TCK_OK);
    loop_run(loop);
    cr_assert_eq(waiting.parts, 6);
    cr_assert_eq(waiting.part_mask, 0x3f);
    close(fd);
    remove_file("a");
    close_engine();
    free(data);
}

Test(uring, reports_each_part_once)
{
    check_parts(URING_IF_ALLOWED);
    check_parts(URING_NEVER);
}

static void check_short_file(enum uring_way way, off_t size)
{
    uint8_t *data = buffer(9 * MIB, 0);
    open_engine(way);
    int fd = open_file("a", O_RDWR | O_CREAT);
    cr_assert_eq(ftruncate(fd, size), 0);
    struct error outcome = run_one((struct uring_transfer){URING_READ, .fd = fd, .data = data, .bytes = 9 * MIB});
    cr_assert_eq(outcome.code, TCK_ERR_CORRUPT, "%s", outcome.text);
    cr_assert_not_null(strstr(outcome.text, "file: ends before"), "%s", outcome.text);
    close(fd);
    remove_file("a");
    close_engine();
    free(data);
}

Test(uring, reports_a_file_that_ends_early_as_corrupt)
{
    check_short_file(URING_IF_ALLOWED, 8 * MIB);
    check_short_file(URING_IF_ALLOWED, 5 * MIB + 100);
    check_short_file(URING_NEVER, 5 * MIB + 100);
}

static void check_full_device(enum uring_way way)
{
    uint8_t *data = buffer(9 * MIB, 0);
    open_engine(way);
    int fd = open("/dev/full", O_WRONLY);
    struct error outcome = run_one((struct uring_transfer){URING_WRITE, .fd = fd, .data = data, .bytes = 9 * MIB});
    cr_assert_eq(outcome.code, TCK_ERR_NOSPC, "%s", outcome.text);
    cr_assert_not_null(strstr(outcome.text, "file: write: No space left"), "%s", outcome.text);
    close(fd);
    close_engine();
    free(data);
}

Test(uring, passes_on_the_error_of_a_write)
{
    check_full_device(URING_IF_ALLOWED);
    check_full_device(URING_NEVER);
}

static void check_no_sync(enum uring_way way)
{
    uint8_t data[64] = {0};
    open_engine(way);
    int fd = open("/dev/null", O_WRONLY); /* takes writes, has no fsync */
    struct error outcome = run_one((struct uring_transfer){URING_WRITE, .fd = fd, .data = data, .bytes = 64});
    cr_assert_eq(outcome.code, TCK_ERR_INVAL, "%s", outcome.text);
    cr_assert_not_null(strstr(outcome.text, "file: fdatasync"), "%s", outcome.text);
    close(fd);
    close_engine();
}

Test(uring, passes_on_the_error_of_the_sync)
{
    check_no_sync(URING_IF_ALLOWED);
    check_no_sync(URING_NEVER);
}

Test(uring, ends_many_transfers_at_once_each_with_its_own_bytes)
{
    enum { COUNT = 16 };
    struct waiting waiting = {.left = COUNT};
    uint8_t *data[COUNT];
    int fds[COUNT];
    char names[COUNT][8];
    open_engine(URING_IF_ALLOWED);
    for (unsigned i = 0; i < COUNT; i++) {
        snprintf(names[i], sizeof(names[i]), "f%u", i);
        data[i] = buffer(MIB * 3 / 2 * i + 4096, i);
        fds[i] = open_file(names[i], O_RDWR | O_CREAT | O_DIRECT);
        struct uring_transfer ask = {URING_WRITE, fds[i], names[i], data[i], MIB * 3 / 2 * i + 4096, NULL, NULL, ended,
                                     &waiting,    NULL,   NULL,     NULL};
        cr_assert_eq(uring_start(uring, &ask, NULL), TCK_OK);
    }
    loop_run(loop);
    cr_assert_eq(waiting.ended, COUNT);
    for (unsigned i = 0; i < COUNT; i++) {
        uint8_t *back = buffer(MIB * 3 / 2 * i + 4096, 99);
        cr_assert_eq(pread(fds[i], back, MIB * 3 / 2 * i + 4096, 0), (ssize_t)(MIB * 3 / 2 * i + 4096));
        cr_assert(memcmp(back, data[i], MIB * 3 / 2 * i + 4096) == 0, "file %u", i);
        close(fds[i]);
        remove_file(names[i]);
        free(back);
        free(data[i]);
    }
    close_engine();
}

static bool open_gate;
static uint64_t taken, asked;
static struct waiting held_waiting;

static enum uring_turn take_if_open(void *ctx, uint64_t bytes)
{
    (void)ctx;
    asked++;
    taken += open_gate ? bytes : 0;
    return open_gate ? URING_GOES : URING_WAITS;
}

static void open_later(void *ctx)
{
    (void)ctx;
    cr_assert_eq(held_waiting.ended, 0, "it has ended without what it needs");
    open_gate = true;
    uring_resume(uring);
}

static void check_held(enum uring_way way)
{
    size_t bytes = 21 * MIB;
    uint8_t *data = buffer(bytes, 3), *back = buffer(bytes, 4);
    held_waiting = (struct waiting){.left = 1};
    open_gate = false;
    taken = asked = 0;
    open_engine(way);
    int fd = open_file("a", O_RDWR | O_CREAT);
    struct uring_transfer ask = {.direction = URING_WRITE,
                                 .fd = fd,
                                 .name = "file",
                                 .data = data,
                                 .bytes = bytes,
                                 .done = ended,
                                 .ctx = &held_waiting,
                                 .take = take_if_open};
    cr_assert_eq(uring_start(uring, &ask, NULL), TCK_OK);
    cr_assert_eq(asked, 1, "what is throttled asks once, not in a circle");
    uring_resume(uring);
    cr_assert_eq(asked, 2);
    struct loop_timer *timer;
    cr_assert_eq(loop_timer_add(loop, open_later, NULL, &timer), TCK_OK);
    loop_timer_set(timer, 20, false);
    loop_run(loop);
    loop_timer_remove(timer);
    cr_assert_eq(held_waiting.ended, 1);
    cr_assert_eq(taken, bytes, "each byte is taken once");
    cr_assert_eq(pread(fd, back, bytes, 0), (ssize_t)bytes);
    cr_assert(memcmp(back, data, bytes) == 0);
    close(fd);
    remove_file("a");
    close_engine();
    free(back);
    free(data);
}

Test(uring, holds_a_write_back_until_it_may_go)
{
    check_held(URING_IF_ALLOWED);
    check_held(URING_NEVER);
}

Test(uring, what_is_throttled_does_not_hold_back_others)
{
    struct waiting free_waiting = {.left = 1};
    uint8_t *data = buffer(5 * MIB, 5);
    open_gate = false;
    held_waiting = (struct waiting){.left = 1};
    open_engine(URING_IF_ALLOWED);
    int fd = open_file("a", O_RDWR | O_CREAT);
    struct uring_transfer ask = {URING_WRITE, fd,    "held",        data,         5 * MIB, NULL,
                                 NULL,        ended, &held_waiting, take_if_open, NULL,    NULL};
    cr_assert_eq(uring_start(uring, &ask, NULL), TCK_OK);
    ask = (struct uring_transfer){URING_WRITE, fd,    "free",        data, 5 * MIB, NULL,
                                  NULL,        ended, &free_waiting, NULL, NULL,    NULL};
    cr_assert_eq(uring_start(uring, &ask, NULL), TCK_OK);
    loop_run(loop);
    cr_assert(free_waiting.ended == 1 && held_waiting.ended == 0);
    close_engine();
    cr_assert_eq(held_waiting.ended, 1, "the end of the engine ends it, too");
    close(fd);
    remove_file("a");
    free(data);
}

/* Parts of which the file has other bytes already; their bits are set. */
static void check_skipped(enum uring_way way, uint8_t skip)
{
    size_t bytes = 25 * MIB; /* 7 parts, the last one shorter */
    uint8_t *data = buffer(bytes, 3), *there = buffer(bytes, 99), *back = buffer(bytes, 0);
    struct waiting waiting = {.left = 1};
    open_engine(way);
    int fd = open_file("a", O_RDWR | O_CREAT);
    cr_assert_eq(pwrite(fd, there, bytes, 0), (ssize_t)bytes);
    const struct uring_transfer ask = {.direction = URING_WRITE,
                                       .fd = fd,
                                       .name = "file",
                                       .data = data,
                                       .bytes = bytes,
                                       .part = part_arrived,
                                       .done = ended,
                                       .ctx = &waiting,
                                       .skip = &skip};
    cr_assert_eq(uring_start(uring, &ask, NULL), TCK_OK);
    loop_run(loop);
    cr_assert_eq(waiting.last.code, TCK_OK, "%s", waiting.last.text);
    cr_assert_eq(waiting.part_mask, (uint64_t)(~skip & 0x7f), "those that are written are reported, and no others");
    cr_assert_eq(pread(fd, back, bytes, 0), (ssize_t)bytes);
    for (uint32_t i = 0; i < 7; i++) {
        size_t at = (size_t)i * URING_PART_BYTES, len = i < 6 ? URING_PART_BYTES : MIB;
        const uint8_t *want = skip >> i & 1 ? there : data;
        cr_assert(memcmp(back + at, want + at, len) == 0, "part %u with skip %x", i, skip);
    }
    close(fd);
    remove_file("a");
    close_engine();
    free(data);
    free(there);
    free(back);
}

Test(uring, does_not_write_parts_that_are_there_already)
{
    const uint8_t skips[] = {0x00, 0x01, 0x40, 0x22, 0x55, 0x2a, 0x3f, 0x7e, 0x7f};
    for (size_t i = 0; i < sizeof(skips); i++) {
        check_skipped(URING_IF_ALLOWED, skips[i]);
        check_skipped(URING_NEVER, skips[i]);
    }
}

/* A read whose parts go into two buffers in turn, each as soon as the part before is used. */
static struct scattered {
    struct waiting waiting;
    uint8_t *buffers[2];
    bool busy[2];
    uint32_t next, arrived, stops_at;
    const uint8_t *want;
} scattered;

static enum uring_turn scattered_take(void *ctx, uint64_t bytes)
{
    (void)ctx, (void)bytes;
    if (scattered.next == scattered.stops_at) {
        return URING_STOPS;
    }
    return scattered.busy[scattered.next % 2] ? URING_WAITS : URING_GOES;
}

static void *scattered_place(void *ctx, uint32_t i)
{
    (void)ctx;
    cr_assert_eq(i, scattered.next++);
    scattered.busy[i % 2] = true;
    return scattered.buffers[i % 2];
}

static void scattered_part(void *ctx, uint32_t i)
{
    (void)ctx;
    cr_assert(memcmp(scattered.buffers[i % 2], scattered.want + i * URING_PART_BYTES, MIB) == 0, "part %u", i);
    scattered.busy[i % 2] = false;
    scattered.arrived++;
}

static void check_scattered(enum uring_way way, uint32_t stops_at, tck_status_t wanted)
{
    size_t bytes = 21 * MIB;
    uint8_t *data = buffer(bytes, 3);
    struct error err = {0};
    scattered = (struct scattered){.waiting = {.left = 1},
                                   .buffers = {buffer(URING_PART_BYTES, 4), buffer(URING_PART_BYTES, 5)},
                                   .stops_at = stops_at,
                                   .want = data};
    open_engine(way);
    int fd = open_file("a", O_RDWR | O_CREAT);
    cr_assert_eq(pwrite(fd, data, bytes, 0), (ssize_t)bytes);
    const struct uring_transfer ask = {.direction = URING_READ,
                                       .fd = fd,
                                       .name = "file",
                                       .bytes = bytes,
                                       .part = scattered_part,
                                       .take = scattered_take,
                                       .place = scattered_place,
                                       .done = ended,
                                       .ctx = &scattered.waiting};
    cr_assert_eq(uring_start(uring, &ask, &err), TCK_OK, "%s", err.text);
    loop_run(loop);
    cr_assert_eq(scattered.waiting.ended, 1);
    cr_assert_eq(scattered.waiting.last.code, wanted, "%s", scattered.waiting.last.text);
    cr_assert(stops_at > 6 ? scattered.arrived == 6 : scattered.arrived <= stops_at);
    close(fd);
    remove_file("a");
    close_engine();
    free(scattered.buffers[0]);
    free(scattered.buffers[1]);
    free(data);
}

Test(uring, reads_parts_into_several_places_as_they_become_free)
{
    check_scattered(URING_IF_ALLOWED, UINT32_MAX, TCK_OK);
    check_scattered(URING_NEVER, UINT32_MAX, TCK_OK);
}

Test(uring, ends_a_transfer_that_is_given_up)
{
    check_scattered(URING_IF_ALLOWED, 3, TCK_ERR_CANCELED);
    check_scattered(URING_NEVER, 3, TCK_ERR_CANCELED);
}

/* What comes next may go to other storage: its requests are not compared with those before. */
static void check_pause_after_sync(enum uring_way way)
{
    struct waiting waiting = {.left = 2};
    uint8_t *data = buffer(16 * MIB, 3);
    open_engine(way);
    pauses = 0;
    int fd = open_file("a", O_RDWR | O_CREAT), null = open("/dev/null", O_WRONLY); /* that one has no fdatasync */
    struct uring_transfer ask = {URING_WRITE, fd,    "file",   data, 16 * MIB, NULL,
                                 NULL,        ended, &waiting, NULL, NULL,     NULL};
    cr_assert_eq(uring_start(uring, &ask, NULL), TCK_OK);
    ask.fd = null;
    cr_assert_eq(uring_start(uring, &ask, NULL), TCK_OK);
    loop_run(loop);
    cr_assert_eq(waiting.ended, 2);
    cr_assert_eq(pauses, 1, "%d pauses were noted", pauses);
    close(null);
    close(fd);
    remove_file("a");
    close_engine();
    free(data);
}

Test(uring, forgets_how_quick_requests_were_after_the_last_one_whatever_it_was)
{
    check_pause_after_sync(URING_IF_ALLOWED);
    check_pause_after_sync(URING_NEVER);
}

/* Reads have requests of their own: what is written first would otherwise be read back last. */
Test(uring, a_read_does_not_wait_for_the_writes_before_it)
{
    size_t bytes = 256 * MIB;
    struct waiting writes = {.left = 2}, read = {.left = 1};
    uint8_t *data = buffer(bytes, 3), *back = buffer(4 * MIB, 4);
    open_engine(URING_IF_ALLOWED);
    int fd = open_file("a", O_RDWR | O_CREAT | O_DIRECT), other = open_file("b", O_RDWR | O_CREAT | O_DIRECT);
    cr_assert_eq(pwrite(other, data, 4 * MIB, 0), (ssize_t)(4 * MIB));
    struct uring_transfer ask = {URING_WRITE, fd, "file", data, bytes, NULL, NULL, ended, &writes, NULL, NULL, NULL};
    cr_assert_eq(uring_start(uring, &ask, NULL), TCK_OK);
    ask =
        (struct uring_transfer){URING_READ, other, "other", back, 4 * MIB, NULL, NULL, ended, &read, NULL, NULL, NULL};
    cr_assert_eq(uring_start(uring, &ask, NULL), TCK_OK);
    loop_run(loop);
    cr_assert_eq(read.ended, 1);
    cr_assert_eq(writes.ended, 0);
    close_engine();
    close(fd);
    close(other);
    remove_file("a");
    remove_file("b");
    free(data);
    free(back);
}

static void check_cancel(enum uring_way way)
{
    enum { COUNT = 5 };
    struct waiting waiting = {.left = COUNT};
    uint8_t *data = buffer(16 * MIB, 0);
    open_engine(way);
    int fd = open_file("a", O_RDWR | O_CREAT | O_DIRECT);
    for (int i = 0; i < COUNT; i++) {
        struct uring_transfer ask = {URING_WRITE,  fd,    "file",   data, 16 * MIB, NULL,
                                     part_arrived, ended, &waiting, NULL, NULL,     NULL};
        cr_assert_eq(uring_start(uring, &ask, NULL), TCK_OK);
    }
    close_engine();
    cr_assert_eq(waiting.ended, COUNT);
    cr_assert_eq(waiting.parts, 0, "%d parts were reported to a transfer that is canceled", waiting.parts);
    cr_assert_eq(waiting.last.code, TCK_ERR_CANCELED, "%s", waiting.last.text);
    close(fd);
    remove_file("a");
    free(data);
}

Test(uring, cancels_unfinished_transfers_when_it_is_freed)
{
    check_cancel(URING_IF_ALLOWED);
    check_cancel(URING_NEVER);
}

Test(uring, refuses_an_empty_transfer)
{
    struct uring_transfer ask = {URING_READ, .fd = 0, .name = "nothing", .done = ended};
    open_engine(URING_IF_ALLOWED);
    cr_assert_eq(uring_start(uring, &ask, NULL), TCK_ERR_INVAL);
    close_engine();
}

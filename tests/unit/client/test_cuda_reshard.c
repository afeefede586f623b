/* SPDX-License-Identifier: Apache-2.0
 * A version saved by two ranks is read by a single rank whose tensors are on devices, with the stand-in instead of
 * CUDA. */
#include "client/cuda_bounce.h"
#include "client/reshard.h"
#include "cuda_rig.h"
#include "made_version.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define RANKS   2
#define SAVED   1                    /* what the tensors hold in the version */
#define LONG    ((5u << 20) + 12345) /* more than is read of a tensor at a time, and cut at no even place */
#define CUT     (3u << 20)
#define OWN     ((16u << 20) + 5) /* more than is read at a time of what is a rank's own */
#define HEIGHT  40
#define WIDTH   90001 /* cut by columns */
#define VERSION ((struct version){3, 8})

static struct rig rig;
static uint8_t *matrix; /* on the device */

/* ---- what was saved ---------------------------------------------------------------------------------------------- */

static uint8_t matrix_value(uint64_t row, uint64_t col)
{
    return (uint8_t)(row * 7 + col % 251);
}

static void save_vector(struct layout *layout, const char *key, const uint64_t part[2], uint64_t length, int value)
{
    tck_record_t record = {.struct_size = sizeof(record), .key = key, .dtype = TCK_U8, .ndim = 1};
    uint8_t *data = malloc(part[1] + 1);

    for (uint64_t i = 0; i < part[1]; i++) {
        data[i] = (uint8_t)(value + (int)((part[0] + i) % 251 + length));
    }
    record.global_shape[0] = length;
    record.offset[0] = part[0];
    record.local_shape[0] = part[1];
    record.addr = data;
    cr_assert_eq(layout_add(layout, &record, NULL, NULL), TCK_OK);
}

static void save_matrix(struct layout *layout, uint64_t first, uint64_t columns)
{
    tck_record_t record = {.struct_size = sizeof(record),
                           .key = "matrix",
                           .dtype = TCK_U8,
                           .ndim = 2,
                           .global_shape = {HEIGHT, WIDTH},
                           .offset = {0, first},
                           .local_shape = {HEIGHT, columns}};
    uint8_t *data = malloc(HEIGHT * columns);

    for (uint64_t i = 0; i < HEIGHT * columns; i++) {
        data[i] = matrix_value(i / columns, first + i % columns);
    }
    record.addr = data;
    cr_assert_eq(layout_add(layout, &record, NULL, NULL), TCK_OK);
}

static void save_blob(struct layout *layout, uint32_t rank)
{
    char key[32], text[32];

    snprintf(key, sizeof(key), "rank%u/state", rank);
    snprintf(text, sizeof(text), "of rank %u", rank);
    cr_assert_eq(layout_add_blob(layout, key, 100, NULL, NULL, NULL), TCK_OK);
    struct record *blob = &layout->records[layout->record_count - 1];
    uint64_t size = strlen(text);
    memcpy(blob->addr, &size, sizeof(size));
    memcpy((char *)blob->addr + sizeof(size), text, size);
}

/* "t00000" and "matrix" are cut between the ranks; "t00001" each has as its own under the same name; a blob. */
static void save_rank(struct made_version *made, uint32_t rank)
{
    struct layout layout = {0};
    const uint64_t part[2] = {rank == 0 ? 0 : CUT, rank == 0 ? CUT : LONG - CUT}, all[2] = {0, OWN};

    save_vector(&layout, "t00000", part, LONG, SAVED);
    save_vector(&layout, "t00001", all, all[1], SAVED + (int)rank);
    save_matrix(&layout, rank == 0 ? 0 : 1000, rank == 0 ? 1000 : WIDTH - 1000);
    save_blob(&layout, rank);
    cr_assert_eq(layout_build(&layout, rank, RANKS, NULL), TCK_OK);
    made_version_add(made, &layout);
    for (uint32_t i = 0; i < layout.record_count; i++) {
        if (!layout.records[i].blob) {
            free(layout.records[i].addr);
        }
    }
    layout_free(&layout);
}

/* ---- the rank that there is -------------------------------------------------------------------------------------- */

static void add_matrix(void)
{
    tck_record_t record = {.struct_size = sizeof(record),
                           .key = "matrix",
                           .dtype = TCK_U8,
                           .ndim = 2,
                           .global_shape = {HEIGHT, WIDTH},
                           .local_shape = {HEIGHT, WIDTH},
                           .memory = TCK_CUDA,
                           .device = 1};

    matrix = standin_alloc(1, HEIGHT * WIDTH);
    record.addr = matrix;
    memset(matrix, 0, HEIGHT * WIDTH);
    rig_ok(&rig, tck_add_record(rig.client, &record, NULL));
}

static void setup(void)
{
    struct made_version made;
    char job_dir[64];

    rig_open(&rig);
    snprintf(job_dir, sizeof(job_dir), "%s/job", rig.dir);
    made_version_begin(&made, job_dir, VERSION, RANKS);
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        save_rank(&made, rank);
    }
    made_version_end(&made);
    rig_add(&rig, 0, LONG, false);
    rig_add(&rig, 1, OWN, false);
    add_matrix();
    rig_ok(&rig, tck_add_blob(rig.client, "rank0/state", 100, NULL));
    rig_ok(&rig, tck_set_reshard(rig.client, "t00001", TCK_RESHARD_ANY));
    rig_ok(&rig, tck_set_reshard(rig.client, "rank0/state", TCK_RESHARD_ANY));
    rig_register(&rig, true);
}

static void teardown(void)
{
    standin_free(matrix);
    rig_close(&rig);
}

TestSuite(cuda_reshard, .init = setup, .fini = teardown, .timeout = 240);

static bool matrix_is_saved(void)
{
    for (uint64_t i = 0; i < (uint64_t)HEIGHT * WIDTH; i++) {
        if (matrix[i] != matrix_value(i / WIDTH, i % WIDTH)) {
            return false;
        }
    }
    return true;
}

static tck_status_t reshard(struct error *err)
{
    tck_restored_t restored = {.struct_size = sizeof(restored)};

    return client_reshard(rig.client, VERSION, &restored, err);
}

/* Flips a bit near the end of one of the files. */
static void damage(void)
{
    char pattern[96];
    glob_t found;
    uint8_t byte;

    snprintf(pattern, sizeof(pattern), "%s/job/v*/shard-*", rig.dir);
    cr_assert_eq(glob(pattern, 0, NULL, &found), 0);
    int fd = open(found.gl_pathv[0], O_RDWR);
    off_t at = lseek(fd, -5000, SEEK_END);
    cr_assert_eq(pread(fd, &byte, 1, at), 1);
    byte ^= 1;
    cr_assert_eq(pwrite(fd, &byte, 1, at), 1);
    close(fd);
    globfree(&found);
}

Test(cuda_reshard, what_two_ranks_have_saved_comes_onto_the_devices_of_one_bit_for_bit)
{
    char text[100] = "";
    size_t size = 0;
    struct error err;

    cr_assert_eq(reshard(&err), TCK_OK, "%s", err.text);
    cr_assert(rig_holds(&rig, SAVED), "vectors");
    cr_assert(matrix_is_saved());
    rig_ok(&rig, tck_get_blob(rig.client, "rank0/state", text, sizeof(text), &size));
    cr_assert_str_eq(text, "of rank 0");
}

Test(cuda_reshard, goes_through_pinned_buffers_of_a_fixed_size)
{
    struct standin_counts before = standin_count();
    struct error err;

    cr_assert_eq(reshard(&err), TCK_OK, "%s", err.text);
    struct standin_counts after = standin_count();
    uint64_t most = (uint64_t)STANDIN_DEVICES * RING_PARTS * (RING_PART_BYTES + 1); /* 1: the stand-in's own */
    cr_assert_leq(after.host_bytes - before.host_bytes, most);
    cr_assert_eq(after.device_bytes, before.device_bytes);
}

Test(cuda_reshard, comes_after_what_the_training_had_put_on_its_stream_before)
{
    struct error err;

    rig_launch_fill(&rig, 9); /* may not have run yet */
    cr_assert_eq(reshard(&err), TCK_OK, "%s", err.text);
    rig_sync(&rig);
    cr_assert(rig_holds(&rig, SAVED));
}

Test(cuda_reshard, changes_nothing_on_a_device_if_a_file_is_damaged)
{
    struct error err;

    rig_fill(&rig, 9);
    damage();
    cr_assert_eq(reshard(&err), TCK_ERR_CORRUPT, "%s", err.text);
    cr_assert(rig_holds(&rig, 9));
    cr_assert_not(rig.client->torn);
}

Test(cuda_reshard, a_device_that_breaks_while_it_is_written_to_is_an_error)
{
    struct error err;

    standin_break_at(4);
    cr_assert_neq(reshard(&err), TCK_OK);
    cr_assert_not_null(strstr(err.text, "copy"), "%s", err.text);
    cr_assert(rig.client->torn);
}

/* A restore before this one has failed while it copied: what would be left as it is holds parts of that version. */
Test(cuda_reshard, torn_records_are_not_left_as_they_are)
{
    struct layout *layout = &rig.client->layout;
    struct error err;

    rig.client->torn = true;
    cr_assert_eq(reshard(&err), TCK_OK, "%s", err.text);
    cr_assert_not(rig.client->torn, "all of them were written");
    for (uint32_t i = 0; i < layout->record_count; i++) {
        layout->records[i].reshard = TCK_RESHARD_LEAVE;
    }
    cr_assert_eq(reshard(&err), TCK_OK, "%s", err.text);
    rig.client->torn = true;
    cr_assert_eq(reshard(&err), TCK_ERR_LAYOUT);
    cr_assert_not_null(strstr(err.text, "they hold parts of another version"), "%s", err.text);
    cr_assert(rig.client->torn);
}

/* SPDX-License-Identifier: Apache-2.0
 * Published versions are read back as they were saved, in any other sharding, and damaged bytes are never returned. */
#include "base/layout.h"
#include "made_version.h"
#include "tierckpt.h"
#include "tiers/safe_fs.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define RANKS 4
#define ROWS  10
#define COLS  6
#define WIDE  (3u << 20) /* elements of the tensor that has several chunks */

static char root[64];
static tck_published_t *published;
static uint32_t timeout_ms = 20000;

/* ---- storage that hangs ---------------------------------------------------------------------------------------- */

ssize_t __real_read(int fd, void *data, size_t len);
ssize_t __real_pread(int fd, void *data, size_t len, off_t at);
ssize_t __wrap_read(int fd, void *data, size_t len);
ssize_t __wrap_pread(int fd, void *data, size_t len, off_t at);

static atomic_bool hangs;
static atomic_uint in_call;
static atomic_int failures; /* the number of the next preads that fail, */
static int failure;         /* with this errno */
static void (*_Atomic before_read)(void);

static void wait_while_it_hangs(void)
{
    atomic_fetch_add(&in_call, 1);
    while (atomic_load(&hangs)) {
        usleep(1000);
    }
    atomic_fetch_sub(&in_call, 1);
}

ssize_t __wrap_read(int fd, void *data, size_t len)
{
    void (*act)(void) = atomic_exchange(&before_read, NULL);
    if (act != NULL) {
        act();
    }
    wait_while_it_hangs();
    return __real_read(fd, data, len);
}

ssize_t __wrap_pread(int fd, void *data, size_t len, off_t at)
{
    wait_while_it_hangs();
    if (atomic_fetch_sub(&failures, 1) > 0) {
        errno = failure;
        return -1;
    }
    return __real_pread(fd, data, len, at);
}

tck_status_t __real_safe_fs_open_dir(int dir_fd, const char *name, int *fd_out, struct error *err);
tck_status_t __wrap_safe_fs_open_dir(int dir_fd, const char *name, int *fd_out, struct error *err);

static int dies; /* storage dies between two reads of version 7: 2, 1 */

tck_status_t __wrap_safe_fs_open_dir(int dir_fd, const char *name, int *fd_out, struct error *err)
{
    if (dies == 0 || strncmp(name, "v000000000007", 13) != 0) {
        return __real_safe_fs_open_dir(dir_fd, name, fd_out, err);
    }
    return dies-- == 2 ? error_set(err, TCK_ERR_NOENT, "open directory %s: No such file or directory", name)
                       : error_set(err, TCK_ERR_IO, "open directory %s: it has died", name);
}

/* The calls that were given up must then end as well, although their callers have returned. */
static void answer_again(void)
{
    atomic_store(&hangs, false);
    while (atomic_load(&in_call) > 0) {
        usleep(1000);
    }
}

/* ---- making versions ------------------------------------------------------------------------------------------- */

static const char *below(const char *name)
{
    static char paths[4][400];
    static unsigned next;
    char *out = paths[next++ % 4];
    snprintf(out, sizeof(paths[0]), "%s/%s", root, name);
    return out;
}

static uint32_t value(uint64_t row, uint64_t col)
{
    return (uint32_t)(row * 1000 + col);
}

struct part {
    const char *key, *group;
    uint64_t global[2], offset[2], shape[2];
};

static void add_tensor(struct layout *layout, const struct part *part)
{
    tck_record_t record = {.struct_size = sizeof(record), .key = part->key, .dtype = TCK_U32, .ndim = 2};
    uint32_t *data = malloc(part->shape[0] * part->shape[1] * sizeof(*data));
    memcpy(record.global_shape, part->global, sizeof(part->global));
    memcpy(record.offset, part->offset, sizeof(part->offset));
    memcpy(record.local_shape, part->shape, sizeof(part->shape));
    for (uint64_t i = 0; i < part->shape[0] * part->shape[1]; i++) {
        data[i] = value(part->offset[0] + i / part->shape[1], part->offset[1] + i % part->shape[1]);
    }
    record.addr = data;
    record.replica_group = part->group;
    cr_assert_eq(layout_add(layout, &record, NULL, NULL), TCK_OK);
}

/* "rows" is sharded by rows, "grid" in 2 x 2, "copy" the same on all, "pairs" on two groups that both have all of it,
 * "own" each rank's own under one name, "wide" of rank 1 alone; and a blob. */
static void add_records(struct layout *layout, uint32_t rank)
{
    char text[32];
    const struct part parts[] = {
        {"rows", NULL, {ROWS, COLS}, {rank * 3u, 0}, {rank == 3 ? 1 : 3, COLS}},
        {"grid", NULL, {ROWS, COLS}, {rank / 2 * 4u, rank % 2 * 5u}, {rank / 2 ? 6 : 4, rank % 2 ? 1 : 5}},
        {"copy", "all", {ROWS, COLS}, {0, 0}, {ROWS, COLS}},
        {"pairs", rank < 2 ? "low" : "high", {ROWS, COLS}, {0, 0}, {ROWS, COLS}},
        {"own", NULL, {1, COLS}, {0, 0}, {1, COLS}},
        {"wide", NULL, {1, WIDE}, {0, 0}, {1, WIDE}},
        {"rows", NULL, {ROWS, COLS}, {2, 1}, {1, 1}}, /* a second piece, inside one that others have */
    };
    for (size_t i = 0; i < 5; i++) {
        add_tensor(layout, &parts[i]);
    }
    if (rank == 1) {
        add_tensor(layout, &parts[5]);
        add_tensor(layout, &parts[6]);
    }
    cr_assert_eq(layout_add_blob(layout, "origin", 100, NULL, NULL, NULL), TCK_OK);
    struct record *blob = &layout->records[layout->record_count - 1];
    uint64_t size = htole64((uint64_t)snprintf(text, sizeof(text), "I was rank %u", rank));
    memcpy(blob->addr, &size, sizeof(size));
    memcpy((char *)blob->addr + sizeof(size), text, strlen(text));
}

static void add_rank(struct made_version *made, uint32_t rank)
{
    struct layout layout = {0};
    add_records(&layout, rank);
    cr_assert_eq(layout_build(&layout, rank, RANKS, NULL), TCK_OK);
    made_version_add(made, &layout);
    for (uint32_t i = 0; i < layout.record_count; i++) {
        if (!layout.records[i].blob) {
            free(layout.records[i].addr);
        }
    }
    layout_free(&layout);
}

static void publish(const char *dir, uint64_t term, uint64_t step)
{
    struct made_version made;
    char job[400];
    snprintf(job, sizeof(job), "%s/job", dir);
    made_version_begin(&made, job, (struct version){term, step}, RANKS);
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        add_rank(&made, rank);
    }
    made_version_end(&made);
}

/* ---- setup ----------------------------------------------------------------------------------------------------- */

static void setup(void)
{
    snprintf(root, sizeof(root), "/tmp/tck-reader-XXXXXX");
    cr_assert_not_null(mkdtemp(root));
    cr_assert_eq(mkdir(below("job"), 0755), 0);
}

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *at)
{
    (void)st, (void)kind, (void)at;
    return remove(path);
}

static void teardown(void)
{
    tck_published_close(published);
    nftw(root, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

TestSuite(published, .init = setup, .fini = teardown);

static tck_status_t open_step(uint64_t step, const char *load_dir)
{
    char json[400];
    tck_published_open_params_t params = {.struct_size = sizeof(params), .config_json = json, .step = step};
    snprintf(json, sizeof(json), "{\"job\":\"job\",\"storage_timeout_ms\":%u,\"save_dir\":\"%s\"%s%s%s}", timeout_ms,
             root, load_dir == NULL ? "" : ",\"load_dir\":\"", load_dir == NULL ? "" : load_dir,
             load_dir == NULL ? "" : "\"");
    return tck_published_open(&params, &published);
}

static void must_open(void)
{
    publish(root, 2, 7);
    cr_assert_eq(open_step(TCK_NEWEST, NULL), TCK_OK, "%s", tck_published_errmsg(NULL));
}

static void assert_text(const char *text, const char *part)
{
    cr_assert_not_null(strstr(text, part), "\"%s\" does not contain \"%s\"", text, part);
}

static tck_published_info_t info(void)
{
    tck_published_info_t out = {.struct_size = sizeof(out)};
    cr_assert_eq(tck_published_info(published, &out), TCK_OK);
    return out;
}

static tck_published_entry_t entry(uint64_t i)
{
    tck_published_entry_t out = {.struct_size = sizeof(out)};
    cr_assert_eq(tck_published_entry(published, i, &out), TCK_OK);
    return out;
}

static uint64_t count_of(const char *key)
{
    uint64_t count = 0;
    for (uint64_t i = 0; i < info().entry_count; i++) {
        count += strcmp(entry(i).key, key) == 0;
    }
    return count;
}

static tck_published_box_t box_of(const char *key, uint64_t row, uint64_t col, uint64_t rows, uint64_t cols)
{
    return (tck_published_box_t){.struct_size = sizeof(tck_published_box_t),
                                 .key = key,
                                 .dtype = TCK_U32,
                                 .ndim = 2,
                                 .global_shape = {ROWS, COLS},
                                 .offset = {row, col},
                                 .local_shape = {rows, cols}};
}

static void assert_box(const char *key, uint64_t row, uint64_t col, uint64_t rows, uint64_t cols)
{
    const tck_published_box_t box = box_of(key, row, col, rows, cols);
    uint32_t data[ROWS * COLS + 1] = {[ROWS * COLS] = 77};
    cr_assert_eq(tck_published_read_box(published, &box, data), TCK_OK, "%s", tck_published_errmsg(published));
    for (uint64_t i = 0; i < rows * cols; i++) {
        cr_assert_eq(data[i], value(row + i / cols, col + i % cols));
    }
    cr_assert_eq(data[ROWS * COLS], 77);
}

static void refuse_box(const tck_published_box_t *box, tck_status_t status, const char *why)
{
    uint32_t data[ROWS * COLS];
    memset(data, 0x55, sizeof(data));
    cr_assert_eq(tck_published_read_box(published, box, data), status, "%s", tck_published_errmsg(published));
    assert_text(tck_published_errmsg(published), why);
    for (uint32_t i = 0; i < ROWS * COLS; i++) {
        cr_assert_eq(data[i], 0x55555555);
    }
}

/* ---- entries --------------------------------------------------------------------------------------------------- */

Test(published, entries_list_what_was_saved)
{
    must_open();
    cr_assert_eq(info().version.term, 2);
    cr_assert_eq(info().version.step, 7);
    cr_assert_eq(info().world_size, RANKS);
    cr_assert_str_eq(info().passed_over, "");
    assert_text(info().path, "/job/v000000000007.t2");
    cr_assert_eq(count_of("rows"), RANKS + 1);
    cr_assert_eq(count_of("own"), RANKS);
    cr_assert_eq(count_of("origin"), RANKS);
    cr_assert_eq(count_of("copy"), 1);
    cr_assert_eq(info().entry_count, (RANKS + 1) + 3 * RANKS + 3);
}

Test(published, a_tensor_of_several_groups_has_one_entry)
{
    must_open();
    cr_assert_eq(count_of("pairs"), 1);
}

Test(published, entries_are_sorted_and_name_their_ranks)
{
    int owners = 0;
    must_open();
    for (uint64_t i = 0; i < info().entry_count; i++) {
        tck_published_entry_t now = entry(i);
        bool is_private = strcmp(now.key, "copy") != 0 && strcmp(now.key, "pairs") != 0;
        cr_assert(i == 0 || strcmp(entry(i - 1).key, now.key) <= 0);
        cr_assert_eq(now.rank >= 0, is_private);
        cr_assert_eq(now.blob, strcmp(now.key, "origin") == 0);
        if (strcmp(now.key, "grid") == 0) {
            cr_assert_eq(now.offset[0], now.rank / 2 * 4u);
            cr_assert_eq(now.offset[1], now.rank % 2 * 5u);
            owners |= 1 << now.rank;
        }
    }
    cr_assert_eq(owners, (1 << RANKS) - 1);
}

/* ---- boxes ----------------------------------------------------------------------------------------------------- */

Test(published, any_box_is_read_from_any_sharding)
{
    must_open();
    for (uint64_t row = 0; row < ROWS; row++) {
        for (uint64_t col = 0; col < COLS; col++) {
            assert_box("rows", row, col, ROWS - row, COLS - col);
            assert_box("grid", 0, col, row + 1, COLS - col);
            assert_box("copy", row, 0, 1, col);
            assert_box("pairs", row, col, ROWS - row, 1);
        }
    }
}

Test(published, wrong_boxes_are_named)
{
    must_open();
    tck_published_box_t box = box_of("rows", 5, 0, 6, COLS);
    refuse_box(&box, TCK_ERR_INVAL, "do not fit");
    box = box_of("rows", 0, 0, 1, 1);
    box.dtype = TCK_F32;
    refuse_box(&box, TCK_ERR_LAYOUT, "saved as U32, and is wanted as F32");
    box = box_of("rows", 0, 0, 1, 1);
    box.global_shape[0]++;
    refuse_box(&box, TCK_ERR_LAYOUT, "saved with 10 in dimension 0, and is wanted with 11");
    box = box_of("none", 0, 0, 1, 1);
    refuse_box(&box, TCK_ERR_NOENT, "\"none\": no rank has saved it");
    box = box_of("origin", 0, 0, 1, 1);
    refuse_box(&box, TCK_ERR_LAYOUT, "is a blob");
}

Test(published, the_own_tensors_of_each_rank_are_not_mixed_up)
{
    must_open();
    tck_published_box_t box = box_of("own", 0, 0, 1, COLS);
    box.global_shape[0] = 1;
    refuse_box(&box, TCK_ERR_LAYOUT, "each have saved their own");
}

/* ---- entries and blobs ----------------------------------------------------------------------------------------- */

static uint64_t find_entry(const char *key, int rank)
{
    for (uint64_t i = 0; i < info().entry_count; i++) {
        if (strcmp(entry(i).key, key) == 0 && entry(i).rank == rank) {
            return i;
        }
    }
    cr_assert_fail("no %s of rank %d", key, rank);
    return 0;
}

Test(published, ranges_of_entries_are_read_across_chunks)
{
    const uint64_t first = CHUNK_BYTES - 4096 - 40, len = CHUNK_BYTES + 80;
    uint32_t *data = malloc(len);
    must_open();
    uint64_t wide = find_entry("wide", 1);
    cr_assert_eq(entry(wide).bytes, 4 * (uint64_t)WIDE);
    cr_assert_eq(tck_published_read_entry(published, wide, first, len, data), TCK_OK);
    for (uint64_t i = 0; i < len / 4; i++) {
        cr_assert_eq(data[i], value(0, first / 4 + i));
    }
    cr_assert_eq(tck_published_read_entry(published, wide, entry(wide).bytes - 4, 8, data), TCK_ERR_INVAL);
    cr_assert_eq(tck_published_read_entry(published, info().entry_count, 0, 1, data), TCK_ERR_NOENT);
    free(data);
}

Test(published, every_rank_has_its_own_blobs)
{
    char text[64];
    size_t size = 0;
    must_open();
    cr_assert_eq(tck_published_read_blob(published, "origin", 2, text, sizeof(text), &size), TCK_OK);
    cr_assert_eq(size, strlen("I was rank 2"));
    cr_assert_arr_eq(text, "I was rank 2", size);
    cr_assert_eq(tck_published_read_blob(published, "origin", 2, text, 3, &size), TCK_ERR_NOSPC);
    cr_assert_eq(size, strlen("I was rank 2"));
    cr_assert_eq(tck_published_read_blob(published, "origin", RANKS, text, sizeof(text), &size), TCK_ERR_NOENT);
    cr_assert_eq(tck_published_read_blob(published, "origin", -1, text, sizeof(text), &size), TCK_ERR_LAYOUT);
    cr_assert_eq(tck_published_read_blob(published, "rows", -1, text, sizeof(text), &size), TCK_ERR_NOENT);
}

/* ---- damage ---------------------------------------------------------------------------------------------------- */

/* The path of the file that has this entry. */
static const char *file_with(const char *key, int rank)
{
    char name[300];
    must_open();
    snprintf(name, sizeof(name), "job/v000000000007.t2/%s", entry(find_entry(key, rank)).file);
    return below(name);
}

static void flip(const char *path, off_t at)
{
    uint8_t byte;
    int fd = open(path, O_RDWR);
    cr_assert_eq(pread(fd, &byte, 1, at), 1);
    byte ^= 1;
    cr_assert_eq(pwrite(fd, &byte, 1, at), 1);
    close(fd);
}

Test(published, bytes_with_a_flipped_bit_are_never_returned)
{
    uint32_t data[4] = {1, 1, 1, 1};
    flip(file_with("wide", 1), 2 * (off_t)CHUNK_BYTES + 5);
    uint64_t wide = find_entry("wide", 1);
    cr_assert_eq(tck_published_read_entry(published, wide, 0, sizeof(data), data), TCK_OK);
    data[0] = 1;
    cr_assert_eq(tck_published_read_entry(published, wide, 2 * CHUNK_BYTES, sizeof(data), data), TCK_ERR_CORRUPT);
    assert_text(tck_published_errmsg(published), ".safetensors: chunk 2 of 4 has CRC");
    cr_assert_eq(data[0], 1);
}

Test(published, a_damaged_header_does_not_open)
{
    flip(file_with("grid", 3), 100);
    tck_published_close(published);
    published = NULL;
    cr_assert_eq(open_step(TCK_NEWEST, NULL), TCK_ERR_CORRUPT);
    assert_text(tck_published_errmsg(NULL), "chunk 0 of 1 has CRC");
}

Test(published, missing_and_short_files_are_errors_by_the_manifest)
{
    const char *path = file_with("grid", 0);
    cr_assert_eq(truncate(path, 4096), 0);
    cr_assert_eq(open_step(7, NULL), TCK_ERR_CORRUPT);
    assert_text(tck_published_errmsg(NULL), "has 4096 bytes, its manifest says");
    cr_assert_eq(unlink(path), 0);
    cr_assert_eq(open_step(7, NULL), TCK_ERR_CORRUPT, "it must not be reported as absent");
    assert_text(tck_published_errmsg(NULL), ".safetensors");
}

Test(published, a_file_that_disappears_while_it_is_read_is_an_error)
{
    const char *path = file_with("wide", 1);
    uint32_t data[1];
    cr_assert_eq(truncate(path, CHUNK_BYTES), 0);
    cr_assert_eq(tck_published_read_entry(published, find_entry("wide", 1), 2 * CHUNK_BYTES, 4, data), TCK_ERR_CORRUPT);
    assert_text(tck_published_errmsg(published), "ends in chunk 2");
}

/* ---- choice ---------------------------------------------------------------------------------------------------- */

Test(published, the_newest_version_has_the_highest_term_and_step)
{
    publish(root, 1, 900);
    publish(root, 2, 30);
    publish(root, 2, 40);
    cr_assert_eq(open_step(TCK_NEWEST, NULL), TCK_OK);
    cr_assert_eq(info().version.step, 40);
    tck_published_close(published);
    cr_assert_eq(open_step(900, NULL), TCK_OK);
    cr_assert_eq(info().version.term, 1);
    tck_published_close(published);
    published = NULL;
    cr_assert_eq(open_step(41, NULL), TCK_ERR_NOENT);
    assert_text(tck_published_errmsg(NULL), "has published no step 41");
}

static tck_status_t open_below(const char *save_dir, const char *load_dir)
{
    char json[1024];
    snprintf(json, sizeof(json), "{\"job\":\"job\",\"save_dir\":\"%s\",\"load_dir\":\"%s\"}", save_dir, load_dir);
    tck_published_open_params_t params = {.struct_size = sizeof(params), .config_json = json, .step = TCK_NEWEST};
    return tck_published_open(&params, &published);
}

Test(published, a_directory_that_does_not_exist_is_no_empty_one)
{
    char text[512];
    cr_assert_eq(mkdir(below("empty"), 0700), 0);
    cr_assert_eq(open_below(below("empty"), ""), TCK_ERR_NOENT);
    snprintf(text, sizeof(text), "job job has published nothing in %s", below("empty"));
    assert_text(tck_published_errmsg(NULL), text);

    cr_assert_eq(open_below(below("mistyped"), ""), TCK_ERR_IO);
    snprintf(text, sizeof(text), "save_dir %s does not exist", below("mistyped"));
    assert_text(tck_published_errmsg(NULL), text);
    cr_assert_eq(open_below(below("away/mount"), ""), TCK_ERR_IO);
    snprintf(text, sizeof(text), "as %s is not there", below("away"));
    assert_text(tck_published_errmsg(NULL), text);
    cr_assert_eq(open_below(below("empty"), below("mistyped")), TCK_ERR_IO);
    snprintf(text, sizeof(text), "load_dir %s does not exist", below("mistyped"));
    assert_text(tck_published_errmsg(NULL), text);
}

Test(published, a_directory_that_cannot_be_opened_is_no_empty_one)
{
    char text[512];
    int fd = open(below("file"), O_WRONLY | O_CREAT, 0600);
    cr_assert_geq(fd, 0);
    close(fd);
    cr_assert_eq(open_below(below("file"), ""), TCK_ERR_IO, "%s", tck_published_errmsg(NULL));
    snprintf(text, sizeof(text), "save_dir %s cannot be opened: Not a directory", below("file"));
    assert_text(tck_published_errmsg(NULL), text);
}

Test(published, an_incomplete_version_is_passed_over_and_reported)
{
    publish(root, 1, 30);
    publish(root, 1, 40);
    cr_assert_eq(unlink(below("job/v000000000040.t1/manifest.json")), 0);
    cr_assert_eq(open_step(TCK_NEWEST, NULL), TCK_OK);
    cr_assert_eq(info().version.step, 30);
    assert_text(info().passed_over, "v000000000040.t1");
}

Test(published, load_dir_is_searched_too)
{
    char other[100];
    snprintf(other, sizeof(other), "%s/other", root);
    cr_assert_eq(mkdir(other, 0755), 0);
    cr_assert_eq(mkdir(below("other/job"), 0755), 0);
    publish(other, 3, 8);
    publish(root, 2, 9);
    cr_assert_eq(open_step(TCK_NEWEST, other), TCK_OK);
    cr_assert_eq(info().version.step, 8);
}

static tck_status_t open_with_archive(const char *archive_dir, uint64_t step)
{
    char json[1024];
    tck_published_close(published);
    published = NULL;
    snprintf(json, sizeof(json),
             "{\"job\":\"job\",\"storage_timeout_ms\":%u,\"save_dir\":\"%s\",\"archive_dir\":\"%s\"}", timeout_ms, root,
             archive_dir);
    tck_published_open_params_t params = {.struct_size = sizeof(params), .config_json = json, .step = step};
    return tck_published_open(&params, &published);
}

/* save_dir's note that there are copies in the archive; more: other fields. */
static void note_archive(const char *archive_dir, const char *more)
{
    char path[200];
    snprintf(path, sizeof(path), "%s", below("job/archive"));
    FILE *file = fopen(path, "we");
    cr_assert_not_null(file);
    cr_assert_gt(fprintf(file, "{\"format\":1,\"archive_dir\":\"%s\"%s}", archive_dir, more), 0);
    cr_assert_eq(fclose(file), 0);
}

Test(published, what_save_dir_lacks_is_opened_in_the_archive)
{
    char other[100];
    snprintf(other, sizeof(other), "%s/other", root);
    cr_assert_eq(mkdir(other, 0755), 0);
    cr_assert_eq(mkdir(below("other/job"), 0755), 0);
    publish(other, 1, 8);
    publish(root, 1, 9);
    cr_assert_eq(open_with_archive(other, TCK_NEWEST), TCK_OK, "%s", tck_published_errmsg(NULL));
    cr_assert_eq(info().version.step, 9);
    cr_assert_eq(unlink(below("job/v000000000009.t1/manifest.json")), 0);
    cr_assert_eq(open_with_archive(other, TCK_NEWEST), TCK_OK, "%s", tck_published_errmsg(NULL));
    cr_assert_eq(info().version.step, 8);
    assert_text(info().passed_over, "v000000000009.t1");
}

Test(published, an_archive_that_was_used_and_is_not_mounted_is_away)
{
    char other[100];
    snprintf(other, sizeof(other), "%s/other", root);
    cr_assert_eq(mkdir(other, 0755), 0);
    publish(root, 1, 9);
    cr_assert_eq(unlink(below("job/v000000000009.t1/manifest.json")), 0);
    cr_assert_eq(open_with_archive(other, TCK_NEWEST), TCK_ERR_CORRUPT, "the archive has nothing");
    note_archive(other, "");
    cr_assert_eq(open_with_archive(other, TCK_NEWEST), TCK_ERR_IO, "it may have a whole copy of it");
    assert_text(tck_published_errmsg(NULL), "copied there before");
}

Test(published, an_archive_that_is_away_matters_only_if_save_dir_does_not_suffice)
{
    const char *away = "/nowhere/archive";
    cr_assert_eq(open_with_archive(away, TCK_NEWEST), TCK_ERR_IO, "it may have a version");
    publish(root, 1, 8);
    publish(root, 1, 9);
    cr_assert_eq(open_with_archive(away, TCK_NEWEST), TCK_OK, "%s", tck_published_errmsg(NULL));
    cr_assert_eq(info().version.step, 9);
    cr_assert_eq(open_with_archive(away, 8), TCK_ERR_IO, "it may have that step of a newer term");
    cr_assert_eq(open_with_archive(away, 7), TCK_ERR_IO, "it may have that step");
    cr_assert_eq(unlink(below("job/v000000000009.t1/manifest.json")), 0);
    cr_assert_eq(open_with_archive(away, TCK_NEWEST), TCK_ERR_IO, "it may have a whole copy of the newest one");
    assert_text(tck_published_errmsg(NULL), "archive_dir may have a version that is whole");
}

Test(published, an_archive_that_was_never_made_is_empty)
{
    char other[100];
    snprintf(other, sizeof(other), "%s/other", root);
    cr_assert_eq(open_with_archive(other, TCK_NEWEST), TCK_ERR_NOENT, "%s", tck_published_errmsg(NULL));
    publish(root, 1, 8);
    publish(root, 1, 9);
    cr_assert_eq(open_with_archive(other, 8), TCK_OK, "%s", tck_published_errmsg(NULL));
    cr_assert_eq(info().version.step, 8);
    cr_assert_eq(open_with_archive(other, 7), TCK_ERR_NOENT);
    cr_assert_eq(unlink(below("job/v000000000009.t1/manifest.json")), 0);
    cr_assert_eq(open_with_archive(other, TCK_NEWEST), TCK_OK, "%s", tck_published_errmsg(NULL));
    cr_assert_eq(info().version.step, 8);
    note_archive(other, "");
    cr_assert_eq(open_with_archive(other, 7), TCK_ERR_IO, "it was used before, and is not mounted");
}

Test(published, an_archive_that_is_away_has_what_was_copied_there)
{
    const char *away = "/nowhere/archive";
    publish(root, 1, 8);
    note_archive(away, ",\"term\":1,\"step\":9");
    cr_assert_eq(open_with_archive(away, TCK_NEWEST), TCK_ERR_IO, "step 9 is only there");
    publish(root, 1, 9);
    cr_assert_eq(open_with_archive(away, TCK_NEWEST), TCK_OK, "%s", tck_published_errmsg(NULL));
}

/* A port at which a server accepts connections and answers nothing; the caller closes *fd_out. */
static unsigned listen_silently(int *fd_out)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(at);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    cr_assert(fd >= 0 && bind(fd, (struct sockaddr *)&at, len) == 0 && listen(fd, 16) == 0);
    cr_assert_eq(getsockname(fd, (struct sockaddr *)&at, &len), 0);
    *fd_out = fd;
    return ntohs(at.sin_port);
}

Test(published, an_archive_whose_server_does_not_answer_takes_a_part_of_the_time, .timeout = 200)
{
    char url[64];
    int fd = -1;
    snprintf(url, sizeof(url), "http://127.0.0.1:%u", listen_silently(&fd));
    cr_assert(setenv("AWS_ENDPOINT_URL", url, 1) == 0 && setenv("AWS_ACCESS_KEY_ID", "a", 1) == 0 &&
              setenv("AWS_SECRET_ACCESS_KEY", "b", 1) == 0 && setenv("AWS_REGION", "us-east-1", 1) == 0);
    timeout_ms = 4000;
    publish(root, 1, 9);
    cr_assert_eq(open_with_archive("s3://bucket/prefix", TCK_NEWEST), TCK_OK, "%s", tck_published_errmsg(NULL));
    cr_assert_eq(info().version.step, 9);
    close(fd);
}

static void forget(const char *path, unsigned term)
{
    FILE *file = fopen(path, "w");
    cr_assert_not_null(file);
    cr_assert_gt(fprintf(file, "{\"format\":1,\"term\":%u,\"wall_ms\":1}", term), 0);
    cr_assert_eq(fclose(file), 0);
}

Test(published, versions_forgotten_in_save_dir_do_not_count_in_load_dir)
{
    const char *other = below("other");
    cr_assert_eq(mkdir(other, 0755), 0);
    cr_assert_eq(mkdir(below("other/job"), 0755), 0);
    publish(other, 3, 8);
    cr_assert_eq(open_step(TCK_NEWEST, other), TCK_OK);
    tck_published_close(published);
    published = NULL;
    forget(below("job/forgotten"), 3);
    cr_assert_eq(open_step(TCK_NEWEST, other), TCK_ERR_NOENT);
}

Test(published, a_job_that_has_published_nothing_is_reported_as_not_found)
{
    cr_assert_eq(open_step(TCK_NEWEST, NULL), TCK_ERR_NOENT);
    cr_assert_eq(rmdir(below("job")), 0);
    cr_assert_eq(open_step(TCK_NEWEST, NULL), TCK_ERR_NOENT);
}

Test(published, a_copy_is_opened_by_its_path)
{
    tck_published_open_params_t params = {.struct_size = sizeof(params), .path = below("elsewhere")};
    publish(root, 2, 7);
    cr_assert_eq(rename(below("job/v000000000007.t2"), below("elsewhere")), 0);
    cr_assert_eq(tck_published_open(&params, &published), TCK_OK, "%s", tck_published_errmsg(NULL));
    assert_box("grid", 1, 1, 8, 4);
}

static tck_status_t open_path(const char *path)
{
    tck_published_open_params_t params = {.struct_size = sizeof(params), .path = path};
    return tck_published_open(&params, &published);
}

Test(published, a_path_at_which_there_is_no_version_is_an_error)
{
    char text[512];
    cr_assert_eq(open_path(below("mistyped")), TCK_ERR_IO);
    snprintf(text, sizeof(text), "version %s does not exist", below("mistyped"));
    assert_text(tck_published_errmsg(NULL), text);
    cr_assert_eq(open_path(below("job")), TCK_ERR_CORRUPT, "%s", tck_published_errmsg(NULL));
    assert_text(tck_published_errmsg(NULL), "manifest.json");
}

Test(published, a_version_under_the_name_of_another_one_is_refused)
{
    publish(root, 2, 7);
    cr_assert_eq(rename(below("job/v000000000007.t2"), below("job/v000000000008.t2")), 0);
    cr_assert_eq(open_step(8, NULL), TCK_ERR_CORRUPT);
    assert_text(tck_published_errmsg(NULL), "unlike its directory's name");
}

/* ---- missing arguments ----------------------------------------------------------------------------------------- */

static void refuses_null(tck_status_t status, const char *text)
{
    cr_assert_eq(status, TCK_ERR_INVAL, "%s", text);
    cr_assert_str_eq(tck_published_errmsg(published), text);
}

static void refuse_all_of_null(void)
{
    tck_published_box_t box = box_of("rows", 0, 0, 1, 1);
    tck_export_params_t params = {.struct_size = sizeof(params)};
    char data[4];
    size_t size;
    tck_published_close(NULL);
    refuses_null(tck_published_open(NULL, NULL), "no parameters or no place for the version");
    refuses_null(tck_published_info(NULL, NULL), "tck_published_info: published is NULL");
    refuses_null(tck_published_entry(NULL, 0, NULL), "tck_published_entry: published is NULL");
    refuses_null(tck_published_read_entry(NULL, 0, 0, 4, data), "tck_published_read_entry: published is NULL");
    refuses_null(tck_published_read_box(NULL, &box, data), "tck_published_read_box: published is NULL");
    refuses_null(tck_published_read_blob(NULL, "origin", 0, data, 4, &size),
                 "tck_published_read_blob: published is NULL");
    refuses_null(tck_export(NULL, NULL), "tck_export: params is NULL");
    refuses_null(tck_export(&params, NULL), "an export needs a source and a directory");
}

Test(published, a_missing_pointer_is_named)
{
    char data[4];
    refuse_all_of_null();
    must_open();
    tck_published_box_t box = box_of("rows", 0, 0, 1, 1), nameless = box_of(NULL, 0, 0, 1, 1),
                        empty = box_of("rows", 0, 0, 0, 1);
    refuses_null(tck_published_info(published, NULL), "tck_published_info: info_out is NULL");
    refuses_null(tck_published_entry(published, 0, NULL), "tck_published_entry: entry_out is NULL");
    refuses_null(tck_published_read_entry(published, 0, 0, 4, NULL), "tck_published_read_entry: to is NULL");
    refuses_null(tck_published_read_box(published, NULL, data), "tck_published_read_box: box is NULL");
    refuses_null(tck_published_read_box(published, &nameless, data), "tck_published_read_box: box->key is NULL");
    refuses_null(tck_published_read_box(published, &box, NULL), "\"rows\": tck_published_read_box: to is NULL");
    refuses_null(tck_published_read_blob(published, "origin", 0, data, 4, NULL),
                 "tck_published_read_blob: size_out is NULL");
    refuses_null(tck_published_read_blob(published, "origin", 0, NULL, 4, &(size_t){0}),
                 "tck_published_read_blob: data is NULL");
    refuses_null(tck_published_read_blob(published, NULL, 0, data, 4, &(size_t){0}),
                 "tck_published_read_blob: key is NULL");
    cr_assert_eq(tck_published_read_box(published, &empty, NULL), TCK_OK, "%s", tck_published_errmsg(published));
}

/* ---- storage that fails ---------------------------------------------------------------------------------------- */

static uint64_t wide_entry(void)
{
    uint64_t i = 0;
    while (strcmp(entry(i).key, "wide") != 0) {
        i++;
    }
    return i;
}

static tck_status_t read_failing(int errnum, int times, uint32_t *last)
{
    must_open();
    failure = errnum;
    atomic_store(&failures, times);
    tck_status_t status = tck_published_read_entry(published, wide_entry(), (WIDE - 1) * 4ull, 4, last);
    atomic_store(&failures, 0);
    return status;
}

Test(published, a_chunk_that_temporarily_cannot_be_read_is_read_again)
{
    uint32_t last = 0;
    cr_assert_eq(read_failing(ESTALE, 2, &last), TCK_OK, "%s", tck_published_errmsg(published));
    cr_assert_eq(last, value(0, WIDE - 1));
}

Test(published, a_time_out_of_the_file_system_is_an_error_like_others)
{
    uint32_t last = 0;
    cr_assert_eq(read_failing(ETIMEDOUT, 2, &last), TCK_OK, "%s", tck_published_errmsg(published));
    cr_assert_eq(last, value(0, WIDE - 1));
}

Test(published, a_chunk_that_stays_unreadable_is_an_error_that_names_the_file, .timeout = 200)
{
    uint32_t last = 0x55555555;
    cr_assert_eq(read_failing(EIO, 1000, &last), TCK_ERR_IO);
    assert_text(tck_published_errmsg(published), ".safetensors: read chunk");
    assert_text(tck_published_errmsg(published), "Input/output error");
    cr_assert_eq(last, 0x55555555);
}

static void supersede(void)
{
    cr_assert_eq(rename(below("aside"), below("job/v000000000009.t2")), 0);
    cr_assert_eq(rename(below("job/v000000000007.t2"), below("gone")), 0);
    DIR *gone = opendir(below("gone"));
    for (struct dirent *file = readdir(gone); file != NULL; file = readdir(gone)) {
        (void)!unlinkat(dirfd(gone), file->d_name, 0);
    }
    closedir(gone);
}

Test(published, what_is_removed_while_it_is_looked_at_is_not_damaged)
{
    publish(root, 2, 5);
    publish(root, 2, 7);
    publish(root, 2, 9);
    cr_assert_eq(rename(below("job/v000000000009.t2"), below("aside")), 0);
    atomic_store(&before_read, supersede);
    cr_assert_eq(open_step(TCK_NEWEST, NULL), TCK_OK, "%s", tck_published_errmsg(NULL));
    cr_assert_eq(info().version.step, 9);
    cr_assert_str_empty(info().passed_over);
}

/* ---- storage that hangs ---------------------------------------------------------------------------------------- */

Test(published, a_version_that_cannot_be_read_again_is_not_damaged)
{
    publish(root, 2, 5);
    publish(root, 2, 7);
    dies = 2;
    cr_assert_eq(open_step(TCK_NEWEST, NULL), TCK_OK, "%s", tck_published_errmsg(NULL));
    cr_assert_eq(dies, 0);
    cr_assert_eq(info().version.step, 7);
    cr_assert_str_empty(info().passed_over);
}

Test(published, storage_that_hangs_at_the_opening_is_given_up, .timeout = 200)
{
    timeout_ms = 1000;
    publish(root, 2, 7);
    atomic_store(&hangs, true);
    cr_assert_eq(open_step(TCK_NEWEST, NULL), TCK_ERR_TIMEDOUT, "%s", tck_published_errmsg(NULL));
    assert_text(tck_published_errmsg(NULL), root);
    assert_text(tck_published_errmsg(NULL), "storage hangs: it has not answered for 1000 ms (see storage_timeout_ms)");
    answer_again();
    cr_assert_eq(open_step(TCK_NEWEST, NULL), TCK_OK, "%s", tck_published_errmsg(NULL));
    assert_box("rows", 0, 0, ROWS, COLS);
}

Test(published, a_chunk_that_hangs_is_given_up_and_its_late_bytes_are_ignored, .timeout = 200)
{
    uint32_t last = 0x55555555, first_col = WIDE - 1;
    timeout_ms = 1000;
    must_open();
    atomic_store(&hangs, true);
    cr_assert_eq(tck_published_read_entry(published, wide_entry(), first_col * 4ull, 4, &last), TCK_ERR_TIMEDOUT);
    assert_text(tck_published_errmsg(published), root);
    assert_text(tck_published_errmsg(published), "storage hangs");
    answer_again();
    cr_assert_eq(last, 0x55555555, "a call that was given up has written");
    cr_assert_eq(tck_published_read_entry(published, wide_entry(), first_col * 4ull, 4, &last), TCK_OK);
    cr_assert_eq(last, value(0, first_col));
}

Test(published, a_published_version_that_hangs_can_be_closed, .timeout = 200)
{
    uint32_t last;
    timeout_ms = 1000;
    must_open();
    atomic_store(&hangs, true);
    cr_assert_eq(tck_published_read_entry(published, wide_entry(), (WIDE - 1) * 4ull, 4, &last), TCK_ERR_TIMEDOUT);
    tck_published_close(published);
    published = NULL;
    answer_again();
}

/* SPDX-License-Identifier: Apache-2.0
 * Ranks, as threads, that share the headers of a published version out among themselves. */
#include "client/shared_headers.h"
#include "made_version.h"

#include <criterion/criterion.h>
#include <ftw.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define RANKS 3    /* that read */
#define SAVED 8    /* ranks that have saved, each a file */
#define MANY  2560 /* so that their headers are RANKS chunks */
#define COLS  64

static char root[64];
static pthread_barrier_t barrier;
static uint8_t *gathered;

struct rank {
    struct oob oob;
    pthread_t thread;
    uint64_t version; /* step */
    struct tck_published *published;
    tck_status_t status;
    struct error err;
};
static struct rank ranks[RANKS];

static int gather(void *ctx, const void *mine, void *all, size_t len)
{
    const struct rank *rank = ctx;
    if (rank->oob.rank == 0) {
        gathered = malloc(RANKS * len);
    }
    pthread_barrier_wait(&barrier);
    memcpy(gathered + rank->oob.rank * len, mine, len);
    pthread_barrier_wait(&barrier);
    memcpy(all, gathered, RANKS * len);
    if (pthread_barrier_wait(&barrier) == PTHREAD_BARRIER_SERIAL_THREAD) {
        free(gathered);
    }
    pthread_barrier_wait(&barrier);
    return 0;
}

static void *run(void *ctx)
{
    struct rank *rank = ctx;
    struct config config;
    rank->status = config_defaults(&config, &rank->err);
    snprintf(config.save_dir, sizeof(config.save_dir), "%s", root);
    snprintf(config.job, sizeof(config.job), "job");
    if (rank->status == TCK_OK) {
        rank->status = published_begin(&config, (struct version){1, rank->version}, true, &rank->published, &rank->err);
    }
    rank->status = shared_headers_read(&rank->oob, rank->status, rank->published, &rank->err);
    return NULL;
}

static void run_all(void)
{
    pthread_barrier_init(&barrier, NULL, RANKS);
    for (uint32_t r = 0; r < RANKS; r++) {
        pthread_create(&ranks[r].thread, NULL, run, &ranks[r]);
    }
    for (uint32_t r = 0; r < RANKS; r++) {
        pthread_join(ranks[r].thread, NULL);
    }
    pthread_barrier_destroy(&barrier);
}

static bool indexed; /* versions are published with .index */

/* A version of SAVED ranks; file by file, each with rows of its own. */
static void publish(uint64_t step, uint32_t saved)
{
    static uint32_t data[COLS];
    struct made_version made;
    char job[80];
    snprintf(job, sizeof(job), "%s/job", root);
    made_version_begin(&made, job, (struct version){1, step}, saved);
    for (uint32_t r = 0; r < saved; r++) {
        struct layout layout = {0};
        tck_record_t record = {.struct_size = sizeof(record), .key = "rows", .dtype = TCK_U32, .ndim = 2, .addr = data};
        record.global_shape[0] = saved;
        record.offset[0] = r;
        record.local_shape[0] = 1;
        record.global_shape[1] = record.local_shape[1] = COLS;
        cr_assert_eq(layout_add(&layout, &record, NULL, NULL), TCK_OK);
        cr_assert_eq(layout_build(&layout, r, saved, NULL), TCK_OK);
        made_version_add(&made, &layout);
        layout_free(&layout);
    }
    if (indexed) {
        made_version_index(&made);
    }
    made_version_end(&made);
}

static void setup(void)
{
    snprintf(root, sizeof(root), "/tmp/tck-headers-XXXXXX");
    cr_assert_not_null(mkdtemp(root));
    char job[80];
    snprintf(job, sizeof(job), "%s/job", root);
    cr_assert_eq(mkdir(job, 0755), 0);
    for (uint32_t r = 0; r < RANKS; r++) {
        ranks[r] = (struct rank){.version = 7};
        ranks[r].oob = (struct oob){.rank = r, .world_size = RANKS};
        ranks[r].oob.caller = (tck_oob_t){.ctx = &ranks[r], .allgather = gather};
    }
}

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *at)
{
    (void)st, (void)kind, (void)at;
    return remove(path);
}

static void teardown(void)
{
    for (uint32_t r = 0; r < RANKS; r++) {
        tck_published_close(ranks[r].published);
    }
    nftw(root, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

TestSuite(shared_headers, .init = setup, .fini = teardown, .timeout = 200);

static uint64_t bytes_of_all_files(void)
{
    const struct manifest *manifest = &ranks[0].published->found.manifest;
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < manifest->file_count; i++) {
        bytes += manifest->files[i].bytes;
    }
    return bytes;
}

static uint64_t bytes_read(void)
{
    uint64_t bytes = 0;
    for (uint32_t r = 0; r < RANKS; r++) {
        bytes += ranks[r].published->chunks.read_bytes;
    }
    return bytes;
}

/* Every rank knows of every row, and where it is. */
static void assert_tables(uint32_t saved)
{
    for (uint32_t r = 0; r < RANKS; r++) {
        const struct table *table = &ranks[r].published->table;
        size_t count = 0;
        cr_assert_eq(ranks[r].status, TCK_OK, "%s", ranks[r].err.text);
        const struct entry *rows = table_find(table, "rows", &count);
        cr_assert_eq(count, saved);
        for (uint32_t i = 0; i < count; i++) {
            cr_assert_eq(entry_box(table, &rows[i]).at[0], i);
            cr_assert_eq(rows[i].rank, i);
        }
    }
}

/* With each rank reading all, this would be RANKS times as much. */
Test(shared_headers, each_file_is_read_by_one_rank_and_known_to_all)
{
    publish(7, SAVED);
    run_all();
    assert_tables(SAVED);
    cr_assert_eq(bytes_read(), bytes_of_all_files());
}

Test(shared_headers, more_ranks_than_files_leave_some_without_a_part)
{
    publish(7, 2);
    run_all();
    assert_tables(2);
    cr_assert_eq(bytes_read(), bytes_of_all_files());
}

/* As if load_dir had an older copy that only one of them sees. */
Test(shared_headers, ranks_that_see_other_files_read_all_themselves)
{
    publish(7, SAVED);
    publish(8, SAVED - 1);
    ranks[1].version = 8;
    run_all();
    for (uint32_t r = 0; r < RANKS; r++) {
        size_t count = 0;
        cr_assert_eq(ranks[r].status, TCK_OK, "%s", ranks[r].err.text);
        (void)table_find(&ranks[r].published->table, "rows", &count);
        cr_assert_eq(count, r == 1 ? SAVED - 1 : SAVED);
    }
}

Test(shared_headers, what_one_rank_cannot_read_fails_on_all)
{
    char path[400], name[MANIFEST_FILE_NAME];
    publish(7, SAVED);
    run_all();
    published_file_name(ranks[0].published->found.manifest.files[1].shard, name, sizeof(name));
    snprintf(path, sizeof(path), "%s/%s", ranks[0].published->found.path, name);
    FILE *file = fopen(path, "r+");
    cr_assert_not_null(file);
    cr_assert_eq(fseek(file, 20, SEEK_SET), 0);
    cr_assert_eq(fputc(1, file), 1);
    fclose(file);
    for (uint32_t r = 0; r < RANKS; r++) {
        tck_published_close(ranks[r].published);
        ranks[r].published = NULL;
    }
    run_all();
    for (uint32_t r = 0; r < RANKS; r++) {
        cr_assert_eq(ranks[r].status, TCK_ERR_CORRUPT, "rank %u: %s", r, ranks[r].err.text);
        cr_assert_not_null(strstr(ranks[r].err.text, name), "%s", ranks[r].err.text);
        cr_assert_not_null(strstr(ranks[r].err.text, "version 1.7 has another layout"), "%s", ranks[r].err.text);
    }
}

Test(shared_headers, a_version_that_one_rank_does_not_find_fails_on_all)
{
    publish(7, SAVED);
    ranks[2].version = 9;
    run_all();
    for (uint32_t r = 0; r < RANKS; r++) {
        cr_assert_neq(ranks[r].status, TCK_OK);
    }
}

/* A rank that looks at every file of a version makes as many lookups as there are files, and so does each other one. */
Test(shared_headers, files_that_others_read_are_not_looked_at)
{
    struct config config;
    struct error err;
    char path[400], name[MANIFEST_FILE_NAME];
    publish(7, SAVED);
    run_all();
    published_file_name(ranks[0].published->found.manifest.files[1].shard, name, sizeof(name));
    snprintf(path, sizeof(path), "%s/%s", ranks[0].published->found.path, name);
    cr_assert_eq(remove(path), 0);
    tck_published_close(ranks[0].published);
    ranks[0].published = NULL;
    cr_assert_eq(config_defaults(&config, &err), TCK_OK);
    snprintf(config.save_dir, sizeof(config.save_dir), "%s", root);
    snprintf(config.job, sizeof(config.job), "job");
    struct tck_published *all = NULL;
    cr_assert_eq(published_begin(&config, (struct version){1, 7}, false, &all, &err), TCK_ERR_CORRUPT);
    cr_assert_not_null(strstr(err.text, name), "%s", err.text);
    cr_assert_eq(published_begin(&config, (struct version){1, 7}, true, &ranks[0].published, &err), TCK_OK, "%s",
                 err.text);
}

/* ---- .index ---------------------------------------------------------------------------------------------------- */

static const char *index_path(void)
{
    static char path[200];
    snprintf(path, sizeof(path), "%s/job/v000000000007.t1/" VERSION_INDEX_NAME, root);
    return path;
}

static uint64_t index_bytes(void)
{
    return ranks[0].published->found.manifest.index.bytes;
}

Test(shared_headers, with_an_index_no_file_is_opened_and_the_index_is_read_by_one_rank)
{
    indexed = true;
    publish(7, SAVED);
    run_all();
    assert_tables(SAVED);
    cr_assert_eq(bytes_read(), index_bytes());
    cr_assert_gt(index_bytes(), 0);
}

/* Each rank reads the chunks whose number is its own modulo RANKS, and of a file that has more chunks than one is what
 * is joined what was written. */
Test(shared_headers, an_index_of_several_chunks_is_shared_out)
{
    indexed = true;
    publish(7, MANY);
    run_all();
    assert_tables(MANY);
    cr_assert_eq(chunk_count(index_bytes()), RANKS);
    for (uint32_t r = 0; r < RANKS; r++) {
        cr_assert_eq(ranks[r].published->chunks.read_bytes, chunk_size(index_bytes(), r));
    }
}

Test(shared_headers, a_damaged_index_is_not_used_and_the_files_are_read)
{
    indexed = true;
    publish(7, SAVED);
    FILE *file = fopen(index_path(), "r+");
    cr_assert_not_null(file);
    cr_assert_eq(fseek(file, 2000, SEEK_SET), 0);
    cr_assert_eq(fputc('?', file), '?');
    fclose(file);
    run_all();
    assert_tables(SAVED);
    cr_assert_eq(bytes_read(), index_bytes() + bytes_of_all_files());
}

Test(shared_headers, a_missing_index_is_not_used_and_the_files_are_read)
{
    indexed = true;
    publish(7, SAVED);
    cr_assert_eq(remove(index_path()), 0);
    run_all();
    assert_tables(SAVED);
    cr_assert_eq(bytes_read(), index_bytes() + bytes_of_all_files());
}

/* Another version's, or one made by a program with an error: its digests are those in the manifest, and it is of no
 * use. */
Test(shared_headers, an_index_that_does_not_fit_the_files_is_not_used)
{
    struct made_version made;
    struct layout layout = {0};
    char job[80];
    static uint32_t data[COLS];
    tck_record_t record = {.struct_size = sizeof(record), .key = "rows", .dtype = TCK_U32, .ndim = 2, .addr = data};
    snprintf(job, sizeof(job), "%s/job", root);
    record.global_shape[0] = record.local_shape[0] = 1;
    record.global_shape[1] = record.local_shape[1] = COLS;
    made_version_begin(&made, job, (struct version){1, 7}, 1);
    cr_assert_eq(layout_add(&layout, &record, NULL, NULL), TCK_OK);
    cr_assert_eq(layout_build(&layout, 0, 1, NULL), TCK_OK);
    made_version_add(&made, &layout);
    made_version_index(&made);
    made.manifest.index.bytes -= 8; /* cut */
    uint8_t *index = calloc(1, made.manifest.index.bytes);
    FILE *file = fopen(index_path(), "r+");
    cr_assert_eq(fread(index, 1, made.manifest.index.bytes, file), made.manifest.index.bytes);
    cr_assert_eq(ftruncate(fileno(file), (off_t)made.manifest.index.bytes), 0);
    fclose(file);
    made.manifest.index.root = digest_image(index, made.manifest.index.bytes, made.manifest.index.crcs);
    free(index);
    made_version_end(&made);
    layout_free(&layout);
    run_all();
    assert_tables(1);
    cr_assert_eq(bytes_read(), index_bytes() + bytes_of_all_files());
}

/* As if load_dir had a copy of an older release that only one of them sees. */
Test(shared_headers, an_index_that_one_rank_lacks_is_used_by_none)
{
    indexed = true;
    publish(7, SAVED);
    indexed = false;
    publish(8, SAVED);
    ranks[1].version = 8;
    run_all();
    for (uint32_t r = 0; r < RANKS; r++) {
        size_t count = 0;
        cr_assert_eq(ranks[r].status, TCK_OK, "%s", ranks[r].err.text);
        (void)table_find(&ranks[r].published->table, "rows", &count);
        cr_assert_eq(count, SAVED);
    }
    cr_assert_eq(bytes_read(), index_bytes() + bytes_of_all_files());
}

/* ---- the bytes between ranks ----------------------------------------------------------------------------------- */

Test(shared_headers, headers_that_arrive_cut_or_with_more_are_refused)
{
    uint8_t bytes[] = {1, 2, 3};
    struct headers from = {0}, to = {0};
    struct headers_part all = {0, 1};
    struct error err;
    struct writer w = writer_new(0);
    cr_assert_eq(headers_new(2, &from, &err), TCK_OK);
    cr_assert_eq(headers_new(2, &to, &err), TCK_OK);
    for (int i = 0; i < 2; i++) {
        from.of[i] = (struct header){malloc(3), 3};
        memcpy(from.of[i].bytes, bytes, 3);
    }
    headers_pack(&from, all, &w);
    for (size_t len = 0; len < w.len; len++) {
        cr_assert_eq(headers_unpack(&to, all, w.data, len, &err), TCK_ERR_PROTO, "%zu bytes", len);
    }
    cr_assert_eq(headers_unpack(&to, all, w.data, w.len, &err), TCK_OK, "%s", err.text);
    cr_assert_eq(to.of[1].len, 3);
    cr_assert_arr_eq(to.of[1].bytes, bytes, 3);
    write_u8(&w, 0);
    cr_assert_eq(headers_unpack(&to, all, w.data, w.len, &err), TCK_ERR_PROTO);
    writer_free(&w);
    headers_free(&from);
    headers_free(&to);
}

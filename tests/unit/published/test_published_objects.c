/* SPDX-License-Identifier: Apache-2.0
 * Published versions in a store of objects are found and read back without an agent, and what cannot be read is never
 * taken for missing. */
#include "base/layout.h"
#include "made_version.h"
#include "memory_store.h"
#include "tiers/object/s3_store.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define VALUES 100

static char root[64];
static struct object_store *store;
static tck_published_t *published;

/* In place of the real one. All of s3://memory/... is one place. */
tck_status_t s3_store_new(const char *url, struct object_store **out, struct error *err)
{
    if (strncmp(url, "s3://memory", 11) != 0) {
        return error_set(err, TCK_ERR_IO, "%s: no such bucket", url);
    }
    *out = memory_store_client(store);
    return TCK_OK;
}

/* ---- making versions ------------------------------------------------------------------------------------------- */

/* Copies the files of a directory into the store. */
static void upload(const char *dir, const char *below)
{
    DIR *entries = opendir(dir);
    for (const struct dirent *e = readdir(entries); e != NULL; e = readdir(entries)) {
        char path[800], key[OBJECT_KEY_MAX];
        struct stat st;
        snprintf(path, sizeof(path), "%s/%s", dir, e->d_name);
        snprintf(key, sizeof(key), "%s/%s", below, e->d_name);
        int fd = open(path, O_RDONLY);
        if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode)) {
            char *text = malloc((size_t)st.st_size);
            cr_assert_eq(read(fd, text, (size_t)st.st_size), st.st_size);
            memory_store_set(store, key, text, (size_t)st.st_size);
            free(text);
        }
        close(fd);
    }
    closedir(entries);
}

static void publish(uint64_t step)
{
    struct made_version made;
    struct layout layout = {0};
    uint32_t values[VALUES];
    char job[400], dir[500], below[64];
    tck_record_t record = {.struct_size = sizeof(record), .key = "w", .dtype = TCK_U32, .ndim = 1, .addr = values};
    record.global_shape[0] = record.local_shape[0] = VALUES;
    for (uint32_t i = 0; i < VALUES; i++) {
        values[i] = (uint32_t)(step * 1000 + i);
    }
    snprintf(job, sizeof(job), "%s/job", root);
    made_version_begin(&made, job, (struct version){1, step}, 1);
    cr_assert_eq(layout_add(&layout, &record, NULL, NULL), TCK_OK);
    cr_assert_eq(layout_build(&layout, 0, 1, NULL), TCK_OK);
    made_version_add(&made, &layout);
    made_version_end(&made);
    layout_free(&layout);
    snprintf(below, sizeof(below), "job/v%012d.t1", (int)step);
    snprintf(dir, sizeof(dir), "%s/%s", root, below);
    upload(dir, below);
}

static void setup(void)
{
    snprintf(root, sizeof(root), "/tmp/tck-objects-XXXXXX");
    cr_assert_not_null(mkdtemp(root));
    char job[100];
    snprintf(job, sizeof(job), "%s/job", root);
    cr_assert_eq(mkdir(job, 0755), 0);
    store = memory_store_new();
    publish(7);
    publish(8);
}

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *at)
{
    (void)st, (void)kind, (void)at;
    return remove(path);
}

static void teardown(void)
{
    tck_published_close(published);
    store->ops->free(store);
    nftw(root, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

TestSuite(published_objects, .init = setup, .fini = teardown, .timeout = 200);

static tck_status_t open_job(void)
{
    tck_published_open_params_t params = {.struct_size = sizeof(params), .step = TCK_NEWEST};
    params.config_json = "{\"job\":\"job\",\"save_dir\":\"s3://memory/x\"}";
    return tck_published_open(&params, &published);
}

static void expect_values(uint64_t step)
{
    uint32_t data[VALUES];
    const tck_published_box_t box = {.struct_size = sizeof(box),
                                     .key = "w",
                                     .dtype = TCK_U32,
                                     .ndim = 1,
                                     .global_shape = {VALUES},
                                     .local_shape = {VALUES}};
    cr_assert_eq(tck_published_read_box(published, &box, data), TCK_OK, "%s", tck_published_errmsg(published));
    for (uint32_t i = 0; i < VALUES; i++) {
        cr_assert_eq(data[i], step * 1000 + i);
    }
}

static void expect_error(tck_status_t outcome, tck_status_t status, const char *text)
{
    cr_assert_eq(outcome, status, "%s", tck_published_errmsg(NULL));
    cr_assert_not_null(strstr(tck_published_errmsg(NULL), text), "%s", tck_published_errmsg(NULL));
}

static void fail(unsigned ops, const char *key, enum memory_fault fault, uint32_t count)
{
    const struct memory_failure failure = {.ops = ops, .key = key, .fault = fault, .count = count};
    memory_store_fail(store, &failure);
}

/* ---- tests ----------------------------------------------------------------------------------------------------- */

Test(published_objects, the_newest_version_is_found_and_read)
{
    tck_published_info_t info = {.struct_size = sizeof(info)};
    cr_assert_eq(open_job(), TCK_OK, "%s", tck_published_errmsg(NULL));
    cr_assert_eq(tck_published_info(published, &info), TCK_OK);
    cr_assert_eq(info.version.step, 8);
    cr_assert_str_eq(info.path, "s3://memory/x/job/v000000000008.t1");
    expect_values(8);
}

Test(published_objects, a_version_is_opened_by_its_url)
{
    tck_published_open_params_t params = {.struct_size = sizeof(params),
                                          .path = "s3://memory/copies/v000000000007.t1/"};
    char dir[500];
    expect_error(tck_published_open(&params, &published), TCK_ERR_CORRUPT, "NoSuchKey");
    snprintf(dir, sizeof(dir), "%s/job/v000000000007.t1", root);
    upload(dir, "v000000000007.t1");
    cr_assert_eq(tck_published_open(&params, &published), TCK_OK, "%s", tck_published_errmsg(NULL));
    expect_values(7);
}

Test(published_objects, a_bucket_is_no_version)
{
    tck_published_open_params_t params = {.struct_size = sizeof(params), .path = "s3://memory"};
    expect_error(tck_published_open(&params, &published), TCK_ERR_INVAL, "is a bucket, and no version");
}

Test(published_objects, a_version_without_a_manifest_is_passed_over)
{
    memory_store_set(store, "job/v000000000008.t1/manifest.json", NULL, 0);
    cr_assert_eq(open_job(), TCK_OK, "%s", tck_published_errmsg(NULL));
    expect_values(7);
}

Test(published_objects, what_cannot_be_read_is_not_missing)
{
    fail(MEMORY_LIST, "", MEMORY_DENIED, UINT32_MAX);
    expect_error(open_job(), TCK_ERR_DENIED, "AccessDenied");
    memory_store_heal(store);
    fail(MEMORY_GET, "v000000000008", MEMORY_DENIED, UINT32_MAX);
    expect_error(open_job(), TCK_ERR_DENIED, "no older one is taken");
    memory_store_heal(store);
    fail(MEMORY_LIST, "", MEMORY_GONE, UINT32_MAX);
    expect_error(open_job(), TCK_ERR_IO, "NoSuchBucket");
}

Test(published_objects, a_store_that_answers_again_is_read)
{
    fail(MEMORY_HEAD, "", MEMORY_NEVER, 1);
    cr_assert_eq(open_job(), TCK_OK, "%s", tck_published_errmsg(NULL));
    fail(MEMORY_GET, "shard-", MEMORY_NEVER, 1);
    expect_values(8);
}

Test(published_objects, damaged_bytes_are_never_returned)
{
    char key[OBJECT_KEY_MAX];
    tck_published_entry_t entry = {.struct_size = sizeof(entry)};
    cr_assert_eq(open_job(), TCK_OK, "%s", tck_published_errmsg(NULL));
    tck_published_close(published);
    published = NULL;
    struct object_listing listing;
    cr_assert_eq(store->ops->list(store, NULL, "job/v000000000008.t1/shard-", false, &listing, NULL), TCK_OK);
    snprintf(key, sizeof(key), "%s", listing.objects[0].key);
    object_listing_free(&listing);
    memory_store_damage(store, key, 100);
    expect_error(open_job(), TCK_ERR_CORRUPT, "has CRC");
}

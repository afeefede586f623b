/* SPDX-License-Identifier: Apache-2.0
 * The persistent tier on a real directory: published versions are read back, damage is named, and foreign files are
 * not touched. */
#include "tiers/persistent.h"

#include "base/image_check.h"
#include "base/layout.h"
#include "base/log.h"
#include "tiers/index_kept.h"
#include "tiers/persistent_impl.h"
#include "tiers/safe_fs.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define JOB         "job"
#define IMAGE_BYTES ((2u * CHUNK_BYTES) + 8192u)

/* ---- fixture --------------------------------------------------------------------------------------------------- */

static char root[256];
static struct config config;
static struct loop *loop;
static struct pool *pool;
static struct persistent *tier;
static uint64_t claimed; /* as in the agent's memory */

/* The name that listings leave out; NULL: none. */
static const char *unlisted;

/* Called after each listing of a directory and before each reading of a small file by the test's own thread, because
 * older versions may still be looked for in the pool; may be NULL. An error that the latter returns becomes the
 * reading's. */
static _Thread_local void (*after_list)(void);
static _Thread_local tck_status_t (*before_read)(const char *name);

tck_status_t __real_safe_fs_list(int dir_fd, struct names *out, struct error *err);
tck_status_t __wrap_safe_fs_list(int dir_fd, struct names *out, struct error *err);
tck_status_t __real_safe_fs_read(int dir_fd, const char *name, size_t max, char **text_out, size_t *len_out,
                                 struct error *err);
tck_status_t __wrap_safe_fs_read(int dir_fd, const char *name, size_t max, char **text_out, size_t *len_out,
                                 struct error *err);

tck_status_t __wrap_safe_fs_list(int dir_fd, struct names *out, struct error *err)
{
    tck_status_t status = __real_safe_fs_list(dir_fd, out, err);
    for (size_t i = 0; status == TCK_OK && unlisted != NULL && i < out->count; i++) {
        if (strcmp(out->names[i], unlisted) == 0) {
            free(out->names[i]);
            out->names[i] = out->names[--out->count];
            break;
        }
    }
    if (after_list != NULL) {
        after_list();
    }
    return status;
}

tck_status_t __wrap_safe_fs_read(int dir_fd, const char *name, size_t max, char **text_out, size_t *len_out,
                                 struct error *err)
{
    tck_status_t status = before_read != NULL ? before_read(name) : TCK_OK;
    return status == TCK_OK ? __real_safe_fs_read(dir_fd, name, max, text_out, len_out, err)
                            : error_set(err, status, "read %s: failed by the test", name);
}

static const char *path_of(const char *fmt, ...) printf_like(1, 2);
static const char *path_of(const char *fmt, ...)
{
    static char path[4][1024]; /* several in one call */
    static unsigned next;
    char *out = path[next++ % 4];
    size_t len = (size_t)snprintf(out, sizeof(path[0]), "%s/", root);
    va_list args;
    va_start(args, fmt);
    vsnprintf(out + len, sizeof(path[0]) - len, fmt, args);
    va_end(args);
    return out;
}

/* Asked before each request to write. */
static struct tier_pace pace;

static tck_status_t try_open_tier(struct error *err)
{
    struct persistent_setup setup = {.loop = loop, .pool = pool, .config = &config, .claimed = claimed, .pace = pace};
    return persistent_new(&setup, &tier, err);
}

static void open_tier(void)
{
    struct error err = {0};
    cr_assert_eq(try_open_tier(&err), TCK_OK, "%s", err.text);
}

static void reopen_tier(void)
{
    persistent_free(tier);
    open_tier();
}

static void set_up_without_tier(void)
{
    struct error err = {0};
    char here[128];
    cr_assert_not_null(getcwd(here, sizeof(here)));
    snprintf(root, sizeof(root), "%s/persistent-XXXXXX", here);
    cr_assert_not_null(mkdtemp(root));
    config = (struct config){.job = JOB, .node = "n0", .max_ckpt_num = 0, .storage_verify = SWITCH_ON};
    cr_assert_eq(mkdir(path_of("a"), 0755), 0);
    cr_assert_eq(mkdir(path_of("a/b"), 0755), 0);
    snprintf(config.save_dir, sizeof(config.save_dir), "%s", path_of("a/b/save"));
    snprintf(config.audit_file_path, sizeof(config.audit_file_path), "%s", path_of("a/b/save/" JOB "/audit.n0.jsonl"));
    cr_assert_eq(loop_new(&loop, &err), TCK_OK, "%s", err.text);
    cr_assert_eq(pool_new(loop, 2, &pool, &err), TCK_OK, "%s", err.text);
}

static void set_up(void)
{
    set_up_without_tier();
    open_tier();
}

static int remove_entry(const char *path, const struct stat *st, int kind, struct FTW *ftw)
{
    (void)st;
    (void)kind;
    (void)ftw;
    return remove(path);
}

static void tear_down(void)
{
    (void)!seteuid(getuid()); /* a test may have dropped its privileges */
    persistent_free(tier);
    pool_free(pool);
    loop_free(loop);
    nftw(root, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

/* A device that returns other bytes than were written: the tier calls this before it reads anything back. */
static bool storage_lies;
static _Atomic uint32_t read_backs; /* that were begun */

int posix_fadvise(int fd, off_t offset, off_t len, int advice)
{
    char self[64];
    read_backs++;
    if (storage_lies) {
        snprintf(self, sizeof(self), "/proc/self/fd/%d", fd);
        int writable = open(self, O_WRONLY);
        if (writable < 0 || pwrite(writable, "x", 1, 5000) != 1) {
            abort();
        }
        close(writable);
    }
    return (int)syscall(SYS_fadvise64, fd, offset, len, advice);
}

/* Calls that look for names or sizes. */
static _Atomic uint32_t lookups;

int __real_openat(int dir_fd, const char *name, int flags, ...);
int __wrap_openat(int dir_fd, const char *name, int flags, mode_t mode);
int __real_fstatat(int dir_fd, const char *name, struct stat *out, int flags);
int __wrap_fstatat(int dir_fd, const char *name, struct stat *out, int flags);
long __real_syscall(long number, ...);
long __wrap_syscall(long number, long a, long b, long c, long d, long e, long f);

int __wrap_openat(int dir_fd, const char *name, int flags, mode_t mode)
{
    lookups++;
    return __real_openat(dir_fd, name, flags, mode);
}

int __wrap_fstatat(int dir_fd, const char *name, struct stat *out, int flags)
{
    lookups++;
    return __real_fstatat(dir_fd, name, out, flags);
}

/* NOLINTNEXTLINE(readability-function-size): as the system has it */
long __wrap_syscall(long number, long a, long b, long c, long d, long e, long f)
{
    lookups += number == SYS_openat2;
    return __real_syscall(number, a, b, c, d, e, f);
}

/* A file system that accepts O_DIRECT and says that it uses the page cache nevertheless. */
static bool direct_is_buffered;

int __real_statx(int dir_fd, const char *name, int flags, unsigned mask, struct statx *out);
int __wrap_statx(int dir_fd, const char *name, int flags, unsigned mask, struct statx *out);

int __wrap_statx(int dir_fd, const char *name, int flags, unsigned mask, struct statx *out)
{
    int rc = __real_statx(dir_fd, name, flags, mask, out);
#ifdef STATX_DIOALIGN
    if (rc == 0 && direct_is_buffered) {
        out->stx_mask |= mask & STATX_DIOALIGN;
        out->stx_dio_offset_align = 0;
    }
#endif
    return rc;
}

/* The error of a remounted file system for a directory that was opened before; 0: none. */
static ino_t stale;

int fstat(int fd, struct stat *out)
{
    int rc = fstatat(fd, "", out, AT_EMPTY_PATH);
    if (rc == 0 && stale != 0 && out->st_ino == stale) {
        errno = ESTALE;
        rc = -1;
    }
    return rc;
}

TestSuite(persistent, .init = set_up, .fini = tear_down);
TestSuite(persistent_open, .init = set_up_without_tier, .fini = tear_down);

/* ---- making and running items and versions --------------------------------------------------------------------- */

/* An item with buffers of its own; number makes shard and bytes differ. */
static struct tier_item make_item(struct version version, uint32_t number, uint64_t bytes)
{
    struct tier_item item = {.version = version, .shard = {9, number}, .image_bytes = bytes};
    item.image = aligned_alloc(4096, bytes);
    item.crcs = calloc(chunk_count(bytes), sizeof(*item.crcs));
    for (uint64_t i = 0; i < bytes; i += 8) {
        uint64_t word = i * 0x9e3779b97f4a7c15u + number + version.step;
        memcpy(item.image + i, &word, sizeof(word));
    }
    item.root = digest_image(item.image, bytes, item.crcs);
    return item;
}

static void free_item(struct tier_item *item)
{
    free(item->image);
    free(item->crcs);
}

static void ended(void *ctx, const struct error *outcome)
{
    *(struct error *)ctx = *outcome;
    loop_stop(loop);
}

/* Puts the item into the stage of that name. */
static int files_below(const char *stage)
{
    char path[512];
    int count = 0;
    snprintf(path, sizeof(path), "%s/" JOB "/stage/%s", path_of("a/b/save"), stage);
    DIR *dir = opendir(path);
    for (struct dirent *entry; dir != NULL && (entry = readdir(dir)) != NULL;) {
        count += entry->d_name[0] != '.';
    }
    if (dir != NULL) {
        closedir(dir);
    }
    return count;
}

static struct error put(const struct tier_item *item)
{
    struct error outcome = {0}, err = {0};
    cr_assert_eq(persistent_put(tier, item, ended, &outcome, &err), TCK_OK, "%s", err.text);
    loop_run(loop);
    return outcome;
}

static struct error publish_as(const struct manifest *manifest, uint64_t term)
{
    struct error outcome = {0}, err = {0};
    const struct publish_ask ask = {.manifest = manifest, .term = term};
    cr_assert_eq(persistent_publish(tier, &ask, ended, &outcome, &err), TCK_OK, "%s", err.text);
    loop_run(loop);
    return outcome;
}

static struct error publish_manifest(const struct manifest *manifest)
{
    return publish_as(manifest, manifest->version.term);
}

static struct manifest manifest_of(const struct tier_item *items, uint32_t count)
{
    struct manifest manifest = {.job = JOB,
                                .version = items[0].version,
                                .world_size = count,
                                .layout = {5, 5},
                                .wall_ms = 1,
                                .file_count = count};
    manifest.files = calloc(count, sizeof(*manifest.files));
    for (uint32_t i = 0; i < count; i++) {
        struct manifest_file *file = &manifest.files[i];
        *file = (struct manifest_file){.shard = items[i].shard, .bytes = items[i].image_bytes, .root = items[i].root};
        manifest_file_name(file->shard, file->name);
        file->crcs = calloc(chunk_count(file->bytes), sizeof(*file->crcs));
        memcpy(file->crcs, items[i].crcs, chunk_count(file->bytes) * sizeof(*file->crcs));
    }
    return manifest;
}

static struct error publish(const struct tier_item *items, uint32_t count)
{
    struct manifest manifest = manifest_of(items, count);
    struct error outcome = publish_manifest(&manifest);
    manifest_free(&manifest);
    return outcome;
}

/* Puts and publishes a version of one small shard. */
static void make_version(struct version version)
{
    struct tier_item item = make_item(version, 1, 4096);
    struct error outcome = put(&item);
    cr_assert_eq(outcome.code, TCK_OK, "%s", outcome.text);
    outcome = publish(&item, 1);
    cr_assert_eq(outcome.code, TCK_OK, "%s", outcome.text);
    free_item(&item);
}

static const char *version_path(struct version version, const char *below)
{
    return path_of("a/b/save/" JOB "/v%012" PRIu64 ".t%" PRIu64 "/%s", version.step, version.term, below);
}

static const char *shard_path(struct version version)
{
    char name[MANIFEST_FILE_NAME];
    manifest_file_name((struct hash128){9, 1}, name);
    return version_path(version, name);
}

static bool exists(const char *path)
{
    struct stat st;
    return lstat(path, &st) == 0;
}

static void write_file(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    cr_assert_not_null(file, "%s: %m", path);
    fputs(text, file);
    fclose(file);
}

static void flip_byte(const char *path, off_t at)
{
    uint8_t byte;
    int fd = open(path, O_RDWR);
    cr_assert(fd >= 0, "%s: %m", path);
    cr_assert_eq(pread(fd, &byte, 1, at), 1);
    byte ^= 0x10;
    cr_assert_eq(pwrite(fd, &byte, 1, at), 1);
    close(fd);
}

static size_t listed(struct version *first)
{
    struct published *versions = NULL;
    size_t count = 0;
    struct error err = {0};
    cr_assert_eq(persistent_list(tier, &versions, &count, &err), TCK_OK, "%s", err.text);
    if (first != NULL) {
        *first = count > 0 ? versions[0].version : VERSION_NONE;
    }
    free(versions);
    return count;
}

static void nothing(void *ctx)
{
    (void)ctx;
}

static void stop(void *ctx, bool canceled)
{
    (void)ctx;
    (void)canceled;
    loop_stop(loop);
}

/* The work of a publish after its done callback takes a while. Gives up silently: the assertion after it then fails. */
static void wait_until_listed(size_t count)
{
    for (int i = 0; i < 5000 && listed(NULL) != count; i++) {
        cr_assert_eq(pool_submit(pool, nothing, stop, NULL), TCK_OK);
        loop_run(loop);
        usleep(1000);
    }
}

static struct error get(const struct published *which, const struct manifest_file *file, struct tier_item *item)
{
    struct error outcome = {0}, err = {0};
    tck_status_t status = persistent_get(tier, which, file, item, ended, &outcome, &err);
    if (status != TCK_OK) {
        return err;
    }
    loop_run(loop);
    return outcome;
}

static bool text_has(const struct error *err, const char *what)
{
    return strstr(err->text, what) != NULL;
}

static size_t count_lines(const char *path, const char *with_a, const char *with_b)
{
    char line[2048];
    size_t count = 0;
    FILE *file = fopen(path, "r");
    cr_assert_not_null(file, "%s: %m", path);
    while (fgets(line, sizeof(line), file) != NULL) {
        count += strstr(line, with_a) != NULL && strstr(line, with_b) != NULL;
    }
    fclose(file);
    return count;
}

/* ---- round trip ------------------------------------------------------------------------------------------------ */

static void check_same(const struct published *which, const struct manifest *manifest, const struct tier_item *want)
{
    struct tier_item got = make_item((struct version){1, 999}, 77, want->image_bytes);
    got.root = (struct hash128){0, 0};
    struct error outcome = get(which, manifest_find(manifest, want->shard), &got);
    cr_assert_eq(outcome.code, TCK_OK, "%s", outcome.text);
    cr_assert(memcmp(got.image, want->image, want->image_bytes) == 0);
    cr_assert(memcmp(got.crcs, want->crcs, chunk_count(want->image_bytes) * sizeof(uint32_t)) == 0);
    cr_assert(hash128_is(got.root, want->root));
    free_item(&got);
}

/* The only version that is listed consists of these. */
static void check_published(const struct tier_item *items, uint32_t item_count)
{
    struct published *versions;
    struct manifest manifest;
    size_t count;
    struct error err = {0};
    cr_assert_eq(persistent_list(tier, &versions, &count, &err), TCK_OK, "%s", err.text);
    cr_assert_eq(count, 1);
    cr_assert(version_is(versions[0].version, items[0].version));
    cr_assert_eq(persistent_manifest(tier, &versions[0], &manifest, &err), TCK_OK, "%s", err.text);
    for (uint32_t i = 0; i < item_count; i++) {
        check_same(&versions[0], &manifest, &items[i]);
    }
    cr_assert_eq(persistent_verify(tier, &versions[0], &err), TCK_OK, "%s", err.text);
    manifest_free(&manifest);
    free(versions);
}

Test(persistent, reads_back_what_was_put_and_published)
{
    struct version version = {1, 100};
    struct tier_item items[2] = {make_item(version, 1, IMAGE_BYTES), make_item(version, 2, 4096)};
    for (int i = 0; i < 2; i++) {
        struct error outcome = put(&items[i]);
        cr_assert_eq(outcome.code, TCK_OK, "%s", outcome.text);
    }
    cr_assert_eq(listed(NULL), 0, "listed before it was published");
    struct error outcome = publish(items, 2);
    cr_assert_eq(outcome.code, TCK_OK, "%s", outcome.text);

    reopen_tier();
    check_published(items, 2);
    free_item(&items[0]);
    free_item(&items[1]);
}

Test(persistent, stores_the_image_byte_for_byte)
{
    struct version version = {1, 100};
    make_version(version);
    struct tier_item item = make_item(version, 1, 4096);
    uint8_t back[4097];
    int fd = open(shard_path(version), O_RDONLY);
    cr_assert_eq(read(fd, back, sizeof(back)), 4096);
    cr_assert(memcmp(back, item.image, 4096) == 0);
    close(fd);
    free_item(&item);
}

Test(persistent, leaves_no_part_files_in_a_version)
{
    struct version version = {1, 100};
    make_version(version);
    DIR *dir = opendir(version_path(version, ""));
    cr_assert_not_null(dir);
    size_t count = 0;
    while (readdir(dir) != NULL) {
        count++;
    }
    closedir(dir);
    cr_assert_eq(count, 4, ". .. manifest and shard, not %zu entries", count);
}

Test(persistent, a_put_fails_if_storage_returns_other_bytes)
{
    struct version version = {1, 100};
    struct tier_item item = make_item(version, 1, IMAGE_BYTES);
    storage_lies = true;
    struct error outcome = put(&item);
    storage_lies = false;
    cr_assert_eq(outcome.code, TCK_ERR_IO, "%s", outcome.text);
    cr_assert(text_has(&outcome, "chunk 0"), "%s", outcome.text);
    outcome = publish(&item, 1);
    cr_assert_eq(outcome.code, TCK_ERR_NOENT, "%s", outcome.text);
    outcome = put(&item); /* the next attempt is independent of it */
    cr_assert_eq(outcome.code, TCK_OK, "%s", outcome.text);
    free_item(&item);
}

Test(persistent, a_put_fails_if_memory_no_longer_matches_its_digests)
{
    struct tier_item item = make_item((struct version){1, 100}, 1, IMAGE_BYTES);
    item.image[CHUNK_BYTES + 17] ^= 1;
    struct error outcome = put(&item);
    cr_assert_eq(outcome.code, TCK_ERR_CORRUPT, "%s", outcome.text);
    cr_assert(text_has(&outcome, "chunk 1"), "%s", outcome.text);
    item.image[CHUNK_BYTES + 17] ^= 1;
    item.crcs[1] ^= 1;
    outcome = put(&item);
    cr_assert_eq(outcome.code, TCK_ERR_CORRUPT, "%s", outcome.text);
    free_item(&item);
}

static uint32_t requests_left; /* to write; the others wait */

static bool take_a_few(void *ctx, uint64_t bytes)
{
    (void)ctx, (void)bytes;
    requests_left -= requests_left > 0;
    return requests_left > 0;
}

static void stop_loop(void *ctx)
{
    (void)ctx;
    loop_stop(loop);
}

/* Of a file whose first requests are written and whose last one waits; then it is written to its end. */
static uint32_t read_backs_before_the_end(bool buffered)
{
    struct tier_item item = make_item((struct version){1, 100}, 1, 6 * CHUNK_BYTES);
    struct error outcome = {0};
    struct loop_timer *timer;
    direct_is_buffered = buffered;
    requests_left = 3;
    read_backs = 0;
    cr_assert_eq(persistent_put(tier, &item, ended, &outcome, NULL), TCK_OK);
    cr_assert_eq(loop_timer_add(loop, stop_loop, NULL, &timer), TCK_OK);
    for (uint32_t i = 0; i < 50 && read_backs == 0; i++) {
        loop_timer_set(timer, 5, false);
        loop_run(loop);
    }
    uint32_t before = read_backs;
    requests_left = UINT32_MAX;
    persistent_resume(tier);
    loop_timer_remove(timer);
    loop_run(loop);
    cr_assert_eq(outcome.code, TCK_OK, "%s", outcome.text);
    cr_assert_eq(read_backs, 1);
    free_item(&item);
    return before;
}

/* Before that, the kernel would return its own copy. */
Test(persistent_open, a_file_in_the_page_cache_is_read_back_once_it_is_synced)
{
    pace.take = take_a_few;
    open_tier();
    int fd = open(path_of("direct"), O_WRONLY | O_CREAT | O_DIRECT, 0600);
    cr_assert(fd >= 0 || errno == EINVAL, "%m");
    if (fd >= 0) {
        close(fd);
        cr_assert_eq(read_backs_before_the_end(false), 1);
    }
#ifdef STATX_DIOALIGN
    cr_assert_eq(read_backs_before_the_end(true), 0);
#endif
}

#define AT_ONCE 10

static uint32_t puts_left;

static void one_ended(void *ctx, const struct error *outcome)
{
    *(struct error *)ctx = *outcome;
    if (--puts_left == 0) {
        loop_stop(loop);
    }
}

/* They share the requests to storage, the buffers for reading back, and the pool. */
Test(persistent, puts_that_are_under_way_at_once_end_each_with_its_own_outcome)
{
    struct tier_item items[AT_ONCE];
    struct error outcomes[AT_ONCE] = {0}, err = {0};
    puts_left = AT_ONCE;
    for (uint32_t i = 0; i < AT_ONCE; i++) {
        items[i] = make_item((struct version){1, 100}, i + 1, 6ull * CHUNK_BYTES + i * 4096);
        items[i].image[CHUNK_BYTES + 17] ^= i == 2; /* no longer matches its digest */
        cr_assert_eq(persistent_put(tier, &items[i], one_ended, &outcomes[i], &err), TCK_OK, "%s", err.text);
    }
    loop_run(loop);
    cr_assert_eq(files_below("1-100"), AT_ONCE - 1);
    for (uint32_t i = 0; i < AT_ONCE; i++) {
        cr_assert_eq(outcomes[i].code, i == 2 ? TCK_ERR_CORRUPT : TCK_OK, "file %u: %s", i, outcomes[i].text);
    }
    cr_assert(text_has(&outcomes[2], "chunk 1"), "%s", outcomes[2].text);
    items[2].image[CHUNK_BYTES + 17] ^= 1;
    outcomes[2] = put(&items[2]);
    cr_assert_eq(outcomes[2].code, TCK_OK, "%s", outcomes[2].text);
    outcomes[2] = publish(items, AT_ONCE);
    cr_assert_eq(outcomes[2].code, TCK_OK, "%s", outcomes[2].text);
    check_published(items, AT_ONCE);
    for (uint32_t i = 0; i < AT_ONCE; i++) {
        free_item(&items[i]);
    }
}

Test(persistent, a_put_does_not_read_back_if_that_is_switched_off)
{
    struct tier_item item = make_item((struct version){1, 100}, 1, IMAGE_BYTES);
    config.storage_verify = SWITCH_OFF;
    storage_lies = true;
    struct error outcome = put(&item);
    storage_lies = false;
    cr_assert_eq(outcome.code, TCK_OK, "%s", outcome.text);
    free_item(&item);
}

Test(persistent, accepts_images_that_are_not_aligned)
{
    struct version version = {1, 100};
    struct tier_item item = make_item(version, 1, 4096);
    struct tier_item odd = item;
    odd.image++;
    odd.image_bytes = 1001;
    odd.root = digest_image(odd.image, odd.image_bytes, odd.crcs);
    struct error outcome = put(&odd);
    cr_assert_eq(outcome.code, TCK_OK, "%s", outcome.text);
    outcome = publish(&odd, 1);
    cr_assert_eq(outcome.code, TCK_OK, "%s", outcome.text);
    cr_assert_eq(listed(NULL), 1);
    free_item(&item);
}

Test(persistent, lists_newest_first_by_term_and_then_step)
{
    struct published *versions;
    size_t count;
    make_version((struct version){1, 300});
    make_version((struct version){2, 100});
    make_version((struct version){2, 200});
    cr_assert_eq(persistent_list(tier, &versions, &count, NULL), TCK_OK);
    cr_assert_eq(count, 3);
    cr_assert(version_is(versions[0].version, (struct version){2, 200}));
    cr_assert(version_is(versions[1].version, (struct version){2, 100}));
    cr_assert(version_is(versions[2].version, (struct version){1, 300}));
    free(versions);
}

/* ---- damage ---------------------------------------------------------------------------------------------------- */

Test(persistent, names_file_and_chunk_of_a_flipped_byte)
{
    struct published which = {.version = {1, 100}};
    struct tier_item item = make_item(which.version, 1, IMAGE_BYTES);
    struct manifest manifest = manifest_of(&item, 1);
    struct error err = put(&item);
    cr_assert_eq(err.code, TCK_OK);
    err = publish_manifest(&manifest);
    cr_assert_eq(err.code, TCK_OK);
    flip_byte(shard_path(which.version), CHUNK_BYTES + 5);

    err = get(&which, &manifest.files[0], &item);
    cr_assert_eq(err.code, TCK_ERR_CORRUPT, "%s", err.text);
    cr_assert(text_has(&err, manifest.files[0].name) && text_has(&err, "chunk 1 of 3"), "%s", err.text);
    cr_assert_eq(persistent_verify(tier, &which, &err), TCK_ERR_CORRUPT);
    cr_assert(text_has(&err, manifest.files[0].name) && text_has(&err, "chunk 1 of 3"), "%s", err.text);
    manifest_free(&manifest);
    free_item(&item);
}

Test(persistent, does_not_list_a_version_with_a_truncated_file)
{
    struct published which = {.version = {1, 100}};
    struct error err = {0};
    make_version(which.version);
    cr_assert_eq(truncate(shard_path(which.version), 4095), 0);
    cr_assert_eq(listed(NULL), 0);
    cr_assert_eq(persistent_verify(tier, &which, &err), TCK_ERR_CORRUPT);
    cr_assert(text_has(&err, "4095"), "%s", err.text);
}

Test(persistent, get_refuses_a_file_that_was_truncated_after_the_listing)
{
    struct published which = {.version = {1, 100}};
    struct manifest manifest;
    struct tier_item item = make_item(which.version, 1, 4096);
    make_version(which.version);
    cr_assert_eq(persistent_manifest(tier, &which, &manifest, NULL), TCK_OK);
    cr_assert_eq(truncate(shard_path(which.version), 100), 0);
    struct error err = get(&which, &manifest.files[0], &item);
    cr_assert_eq(err.code, TCK_ERR_CORRUPT, "%s", err.text);
    manifest_free(&manifest);
    free_item(&item);
}

Test(persistent, get_refuses_a_root_other_than_the_expected_one)
{
    struct published which = {.version = {1, 100}};
    struct manifest manifest;
    struct tier_item item = make_item(which.version, 2, 4096);
    make_version(which.version);
    cr_assert_eq(persistent_manifest(tier, &which, &manifest, NULL), TCK_OK);
    struct error err = get(&which, &manifest.files[0], &item);
    cr_assert_eq(err.code, TCK_ERR_CORRUPT, "%s", err.text);
    manifest_free(&manifest);
    free_item(&item);
}

/* Publishes one shard of several chunks, and damages the last of them. */
static struct tier_item damaged_version(struct published *which, struct manifest *manifest)
{
    struct tier_item item = make_item(which->version, 1, IMAGE_BYTES);
    struct error outcome = put(&item);
    cr_assert_eq(outcome.code, TCK_OK, "%s", outcome.text);
    outcome = publish(&item, 1);
    cr_assert_eq(outcome.code, TCK_OK, "%s", outcome.text);
    cr_assert_eq(persistent_manifest(tier, which, manifest, NULL), TCK_OK);
    flip_byte(shard_path(which->version), (off_t)IMAGE_BYTES - 1);
    cr_assert_eq(persistent_verify(tier, which, NULL), TCK_ERR_CORRUPT);
    return item;
}

/* Only the part of the image that the file lacks is used: the rest of the slot may have other content by then. */
Test(persistent, damaged_file_is_repaired_with_the_chunk_that_it_lacks)
{
    struct published which = {.version = {1, 100}};
    struct manifest manifest;
    struct error err = {0};
    struct tier_item item = damaged_version(&which, &manifest);
    memset(item.image, 0, CHUNK_BYTES);
    cr_assert_eq(persistent_repair(tier, &which, &manifest.files[0], item.image, &err), TCK_OK, "%s", err.text);
    cr_assert_eq(persistent_verify(tier, &which, &err), TCK_OK, "%s", err.text);
    cr_assert_not(exists(path_of("a/b/save/" JOB "/stage/1-100")));
    cr_assert_eq(count_lines(config.audit_file_path, "\"repair\"", "v000000000100.t1/shard-"), 2);
    manifest_free(&manifest);
    free_item(&item);
}

Test(persistent, damaged_file_stays_as_it_is_if_memory_lacks_the_chunk_too)
{
    struct published which = {.version = {1, 100}};
    struct manifest manifest;
    struct error err = {0};
    struct tier_item item = damaged_version(&which, &manifest);
    item.image[IMAGE_BYTES - 2] ^= 1;
    cr_assert_eq(persistent_repair(tier, &which, &manifest.files[0], item.image, &err), TCK_ERR_CORRUPT);
    cr_assert(text_has(&err, "v000000000100.t1/shard-") && text_has(&err, "memory has no good chunk 2 either"), "%s",
              err.text);
    flip_byte(shard_path(which.version), (off_t)IMAGE_BYTES - 1);
    cr_assert_eq(persistent_verify(tier, &which, &err), TCK_OK, "%s", err.text);
    cr_assert_not(exists(path_of("a/b/save/" JOB "/stage/1-100")));
    manifest_free(&manifest);
    free_item(&item);
}

Test(persistent, nothing_is_repaired_in_load_dir)
{
    struct published which = {.version = {1, 100}, .from_second = true};
    struct manifest_file file = {.bytes = 4096};
    cr_assert_eq(persistent_repair(tier, &which, &file, NULL, NULL), TCK_ERR_DENIED);
}

Test(persistent, does_not_list_a_version_without_its_file)
{
    make_version((struct version){1, 100});
    cr_assert_eq(unlink(shard_path((struct version){1, 100})), 0);
    cr_assert_eq(listed(NULL), 0);
}

Test(persistent, does_not_list_a_version_without_manifest)
{
    make_version((struct version){1, 100});
    cr_assert_eq(unlink(version_path((struct version){1, 100}, MANIFEST_NAME)), 0);
    cr_assert_eq(listed(NULL), 0);
}

Test(persistent, does_not_list_a_version_with_an_edited_manifest)
{
    make_version((struct version){1, 100});
    flip_byte(version_path((struct version){1, 100}, MANIFEST_NAME), 30);
    cr_assert_eq(listed(NULL), 0);
}

Test(persistent, does_not_list_a_version_under_another_name)
{
    make_version((struct version){1, 100});
    cr_assert_eq(rename(version_path((struct version){1, 100}, ""), version_path((struct version){9, 900}, "")), 0);
    cr_assert_eq(listed(NULL), 0);
}

Test(persistent, does_not_list_an_entry_that_only_looks_like_a_version)
{
    write_file(path_of("a/b/save/" JOB "/v000000000007.t1"), "a file");
    cr_assert_eq(mkdir(path_of("a/b/save/" JOB "/v7.t1"), 0755), 0);
    cr_assert_eq(mkfifo(path_of("a/b/save/" JOB "/v000000000008.t1"), 0644), 0);
    cr_assert_eq(mkdir(version_path((struct version){1, 9}, ""), 0755), 0);
    cr_assert_eq(mkfifo(version_path((struct version){1, 9}, MANIFEST_NAME), 0644), 0);
    cr_assert_eq(listed(NULL), 0);
}

Test(persistent, does_not_follow_a_version_directory_that_is_a_link)
{
    make_version((struct version){1, 100});
    cr_assert_eq(rename(version_path((struct version){1, 100}, ""), path_of("elsewhere")), 0);
    cr_assert_eq(symlink(path_of("elsewhere"), path_of("a/b/save/" JOB "/v000000000100.t1")), 0);
    cr_assert_eq(listed(NULL), 0);
}

Test(persistent, does_not_follow_a_shard_file_that_is_a_link)
{
    struct published which = {.version = {1, 100}};
    struct error err = {0};
    make_version(which.version);
    cr_assert_eq(rename(shard_path(which.version), path_of("elsewhere")), 0);
    cr_assert_eq(symlink(path_of("elsewhere"), shard_path(which.version)), 0);
    cr_assert_eq(listed(NULL), 0);
    cr_assert_eq(persistent_verify(tier, &which, &err), TCK_ERR_DENIED, "%s", err.text);
}

/* ---- publish --------------------------------------------------------------------------------------------------- */

Test(persistent, publish_finds_its_own_work_again)
{
    struct tier_item item = make_item((struct version){1, 100}, 1, 4096);
    make_version(item.version);
    struct error outcome = publish(&item, 1);
    cr_assert_eq(outcome.code, TCK_OK, "%s", outcome.text);
    free_item(&item);
}

Test(persistent, publish_never_replaces_other_content)
{
    struct version version = {1, 100};
    struct tier_item other = make_item(version, 2, 4096);
    make_version(version);
    cr_assert_eq(put(&other).code, TCK_OK);
    struct error outcome = publish(&other, 1);
    cr_assert_eq(outcome.code, TCK_ERR_EXIST, "%s", outcome.text);
    cr_assert(exists(shard_path(version)));
    cr_assert_eq(listed(NULL), 1);
    free_item(&other);
}

Test(persistent, publish_never_replaces_something_foreign_of_that_name)
{
    struct tier_item item = make_item((struct version){1, 100}, 1, 4096);
    cr_assert_eq(mkdir(version_path(item.version, ""), 0755), 0);
    write_file(version_path(item.version, "mine"), "x");
    cr_assert_eq(put(&item).code, TCK_OK);
    struct error outcome = publish(&item, 1);
    cr_assert_eq(outcome.code, TCK_ERR_EXIST, "%s", outcome.text);
    cr_assert(exists(version_path(item.version, "mine")));
    free_item(&item);
}

Test(persistent, a_superseded_term_cannot_publish)
{
    uint64_t term;
    struct tier_item item = make_item((struct version){1, 100}, 1, 4096);
    cr_assert_eq(persistent_claim_term(tier, 1, &term, NULL), TCK_OK);
    cr_assert_eq(put(&item).code, TCK_OK);
    cr_assert_eq(persistent_claim_term(tier, 7, &term, NULL), TCK_OK);
    uint64_t newer_term = 0;
    struct error outcome = {0}, err = {0};
    struct manifest manifest = manifest_of(&item, 1);
    const struct publish_ask ask = {.manifest = &manifest, .term = 1, .newer_term = &newer_term};
    cr_assert_eq(persistent_publish(tier, &ask, ended, &outcome, &err), TCK_OK, "%s", err.text);
    loop_run(loop);
    cr_assert_eq(outcome.code, TCK_ERR_DENIED, "%s", outcome.text);
    cr_assert(text_has(&outcome, "term 7 was claimed"), "%s", outcome.text);
    cr_assert_eq(newer_term, 7);
    cr_assert_eq(listed(NULL), 0);
    manifest_free(&manifest);
    free_item(&item);
}

/* A version that a term has restored, and must put on storage before it has saved anything itself. */
Test(persistent, the_newest_term_publishes_a_version_of_an_older_one)
{
    uint64_t term;
    struct tier_item item = make_item((struct version){1, 100}, 1, 4096);
    cr_assert_eq(put(&item).code, TCK_OK);
    cr_assert_eq(persistent_claim_term(tier, 7, &term, NULL), TCK_OK);
    struct manifest manifest = manifest_of(&item, 1);
    cr_assert_eq(publish_as(&manifest, 6).code, TCK_ERR_DENIED);
    struct error outcome = publish_as(&manifest, 7);
    cr_assert_eq(outcome.code, TCK_OK, "%s", outcome.text);
    cr_assert_eq(listed(NULL), 1);
    manifest_free(&manifest);
    free_item(&item);
}

Test(persistent, publish_requires_every_file_in_the_stage)
{
    struct version version = {1, 100};
    struct tier_item items[2] = {make_item(version, 1, 4096), make_item(version, 2, 4096)};
    cr_assert_eq(put(&items[0]).code, TCK_OK);
    struct error outcome = publish(items, 2);
    cr_assert_eq(outcome.code, TCK_ERR_NOENT, "%s", outcome.text);
    cr_assert_eq(listed(NULL), 0);
    cr_assert_eq(put(&items[1]).code, TCK_OK);
    outcome = publish(items, 2);
    cr_assert_eq(outcome.code, TCK_OK, "%s", outcome.text);
    free_item(&items[0]);
    free_item(&items[1]);
}

Test(persistent, publish_requires_the_right_size_of_every_file)
{
    struct tier_item item = make_item((struct version){1, 100}, 1, 4096);
    struct tier_item longer = make_item((struct version){1, 100}, 1, 8192);
    cr_assert_eq(put(&item).code, TCK_OK);
    struct error outcome = publish(&longer, 1);
    cr_assert_eq(outcome.code, TCK_ERR_CORRUPT, "%s", outcome.text);
    free_item(&item);
    free_item(&longer);
}

Test(persistent, a_repeated_put_replaces_the_file_in_the_stage)
{
    struct tier_item item = make_item((struct version){1, 100}, 1, 4096);
    cr_assert_eq(put(&item).code, TCK_OK);
    cr_assert_eq(put(&item).code, TCK_OK);
    struct error outcome = publish(&item, 1);
    cr_assert_eq(outcome.code, TCK_OK, "%s", outcome.text);
    free_item(&item);
}

Test(persistent, audits_each_publish_before_and_after)
{
    make_version((struct version){1, 100});
    const char *audit = path_of("a/b/save/" JOB "/audit.n0.jsonl");
    cr_assert_eq(count_lines(audit, "\"op\":\"publish\",\"phase\":\"intent\"", "v000000000100.t1"), 1);
    cr_assert_eq(count_lines(audit, "\"op\":\"publish\",\"phase\":\"result\"", "\"status\":\"success\""), 1);
    cr_assert_eq(count_lines(audit, "\"op\":\"write\"", "stage/1-100/shard-"), 2);
}

Test(persistent, reports_a_full_disk_before_it_writes_and_leaves_nothing_behind)
{
    struct tier_item item = make_item((struct version){1, 100}, 1, IMAGE_BYTES);
    const char *stage = path_of("a/b/save/" JOB "/stage");
    cr_assert_eq(mkdir(stage, 0755), 0);
    if (mount("none", stage, "tmpfs", 0, "size=1m") < 0) {
        free_item(&item);
        cr_skip_test("cannot mount a tmpfs: %m");
    }
    struct error outcome = put(&item);
    struct stat st;
    int entries = stat(path_of("a/b/save/" JOB "/stage/1-100"), &st);
    bool empty = rmdir(path_of("a/b/save/" JOB "/stage/1-100")) == 0;
    umount2(path_of("a/b/save/" JOB "/stage"), MNT_DETACH);
    cr_assert_eq(outcome.code, TCK_ERR_NOSPC, "%s", outcome.text);
    cr_assert_eq(entries, 0);
    cr_assert(empty, "a part file was left");
    free_item(&item);
}

Test(persistent, cancels_a_put_when_it_is_freed)
{
    struct tier_item item = make_item((struct version){1, 100}, 1, IMAGE_BYTES);
    struct error outcome = {0};
    cr_assert_eq(persistent_put(tier, &item, ended, &outcome, NULL), TCK_OK);
    persistent_free(tier);
    tier = NULL;
    pool_free(pool);
    pool = NULL;
    cr_assert_eq(outcome.code, TCK_ERR_CANCELED, "%s", outcome.text);
    free_item(&item);
}

Test(persistent, a_put_that_was_given_up_ends_and_what_it_wrote_gets_no_name)
{
    struct tier_item item = make_item((struct version){1, 100}, 1, IMAGE_BYTES);
    struct error outcome = {0};
    cr_assert_eq(persistent_put(tier, &item, ended, &outcome, NULL), TCK_OK);
    persistent_give_up(tier);
    loop_run(loop);
    cr_assert_eq(outcome.code, TCK_ERR_CANCELED, "%s", outcome.text);
    cr_assert_eq(files_below("1-100"), 0);
    cr_assert_eq(put(&item).code, TCK_OK, "the next one is not given up");
    cr_assert_eq(files_below("1-100"), 1);
    free_item(&item);
}

Test(persistent, a_put_has_digests_of_its_own_once_it_writes)
{
    struct tier_item item = make_item((struct version){1, 100}, 1, IMAGE_BYTES);
    struct error outcome = put(&item);
    cr_assert_eq(outcome.code, TCK_OK, "%s", outcome.text);
    cr_assert_gt(persistent_moved_ms(tier), 0);
    item.root.lo ^= 1; /* the bytes put must match their root, whatever happened to the slot's digests */
    outcome = put(&item);
    cr_assert_eq(outcome.code, TCK_ERR_CORRUPT, "%s", outcome.text);
    free_item(&item);
}

Test(persistent, ends_a_put_when_the_pool_is_freed_first)
{
    struct tier_item item = make_item((struct version){1, 100}, 1, IMAGE_BYTES);
    struct error outcome = {0};
    cr_assert_eq(persistent_put(tier, &item, ended, &outcome, NULL), TCK_OK);
    pool_free(pool);
    pool = NULL;
    persistent_free(tier);
    tier = NULL;
    cr_assert_eq(outcome.code, TCK_ERR_CANCELED, "%s", outcome.text);
    free_item(&item);
}

static bool take_and_stop(void *ctx, uint64_t bytes)
{
    (void)ctx, (void)bytes;
    loop_stop(loop);
    return true;
}

/* What is written would be read back next, by jobs of a pool that is gone. */
Test(persistent_open, begins_nothing_for_a_write_that_returns_after_the_pool_was_freed)
{
    struct tier_item item = make_item((struct version){1, 100}, 1, IMAGE_BYTES);
    struct error outcome = {0};
    pace.take = take_and_stop;
    open_tier();
    cr_assert_eq(persistent_put(tier, &item, ended, &outcome, NULL), TCK_OK);
    loop_run(loop);
    cr_assert_eq(outcome.code, TCK_OK, "it has ended before it wrote: %s", outcome.text);
    pool_free(pool);
    pool = NULL;
    persistent_free(tier);
    tier = NULL;
    cr_assert_eq(outcome.code, TCK_ERR_CANCELED, "%s", outcome.text);
    free_item(&item);
}

/* ---- .metadata ------------------------------------------------------------------------------------------------- */

#define METADATA "what DCP reads"

/* An item whose image has the blob, with this content. */
static struct tier_item item_with_metadata(struct version version, const char *content)
{
    struct layout layout = {0};
    struct error err = {0};
    uint64_t len = strlen(content), prefix = htole64(len);
    cr_assert_eq(layout_add_blob(&layout, "rank0/rng", 9000, NULL, NULL, &err), TCK_OK, "%s", err.text);
    cr_assert_eq(layout_add_blob(&layout, TCK_METADATA_KEY, 5000, NULL, NULL, &err), TCK_OK, "%s", err.text);
    cr_assert_eq(layout_build(&layout, 0, 1, &err), TCK_OK, "%s", err.text);
    const struct shard *shard = &layout.shards[0];
    struct tier_item item = make_item(version, 1, shard->image_bytes);
    uint8_t *blob = item.image + layout.records[1].image_offset;
    memcpy(item.image, shard->header, shard->header_bytes);
    memcpy(blob, &prefix, sizeof(prefix));
    memcpy(blob + sizeof(prefix), content, len);
    item.root = digest_image(item.image, item.image_bytes, item.crcs);
    layout_free(&layout);
    return item;
}

static void make_version_with_metadata(struct version version, const char *content)
{
    struct tier_item item = item_with_metadata(version, content);
    struct error outcome = put(&item);
    cr_assert_eq(outcome.code, TCK_OK, "%s", outcome.text);
    outcome = publish(&item, 1);
    cr_assert_eq(outcome.code, TCK_OK, "%s", outcome.text);
    free_item(&item);
}

Test(persistent, publishes_the_content_of_the_metadata_blob_as_a_file)
{
    struct published which = {.version = {1, 1}};
    struct manifest manifest;
    struct error err = {0};
    char got[100] = "";
    make_version_with_metadata(which.version, METADATA);
    FILE *file = fopen(version_path(which.version, METADATA_NAME), "r");
    cr_assert_not_null(file);
    cr_assert_eq(fread(got, 1, sizeof(got) - 1, file), strlen(METADATA));
    fclose(file);
    cr_assert_str_eq(got, METADATA);
    cr_assert_eq(persistent_manifest(tier, &which, &manifest, &err), TCK_OK, "%s", err.text);
    cr_assert_eq(manifest.metadata.bytes, strlen(METADATA));
    cr_assert_eq(manifest.file_count, 1);
    manifest_free(&manifest);
    cr_assert_eq(persistent_verify(tier, &which, &err), TCK_OK, "%s", err.text);
}

Test(persistent, verify_finds_damage_to_metadata_and_the_version_can_still_be_loaded)
{
    struct published which = {.version = {1, 1}};
    struct error err = {0};
    make_version_with_metadata(which.version, METADATA);
    flip_byte(version_path(which.version, METADATA_NAME), 3);
    cr_assert_eq(persistent_verify(tier, &which, &err), TCK_ERR_CORRUPT);
    cr_assert(text_has(&err, METADATA_NAME), "%s", err.text);
    cr_assert_eq(unlink(version_path(which.version, METADATA_NAME)), 0);
    cr_assert_eq(persistent_verify(tier, &which, &err), TCK_ERR_NOENT);
    cr_assert(text_has(&err, METADATA_NAME), "%s", err.text);
    cr_assert_eq(listed(NULL), 1);
}

Test(persistent, an_empty_metadata_blob_makes_no_file)
{
    make_version_with_metadata((struct version){1, 1}, "");
    cr_assert_not(exists(version_path((struct version){1, 1}, METADATA_NAME)));
    cr_assert_eq(listed(NULL), 1);
}

Test(persistent, metadata_is_deleted_with_its_version_and_with_its_stage)
{
    struct tier_item staged = item_with_metadata((struct version){1, 3}, METADATA);
    make_version_with_metadata((struct version){1, 1}, METADATA);
    make_version((struct version){1, 2});
    cr_assert_eq(put(&staged).code, TCK_OK);
    cr_assert(exists(path_of("a/b/save/" JOB "/stage/1-3/" METADATA_NAME)));
    cr_assert_eq(persistent_prune(tier, 1, VERSION_NONE, false, NULL, NULL, NULL), TCK_OK);
    cr_assert_not(exists(version_path((struct version){1, 1}, "")));
    cr_assert_eq(persistent_sweep(tier, 2, VERSION_NONE, NULL), TCK_OK);
    cr_assert_not(exists(path_of("a/b/save/" JOB "/stage/1-3")));
    free_item(&staged);
}

Test(persistent, prune_leaves_a_version_whole_in_which_somebody_else_has_put_metadata)
{
    make_version((struct version){1, 1});
    make_version((struct version){1, 2});
    write_file(version_path((struct version){1, 1}, METADATA_NAME), "mine");
    cr_assert_eq(persistent_prune(tier, 1, VERSION_NONE, false, NULL, NULL, NULL), TCK_ERR_DENIED);
    cr_assert(exists(shard_path((struct version){1, 1})));
}

/* ---- .index ---------------------------------------------------------------------------------------------------- */

static struct manifest published_manifest(struct version version)
{
    struct published which = {.version = version};
    struct manifest manifest;
    struct error err = {0};
    cr_assert_eq(persistent_manifest(tier, &which, &manifest, &err), TCK_OK, "%s", err.text);
    return manifest;
}

/* Asserts that .index of the version begins as its only file does, and is as long as the header of that. */
static void assert_has_index(struct version version)
{
    struct manifest manifest = published_manifest(version);
    uint64_t bytes = manifest.index.bytes, header = 0;
    cr_assert_gt(bytes, 0);
    uint8_t *index = malloc(bytes), *file = malloc(bytes);
    FILE *from = fopen(version_path(version, VERSION_INDEX_NAME), "r");
    cr_assert_not_null(from);
    cr_assert_eq(fread(index, 1, bytes, from), bytes);
    cr_assert_eq(fgetc(from), EOF);
    fclose(from);
    from = fopen(shard_path(version), "r");
    cr_assert_eq(fread(file, 1, bytes, from), bytes);
    fclose(from);
    cr_assert_eq(image_header_bytes(file, bytes, manifest.files[0].bytes, &header, NULL), TCK_OK);
    cr_assert_eq(header, bytes);
    cr_assert_arr_eq(index, file, bytes);
    free(index);
    free(file);
    manifest_free(&manifest);
}

/* Asserts that both have the same .index. */
static void assert_index_is(struct version version, struct version other)
{
    struct manifest a = published_manifest(version), b = published_manifest(other);
    struct published which = {.version = version};
    struct error err = {0};
    cr_assert(a.index.bytes == b.index.bytes && hash128_is(a.index.root, b.index.root));
    cr_assert_eq(persistent_verify(tier, &which, &err), TCK_OK, "%s", err.text);
    manifest_free(&a);
    manifest_free(&b);
}

Test(persistent, publishes_an_index_of_the_headers)
{
    struct published which = {.version = {1, 1}};
    struct error err = {0};
    make_version_with_metadata(which.version, METADATA);
    assert_has_index(which.version);
    cr_assert_eq(persistent_verify(tier, &which, &err), TCK_OK, "%s", err.text);
}

/* Publishes an item whose file has been damaged in its header since it was put. Returns the size of .index. */
static uint64_t index_of_damaged(struct version version)
{
    struct tier_item item = item_with_metadata(version, METADATA);
    char name[MANIFEST_FILE_NAME];
    cr_assert_eq(put(&item).code, TCK_OK);
    manifest_file_name(item.shard, name);
    flip_byte(path_of("a/b/save/" JOB "/stage/%" PRIu64 "-%" PRIu64 "/%s", version.term, version.step, name), 100);
    cr_assert_eq(publish(&item, 1).code, TCK_OK);
    struct manifest manifest = published_manifest(version);
    uint64_t bytes = manifest.index.bytes;
    manifest_free(&manifest);
    free_item(&item);
    return bytes;
}

/* The headers in it would be wrong. */
Test(persistent, a_header_that_is_damaged_at_the_publish_gives_no_index)
{
    cr_assert_eq(index_of_damaged((struct version){1, 1}), 0);
    cr_assert_not(exists(version_path((struct version){1, 1}, VERSION_INDEX_NAME)));
    make_version_with_metadata((struct version){1, 2}, METADATA);
    assert_has_index((struct version){1, 2});
}

/* Headers are those of the layout, so the file is not read for them, and its damage makes no difference. */
Test(persistent, the_headers_of_a_layout_are_read_once)
{
    make_version_with_metadata((struct version){1, 1}, METADATA);
    cr_assert_gt(index_of_damaged((struct version){1, 2}), 0);
    reopen_tier();
    cr_assert_eq(index_of_damaged((struct version){1, 3}), 0);
}

/* Puts and publishes a version of two images. damaged: 1 or 2, the one whose header is damaged before the publish; 0:
 * none. Returns the size of .index. */
static uint64_t index_of_two(struct version version, uint32_t damaged)
{
    struct tier_item items[2];
    for (uint32_t i = 0; i < 2; i++) {
        char name[MANIFEST_FILE_NAME];
        items[i] = item_with_metadata(version, METADATA);
        items[i].shard.lo = i;
        cr_assert_eq(put(&items[i]).code, TCK_OK);
        manifest_file_name(items[i].shard, name);
        if (damaged == i + 1) {
            flip_byte(path_of("a/b/save/" JOB "/stage/%" PRIu64 "-%" PRIu64 "/%s", version.term, version.step, name),
                      100);
        }
    }
    cr_assert_eq(publish(items, 2).code, TCK_OK);
    struct manifest manifest = published_manifest(version);
    uint64_t bytes = manifest.index.bytes;
    cr_assert_eq(bytes > 0, exists(version_path(version, VERSION_INDEX_NAME)));
    manifest_free(&manifest);
    free_item(&items[0]);
    free_item(&items[1]);
    return bytes;
}

/* How many lines of the log say that a version gets no .index, for this reason. */
static int lines_of_no_index(const char *reason)
{
    char line[4096];
    int count = 0;
    FILE *file = fopen(path_of("log"), "r");
    cr_assert_not_null(file);
    while (fgets(line, sizeof(line), file) != NULL) {
        count += strstr(line, "gets no " VERSION_INDEX_NAME) != NULL && strstr(line, reason) != NULL;
    }
    fclose(file);
    return count;
}

static void log_into_file(void)
{
    struct error err;
    cr_assert_eq(log_open(path_of("log"), LOG_WARN, "test", &err), TCK_OK, "%s", err.text);
}

/* With no time at all, each publish reads the header of one more file. */
Test(persistent, headers_that_take_too_long_are_read_on_by_the_next_publish)
{
    log_into_file();
    tier->index_limits.ms = 0;
    cr_assert_eq(index_of_two((struct version){1, 1}, 0), 0);
    cr_assert_eq(lines_of_no_index("the next publish goes on"), 1);
    uint64_t bytes = index_of_two((struct version){1, 2}, 1); /* of that file it was read before */
    cr_assert_gt(bytes, 0);
    cr_assert_eq(index_of_two((struct version){1, 3}, 2), bytes);
    cr_assert_eq(lines_of_no_index(""), 1);
}

Test(persistent, what_was_read_before_a_damaged_header_is_kept)
{
    cr_assert_eq(index_of_two((struct version){1, 1}, 2), 0);
    cr_assert_gt(index_of_two((struct version){1, 2}, 1), 0);
}

Test(persistent, headers_that_are_too_long_are_logged_once_and_give_no_index)
{
    make_version_with_metadata((struct version){1, 1}, METADATA);
    struct manifest of_one = published_manifest((struct version){1, 1});
    log_into_file();
    tier->index_limits.bytes = of_one.index.bytes;
    cr_assert_eq(index_of_two((struct version){1, 2}, 0), 0);
    cr_assert_eq(index_of_two((struct version){1, 3}, 0), 0);
    cr_assert_eq(lines_of_no_index("have more than"), 1);
    make_version_with_metadata((struct version){1, 4}, METADATA); /* another layout */
    assert_has_index((struct version){1, 4});
    cr_assert_eq(index_of_two((struct version){1, 5}, 0), 0);
    cr_assert_eq(lines_of_no_index("have more than"), 2);
    cr_assert_eq(lines_of_no_index(""), 2);
    manifest_free(&of_one);
}

Test(persistent, kept_headers_that_have_changed_are_read_again)
{
    uint64_t bytes = index_of_two((struct version){1, 1}, 0);
    tier->index->bytes[bytes - 1] ^= 1;
    cr_assert_eq(index_of_two((struct version){1, 2}, 0), bytes);
    assert_index_is((struct version){1, 2}, (struct version){1, 1});
    cr_assert_eq(index_of_two((struct version){1, 3}, 1), bytes, "they are kept again");
}

Test(persistent, a_publish_that_was_given_up_changes_nothing)
{
    struct tier_item item = item_with_metadata((struct version){1, 1}, METADATA);
    struct manifest manifest = manifest_of(&item, 1);
    struct error outcome = {0}, err = {0};
    const atomic_bool given_up = true;
    const struct publish_ask ask = {.manifest = &manifest, .term = 1, .given_up = &given_up};
    cr_assert_eq(put(&item).code, TCK_OK);
    int before = files_below("1-1");
    fclose(fopen(path_of("a/b/save/" JOB "/stage/1-1/" VERSION_INDEX_NAME), "w"));
    cr_assert_eq(persistent_publish(tier, &ask, ended, &outcome, &err), TCK_OK, "%s", err.text);
    loop_run(loop);
    cr_assert_eq(outcome.code, TCK_ERR_CANCELED, "%s", outcome.text);
    cr_assert_eq(files_below("1-1"), before);
    cr_assert(exists(path_of("a/b/save/" JOB "/stage/1-1/" VERSION_INDEX_NAME)), "another attempt has made it");
    cr_assert_not(exists(path_of("a/b/save/" JOB "/stage/1-1/" MANIFEST_NAME)));
    manifest_free(&manifest);
    free_item(&item);
}

Test(persistent, what_is_no_image_is_published_without_an_index)
{
    struct manifest manifest;
    make_version((struct version){1, 1});
    manifest = published_manifest((struct version){1, 1});
    cr_assert_eq(manifest.index.bytes, 0);
    manifest_free(&manifest);
    cr_assert_not(exists(version_path((struct version){1, 1}, VERSION_INDEX_NAME)));
}

Test(persistent, verify_finds_damage_to_the_index_and_the_version_can_still_be_loaded)
{
    struct published which = {.version = {1, 1}};
    struct error err = {0};
    make_version_with_metadata(which.version, METADATA);
    flip_byte(version_path(which.version, VERSION_INDEX_NAME), 3);
    cr_assert_eq(persistent_verify(tier, &which, &err), TCK_ERR_CORRUPT);
    cr_assert(text_has(&err, VERSION_INDEX_NAME), "%s", err.text);
    cr_assert_eq(unlink(version_path(which.version, VERSION_INDEX_NAME)), 0);
    cr_assert_eq(persistent_verify(tier, &which, &err), TCK_ERR_NOENT);
    cr_assert(text_has(&err, VERSION_INDEX_NAME), "%s", err.text);
    cr_assert_eq(listed(NULL), 1);
}

Test(persistent, the_index_is_deleted_with_its_version)
{
    make_version_with_metadata((struct version){1, 1}, METADATA);
    make_version((struct version){1, 2});
    cr_assert_eq(persistent_prune(tier, 1, VERSION_NONE, false, NULL, NULL, NULL), TCK_OK);
    cr_assert_not(exists(version_path((struct version){1, 1}, "")));
}

/* ---- retention ------------------------------------------------------------------------------------------------- */

Test(persistent, publish_keeps_as_many_as_configured)
{
    struct version newest;
    config.max_ckpt_num = 2;
    for (uint64_t step = 1; step <= 4; step++) {
        make_version((struct version){1, step});
        wait_until_listed(step < 2 ? step : 2);
    }
    reopen_tier();
    cr_assert_eq(listed(&newest), 2);
    cr_assert(version_is(newest, (struct version){1, 4}));
    cr_assert_not(exists(version_path((struct version){1, 2}, "")));
    pool_free(pool); /* the last deletion has ended */
    pool = NULL;
    const char *audit = path_of("a/b/save/" JOB "/audit.n0.jsonl");
    cr_assert_eq(count_lines(audit, "\"op\":\"delete\",\"phase\":\"intent\",\"what\":\"v000000000001.t1\"", ""), 1);
    cr_assert_eq(count_lines(audit, "\"op\":\"delete\",\"phase\":\"result\",\"what\":\"v000000000001.t1\"", "success"),
                 1);
}

Test(persistent, prune_keeps_newest_and_pinned)
{
    struct published *removed;
    size_t count;
    for (uint64_t step = 1; step <= 4; step++) {
        make_version((struct version){1, step});
    }
    cr_assert_eq(persistent_prune(tier, 1, (struct version){1, 2}, false, &removed, &count, NULL), TCK_OK);
    cr_assert_eq(count, 2);
    cr_assert_eq(listed(NULL), 2);
    cr_assert(exists(shard_path((struct version){1, 4})));
    cr_assert(exists(shard_path((struct version){1, 2})));
    free(removed);
}

static int manifests_seen, gone_at;

/* At one of the manifests: another process has deleted the first version, and what this one has open is stale. */
static tck_status_t deleted_by_another(const char *name)
{
    if (strcmp(name, MANIFEST_NAME) != 0 || ++manifests_seen != gone_at) {
        return TCK_OK;
    }
    nftw(version_path((struct version){1, 1}, ""), remove_entry, 16, FTW_DEPTH | FTW_PHYS);
    nftw(path_of("a/b/save/" JOB "/trash"), remove_entry, 16, FTW_DEPTH | FTW_PHYS);
    return TCK_ERR_IO;
}

/* Two manifests are read to choose, and that of the first version before and after it is un-published. */
Test(persistent, a_version_that_another_process_deletes_meanwhile_is_no_error)
{
    for (gone_at = 3; gone_at <= 4; gone_at++) {
        make_version((struct version){1, 1});
        make_version((struct version){1, 2});
        manifests_seen = 0;
        before_read = deleted_by_another;
        struct error err = {0};
        cr_assert_eq(persistent_prune(tier, 1, VERSION_NONE, false, NULL, NULL, &err), TCK_OK, "%s", err.text);
        before_read = NULL;
        cr_assert_geq(manifests_seen, gone_at);
        cr_assert_not(exists(version_path((struct version){1, 1}, "")));
        cr_assert_eq(persistent_prune(tier, 0, VERSION_NONE, false, NULL, NULL, NULL), TCK_OK);
    }
}

Test(persistent, a_dry_prune_names_and_keeps)
{
    struct published *removed;
    size_t count;
    for (uint64_t step = 1; step <= 3; step++) {
        make_version((struct version){1, step});
    }
    cr_assert_eq(persistent_prune(tier, 1, VERSION_NONE, true, &removed, &count, NULL), TCK_OK);
    cr_assert_eq(count, 2);
    cr_assert_eq(listed(NULL), 3);
    free(removed);
}

Test(persistent, prune_leaves_a_version_with_a_foreign_file_whole)
{
    make_version((struct version){1, 1});
    make_version((struct version){1, 2});
    write_file(version_path((struct version){1, 1}, "notes.txt"), "mine");
    size_t count = 99;
    struct published *removed;
    struct error err;
    cr_assert_eq(persistent_prune(tier, 1, VERSION_NONE, false, &removed, &count, &err), TCK_ERR_DENIED);
    cr_assert(strstr(err.text, "/v000000000001.t1 cannot be removed: "), "%s", err.text);
    cr_assert_eq(count, 0);
    cr_assert(exists(version_path((struct version){1, 1}, "notes.txt")));
    cr_assert_eq(listed(NULL), 2);
    free(removed);
}

Test(persistent, prune_touches_nothing_without_a_valid_manifest)
{
    make_version((struct version){1, 1});
    make_version((struct version){1, 2});
    make_version((struct version){1, 3});
    flip_byte(version_path((struct version){1, 1}, MANIFEST_NAME), 30);
    cr_assert_eq(persistent_prune(tier, 1, VERSION_NONE, false, NULL, NULL, NULL), TCK_OK);
    cr_assert(exists(shard_path((struct version){1, 1})));
    cr_assert_not(exists(shard_path((struct version){1, 2})));
}

Test(persistent, a_damaged_newest_does_not_count_as_the_one_to_keep)
{
    make_version((struct version){1, 1});
    make_version((struct version){1, 2});
    cr_assert_eq(unlink(shard_path((struct version){1, 2})), 0);
    cr_assert_eq(persistent_prune(tier, 1, VERSION_NONE, false, NULL, NULL, NULL), TCK_OK);
    cr_assert(exists(shard_path((struct version){1, 1})));
}

Test(persistent, sweep_finishes_an_interrupted_deletion)
{
    make_version((struct version){1, 1});
    const char *trash = path_of("a/b/save/" JOB "/trash");
    const char *half = path_of("a/b/save/" JOB "/trash/v000000000001.t1.0123abcd");
    cr_assert_eq(mkdir(trash, 0755), 0);
    cr_assert_eq(unlink(shard_path((struct version){1, 1})), 0);
    cr_assert_eq(rename(version_path((struct version){1, 1}, ""), half), 0);
    cr_assert_eq(mkdir(path_of("a/b/save/" JOB "/trash/foreign"), 0755), 0);
    cr_assert_eq(persistent_sweep(tier, 2, VERSION_NONE, NULL), TCK_OK);
    cr_assert_not(exists(path_of("a/b/save/" JOB "/trash/v000000000001.t1.0123abcd")));
    cr_assert(exists(path_of("a/b/save/" JOB "/trash/foreign")));
}

Test(persistent, sweep_removes_old_stages_but_not_the_kept_one_a_newer_one_or_a_foreign_file)
{
    struct version versions[] = {{1, 1}, {1, 2}, {3, 3}, {1, 4}};
    for (size_t i = 0; i < 4; i++) {
        struct tier_item item = make_item(versions[i], 1, 4096);
        cr_assert_eq(put(&item).code, TCK_OK);
        free_item(&item);
    }
    write_file(path_of("a/b/save/" JOB "/stage/1-4/mine"), "x");
    write_file(path_of("a/b/save/" JOB "/stage/1-1/manifest.json.0123abcd.part"), "x");
    cr_assert_eq(persistent_sweep(tier, 2, versions[1], NULL), TCK_OK);
    cr_assert_not(exists(path_of("a/b/save/" JOB "/stage/1-1")));
    cr_assert(exists(path_of("a/b/save/" JOB "/stage/1-2")));
    cr_assert(exists(path_of("a/b/save/" JOB "/stage/3-3")));
    cr_assert(exists(path_of("a/b/save/" JOB "/stage/1-4/mine")));
}

/* A publisher that was stopped between its last check and the rename must find nothing to rename. */
Test(persistent, sweep_takes_the_name_from_a_stage_before_its_files)
{
    struct tier_item item = make_item((struct version){1, 1}, 1, 4096);
    cr_assert_eq(put(&item).code, TCK_OK);
    free_item(&item);
    cr_assert_eq(mkdir(path_of("a/b/save/" JOB "/stage/1-1.swept"), 0755), 0);
    cr_assert_eq(mkdir(path_of("a/b/save/" JOB "/stage/1-2.swept"), 0755), 0);
    write_file(path_of("a/b/save/" JOB "/stage/1-2.swept/mine"), "x");
    cr_assert_eq(mkdir(path_of("a/b/save/" JOB "/stage/1-3.other"), 0755), 0);
    cr_assert_eq(persistent_sweep(tier, 2, VERSION_NONE, NULL), TCK_OK);
    cr_assert_not(exists(path_of("a/b/save/" JOB "/stage/1-1")));
    cr_assert_not(exists(path_of("a/b/save/" JOB "/stage/1-1.swept")));
    cr_assert(exists(path_of("a/b/save/" JOB "/stage/1-2.swept/mine")));
    cr_assert(exists(path_of("a/b/save/" JOB "/stage/1-3.other")));
    const char *audit = path_of("a/b/save/" JOB "/audit.n0.jsonl");
    cr_assert_eq(count_lines(audit, "\"phase\":\"result\",\"what\":\"stage/1-1.swept\"", "success"), 2);
}

/* ---- terms ----------------------------------------------------------------------------------------------------- */

Test(persistent, two_claims_get_different_terms)
{
    uint64_t a, b, newest;
    struct persistent *first = tier;
    open_tier(); /* another agent */
    cr_assert_eq(persistent_claim_term(first, 1, &a, NULL), TCK_OK);
    cr_assert_eq(persistent_claim_term(tier, 1, &b, NULL), TCK_OK);
    cr_assert_eq(a, 1);
    cr_assert_eq(b, 2);
    cr_assert_eq(persistent_newest_term(first, &newest, NULL), TCK_OK);
    cr_assert_eq(newest, 2);
    persistent_free(first);
}

Test(persistent, claims_at_least_the_requested_term_and_never_below_an_older_one)
{
    uint64_t term;
    cr_assert_eq(persistent_claim_term(tier, 5, &term, NULL), TCK_OK);
    cr_assert_eq(term, 5);
    cr_assert_eq(persistent_claim_term(tier, 1, &term, NULL), TCK_OK);
    cr_assert_eq(term, 6);
}

Test(persistent, claims_above_versions_whose_term_file_is_gone)
{
    uint64_t term;
    make_version((struct version){4, 10});
    cr_assert_eq(persistent_claim_term(tier, 1, &term, NULL), TCK_OK);
    cr_assert_eq(term, 5);
}

/* A directory of that name below another, with a shard's file that uses all the free space. */
static void fill(const char *save, const char *parent, const char *name)
{
    char path[512];
    char block[4096] = {1};
    snprintf(path, sizeof(path), "%s/" JOB "/%s", save, parent);
    cr_assert(mkdir(path, 0755) == 0 || errno == EEXIST);
    snprintf(path, sizeof(path), "%s/" JOB "/%s/%s", save, parent, name);
    cr_assert_eq(mkdir(path, 0755), 0);
    snprintf(path, sizeof(path), "%s/" JOB "/%s/%s/shard-00000000000000090000000000000001.safetensors", save, parent,
             name);
    int fd = open(path, O_WRONLY | O_CREAT, 0644);
    cr_assert_geq(fd, 0);
    while (write(fd, block, sizeof(block)) > 0) {
    }
    close(fd);
}

/* A claim on storage that is full of such files succeeds, and they are gone. */
static void claims_in_spite_of(const char *parent, const char *name)
{
    char save[256], left[512];
    struct error err = {0};
    uint64_t term = 0;
    snprintf(save, sizeof(save), "%s", path_of("a/b/save"));
    if (mount("none", save, "tmpfs", 0, "size=512k") < 0) {
        cr_skip_test("cannot mount a tmpfs: %m");
    }
    reopen_tier();
    cr_assert_eq(persistent_claim_term(tier, 1, &term, NULL), TCK_OK);
    fill(save, parent, name);
    snprintf(left, sizeof(left), "%s/" JOB "/%s/%s", save, parent, name);
    tck_status_t status = persistent_claim_term(tier, 1, &term, &err);
    bool is_left = exists(left);
    umount2(save, MNT_DETACH);
    cr_assert_eq(status, TCK_OK, "%s", err.text);
    cr_assert_gt(term, 1);
    cr_assert_not(is_left);
}

Test(persistent, a_claim_makes_room_by_removing_leftovers_of_unfinished_drains)
{
    claims_in_spite_of("stage", "1-100");
}

Test(persistent, a_claim_makes_room_by_removing_unpublished_versions)
{
    claims_in_spite_of("trash", "v000000000100.t1.0123abcd");
}

/* ---- the holder of a term -------------------------------------------------------------------------------------- */

static struct term_holder some_holder(struct node_info *agents, uint32_t count, bool joined)
{
    struct term_holder holder = {
        .node = "a", .pid = 4711, .run_id = "launcher", .joined = joined, .agent_count = count, .agents = agents};
    for (uint32_t i = 0; i < count; i++) {
        agents[i] = (struct node_info){.domain = "rack", .address = "10.0.0.1:4000", .agent_id = UINT64_MAX - i};
        snprintf(agents[i].name, sizeof(agents[i].name), "n%u", i);
    }
    return holder;
}

static uint64_t claim_for(const struct term_holder *holder, uint64_t at_least)
{
    struct error err = {0};
    uint64_t term = 0;
    struct term_claim wanted = {.at_least = at_least, .holder = holder};
    cr_assert_eq(persistent_claim(tier, &wanted, &term, &err), TCK_OK, "%s", err.text);
    return term;
}

static struct term_holders holders_now(void)
{
    struct term_holders holders;
    struct error err = {0};
    cr_assert_eq(persistent_term_holders(tier, &holders, &err), TCK_OK, "%s", err.text);
    return holders;
}

Test(persistent, a_claim_names_its_holder)
{
    struct node_info agents[1];
    struct term_holder holder = some_holder(agents, 1, false);
    uint64_t term = claim_for(&holder, 1);
    struct term_holders found = holders_now();
    cr_assert_eq(found.newest, term);
    cr_assert_eq(found.count, 1);
    cr_assert_eq(found.terms[0].term, term);
    cr_assert_gt(found.terms[0].wall_ms, 0);
    cr_assert_str_eq(found.terms[0].holder.node, "a");
    cr_assert_eq(found.terms[0].holder.pid, 4711);
    cr_assert_str_eq(found.terms[0].holder.run_id, "launcher");
    cr_assert_eq(found.terms[0].holder.agent_count, 1);
    cr_assert_eq(found.terms[0].holder.agents[0].agent_id, UINT64_MAX);
    term_holders_free(&found);
}

Test(persistent, holders_are_read_down_to_a_term_that_was_joined)
{
    struct node_info agents[3];
    struct error err = {0};
    struct term_holder holder = some_holder(agents, 3, true);
    (void)claim_for(&holder, 1);
    uint64_t joined = claim_for(NULL, 2);
    cr_assert_eq(persistent_note_holder(tier, joined, &holder, &err), TCK_OK, "%s", err.text);
    uint64_t newest = claim_for(NULL, 3);
    struct term_holders found = holders_now();
    cr_assert_eq(found.newest, newest);
    cr_assert_eq(found.count, 2);
    cr_assert_str_eq(found.terms[0].holder.node, "", "nothing is known of the newest");
    cr_assert_eq(found.terms[1].term, joined);
    cr_assert_eq(found.terms[1].holder.agent_count, 3);
    term_holders_free(&found);
}

Test(persistent, notes_of_commits_keep_the_holder)
{
    struct node_info agents[2];
    struct error err = {0};
    struct term_holder holder = some_holder(agents, 2, true);
    uint64_t term = claim_for(&holder, 1);
    cr_assert_eq(persistent_note_commit(tier, term, &err), TCK_OK, "%s", err.text);
    struct term_holders found = holders_now();
    cr_assert_eq(found.terms[0].holder.agent_count, 2);
    cr_assert(found.terms[0].holder.joined);
    term_holders_free(&found);
    cr_assert_eq(persistent_note_holder(tier, term, &holder, &err), TCK_OK, "%s", err.text);
    struct commit_notes notes;
    cr_assert_eq(persistent_commit_notes(tier, term + 1, &notes, &err), TCK_OK, "%s", err.text);
    cr_assert_eq(notes.newest, term, "the holder has taken the commit's place");
}

static tck_status_t only_once(const char *name)
{
    static unsigned readings;
    return strncmp(name, "term.", 5) == 0 && ++readings > 1 ? TCK_ERR_IO : TCK_OK;
}

Test(persistent, a_note_keeps_the_holder_although_its_file_can_be_read_only_once)
{
    struct node_info agents[2];
    struct error err = {0};
    struct term_holder holder = some_holder(agents, 2, true);
    uint64_t term = claim_for(&holder, 1);
    before_read = only_once;
    (void)!persistent_note_commit(tier, term, &err);
    before_read = NULL;
    struct term_holders found = holders_now();
    cr_assert_str_eq(found.terms[0].holder.node, "a");
    cr_assert_eq(found.terms[0].holder.agent_count, 2);
    term_holders_free(&found);
}

static void claim_term_2(void)
{
    after_list = NULL;
    cr_assert_eq(claim_for(NULL, 2), 2);
}

Test(persistent, a_term_that_was_claimed_between_two_listings_is_not_followed_unseen)
{
    struct error err = {0};
    cr_assert_eq(claim_for(NULL, 1), 1);
    after_list = claim_term_2;
    struct term_holders found = holders_now();
    struct term_claim wanted = {.at_least = 1, .follows = true, .seen = found.seen};
    uint64_t next = 0;
    cr_assert(found.terms[0].term == found.newest || persistent_claim(tier, &wanted, &next, &err) == TCK_ERR_EXIST,
              "term %" PRIu64 " is the newest, and who holds it was not read", found.newest);
    term_holders_free(&found);
}

Test(persistent, a_claim_without_permissions_may_name_a_holder)
{
    struct term_holders found;
    struct error err = {0};
    struct node_info agents[1];
    struct term_holder holder = some_holder(agents, 1, true);
    uint64_t term = claim_for(&holder, 1);
    cr_assert_eq(chmod(path_of("a/b/save/" JOB "/term.%" PRIu64, term), 0), 0);
    cr_assert(geteuid() != 0 || seteuid(65534) == 0);
    cr_assert_eq(persistent_term_holders(tier, &found, &err), TCK_ERR_DENIED);
    cr_assert(text_has(&err, "who holds the job: ") && text_has(&err, "term.1"), "%s", err.text);
}

Test(persistent, a_link_in_the_place_of_a_claim_names_no_holder)
{
    uint64_t term = claim_for(NULL, 1);
    cr_assert_eq(unlink(path_of("a/b/save/" JOB "/term.%" PRIu64, term)), 0);
    cr_assert_eq(symlink("/etc/hostname", path_of("a/b/save/" JOB "/term.%" PRIu64, term)), 0);
    struct term_holders found = holders_now();
    cr_assert_eq(found.newest, term);
    cr_assert_eq(found.count, 0);
    term_holders_free(&found);
}

Test(persistent, a_claim_after_a_known_term_is_refused_once_another_was_made)
{
    struct error err = {0};
    uint64_t term = claim_for(NULL, 1), next = 0;
    struct term_claim wanted = {.at_least = 1, .follows = true, .seen = term};
    cr_assert_eq(persistent_claim(tier, &wanted, &next, &err), TCK_OK, "%s", err.text);
    cr_assert_eq(next, term + 1);
    cr_assert_eq(persistent_claim(tier, &wanted, &next, &err), TCK_ERR_EXIST);
}

/* ---- terms for successors -------------------------------------------------------------------------------------- */

/* Reserves as many terms as requested, after term `by`; returns the first of them. */
static uint64_t reserve_for(uint64_t by, uint64_t first, uint64_t last)
{
    struct error err = {0};
    struct term_reserve wanted = {.by = by, .first = first, .last = last};
    uint64_t from = 0, to = 0;
    cr_assert_eq(persistent_reserve(tier, &wanted, &from, &to, &err), TCK_OK, "%s", err.text);
    cr_assert(from == 0 || to - from == last - first);
    return from;
}

static uint64_t newest_now(void)
{
    struct error err = {0};
    uint64_t newest = 0;
    cr_assert_eq(persistent_newest_term(tier, &newest, &err), TCK_OK, "%s", err.text);
    return newest;
}

Test(persistent, a_reserved_term_does_not_end_older_ones_and_names_no_holder)
{
    struct node_info agents[1];
    struct term_holder holder = some_holder(agents, 1, true);
    uint64_t term = claim_for(&holder, 1);
    cr_assert_eq(reserve_for(term, term + 1, term + 3), term + 1);
    cr_assert_eq(newest_now(), term);
    struct term_holders found = holders_now();
    cr_assert_eq(found.newest, term);
    cr_assert_eq(found.seen, term + 3);
    cr_assert_eq(found.count, 1);
    cr_assert_str_eq(found.terms[0].holder.node, "a");
    term_holders_free(&found);
}

Test(persistent, a_claim_skips_reserved_terms)
{
    struct error err = {0};
    uint64_t term = claim_for(NULL, 1), next = 0;
    cr_assert_eq(reserve_for(term, term + 1, term + 2), term + 1);
    struct term_claim too_late = {.at_least = 1, .follows = true, .seen = term};
    cr_assert_eq(persistent_claim(tier, &too_late, &next, &err), TCK_ERR_EXIST, "it was reserved since");
    struct term_claim wanted = {.at_least = 1, .follows = true, .seen = term + 2};
    cr_assert_eq(persistent_claim(tier, &wanted, &next, &err), TCK_OK, "%s", err.text);
    cr_assert_eq(next, term + 3);
    cr_assert_eq(newest_now(), next);
}

Test(persistent, a_term_that_is_over_reserves_none)
{
    uint64_t term = claim_for(NULL, 1), next = claim_for(NULL, 2);
    cr_assert_eq(reserve_for(term, term + 1, term + 2), 0);
    cr_assert_eq(reserve_for(next, next + 1, next + 2), next + 1);
}

Test(persistent, terms_are_reserved_above_what_an_agent_that_is_gone_had_reserved)
{
    uint64_t term = claim_for(NULL, 1);
    cr_assert_eq(reserve_for(term, term + 1, term + 2), term + 1);
    cr_assert_eq(reserve_for(term, term + 1, term + 2), term + 3);
}

/* Expects that the reservation of term `by` is continued from `expected` on, 0: not. */
static void expect_continued(uint64_t by, uint64_t first, uint64_t last, uint64_t expected)
{
    struct error err = {0};
    struct term_reserve more = {.by = by, .first = first, .last = last, .follows = true};
    uint64_t from = 0, to = 0;
    cr_assert_eq(persistent_reserve(tier, &more, &from, &to, &err), TCK_OK, "%s", err.text);
    cr_assert_eq(from, expected);
    cr_assert_eq(to, expected == 0 ? 0 : last);
}

Test(persistent, terms_that_an_interrupted_attempt_has_reserved_continue_the_reservation)
{
    uint64_t term = claim_for(NULL, 1);
    cr_assert_eq(reserve_for(term, term + 1, term + 4), term + 1);
    expect_continued(term, term + 3, term + 5, term + 3); /* the agent knows of two; another one is free */
    cr_assert_eq(newest_now(), term);
}

Test(persistent, terms_that_another_term_has_reserved_do_not_continue_the_reservation)
{
    uint64_t term = claim_for(NULL, 1);
    cr_assert_eq(reserve_for(term, term + 1, term + 4), term + 1);
    uint64_t next = claim_for(NULL, term + 5);
    expect_continued(next, term + 3, term + 4, 0);
}

Test(persistent, a_reserved_term_that_is_claimed_ends_the_one_before)
{
    struct node_info agents[1];
    struct error err = {0};
    struct term_holder holder = some_holder(agents, 1, false);
    uint64_t term = claim_for(NULL, 1);
    cr_assert_eq(reserve_for(term, term + 1, term + 2), term + 1);
    cr_assert_eq(persistent_claim_reserved(tier, term + 1, &holder, &err), TCK_OK, "%s", err.text);
    cr_assert_eq(newest_now(), term + 1);
    struct term_holders found = holders_now();
    cr_assert_eq(found.terms[0].term, term + 1);
    cr_assert_eq(found.terms[0].holder.pid, 4711);
    term_holders_free(&found);
}

Test(persistent, a_reserved_term_cannot_be_claimed_once_a_start_has_skipped_it)
{
    struct node_info agents[1];
    struct error err = {0};
    struct term_holder holder = some_holder(agents, 1, false);
    uint64_t term = claim_for(NULL, 1);
    cr_assert_eq(reserve_for(term, term + 1, term + 2), term + 1);
    uint64_t past = claim_for(NULL, 1);
    cr_assert_eq(past, term + 3);
    cr_assert_eq(persistent_claim_reserved(tier, term + 1, &holder, &err), TCK_ERR_EXIST);
    cr_assert(text_has(&err, "was claimed meanwhile"), "%s", err.text);
}

Test(persistent, any_note_of_a_reserved_term_claims_it)
{
    struct error err = {0};
    uint64_t term = claim_for(NULL, 1);
    cr_assert_eq(reserve_for(term, term + 1, term + 2), term + 1);
    cr_assert_eq(persistent_note_commit(tier, term + 1, &err), TCK_OK, "%s", err.text);
    cr_assert_eq(newest_now(), term + 1);
}

/* Otherwise a flipped bit in it would end an active term. */
Test(persistent, terms_that_this_agent_has_reserved_need_not_be_read)
{
    uint64_t term = claim_for(NULL, 1);
    cr_assert_eq(reserve_for(term, term + 1, term + 2), term + 1);
    cr_assert_eq(truncate(path_of("a/b/save/" JOB "/term.%" PRIu64, term + 2), 3), 0);
    cr_assert_eq(newest_now(), term + 2, "what tells nothing may be a claim");
    persistent_set_reserved(tier, term + 1, term + 2);
    cr_assert_eq(newest_now(), term);
    persistent_set_reserved(tier, 0, 0);
    cr_assert_eq(newest_now(), term + 2);
}

Test(persistent, unused_reservations_are_released_and_no_claim_with_them)
{
    struct error err = {0};
    uint64_t term = claim_for(NULL, 1);
    cr_assert_eq(reserve_for(term, term + 1, term + 3), term + 1);
    cr_assert_eq(persistent_note_commit(tier, term + 1, &err), TCK_OK, "%s", err.text);
    cr_assert_eq(persistent_unreserve(tier, term + 1, term + 3, &err), TCK_OK, "%s", err.text);
    cr_assert_eq(access(path_of("a/b/save/" JOB "/term.%" PRIu64, term + 1), F_OK), 0);
    cr_assert_neq(access(path_of("a/b/save/" JOB "/term.%" PRIu64, term + 2), F_OK), 0);
    cr_assert_eq(claim_for(NULL, 1), term + 2);
}

/* The file may be cut off anywhere, as a full disk or a lost machine leaves it. */
Test(persistent, a_claim_that_was_cut_off_names_no_holder_and_no_commit)
{
    struct node_info agents[1];
    struct error err = {0};
    struct term_holder holder = some_holder(agents, 1, false);
    uint64_t term = claim_for(&holder, 1);
    char path[512];
    snprintf(path, sizeof(path), "%s", path_of("a/b/save/" JOB "/term.%" PRIu64, term));
    struct stat st;
    cr_assert_eq(stat(path, &st), 0);
    for (off_t len = st.st_size - 1; len >= 0; len--) {
        struct commit_notes notes;
        cr_assert_eq(truncate(path, len), 0);
        struct term_holders found = holders_now();
        cr_assert_eq(found.newest, term);
        cr_assert(found.count == 0 || found.terms[0].holder.node[0] == '\0', "%d bytes", (int)len);
        term_holders_free(&found);
        cr_assert_eq(persistent_commit_notes(tier, term + 1, &notes, &err), TCK_OK, "%s", err.text);
        cr_assert_eq(notes.unsure.code, TCK_OK, "%d bytes: %s", (int)len, notes.unsure.text);
    }
}

static uint64_t claim(void)
{
    uint64_t term;
    cr_assert_eq(persistent_claim_term(tier, 1, &term, NULL), TCK_OK);
    return term;
}

static uint32_t tries_of(uint64_t term, struct version version)
{
    uint32_t tries;
    struct version restored;
    struct error err = {0};
    cr_assert_eq(persistent_restore_tries(tier, term, &restored, &tries, &err), TCK_OK, "%s", err.text);
    return version_is(restored, version) ? tries : 0;
}

Test(persistent, counts_terms_in_a_row_that_restored_a_version_and_committed_nothing)
{
    struct version poison = {1, 100};
    claim();
    for (int i = 0; i < 3; i++) {
        cr_assert_eq(persistent_note_restore(tier, claim(), poison, NULL), TCK_OK);
    }
    cr_assert_eq(tries_of(claim(), poison), 3);
    cr_assert_eq(tries_of(4, poison), 2);
    cr_assert_eq(tries_of(9, (struct version){1, 99}), 0);
}

Test(persistent, skips_terms_that_never_got_to_a_restore)
{
    struct version poison = {1, 100};
    cr_assert_eq(persistent_note_restore(tier, claim(), poison, NULL), TCK_OK);
    claim();
    write_file(path_of("a/b/save/" JOB "/term.%" PRIu64, claim()), "");
    cr_assert_eq(persistent_note_restore(tier, claim(), poison, NULL), TCK_OK);
    cr_assert_eq(tries_of(claim(), poison), 2);
}

Test(persistent, a_commit_ends_the_count)
{
    struct version poison = {1, 100};
    uint64_t good;
    cr_assert_eq(persistent_note_restore(tier, claim(), poison, NULL), TCK_OK);
    good = claim();
    cr_assert_eq(persistent_note_restore(tier, good, poison, NULL), TCK_OK);
    cr_assert_eq(persistent_note_commit(tier, good, NULL), TCK_OK);
    cr_assert_eq(persistent_note_restore(tier, claim(), poison, NULL), TCK_OK);
    cr_assert_eq(tries_of(claim(), poison), 1);
}

Test(persistent, a_term_that_ended_well_ends_the_count)
{
    struct version poison = {1, 100};
    uint64_t good;
    cr_assert_eq(persistent_note_restore(tier, claim(), poison, NULL), TCK_OK);
    good = claim();
    cr_assert_eq(persistent_note_restore(tier, good, poison, NULL), TCK_OK);
    cr_assert_eq(persistent_note_end(tier, good, NULL), TCK_OK);
    cr_assert_eq(tries_of(claim(), poison), 0);
    cr_assert_eq(persistent_note_restore(tier, claim(), poison, NULL), TCK_OK);
    cr_assert_eq(tries_of(claim(), poison), 1);
}

Test(persistent, another_restored_version_ends_the_count)
{
    struct version poison = {1, 100};
    cr_assert_eq(persistent_note_restore(tier, claim(), poison, NULL), TCK_OK);
    cr_assert_eq(persistent_note_restore(tier, claim(), (struct version){1, 50}, NULL), TCK_OK);
    cr_assert_eq(persistent_note_restore(tier, claim(), poison, NULL), TCK_OK);
    cr_assert_eq(tries_of(claim(), poison), 1);
}

/* ---- directories ----------------------------------------------------------------------------------------------- */

static void expect_denied(const char *text)
{
    struct error err = {0};
    cr_assert_eq(try_open_tier(&err), TCK_ERR_DENIED, "%s", err.text);
    cr_assert(text_has(&err, text), "%s", err.text);
}

static void make_save_dir(void)
{
    cr_assert_eq(mkdir(path_of("a/b/save"), 0755), 0);
}

static void expect_holders(tck_status_t status, const char *text)
{
    struct term_holders holders = {0};
    struct error err = {0};
    cr_assert_eq(persistent_term_holders(tier, &holders, &err), status, "%s", err.text);
    cr_assert(text_has(&err, text), "%s", err.text);
    term_holders_free(&holders);
}

Test(persistent_open, reopens_a_stale_directory_if_it_is_the_same)
{
    struct error err = {0};
    struct stat st;
    uint64_t term = 0;
    open_tier();
    cr_assert_eq(persistent_claim_term(tier, 1, &term, &err), TCK_OK, "%s", err.text);
    cr_assert_eq(stat(path_of("a/b/save/" JOB), &st), 0);
    stale = st.st_ino;
    cr_assert_eq(rename(path_of("a/b/save"), path_of("a/b/old")), 0);
    expect_holders(TCK_ERR_IO, "/" JOB ": save_dir is stale: open it again: No such file or directory");
    make_save_dir();
    expect_holders(TCK_ERR_IO, "save_dir is stale: open directory " JOB ": No such file or directory");
    cr_assert_not(exists(path_of("a/b/save/" JOB)));
    cr_assert_eq(mkdir(path_of("a/b/save/" JOB), 0755), 0);
    write_file(path_of("a/b/save/" JOB "/.tierckpt"), "{\"format\":1,\"job\":\"" JOB "\"}");
    expect_holders(TCK_ERR_DENIED, "not the directory that this agent's memory belongs to, which has term.1");
    write_file(path_of("a/b/save/" JOB "/term.1"), "");
    expect_holders(TCK_OK, "");
    make_version((struct version){1, 7});
    cr_assert(exists(version_path((struct version){1, 7}, MANIFEST_NAME)));
    cr_assert_eq(count_lines(path_of("a/b/save/" JOB "/audit.n0.jsonl"), "\"op\":\"publish\"", ""), 2);
}

Test(persistent_open, names_a_removed_directory_and_the_remedy_until_it_is_put_back)
{
    struct error err = {0};
    uint64_t term = 0;
    open_tier();
    cr_assert_eq(persistent_claim_term(tier, 1, &term, &err), TCK_OK, "%s", err.text);
    cr_assert_eq(nftw(path_of("a/b/save/" JOB), remove_entry, 16, FTW_DEPTH | FTW_PHYS), 0);
    expect_holders(TCK_ERR_IO,
                   "/" JOB " was removed while the job runs: put it back with what it had, or start the job "
                   "under another name. Memory keeps the job for linger_s");
    cr_assert_not(exists(path_of("a/b/save/" JOB)));
    cr_assert_eq(mkdir(path_of("a/b/save/" JOB), 0755), 0);
    expect_holders(TCK_ERR_IO, "was removed while the job runs");
    write_file(path_of("a/b/save/" JOB "/.tierckpt"), "{\"format\":1,\"job\":\"" JOB "\"}");
    expect_holders(TCK_ERR_DENIED, "not the directory that this agent's memory belongs to, which has term.1");
    write_file(path_of("a/b/save/" JOB "/term.1"), "");
    expect_holders(TCK_OK, "");
}

static void expect_no_put(tck_status_t status, const char *text)
{
    struct tier_item item = make_item((struct version){1, 5}, 1, 4096);
    struct error outcome = put(&item);
    cr_assert_eq(outcome.code, status, "%s", outcome.text);
    cr_assert(text_has(&outcome, text), "%s", outcome.text);
    free_item(&item);
}

Test(persistent_open, publishes_nothing_where_no_later_start_would_look)
{
    struct error err = {0};
    uint64_t term = 0;
    open_tier();
    cr_assert_eq(persistent_claim_term(tier, 1, &term, &err), TCK_OK, "%s", err.text);
    cr_assert_eq(rename(path_of("a/b/save"), path_of("a/b/old")), 0);
    expect_no_put(TCK_ERR_IO, "/" JOB " no longer leads to the job's directory: that was moved, or is no longer "
                              "mounted, or something else is mounted over it. Put it back in its place");
    make_save_dir();
    expect_no_put(TCK_ERR_IO, "no longer leads to the job's directory");
    cr_assert_not(exists(path_of("a/b/save/" JOB)));
    expect_holders(TCK_OK, "");
    cr_assert_eq(mkdir(path_of("a/b/save/" JOB), 0755), 0);
    write_file(path_of("a/b/save/" JOB "/.tierckpt"), "{\"format\":1,\"job\":\"" JOB "\"}");
    expect_no_put(TCK_ERR_DENIED, "not the directory that this agent's memory belongs to, which has term.1");
    cr_assert_eq(nftw(path_of("a/b/save"), remove_entry, 16, FTW_DEPTH | FTW_PHYS), 0);
    cr_assert_eq(rename(path_of("a/b/old"), path_of("a/b/save")), 0);
    make_version((struct version){1, 7});
    cr_assert(exists(version_path((struct version){1, 7}, MANIFEST_NAME)));
}

Test(persistent_open, a_directory_that_is_emptied_in_use_remains_one_that_a_later_start_accepts)
{
    struct error err = {0};
    open_tier();
    cr_assert_eq(unlink(path_of("a/b/save/" JOB "/.tierckpt")), 0);
    make_version((struct version){1, 7});
    persistent_free(tier);
    tier = NULL;
    cr_assert_eq(try_open_tier(&err), TCK_OK, "%s", err.text);
    cr_assert(exists(version_path((struct version){1, 7}, MANIFEST_NAME)));
}

Test(persistent_open, makes_nothing_where_a_term_was_claimed)
{
    struct error err = {0};
    claimed = 3;
    make_save_dir();
    cr_assert_eq(try_open_tier(&err), TCK_ERR_NOENT, "%s", err.text);
    cr_assert_not(exists(path_of("a/b/save/" JOB)));
    cr_assert_eq(mkdir(path_of("a/b/save/" JOB), 0755), 0);
    cr_assert_eq(try_open_tier(&err), TCK_ERR_NOENT, "%s", err.text);
    cr_assert_not(exists(path_of("a/b/save/" JOB "/.tierckpt")));
    write_file(path_of("a/b/save/" JOB "/.tierckpt"), "{\"format\":1,\"job\":\"" JOB "\"}");
    expect_denied("not the directory that this agent's memory belongs to, which has term.3");
    write_file(path_of("a/b/save/" JOB "/term.3"), "");
    open_tier();
}

Test(persistent_open, makes_save_dir)
{
    open_tier();
    cr_assert(exists(path_of("a/b/save/" JOB "/.tierckpt")));
}

/* why: the error text about save_dir, with %s for the test's directory. */
static void expect_no_save_dir(const char *save_dir, tck_status_t status, const char *why)
{
    struct error err = {0};
    char wanted[512];
    int len = snprintf(wanted, sizeof(wanted), "save_dir %s: ", path_of("%s", save_dir));
    snprintf(wanted + len, sizeof(wanted) - (size_t)len, "%s", why);
    snprintf(config.save_dir, sizeof(config.save_dir), "%s", path_of("%s", save_dir));
    cr_assert_eq(try_open_tier(&err), status, "%s", err.text);
    cr_assert_str_eq(err.text, wanted);
}

Test(persistent_open, makes_no_parent_of_save_dir)
{
    char why[512];
    snprintf(why, sizeof(why),
             "%s does not exist, and only the last component of save_dir is created: mount or create it",
             path_of("mount"));
    expect_no_save_dir("mount/x/save", TCK_ERR_NOENT, why);
    cr_assert_not(exists(path_of("mount")));
}

Test(persistent_open, names_what_is_in_the_way_of_save_dir)
{
    write_file(path_of("file"), "x");
    cr_assert_eq(symlink(path_of("nowhere"), path_of("link")), 0);
    expect_no_save_dir("file", TCK_ERR_IO, "it, or a component of its path, is not a directory: choose another one");
    expect_no_save_dir("file/save", TCK_ERR_IO,
                       "it, or a component of its path, is not a directory: choose another one");
    expect_no_save_dir("link", TCK_ERR_NOENT, "it is a dangling symbolic link: create its target, or repair the link");
}

Test(persistent_open, reports_that_it_may_not_write)
{
    static const char why[] = ": user 65534 may not write there: change its owner or mode, or choose another one";
    struct error err = {0};
    make_save_dir();
    cr_assert_eq(chmod(root, 0755), 0);
    if (geteuid() != 0 || seteuid(65534) != 0) {
        cr_skip("only root can try as another user");
    }
    cr_assert_eq(try_open_tier(&err), TCK_ERR_DENIED, "%s", err.text);
    cr_assert_not_null(strstr(err.text, why), "%s", err.text);
    snprintf(config.save_dir, sizeof(config.save_dir), "%s", path_of("new"));
    cr_assert_eq(try_open_tier(&err), TCK_ERR_DENIED, "%s", err.text);
    cr_assert_not_null(strstr(err.text, why), "%s", err.text);
    cr_assert_eq(seteuid(0), 0);
}

static tck_status_t try_open_to_read(struct error *err)
{
    struct persistent_setup setup = {.config = &config, .only_reads = true};
    return persistent_new(&setup, &tier, err);
}

Test(persistent_open, opening_to_read_needs_save_dir_and_makes_nothing)
{
    struct error err = {0};
    struct survey survey;
    cr_assert_eq(try_open_to_read(&err), TCK_ERR_IO);
    cr_assert_not_null(strstr(err.text, "/a/b/save does not exist: correct the path"), "%s", err.text);
    make_save_dir();
    cr_assert_eq(try_open_to_read(&err), TCK_ERR_NOENT, "%s", err.text);
    cr_assert_eq(mkdir(path_of("a/b/save/" JOB), 0755), 0);
    cr_assert_eq(try_open_to_read(&err), TCK_OK, "%s", err.text); /* its first agent is creating it at this moment */
    cr_assert_eq(persistent_survey(tier, &survey, &err), TCK_OK, "%s", err.text);
    cr_assert_eq(survey.count, 0);
    survey_free(&survey);
    cr_assert_eq(rmdir(path_of("a/b/save/" JOB)), 0, "something was made there");
}

Test(persistent_open, refuses_a_foreign_directory)
{
    make_save_dir();
    cr_assert_eq(mkdir(path_of("a/b/save/" JOB), 0755), 0);
    write_file(path_of("a/b/save/" JOB "/thesis.tex"), "x");
    expect_denied("its directory is not empty and has no .tierckpt");
    cr_assert_not(exists(path_of("a/b/save/" JOB "/.tierckpt")));
}

Test(persistent_open, refuses_the_directory_of_another_job)
{
    make_save_dir();
    cr_assert_eq(mkdir(path_of("a/b/save/" JOB), 0755), 0);
    write_file(path_of("a/b/save/" JOB "/.tierckpt"), "{\"format\":1,\"job\":\"other\"}");
    expect_denied("job other");
}

Test(persistent_open, refuses_a_job_directory_that_is_a_link)
{
    make_save_dir();
    cr_assert_eq(mkdir(path_of("elsewhere"), 0755), 0);
    cr_assert_eq(symlink(path_of("elsewhere"), path_of("a/b/save/" JOB)), 0);
    expect_denied("symbolic link");
}

Test(persistent_open, reads_from_load_dir_and_never_writes_there)
{
    struct published *versions;
    size_t count;
    uint64_t term;
    open_tier();
    make_version((struct version){3, 100});
    persistent_free(tier);
    snprintf(config.load_dir, sizeof(config.load_dir), "%s", config.save_dir);
    snprintf(config.save_dir, sizeof(config.save_dir), "%s", path_of("new"));
    snprintf(config.audit_file_path, sizeof(config.audit_file_path), "%s", path_of("audit"));
    open_tier();

    cr_assert_eq(persistent_list(tier, &versions, &count, NULL), TCK_OK);
    cr_assert_eq(count, 1);
    cr_assert(versions[0].from_second);
    cr_assert_eq(persistent_verify(tier, &versions[0], NULL), TCK_OK);
    cr_assert_eq(persistent_prune(tier, 1, VERSION_NONE, false, NULL, NULL, NULL), TCK_OK);
    cr_assert_eq(persistent_claim_term(tier, 1, &term, NULL), TCK_OK);
    cr_assert_eq(term, 4, "new versions must be newer than those of load_dir");
    cr_assert_not(exists(path_of("a/b/save/" JOB "/term.4")));
    make_version((struct version){4, 50});
    free(versions);
    cr_assert_eq(persistent_list(tier, &versions, &count, NULL), TCK_OK);
    cr_assert_eq(count, 2);
    cr_assert_not(versions[0].from_second);
    free(versions);
}

static tck_status_t no_manifest(const char *name)
{
    return strcmp(name, "manifest.json") == 0 ? TCK_ERR_IO : TCK_OK;
}

Test(persistent_open, a_version_of_load_dir_that_cannot_be_read_is_not_lost)
{
    struct found_file found = {.shard = {9, 1}};
    struct version version = {3, 100};
    open_tier();
    make_version(version);
    persistent_free(tier);
    snprintf(config.load_dir, sizeof(config.load_dir), "%s", config.save_dir);
    snprintf(config.save_dir, sizeof(config.save_dir), "%s", path_of("new"));
    snprintf(config.audit_file_path, sizeof(config.audit_file_path), "%s", path_of("audit"));
    open_tier();
    before_read = no_manifest;
    persistent_find(tier, version, &found, 1);
    cr_assert_eq(found.outcome.code, TCK_ERR_IO, "%s", found.outcome.text);
    before_read = NULL;
    persistent_find(tier, version, &found, 1);
    cr_assert_eq(found.outcome.code, TCK_OK, "%s", found.outcome.text);
    cr_assert(found.which.from_second);
    free(found.file.crcs);
}

static _Thread_local uint32_t manifests_read;

static tck_status_t count_manifests(const char *name)
{
    manifests_read += strcmp(name, "manifest.json") == 0;
    return TCK_OK;
}

static void make_version_of_many(struct version version, uint32_t count)
{
    struct tier_item items[64];
    cr_assert_leq(count, 64);
    for (uint32_t i = 0; i < count; i++) {
        items[i] = make_item(version, i + 1, 4096);
        struct error outcome = put(&items[i]);
        cr_assert_eq(outcome.code, TCK_OK, "%s", outcome.text);
    }
    struct error outcome = publish(items, count);
    cr_assert_eq(outcome.code, TCK_OK, "%s", outcome.text);
    for (uint32_t i = 0; i < count; i++) {
        free_item(&items[i]);
    }
}

Test(persistent_open, a_manifest_is_read_once_for_all_shards_that_are_wanted)
{
    struct found_file found[9] = {0};
    struct version version = {3, 100};
    open_tier();
    make_version_of_many(version, 8);
    for (uint32_t i = 0; i < 9; i++) {
        found[i].shard = (struct hash128){9, i + 1};
    }
    before_read = count_manifests;
    persistent_find(tier, version, found, 9);
    before_read = NULL;
    cr_assert_eq(manifests_read, 1);
    for (uint32_t i = 0; i < 8; i++) {
        cr_assert_eq(found[i].outcome.code, TCK_OK, "%s", found[i].outcome.text);
        cr_assert_eq(found[i].file.shard.lo, i + 1);
        cr_assert_eq(found[i].file.bytes, 4096);
        free(found[i].file.crcs);
    }
    cr_assert_eq(found[8].outcome.code, TCK_ERR_NOENT);
}

/* What a node that restores these shards of a version looks up, after the recovery has named the version. */
static uint32_t lookups_of_restore(struct version version, uint32_t wanted)
{
    struct found_file found[64] = {0};
    struct tier_item item = make_item(version, 1, 4096);
    for (uint32_t i = 0; i < wanted; i++) {
        found[i].shard = (struct hash128){9, i + 1};
    }
    lookups = 0;
    persistent_find(tier, version, found, wanted);
    for (uint32_t i = 0; i < wanted; i++) {
        cr_assert_eq(found[i].outcome.code, TCK_OK, "%s", found[i].outcome.text);
        item.shard = found[i].shard;
        item.root = found[i].file.root;
        struct error outcome = get(&found[i].which, &found[i].file, &item);
        cr_assert_eq(outcome.code, TCK_OK, "%s", outcome.text);
        free(found[i].file.crcs);
    }
    free_item(&item);
    return lookups;
}

/* A job of 1,024 nodes would ask the storage's metadata server a million times if each node asked about all shards. */
Test(persistent_open, a_restore_looks_up_its_shards_alone_however_many_the_version_has)
{
    struct version small = {3, 100}, large = {3, 200};
    open_tier();
    make_version_of_many(small, 4);
    make_version_of_many(large, 48);
    uint32_t one, before = 0;
    while ((one = lookups_of_restore(small, 1)) != before) { /* a publish still looks for what it supersedes */
        before = one;
    }
    uint32_t four = lookups_of_restore(small, 4);
    cr_assert_eq(lookups_of_restore(large, 4), four);
    cr_assert_gt(four, one, "the lookups of a shard are not counted");
    cr_assert_leq(four - one, 3 * 4, "each shard more costs %u lookups", (four - one) / 3);
}

Test(persistent_open, a_file_that_save_dir_lacks_is_found_in_load_dir_and_the_others_stay)
{
    struct found_file found[2] = {{.shard = {9, 1}}, {.shard = {9, 2}}};
    struct version version = {3, 100};
    char copy[PATH_MAX + 64];
    open_tier();
    make_version_of_many(version, 2);
    snprintf(copy, sizeof(copy), "cp -r '%s' '%s'", path_of("a/b/save"), path_of("elsewhere"));
    cr_assert_eq(system(copy), 0); /* NOLINT(cert-env33-c): paths that the test chose */
    cr_assert_eq(unlink(shard_path(version)), 0);
    persistent_free(tier);
    snprintf(config.load_dir, sizeof(config.load_dir), "%s", path_of("elsewhere"));
    open_tier();
    persistent_find(tier, version, found, 2);
    for (uint32_t i = 0; i < 2; i++) {
        cr_assert_eq(found[i].outcome.code, TCK_OK, "%s", found[i].outcome.text);
        cr_assert_eq(found[i].which.from_second, i == 0);
        free(found[i].file.crcs);
    }
}

Test(persistent_open, lists_each_version_once_when_load_dir_is_save_dir)
{
    snprintf(config.load_dir, sizeof(config.load_dir), "%s", config.save_dir);
    open_tier();
    make_version((struct version){1, 1});
    reopen_tier();
    cr_assert_eq(listed(NULL), 1);
}

Test(persistent_open, serves_the_blocking_calls_without_a_loop)
{
    struct persistent_setup setup = {.config = &config};
    struct tier_item item = make_item((struct version){1, 1}, 1, 4096);
    struct error outcome, err = {0};
    open_tier();
    make_version((struct version){1, 1});
    persistent_free(tier);
    cr_assert_eq(persistent_new(&setup, &tier, &err), TCK_OK, "%s", err.text);
    cr_assert_eq(listed(NULL), 1);
    cr_assert_eq(persistent_put(tier, &item, ended, &outcome, NULL), TCK_ERR_INVAL);
    free_item(&item);
}

/* ---- entries in the place of a version ------------------------------------------------------------------------- */

static struct survey surveyed(void)
{
    struct survey survey;
    struct error err = {0};
    cr_assert_eq(persistent_survey(tier, &survey, &err), TCK_OK, "%s", err.text);
    return survey;
}

static void expect_standing(struct version version, enum standing standing, const char *why)
{
    struct survey survey = surveyed();
    cr_assert_gt(survey.count, 0);
    const struct candidate *first = &survey.candidates[0];
    cr_assert(version_is(first->which.version, version));
    cr_assert_eq(first->standing, standing, "%d: %s", first->standing, first->why);
    cr_assert((first->why == NULL) == (why == NULL));
    cr_assert(why == NULL || strstr(first->why, why) != NULL, "%s", first->why);
    survey_free(&survey);
}

Test(persistent, only_the_newest_versions_and_those_of_a_step_are_looked_at)
{
    struct survey survey;
    struct error err = {0};
    open_tier();
    for (uint64_t step = 1; step <= 5; step++) {
        make_version((struct version){1, step});
    }
    make_version((struct version){2, 1});
    cr_assert_eq(persistent_survey_newest(tier, (struct survey_range){2, TCK_NEWEST}, &survey, &err), TCK_OK);
    cr_assert_eq(survey.count, 2);
    cr_assert(version_is(survey.candidates[1].which.version, (struct version){1, 5}));
    cr_assert(version_is(survey.deeper, (struct version){1, 4}));
    survey_free(&survey);
    cr_assert_eq(persistent_survey_newest(tier, (struct survey_range){1, 1}, &survey, &err), TCK_OK);
    cr_assert_eq(survey.count, 2, "both of step 1");
    cr_assert(version_is(survey.candidates[1].which.version, (struct version){1, 1}));
    cr_assert(version_is(survey.deeper, (struct version){1, 5}));
    survey_free(&survey);
    cr_assert_eq(persistent_survey_newest(tier, (struct survey_range){6, TCK_NEWEST}, &survey, &err), TCK_OK);
    cr_assert_eq(survey.count, 6);
    cr_assert(version_none(survey.deeper));
    survey_free(&survey);
}

/* The superuser could read files without permissions. */
static void become_nobody(void)
{
    cr_assert(geteuid() != 0 || seteuid(65534) == 0);
}

Test(persistent, a_whole_version_is_good)
{
    make_version((struct version){1, 100});
    expect_standing((struct version){1, 100}, STANDING_GOOD, NULL);
}

Test(persistent, a_short_file_proves_damage)
{
    struct version version = {1, 100};
    make_version(version);
    cr_assert_eq(truncate(shard_path(version), 4095), 0);
    expect_standing(version, STANDING_DAMAGED, "has 4095 bytes");
}

Test(persistent, a_missing_file_proves_damage)
{
    struct version version = {1, 100};
    make_version(version);
    cr_assert_eq(unlink(shard_path(version)), 0);
    expect_standing(version, STANDING_DAMAGED, "shard-");
}

Test(persistent, a_link_in_the_place_of_the_manifest_proves_damage)
{
    struct version version = {1, 100};
    make_version(version);
    cr_assert_eq(unlink(version_path(version, "manifest.json")), 0);
    cr_assert_eq(symlink("/etc/hostname", version_path(version, "manifest.json")), 0);
    expect_standing(version, STANDING_DAMAGED, "manifest.json");
}

Test(persistent, a_manifest_without_permissions_proves_nothing)
{
    struct version version = {1, 100};
    make_version(version);
    cr_assert_eq(chmod(version_path(version, "manifest.json"), 0), 0);
    become_nobody();
    expect_standing(version, STANDING_UNREADABLE, "manifest.json: Permission denied");
}

Test(persistent, a_version_without_permissions_proves_nothing)
{
    struct version version = {1, 100};
    make_version(version);
    cr_assert_eq(chmod(version_path(version, ""), 0), 0);
    become_nobody();
    expect_standing(version, STANDING_UNREADABLE, "Permission denied");
}

Test(persistent, a_manifest_of_a_newer_format_is_foreign)
{
    struct version version = {1, 100};
    make_version(version);
    write_file(version_path(version, "manifest.json"), "{\"format\":2}");
    expect_standing(version, STANDING_FOREIGN, "format 2");
}

Test(persistent, a_directory_that_cannot_be_listed_is_an_error_and_not_empty)
{
    struct survey survey;
    struct error err = {0};
    make_version((struct version){1, 100});
    cr_assert_eq(chmod(path_of("a/b/save/" JOB), 0), 0);
    become_nobody();
    cr_assert_eq(persistent_survey(tier, &survey, &err), TCK_ERR_DENIED);
    cr_assert(text_has(&err, "/save/" JOB ": ") && text_has(&err, "Permission denied"), "%s", err.text);
}

/* Version 2 is published, and version 1 is being deleted. */
static tck_status_t supersede(const char *name)
{
    if (strcmp(name, "manifest.json") == 0) {
        before_read = NULL;
        cr_assert_eq(rename(path_of("aside"), version_path((struct version){1, 2}, "")), 0);
        cr_assert_eq(unlink(version_path((struct version){1, 1}, "manifest.json")), 0);
        cr_assert_eq(rename(version_path((struct version){1, 1}, ""), path_of("gone")), 0);
    }
    return TCK_OK;
}

Test(persistent, what_is_removed_while_it_is_looked_at_is_not_damaged)
{
    make_version((struct version){1, 2});
    cr_assert_eq(rename(version_path((struct version){1, 2}, ""), path_of("aside")), 0);
    make_version((struct version){1, 1});
    before_read = supersede;
    expect_standing((struct version){1, 2}, STANDING_GOOD, NULL);
}

/* ---- an old listing, and LATEST -------------------------------------------------------------------------------- */

#define LATEST_PATH "a/b/save/" JOB "/LATEST"

static void make_two(void)
{
    make_version((struct version){1, 1});
    make_version((struct version){1, 2});
    unlisted = "v000000000002.t1";
}

Test(persistent, the_newest_version_is_found_although_a_listing_lacks_it)
{
    make_two();
    expect_standing((struct version){1, 2}, STANDING_GOOD, NULL);
}

static void expect_latest(const char *expected)
{
    char line[64] = "";
    FILE *file = fopen(path_of(LATEST_PATH), "r");
    cr_assert_not_null(file);
    cr_assert_not_null(fgets(line, sizeof(line), file));
    fclose(file);
    cr_assert_str_eq(line, expected);
}

/* The agent may be killed as soon as the trainers know of the version. */
Test(persistent, latest_names_a_version_before_its_publish_is_reported)
{
    make_version((struct version){1, 7});
    expect_latest("v000000000007.t1\n"); /* the loop has not run since the report */
}

/* The reply to the first publish was lost, or the publish hung, and another start has continued in the meantime. */
Test(persistent, a_repeated_publish_does_not_set_latest_back)
{
    struct tier_item item = make_item((struct version){1, 7}, 1, 4096);
    make_version((struct version){1, 7});
    make_version((struct version){2, 8});
    struct error outcome = publish(&item, 1);
    cr_assert_eq(outcome.code, TCK_OK, "%s", outcome.text);
    expect_latest("v000000000008.t2\n");
    cr_assert_eq(rename(version_path((struct version){2, 8}, ""), path_of("gone")), 0);
    outcome = publish(&item, 1);
    cr_assert_eq(outcome.code, TCK_OK, "%s", outcome.text);
    expect_latest("v000000000007.t1\n");
    free_item(&item);
}

Test(persistent, the_newest_version_that_a_listing_lacks_can_be_damaged)
{
    make_two();
    cr_assert_eq(truncate(shard_path((struct version){1, 2}), 4095), 0);
    expect_standing((struct version){1, 2}, STANDING_DAMAGED, "4095");
}

Test(persistent, latest_can_name_a_version_that_was_removed)
{
    make_two();
    cr_assert_eq(rename(version_path((struct version){1, 2}, ""), path_of("gone")), 0);
    expect_standing((struct version){1, 1}, STANDING_GOOD, NULL);
}

Test(persistent, latest_that_names_no_version_or_is_no_file_counts_as_missing)
{
    make_two();
    write_file(path_of(LATEST_PATH), "../../v000000000002.t1\n");
    expect_standing((struct version){1, 1}, STANDING_GOOD, NULL);
    cr_assert_eq(unlink(path_of(LATEST_PATH)), 0);
    expect_standing((struct version){1, 1}, STANDING_GOOD, NULL);
    cr_assert_eq(mkdir(path_of(LATEST_PATH), 0755), 0);
    expect_standing((struct version){1, 1}, STANDING_GOOD, NULL);
}

static tck_status_t fail_latest(const char *name)
{
    return strcmp(name, "LATEST") == 0 ? TCK_ERR_IO : TCK_OK;
}

Test(persistent, latest_that_cannot_be_read_now_does_not_count_as_missing)
{
    struct survey survey;
    struct error err = {0};
    make_two();
    before_read = fail_latest;
    cr_assert_eq(persistent_survey(tier, &survey, &err), TCK_ERR_IO);
    cr_assert(text_has(&err, "LATEST"), "%s", err.text);
}

Test(persistent, a_listing_shows_that_storage_makes_progress)
{
    make_version((struct version){1, 1});
    reopen_tier();
    cr_assert_eq(persistent_moved_ms(tier), 0);
    struct survey survey = surveyed();
    cr_assert_gt(persistent_moved_ms(tier), 0);
    survey_free(&survey);
}

Test(persistent, retention_counts_only_what_is_good)
{
    struct published *removed;
    size_t count;
    for (uint64_t step = 1; step <= 4; step++) {
        make_version((struct version){1, step});
    }
    cr_assert_eq(truncate(shard_path((struct version){1, 4}), 4095), 0);
    cr_assert_eq(truncate(shard_path((struct version){1, 1}), 4095), 0);
    cr_assert_eq(persistent_prune(tier, 2, VERSION_NONE, true, &removed, &count, NULL), TCK_OK);
    cr_assert_eq(count, 0, "3 and 2 are the newest good ones, the others are kept to be looked at");
    free(removed);
}

Test(persistent, a_version_that_cannot_be_read_is_not_replaced_by_a_publish)
{
    struct version version = {1, 100};
    make_version(version);
    cr_assert_eq(chmod(version_path(version, "manifest.json"), 0), 0);
    become_nobody();
    struct tier_item item = make_item(version, 1, 4096);
    struct error outcome = publish(&item, 1);
    cr_assert_eq(outcome.code, TCK_ERR_DENIED, "%s", outcome.text);
    cr_assert(text_has(&outcome, "cannot be compared"), "%s", outcome.text);
    free_item(&item);
}

Test(persistent, a_forgotten_version_is_not_listed_and_stays)
{
    uint64_t term = 0;
    make_version((struct version){1, 100});
    cr_assert_eq(persistent_note_commit(tier, claim(), NULL), TCK_OK);
    cr_assert_eq(persistent_forget(tier, false, &term, NULL), TCK_OK);
    cr_assert_eq(listed(NULL), 0);
    cr_assert(exists(shard_path((struct version){1, 100})));
    struct commit_notes notes;
    cr_assert_eq(persistent_commit_notes(tier, term + 1, &notes, NULL), TCK_OK);
    cr_assert_eq(notes.newest, 0);
    uint64_t next = claim();
    cr_assert_gt(next, term);
    make_version((struct version){next, 3});
    cr_assert_eq(listed(NULL), 1);
}

Test(persistent, versions_forgotten_in_load_dir_do_not_count_when_it_is_read_from)
{
    struct commit_notes notes;
    uint64_t term = 0;
    make_version((struct version){1, 100});
    cr_assert_eq(persistent_note_commit(tier, claim(), NULL), TCK_OK);
    cr_assert_eq(persistent_forget(tier, false, &term, NULL), TCK_OK);
    persistent_free(tier);
    snprintf(config.load_dir, sizeof(config.load_dir), "%s", config.save_dir);
    snprintf(config.save_dir, sizeof(config.save_dir), "%s", path_of("new"));
    snprintf(config.audit_file_path, sizeof(config.audit_file_path), "%s", path_of("audit"));
    open_tier();
    cr_assert_eq(listed(NULL), 0);
    cr_assert_eq(persistent_commit_notes(tier, term + 1, &notes, NULL), TCK_OK);
    cr_assert_eq(notes.newest, 0);
}

Test(persistent, the_forgotten_versions_are_not_known_if_their_file_is_damaged)
{
    struct survey survey;
    struct error err = {0};
    make_version((struct version){1, 100});
    write_file(path_of("a/b/save/" JOB "/forgotten"), "{");
    cr_assert_neq(persistent_survey(tier, &survey, &err), TCK_OK);
    cr_assert(text_has(&err, "forgotten"), "%s", err.text);
}

/* ---- notes of commits ------------------------------------------------------------------------------------------ */

static struct commit_notes commits_below(uint64_t term)
{
    struct commit_notes notes;
    struct error err = {0};
    cr_assert_eq(persistent_commit_notes(tier, term, &notes, &err), TCK_OK, "%s", err.text);
    return notes;
}

Test(persistent, finds_the_newest_term_that_has_noted_a_commit)
{
    uint64_t first = claim(), second = claim();
    claim();
    cr_assert_eq(persistent_note_commit(tier, first, NULL), TCK_OK);
    cr_assert_eq(commits_below(9).newest, first);
    cr_assert_eq(persistent_note_commit(tier, second, NULL), TCK_OK);
    cr_assert_eq(commits_below(9).newest, second);
    cr_assert_eq(commits_below(second).newest, first);
    cr_assert_eq(commits_below(first).newest, 0);
}

Test(persistent, a_claim_that_was_cut_off_has_noted_no_commit)
{
    const char *const beginnings[] = {"", "{\"term\":", "{\"term\":3,\"wall_ms\":17"};
    for (size_t i = 0; i < 3; i++) {
        uint64_t term = claim();
        write_file(path_of("a/b/save/" JOB "/term.%" PRIu64, term), beginnings[i]);
    }
    struct commit_notes notes = commits_below(9);
    cr_assert_eq(notes.newest, 0);
    cr_assert_eq(notes.unsure.code, TCK_OK, "%s", notes.unsure.text);
}

Test(persistent, a_damaged_note_may_have_noted_a_commit)
{
    uint64_t term = claim();
    write_file(path_of("a/b/save/" JOB "/term.%" PRIu64, term), "{\"term\":1,\"wall_ms\":1,\"committed\":tr");
    struct commit_notes notes = commits_below(9);
    cr_assert_eq(notes.newest, 0);
    cr_assert_eq(notes.unsure.code, TCK_ERR_CORRUPT);
    cr_assert(text_has(&notes.unsure, "term.1"), "%s", notes.unsure.text);
}

Test(persistent, a_note_that_cannot_be_read_is_not_overwritten)
{
    struct error err = {0};
    uint64_t term = claim();
    cr_assert_eq(persistent_note_commit(tier, term, NULL), TCK_OK);
    cr_assert_eq(chmod(path_of("a/b/save/" JOB "/term.%" PRIu64, term), 0), 0);
    become_nobody();
    cr_assert_eq(persistent_note_restore(tier, term, (struct version){1, 1}, &err), TCK_ERR_DENIED);
    cr_assert_eq(commits_below(9).unsure.code, TCK_ERR_DENIED);
}

/* ---- lines of history ------------------------------------------------------------------------------------------ */

Test(persistent, a_publish_removes_only_what_it_supersedes)
{
    uint64_t first = claim(), second, third;
    config.max_ckpt_num = 1;
    make_version((struct version){first, 5});
    wait_until_listed(1);
    config.max_ckpt_num = 0;
    make_version((struct version){first, 9});
    second = claim();
    cr_assert_eq(persistent_note_restore(tier, second, (struct version){first, 5}, NULL), TCK_OK);
    config.max_ckpt_num = 1;
    make_version((struct version){second, 6}); /* supersedes the step that it came from, and not the later one */
    wait_until_listed(2);
    cr_assert(exists(version_path((struct version){first, 9}, "manifest.json")));
    cr_assert_not(exists(version_path((struct version){first, 5}, "manifest.json")));
    third = claim();
    make_version((struct version){third, 1}); /* it began with a fresh start */
    make_version((struct version){third, 2});
    wait_until_listed(3);
    cr_assert(exists(version_path((struct version){first, 9}, "manifest.json")));
    cr_assert(exists(version_path((struct version){second, 6}, "manifest.json")));
    cr_assert_not(exists(version_path((struct version){third, 1}, "manifest.json")));
}

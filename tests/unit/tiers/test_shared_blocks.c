/* SPDX-License-Identifier: Apache-2.0
 * Versions whose files share blocks, on a file system that can: each has its own bytes, whatever becomes of the others.
 * Run in a directory there, by shared_blocks.sh. */
#include "base/digest.h"
#include "tiers/names.h"
#include "tiers/persistent.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <ftw.h>
#include <glob.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#define JOB    "job"
#define CHUNKS 6u
#define BYTES  ((CHUNKS - 1) * (uint64_t)CHUNK_BYTES + 12288u)

static char root[256];
static struct config config;
static struct loop *loop;
static struct pool *pool;
static struct persistent *tier;
static struct tier_pace pace;
static uint64_t term;
static uint8_t *image;
static uint32_t crcs[CHUNKS];

/* ---- fixture --------------------------------------------------------------------------------------------------- */

static void open_tier(void)
{
    struct error err = {0};
    cr_assert_eq(loop_new(&loop, &err), TCK_OK, "%s", err.text);
    cr_assert_eq(pool_new(loop, 2, &pool, &err), TCK_OK, "%s", err.text);
    const struct persistent_setup setup = {.loop = loop, .pool = pool, .config = &config, .pace = pace};
    cr_assert_eq(persistent_new(&setup, &tier, &err), TCK_OK, "%s", err.text);
}

static void close_tier(void)
{
    persistent_free(tier);
    pool_free(pool);
    loop_free(loop);
}

/* Other bytes in a chunk than before. */
static void change(uint32_t chunk)
{
    static uint64_t number;
    uint64_t *words = (uint64_t *)(void *)(image + (uint64_t)chunk * CHUNK_BYTES);
    number++;
    for (uint32_t i = 0; i < chunk_size(BYTES, chunk) / 8; i++) {
        words[i] = (i + 1) * 0x9e3779b97f4a7c15u + number + ((uint64_t)chunk << 40);
    }
}

static void set_up(void)
{
    struct error err = {0};
    char here[128];
    cr_assert_not_null(getcwd(here, sizeof(here)));
    snprintf(root, sizeof(root), "%s/shared-XXXXXX", here);
    cr_assert_not_null(mkdtemp(root));
    config = (struct config){.job = JOB, .node = "n0", .storage_verify = SWITCH_ON, .storage_clone = 8};
    snprintf(config.save_dir, sizeof(config.save_dir), "%s/save", root);
    snprintf(config.audit_file_path, sizeof(config.audit_file_path), "%s/audit", root);
    image = aligned_alloc(4096, BYTES);
    for (uint32_t i = 0; i < CHUNKS; i++) {
        change(i);
    }
    open_tier();
    cr_assert_eq(persistent_claim_term(tier, 1, &term, &err), TCK_OK, "%s", err.text);
}

static int remove_entry(const char *path, const struct stat *st, int kind, struct FTW *ftw)
{
    (void)st, (void)kind, (void)ftw;
    return remove(path);
}

static void tear_down(void)
{
    close_tier();
    free(image);
    nftw(root, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

TestSuite(shared_blocks, .init = set_up, .fini = tear_down);

/* ---- putting, publishing, looking ------------------------------------------------------------------------------ */

static void ended(void *ctx, const struct error *outcome)
{
    *(struct error *)ctx = *outcome;
    loop_stop(loop);
}

static struct tier_item item_of(uint64_t step, uint64_t *shared)
{
    struct tier_item item = {
        .version = {term, step}, .shard = {3, 4}, .image_bytes = BYTES, .image = image, .crcs = crcs, .shared = shared};
    item.root = digest_image(image, BYTES, crcs);
    return item;
}

/* Returns the bytes that its file shares. */
static uint64_t put(uint64_t step)
{
    struct error outcome = {0}, err = {0};
    uint64_t shared = UINT64_MAX;
    const struct tier_item item = item_of(step, &shared);
    cr_assert_eq(persistent_put(tier, &item, ended, &outcome, &err), TCK_OK, "%s", err.text);
    loop_run(loop);
    cr_assert_eq(outcome.code, TCK_OK, "%s", outcome.text);
    return shared;
}

static void publish(uint64_t step)
{
    struct error outcome = {0}, err = {0};
    const struct tier_item item = item_of(step, NULL);
    struct manifest_file file = {.shard = item.shard, .bytes = BYTES, .root = item.root, .crcs = crcs};
    const struct manifest manifest = {.job = JOB,
                                      .version = item.version,
                                      .world_size = 1,
                                      .layout = {5, 5},
                                      .wall_ms = 1,
                                      .file_count = 1,
                                      .files = &file};
    const struct publish_ask ask = {.manifest = &manifest, .term = term};
    manifest_file_name(file.shard, file.name);
    cr_assert_eq(persistent_publish(tier, &ask, ended, &outcome, &err), TCK_OK, "%s", err.text);
    loop_run(loop);
    cr_assert_eq(outcome.code, TCK_OK, "%s", outcome.text);
}

static uint64_t put_and_publish(uint64_t step)
{
    uint64_t shared = put(step);
    publish(step);
    return shared;
}

/* The versions 1 and 2, as a whole: a chunk is hashed once its CRC was the same in two of them. */
static void begin_versions(void)
{
    cr_assert_eq(put_and_publish(1), 0);
    cr_assert_eq(put_and_publish(2), 0);
}

static const char *path_of(uint64_t step)
{
    static char path[CONFIG_PATH + 256];
    char dir[DIR_NAME_MAX], name[MANIFEST_FILE_NAME];
    version_dir_name((struct version){term, step}, dir);
    manifest_file_name((struct hash128){3, 4}, name);
    snprintf(path, sizeof(path), "%s/%s/%s/%s", config.save_dir, JOB, dir, name);
    return path;
}

static uint8_t *copy_of_image(void)
{
    uint8_t *copy = malloc(BYTES);
    memcpy(copy, image, BYTES);
    return copy;
}

/* The file has exactly these bytes, and the tier says so, too. Frees them. */
static void check_file(uint64_t step, uint8_t *want)
{
    struct error err = {0};
    const struct published which = {.version = {term, step}};
    uint8_t *have = malloc(BYTES + 1);
    int fd = open(path_of(step), O_RDONLY);
    cr_assert_eq(read(fd, have, BYTES + 1), (ssize_t)BYTES);
    cr_assert(memcmp(have, want, BYTES) == 0, "version %lu has other bytes", (unsigned long)step);
    cr_assert_eq(persistent_verify(tier, &which, &err), TCK_OK, "%s", err.text);
    close(fd);
    free(have);
    free(want);
}

static uint64_t room(void)
{
    struct statvfs fs;
    int fd = open(root, O_RDONLY | O_DIRECTORY);
    cr_assert_eq(syncfs(fd), 0);
    cr_assert_eq(fstatvfs(fd, &fs), 0);
    close(fd);
    return (uint64_t)fs.f_bfree * fs.f_frsize;
}

/* Another byte in place, without a trace in the file's times, as a device changes it. */
static void damage(uint64_t step, uint64_t at, bool traces)
{
    struct stat st;
    uint8_t byte;
    int fd = open(path_of(step), O_RDWR);
    cr_assert_eq(fstat(fd, &st), 0);
    cr_assert_eq(pread(fd, &byte, 1, (off_t)at), 1);
    byte ^= 1;
    cr_assert_eq(pwrite(fd, &byte, 1, (off_t)at), 1);
    const struct timespec times[2] = {st.st_atim, st.st_mtim};
    cr_assert(traces || futimens(fd, times) == 0);
    cr_assert_eq(fsync(fd), 0);
    close(fd);
}

/* ---- tests ----------------------------------------------------------------------------------------------------- */

Test(shared_blocks, what_did_not_change_is_shared_and_takes_no_room)
{
    const char *why;
    cr_assert_eq(persistent_clones(tier, &why), CLONES_UNKNOWN);
    begin_versions();
    cr_assert_eq(persistent_clones(tier, &why), CLONES_WORK);
    cr_assert_str_eq(why, "");
    uint8_t *before_it = copy_of_image();
    uint64_t before = room();
    change(2);
    change(CHUNKS - 1);
    cr_assert_eq(put_and_publish(3), BYTES - CHUNK_BYTES - 12288);
    uint64_t after = room();
    cr_assert(after + 2 * CHUNK_BYTES > before, "%lu bytes are used", (unsigned long)(before - after));
    check_file(3, copy_of_image());
    check_file(2, before_it);
}

Test(shared_blocks, any_set_of_chunks_may_change)
{
    uint32_t before = 0; /* changed in the version before: their hashes are not known */
    config.storage_clone = 1000;
    begin_versions();
    for (uint32_t mask = 1; mask < 1u << CHUNKS; mask += 5) {
        uint64_t shared = 0;
        for (uint32_t i = 0; i < CHUNKS; i++) {
            if (mask >> i & 1) {
                change(i);
            } else if ((before >> i & 1) == 0) {
                shared += chunk_size(BYTES, i);
            }
        }
        cr_assert_eq(put_and_publish(mask + 2), shared, "mask %x after %x", mask, before);
        check_file(mask + 2, copy_of_image());
        before = mask;
    }
}

Test(shared_blocks, a_version_outlives_those_that_it_shares_with)
{
    struct error err = {0};
    begin_versions();
    change(0);
    put_and_publish(3);
    change(1);
    put_and_publish(4);
    cr_assert_eq(persistent_prune(tier, 1, VERSION_NONE, false, NULL, NULL, &err), TCK_OK, "%s", err.text);
    cr_assert(access(path_of(1), F_OK) < 0 && access(path_of(2), F_OK) < 0 && access(path_of(3), F_OK) < 0);
    check_file(4, copy_of_image());
}

/* Takes the file of a version out of the job's directory. */
static void lose(uint64_t step)
{
    char from[CONFIG_PATH + 256], to[CONFIG_PATH + 256];
    snprintf(from, sizeof(from), "%s", path_of(step));
    snprintf(to, sizeof(to), "%s/lost.%lu", root, (unsigned long)step);
    cr_assert_eq(rename(from, to), 0);
}

Test(shared_blocks, a_base_that_was_pruned_is_written_again)
{
    begin_versions();
    lose(1);
    lose(2);
    cr_assert_eq(put_and_publish(3), 0);
    check_file(3, copy_of_image());
    cr_assert_eq(put_and_publish(4), BYTES, "the next one shares with that");
    check_file(4, copy_of_image());
}

Test(shared_blocks, a_base_that_was_replaced_is_not_used)
{
    begin_versions();
    lose(1);
    char copy[CONFIG_PATH + 300], command[5 * CONFIG_PATH];
    snprintf(copy, sizeof(copy), "%s.copy", path_of(2));
    snprintf(command, sizeof(command), "cp -p '%s' '%s' && mv '%s' '%s'", path_of(2), copy, copy, path_of(2));
    cr_assert_eq(system(command), 0);
    cr_assert_eq(put_and_publish(3), 0);
    check_file(3, copy_of_image());
}

Test(shared_blocks, a_base_that_was_written_to_is_not_used)
{
    begin_versions();
    lose(1);
    damage(2, 3 * CHUNK_BYTES + 77, true);
    cr_assert_eq(put_and_publish(3), 0);
    check_file(3, copy_of_image());
}

Test(shared_blocks, damage_in_the_base_is_noticed_and_all_is_written)
{
    uint64_t step = 3;
    config.storage_clone = 1000;
    begin_versions();
    for (uint32_t i = 0; i < CHUNKS; i++) {
        cr_assert_eq(put_and_publish(step), BYTES);
        damage(step, (uint64_t)i * CHUNK_BYTES + 77, false);
        change((i + 1) % CHUNKS);
        cr_assert_eq(put_and_publish(step + 1), 0, "chunk %u", i);
        check_file(step + 1, copy_of_image());
        cr_assert_eq(put_and_publish(step + 2), BYTES - chunk_size(BYTES, (i + 1) % CHUNKS));
        check_file(step + 2, copy_of_image());
        step += 3;
    }
}

Test(shared_blocks, a_version_that_was_never_published_is_no_base)
{
    begin_versions();
    change(0);
    cr_assert_eq(put(3), BYTES - CHUNK_BYTES);
    change(1);
    cr_assert_eq(put_and_publish(4), BYTES - 2 * CHUNK_BYTES, "it shares with version 2");
    check_file(4, copy_of_image());
    change(2);
    cr_assert_eq(put_and_publish(5), BYTES - 2 * CHUNK_BYTES, "the second one has just changed");
    check_file(5, copy_of_image());
}

Test(shared_blocks, one_in_so_many_is_written_as_a_whole)
{
    config.storage_clone = 3;
    begin_versions();
    for (uint64_t step = 3; step <= 11; step++) {
        cr_assert_eq(put_and_publish(step), step % 3 == 2 ? 0 : BYTES, "version %lu", (unsigned long)step);
    }
    check_file(11, copy_of_image());
}

static void expect_whole(void)
{
    const char *why;
    begin_versions();
    cr_assert_eq(put_and_publish(3), 0);
    cr_assert_eq(persistent_clones(tier, &why), CLONES_OFF);
    cr_assert_str_eq(why, "");
    check_file(3, copy_of_image());
}

Test(shared_blocks, nothing_is_shared_if_that_is_configured)
{
    config.storage_clone = 0;
    expect_whole();
}

Test(shared_blocks, nothing_is_shared_if_it_is_not_read_back)
{
    config.storage_verify = SWITCH_OFF;
    expect_whole();
}

Test(shared_blocks, a_new_agent_knows_of_no_file)
{
    begin_versions();
    close_tier();
    open_tier();
    cr_assert_eq(put_and_publish(3), 0);
    cr_assert_eq(put_and_publish(4), 0);
    cr_assert_eq(put_and_publish(5), BYTES);
    check_file(5, copy_of_image());
}

Test(shared_blocks, a_slot_that_is_damaged_is_no_damage_on_storage)
{
    struct error outcome = {0}, err = {0};
    uint64_t shared = 0;
    begin_versions();
    change(0);
    const struct tier_item item = item_of(3, &shared);
    image[2ull * CHUNK_BYTES + 5] ^= 1; /* after its digests were made */
    cr_assert_eq(persistent_put(tier, &item, ended, &outcome, &err), TCK_OK, "%s", err.text);
    loop_run(loop);
    cr_assert_eq(outcome.code, TCK_ERR_CORRUPT, "%s", outcome.text);
}

/* ---- killed in the middle -------------------------------------------------------------------------------------- */

/* Lets through so many requests to write. */
static uint32_t requests_left;

static bool take_some(void *ctx, uint64_t bytes)
{
    (void)ctx, (void)bytes;
    if (requests_left == 0) {
        return false;
    }
    requests_left--;
    return true;
}

/* The part file of the third version, once it has its size: what is shared is there then. */
static bool part_is_there(void)
{
    char pattern[CONFIG_PATH + 64];
    glob_t found;
    struct stat st;
    bool there = false;
    snprintf(pattern, sizeof(pattern), "%s/" JOB "/stage/*-3/*.part", config.save_dir);
    if (glob(pattern, 0, NULL, &found) == 0) {
        there = stat(found.gl_pathv[0], &st) == 0 && (uint64_t)st.st_size == BYTES;
        globfree(&found);
    }
    return there;
}

/* A process that has published two versions dies while it writes the third. */
static void die_in_drain(uint32_t requests)
{
    struct error outcome = {0}, err = {0};
    uint64_t shared = 0;
    requests_left = UINT32_MAX;
    open_tier();
    begin_versions();
    change(1);
    change(3);
    const struct tier_item item = item_of(3, &shared);
    requests_left = requests;
    cr_assert_eq(persistent_put(tier, &item, ended, &outcome, &err), TCK_OK, "%s", err.text);
    loop_run(loop);
    _exit(outcome.code == TCK_OK ? 0 : 1);
}

static void check_killed_after(uint32_t requests)
{
    struct error err = {0};
    int status;
    close_tier();
    pace = (struct tier_pace){.take = take_some};
    pid_t child = fork();
    if (child == 0) {
        die_in_drain(requests);
    }
    while (!part_is_there()) {
        cr_assert_eq(waitpid(child, &status, WNOHANG), 0, "the drain has ended");
        usleep(1000);
    }
    kill(child, SIGKILL);
    cr_assert(waitpid(child, &status, 0) == child && WIFSIGNALED(status));
    pace = (struct tier_pace){0};
    open_tier();
    check_file(2, copy_of_image());
    cr_assert_eq(persistent_sweep(tier, term, VERSION_NONE, &err), TCK_OK, "%s", err.text);
    cr_assert_not(part_is_there());
    check_file(1, copy_of_image());
    check_file(2, copy_of_image());
    change(1);
    put_and_publish(3);
    check_file(3, copy_of_image());
}

Test(shared_blocks, a_process_killed_before_it_writes_spoils_nothing)
{
    check_killed_after(0);
}

Test(shared_blocks, a_process_killed_in_the_middle_of_a_drain_spoils_nothing)
{
    check_killed_after(1);
}

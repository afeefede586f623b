/* SPDX-License-Identifier: Apache-2.0
 * A version is copied from one place to an archive in another one, manifest last, and is read from whichever place is
 * newest and whole. Both are stores of objects in memory, or the archive is a directory. */
#include "tiers/archive.h"

#include "objects_rig.h"

#include <criterion/criterion.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LARGE_BYTES ((9u * CHUNK_BYTES) + 4096u)
#define SMALL_BYTES 8192u
#define FILES       2u

static const struct version one = {1, 10}, two = {1, 20}, three = {1, 30};
static struct persistent *tier; /* of save_dir */
static struct object_store *there;
static struct archive *archive;
static struct error err;
static char dir[256];
static uint64_t salt; /* of the content of versions that are made */

static tck_status_t open_second(void)
{
    struct object_store *client = there != NULL ? memory_store_client(there) : NULL;
    persistent_free(tier);
    const struct persistent_setup setup = {
        .config = &objects_config, .save_store = memory_store_client(objects_store), .load_store = client};
    tier = NULL;
    return persistent_new(&setup, &tier, &err);
}

static void begin_with(struct object_store *store)
{
    objects_begin();
    there = store;
    objects_config.max_archive_num = 1;
    objects_config.storage_timeout_ms = 10000;
    objects_config.storage_verify = SWITCH_ON;
    tier = NULL;
    cr_assert_eq(open_second(), TCK_OK, "%s", err.text);
    store = store != NULL ? memory_store_client(store) : NULL;
    cr_assert_eq(archive_new(&objects_config, tier, store, &archive, &err), TCK_OK);
}

static void run_command(const char *command)
{
    cr_assert_eq(system(command), 0); /* NOLINT(cert-env33-c): paths that the test chose */
}

/* Where the audit file of an archive in a store of objects is. */
static void make_runtime_dir(void)
{
    char here[128], command[256];
    cr_assert_not_null(getcwd(here, sizeof(here)));
    snprintf(objects_config.runtime_dir, sizeof(objects_config.runtime_dir), "%s/archive_run.%d", here, (int)getpid());
    snprintf(command, sizeof(command), "mkdir -p '%.200s/" OBJECTS_JOB "/n0'", objects_config.runtime_dir);
    run_command(command);
}

static void begin_objects(void)
{
    struct object_store *store = memory_store_new();
    snprintf(dir, sizeof(dir), "s3://archive");
    begin_with(store);
    make_runtime_dir();
    snprintf(objects_config.archive_dir, sizeof(objects_config.archive_dir), "%s", dir);
    archive_free(archive);
    cr_assert_eq(open_second(), TCK_OK, "%s", err.text);
    cr_assert_eq(archive_new(&objects_config, tier, memory_store_client(there), &archive, &err), TCK_OK);
}

static void end(void)
{
    archive_free(archive);
    persistent_free(tier);
    if (there != NULL) {
        there->ops->free(there);
    }
    objects_end();
}

static void end_objects(void)
{
    char command[256];
    snprintf(command, sizeof(command), "rm -rf '%.200s'", objects_config.runtime_dir);
    end();
    run_command(command);
}

TestSuite(archive, .init = begin_objects, .fini = end_objects, .timeout = 200);

static struct manifest manifest_of(struct version version, uint8_t **images)
{
    struct manifest m = {
        .job = OBJECTS_JOB, .version = version, .world_size = 1, .wall_ms = version.step, .file_count = FILES};
    m.files = calloc(FILES, sizeof(*m.files));
    for (uint32_t i = 0; i < FILES; i++) {
        uint64_t bytes = i == 0 ? LARGE_BYTES : SMALL_BYTES;
        images[i] = malloc(bytes);
        for (uint64_t at = 0; at < bytes; at += 8) {
            uint64_t word = at * 0x9e3779b97f4a7c15u + i + 1000 * version.step + salt;
            memcpy(images[i] + at, &word, sizeof(word));
        }
        m.files[i] = (struct manifest_file){.shard = {9, i}, .bytes = bytes};
        m.files[i].crcs = calloc(chunk_count(bytes), sizeof(uint32_t));
        m.files[i].root = digest_image(images[i], bytes, m.files[i].crcs);
        manifest_file_name(m.files[i].shard, m.files[i].name);
    }
    return m;
}

/* Publishes a version in save_dir. */
static void make(struct version version)
{
    uint8_t *images[FILES];
    char *text;
    size_t len;
    struct manifest m = manifest_of(version, images);
    for (uint32_t i = 0; i < FILES; i++) {
        memory_store_set(objects_store, objects_shard_key(version, i), images[i], m.files[i].bytes);
        free(images[i]);
    }
    cr_assert_eq(manifest_print(&m, &text, &len, &err), TCK_OK, "%s", err.text);
    memory_store_set(objects_store, objects_key(version, MANIFEST_NAME), text, len);
    free(text);
    manifest_free(&m);
}

static tck_status_t copy(struct version version)
{
    struct manifest m;
    tck_status_t status = archive_manifest(archive, version, &m, &err);
    cr_assert_eq(status, TCK_OK, "%s", err.text);
    for (uint32_t i = 0; i < m.file_count && status == TCK_OK; i++) {
        status = archive_copy(archive, version, &m.files[i], NULL, &err);
    }
    if (status == TCK_OK) {
        status = archive_publish(archive, &m, version.term, &err);
    }
    manifest_free(&m);
    return status;
}

static struct version newest(void)
{
    struct version version = {9, 9};
    uint64_t wall_ms;
    cr_assert_eq(archive_newest(archive, &version, &wall_ms, &err), TCK_OK, "%s", err.text);
    return version;
}

static void expect_newest(struct version version)
{
    struct version found = newest();
    cr_assert(version_is(found, version), "%" PRIu64 ".%" PRIu64, found.term, found.step);
}

/* What a recovery sees: the newest version, which is whole. */
static void expect_restorable(struct version version, bool from_second)
{
    struct published *list = NULL;
    size_t count = 0;
    cr_assert_eq(persistent_list(tier, &list, &count, &err), TCK_OK, "%s", err.text);
    cr_assert(count > 0 && version_is(list[0].version, version));
    cr_assert_eq(list[0].from_second, from_second);
    cr_assert_eq(persistent_verify(tier, &list[0], &err), TCK_OK, "%s", err.text);
    free(list);
}

static void fail_there(unsigned ops, const char *key, enum memory_fault fault)
{
    const struct memory_failure failure = {.ops = ops, .key = key, .fault = fault, .count = UINT32_MAX};
    memory_store_fail(there, &failure);
}

Test(archive, a_copy_is_published_last_and_is_the_same_version)
{
    make(one);
    expect_newest(VERSION_NONE);
    cr_assert_eq(copy(one), TCK_OK, "%s", err.text);
    expect_newest(one);
    cr_assert_eq(memory_store_uploads(there), 0);
}

Test(archive, a_version_that_save_dir_has_lost_is_found_in_the_archive)
{
    make(one);
    cr_assert_eq(copy(one), TCK_OK, "%s", err.text);
    expect_restorable(one, false);
    memory_store_set(objects_store, objects_key(one, MANIFEST_NAME), NULL, 0);
    expect_restorable(one, true);
}

Test(archive, a_version_that_is_damaged_in_save_dir_is_found_in_the_archive)
{
    make(one);
    cr_assert_eq(copy(one), TCK_OK, "%s", err.text);
    memory_store_set(objects_store, objects_shard_key(one, 1), "short", 5);
    expect_restorable(one, true);
}

Test(archive, the_newer_of_both_places_counts)
{
    make(one);
    cr_assert_eq(copy(one), TCK_OK, "%s", err.text);
    make(two);
    expect_restorable(two, false);
}

Test(archive, an_interrupted_copy_is_no_version_and_the_next_one_sends_only_the_rest)
{
    struct manifest m;
    make(one);
    cr_assert_eq(archive_manifest(archive, one, &m, &err), TCK_OK);
    cr_assert_eq(archive_copy(archive, one, &m.files[0], NULL, &err), TCK_OK, "%s", err.text);
    manifest_free(&m);
    expect_newest(VERSION_NONE);
    uint64_t sent = memory_store_sent(there);
    cr_assert_eq(copy(one), TCK_OK, "%s", err.text);
    cr_assert_lt(memory_store_sent(there) - sent, LARGE_BYTES / 2);
    expect_newest(one);
}

Test(archive, a_version_is_not_published_without_all_of_its_files)
{
    struct manifest m;
    make(one);
    cr_assert_eq(archive_manifest(archive, one, &m, &err), TCK_OK);
    cr_assert_eq(archive_copy(archive, one, &m.files[0], NULL, &err), TCK_OK, "%s", err.text);
    cr_assert_neq(archive_publish(archive, &m, 1, &err), TCK_OK);
    manifest_free(&m);
    expect_newest(VERSION_NONE);
}

Test(archive, what_is_damaged_in_save_dir_is_not_copied)
{
    make(one);
    memory_store_damage(objects_store, objects_shard_key(one, 0), CHUNK_BYTES + 5);
    cr_assert_eq(copy(one), TCK_ERR_CORRUPT, "%s", err.text);
    expect_newest(VERSION_NONE);
}

Test(archive, a_copy_of_a_term_that_is_over_in_save_dir_is_not_published)
{
    uint64_t term = 0;
    make(one);
    cr_assert_eq(persistent_claim_term(tier, 2, &term, &err), TCK_OK, "%s", err.text);
    cr_assert_eq(copy(one), TCK_ERR_DENIED, "%s", err.text);
    expect_newest(VERSION_NONE);
}

Test(archive, what_a_copy_supersedes_is_deleted_in_the_archive_alone)
{
    make(one);
    cr_assert_eq(copy(one), TCK_OK, "%s", err.text);
    make(two);
    cr_assert_eq(copy(two), TCK_OK, "%s", err.text);
    cr_assert_not(memory_store_has(there, objects_key(one, MANIFEST_NAME)));
    cr_assert(memory_store_has(objects_store, objects_key(one, MANIFEST_NAME)));
}

Test(archive, what_an_interrupted_copy_has_left_is_deleted_by_the_next_publish)
{
    struct manifest m;
    make(one);
    make(two);
    cr_assert_eq(archive_manifest(archive, one, &m, &err), TCK_OK);
    cr_assert_eq(archive_copy(archive, one, &m.files[1], NULL, &err), TCK_OK, "%s", err.text);
    manifest_free(&m);
    cr_assert_eq(copy(two), TCK_OK, "%s", err.text);
    cr_assert_not(memory_store_has(there, objects_shard_key(one, 1)));
}

Test(archive, one_that_is_away_is_no_obstacle_while_save_dir_has_a_good_newest_version)
{
    make(one);
    fail_there(~0u, "", MEMORY_DENIED);
    expect_restorable(one, false);
}

Test(archive, one_that_is_away_may_have_what_save_dir_lacks)
{
    struct published *list = NULL;
    size_t count = 0;
    fail_there(~0u, "", MEMORY_DENIED);
    cr_assert_eq(persistent_list(tier, &list, &count, &err), TCK_ERR_DENIED, "save_dir has nothing");
    make(one);
    memory_store_set(objects_store, objects_shard_key(one, 1), "short", 5);
    cr_assert_eq(persistent_list(tier, &list, &count, &err), TCK_ERR_DENIED, "its only version is damaged");
}

Test(archive, a_bucket_that_has_lost_what_was_copied_does_not_count_as_empty)
{
    struct published *list = NULL;
    size_t count = 0;
    make(one);
    cr_assert_eq(copy(one), TCK_OK, "%s", err.text);
    memory_store_set(objects_store, objects_key(one, MANIFEST_NAME), NULL, 0);
    struct object_store *used = there;
    there = memory_store_new(); /* another bucket */
    cr_assert_eq(open_second(), TCK_OK, "%s", err.text);
    cr_assert_eq(persistent_list(tier, &list, &count, &err), TCK_ERR_IO, "%s", err.text);
    there->ops->free(there);
    there = used;
    cr_assert_eq(open_second(), TCK_OK, "%s", err.text);
    expect_restorable(one, true);
}

Test(archive, what_is_checked_in_save_dir_is_listed_without_the_archive)
{
    struct published *list = NULL;
    size_t count = 9;
    make(one);
    cr_assert_eq(copy(one), TCK_OK, "%s", err.text);
    memory_store_set(objects_store, objects_key(one, MANIFEST_NAME), NULL, 0);
    fail_there(~0u, "", MEMORY_DENIED);
    cr_assert_eq(persistent_list_without_archive(tier, &list, &count, &err), TCK_OK, "%s", err.text);
    cr_assert_eq(count, 0);
    free(list);
}

Test(archive, a_file_that_only_an_archive_that_is_away_may_have_is_not_lost)
{
    struct found_file found = {.shard = {9, 1}};
    make(one);
    cr_assert_eq(copy(one), TCK_OK, "%s", err.text);
    memory_store_set(objects_store, objects_shard_key(one, 1), "short", 5);
    fail_there(~0u, "", MEMORY_DENIED);
    persistent_find(tier, one, &found, 1);
    cr_assert_eq(found.outcome.code, TCK_ERR_DENIED, "%s", found.outcome.text);
    memory_store_heal(there);
    persistent_find(tier, one, &found, 1);
    cr_assert_eq(found.outcome.code, TCK_OK, "%s", found.outcome.text);
    cr_assert(found.which.from_second);
    free(found.file.crcs);
}

Test(archive, the_terms_of_an_empty_save_dir_are_above_those_in_the_archive)
{
    uint64_t term = 0;
    const struct version old = {7, 10};
    make(old);
    cr_assert_eq(copy(old), TCK_OK, "%s", err.text);
    memory_store_set(objects_store, objects_key(old, MANIFEST_NAME), NULL, 0);
    memory_store_set(objects_store, objects_shard_key(old, 0), NULL, 0);
    memory_store_set(objects_store, objects_shard_key(old, 1), NULL, 0);
    fail_there(~0u, "", MEMORY_DENIED);
    cr_assert_eq(persistent_claim_term(tier, 1, &term, &err), TCK_ERR_DENIED, "its terms are not known");
    memory_store_heal(there);
    cr_assert_eq(persistent_claim_term(tier, 1, &term, &err), TCK_OK, "%s", err.text);
    cr_assert_eq(term, 8);
    fail_there(~0u, "", MEMORY_DENIED);
    cr_assert_eq(persistent_claim_term(tier, 1, &term, &err), TCK_OK, "save_dir has a term now: %s", err.text);
}

/* Removes a version from save_dir. */
static void lose(struct version version)
{
    memory_store_set(objects_store, objects_key(version, MANIFEST_NAME), NULL, 0);
    for (uint32_t i = 0; i < FILES; i++) {
        memory_store_set(objects_store, objects_shard_key(version, i), NULL, 0);
    }
}

Test(archive, one_that_is_away_is_known_to_have_what_was_copied_last)
{
    struct published *list = NULL;
    size_t count = 0;
    make(one);
    make(two);
    cr_assert_eq(copy(two), TCK_OK, "%s", err.text);
    fail_there(~0u, "", MEMORY_DENIED);
    expect_restorable(two, false);
    lose(two);
    cr_assert_eq(persistent_list(tier, &list, &count, &err), TCK_ERR_DENIED,
                 "an older one is good, and not the newest");
    cr_assert_not_null(strstr(err.text, "version 1.20 was copied to the archive"), "%s", err.text);
    memory_store_heal(there);
    expect_restorable(two, true);
}

Test(archive, what_is_forgotten_is_not_restored_from_it_after_save_dir_is_lost)
{
    struct published *list = NULL;
    size_t count = 9;
    uint64_t term = 0;
    make(one);
    cr_assert_eq(copy(one), TCK_OK, "%s", err.text);
    cr_assert_eq(persistent_forget(tier, false, &term, &err), TCK_OK, "%s", err.text);
    memory_store_set(objects_store, OBJECTS_JOB "/forgotten", NULL, 0);
    lose(one);
    cr_assert_eq(persistent_list(tier, &list, &count, &err), TCK_OK, "%s", err.text);
    cr_assert_eq(count, 0);
    free(list);
}

Test(archive, nothing_is_forgotten_while_it_is_away)
{
    uint64_t term = 0;
    make(one);
    cr_assert_eq(copy(one), TCK_OK, "%s", err.text);
    fail_there(~0u, "", MEMORY_DENIED);
    cr_assert_eq(open_second(), TCK_OK, "%s", err.text);
    cr_assert_eq(persistent_forget(tier, false, &term, &err), TCK_ERR_DENIED, "%s", err.text);
    cr_assert_not_null(strstr(err.text, "archive_dir"), "%s", err.text);
    cr_assert_not(memory_store_has(objects_store, OBJECTS_JOB "/forgotten"));
    cr_assert_not(memory_store_has(objects_store, OBJECTS_JOB "/term.2"));
}

Test(archive, what_was_forgotten_without_it_is_passed_on_when_it_is_opened)
{
    const char text[] = "{\"format\":1,\"term\":1,\"wall_ms\":1}";
    const struct version next = {2, 40};
    make(one);
    cr_assert_eq(copy(one), TCK_OK, "%s", err.text);
    memory_store_set(objects_store, OBJECTS_JOB "/forgotten", text, strlen(text));
    archive_free(archive);
    cr_assert_eq(archive_new(&objects_config, tier, memory_store_client(there), &archive, &err), TCK_OK);
    make(next);
    cr_assert_eq(copy(next), TCK_OK, "%s", err.text);
    cr_assert(memory_store_has(there, OBJECTS_JOB "/forgotten"));
}

Test(archive, files_of_two_versions_of_one_name_are_not_mixed)
{
    struct found_file found = {.shard = {9, 1}};
    make(one);
    cr_assert_eq(copy(one), TCK_OK, "%s", err.text);
    salt = 77; /* an older copy of save_dir was put in its place, and the term was given out once more */
    make(one);
    memory_store_set(objects_store, objects_shard_key(one, 1), "short", 5);
    persistent_find(tier, one, &found, 1);
    cr_assert_neq(found.outcome.code, TCK_OK);
}

Test(archive, the_newest_version_is_found_without_a_look_at_older_ones)
{
    objects_config.max_archive_num = 0;
    archive_free(archive);
    cr_assert_eq(archive_new(&objects_config, tier, memory_store_client(there), &archive, &err), TCK_OK);
    const struct version versions[] = {one, two, three};
    uint32_t reads[3];
    for (uint32_t i = 0; i < 3; i++) {
        make(versions[i]);
        cr_assert_eq(copy(versions[i]), TCK_OK, "%s", err.text);
        uint32_t before = memory_store_calls(there, MEMORY_GET);
        expect_newest(versions[i]);
        reads[i] = memory_store_calls(there, MEMORY_GET) - before;
    }
    cr_assert_eq(reads[2], reads[0], "%u, %u", reads[0], reads[2]);
}

Test(archive, a_copy_that_is_no_longer_wanted_ends_after_a_chunk)
{
    struct manifest m;
    atomic_bool stops = true;
    make(one);
    cr_assert_eq(archive_manifest(archive, one, &m, &err), TCK_OK);
    cr_assert_eq(archive_copy(archive, one, &m.files[0], &stops, &err), TCK_ERR_CANCELED, "%s", err.text);
    cr_assert_eq(memory_store_uploads(there), 0);
    cr_assert_not(memory_store_has(there, objects_shard_key(one, 0)));
    manifest_free(&m);
}

Test(archive, an_error_names_the_version_and_the_file)
{
    make(one);
    fail_there(MEMORY_BEGIN | MEMORY_PUT, "shard", MEMORY_DENIED);
    cr_assert_eq(copy(one), TCK_ERR_DENIED, "%s", err.text);
    cr_assert_not_null(strstr(err.text, "v000000000010.t1/shard-"), "%s", err.text);
    cr_assert_not_null(strstr(err.text, "archive_dir s3://archive"), "%s", err.text);
    memory_store_set(objects_store, objects_shard_key(one, 0), NULL, 0);
    memory_store_heal(there);
    cr_assert_neq(copy(one), TCK_OK);
    cr_assert_not_null(strstr(err.text, "v000000000010.t1/shard-"), "%s", err.text);
    cr_assert_not_null(strstr(err.text, "save_dir"), "%s", err.text);
}

Test(archive, its_copy_of_what_save_dir_has_too_is_surveyed)
{
    struct survey survey;
    make(one);
    cr_assert_eq(copy(one), TCK_OK, "%s", err.text);
    cr_assert_eq(persistent_survey_archive(tier, &survey, &err), TCK_OK, "%s", err.text);
    cr_assert_eq(survey.count, 1);
    cr_assert(survey.candidates[0].which.from_second);
    cr_assert_eq(survey.candidates[0].standing, STANDING_GOOD);
    survey_free(&survey);
    fail_there(~0u, "", MEMORY_DENIED);
    cr_assert_eq(persistent_survey_archive(tier, &survey, &err), TCK_ERR_DENIED, "%s", err.text);
}

/* ---- a directory ----------------------------------------------------------------------------------------------- */

static const char *below(const char *name)
{
    static char path[512];
    snprintf(path, sizeof(path), "%s/" OBJECTS_JOB "/%s", dir, name);
    return path;
}

static void begin_directory(void)
{
    begin_with(NULL);
    char here[128];
    cr_assert_not_null(getcwd(here, sizeof(here)));
    snprintf(dir, sizeof(dir), "%s/archive.%d", here, (int)getpid());
    snprintf(objects_config.archive_dir, sizeof(objects_config.archive_dir), "%s", dir);
    archive_free(archive);
    cr_assert_eq(open_second(), TCK_OK, "%s", err.text);
    cr_assert_eq(archive_new(&objects_config, tier, NULL, &archive, &err), TCK_OK);
}

static void end_directory(void)
{
    char command[512];
    snprintf(command, sizeof(command), "rm -rf '%s'", dir);
    run_command(command);
    end();
}

TestSuite(archive_dir, .init = begin_directory, .fini = end_directory, .timeout = 200);

Test(archive_dir, gets_whole_versions_and_nothing_stays_in_the_stage)
{
    make(one);
    cr_assert_eq(copy(one), TCK_OK, "%s", err.text);
    expect_newest(one);
    cr_assert_eq(access(below("v000000000010.t1/manifest.json"), F_OK), 0);
    cr_assert_neq(access(below("stage/1-10"), F_OK), 0);
    memory_store_set(objects_store, objects_key(one, MANIFEST_NAME), NULL, 0);
    expect_restorable(one, true);
}

static bool takes_no_bytes;

ssize_t __real_pwrite(int fd, const void *data, size_t bytes, off_t at);
ssize_t __wrap_pwrite(int fd, const void *data, size_t bytes, off_t at);

ssize_t __wrap_pwrite(int fd, const void *data, size_t bytes, off_t at)
{
    return takes_no_bytes ? 0 : __real_pwrite(fd, data, bytes, at);
}

Test(archive_dir, a_file_system_that_takes_no_bytes_is_an_error)
{
    make(one);
    takes_no_bytes = true;
    cr_assert_eq(copy(one), TCK_ERR_IO);
    cr_assert_not_null(strstr(err.text, "takes no bytes"), "%s", err.text);
    takes_no_bytes = false;
    cr_assert_eq(copy(one), TCK_OK, "%s", err.text);
}

Test(archive_dir, an_interrupted_copy_is_no_version_and_is_swept)
{
    struct manifest m;
    make(one);
    make(two);
    cr_assert_eq(archive_manifest(archive, one, &m, &err), TCK_OK);
    cr_assert_eq(archive_copy(archive, one, &m.files[0], NULL, &err), TCK_OK, "%s", err.text);
    manifest_free(&m);
    expect_newest(VERSION_NONE);
    cr_assert_eq(access(below("stage/1-10"), F_OK), 0);
    cr_assert_eq(copy(two), TCK_OK, "%s", err.text);
    cr_assert_neq(access(below("stage/1-10"), F_OK), 0);
    expect_newest(two);
}

Test(archive_dir, a_file_of_an_earlier_attempt_is_kept_only_if_it_is_whole)
{
    struct manifest m;
    make(one);
    cr_assert_eq(archive_manifest(archive, one, &m, &err), TCK_OK);
    cr_assert_eq(archive_copy(archive, one, &m.files[1], NULL, &err), TCK_OK, "%s", err.text);
    char path[512], name[MANIFEST_FILE_NAME + 16];
    snprintf(name, sizeof(name), "stage/1-10/%s", m.files[1].name);
    snprintf(path, sizeof(path), "%s", below(name));
    FILE *file = fopen(path, "r+e");
    cr_assert_not_null(file);
    fputs("other", file);
    fclose(file);
    manifest_free(&m);
    cr_assert_eq(copy(one), TCK_OK, "%s", err.text);
    memory_store_set(objects_store, objects_key(one, MANIFEST_NAME), NULL, 0);
    expect_restorable(one, true);
}

Test(archive_dir, a_copy_that_is_no_longer_wanted_ends_after_a_chunk)
{
    struct manifest m;
    char name[MANIFEST_FILE_NAME + 16];
    atomic_bool stops = true;
    make(one);
    cr_assert_eq(archive_manifest(archive, one, &m, &err), TCK_OK);
    cr_assert_eq(archive_copy(archive, one, &m.files[0], &stops, &err), TCK_ERR_CANCELED, "%s", err.text);
    snprintf(name, sizeof(name), "stage/1-10/%s", m.files[0].name);
    cr_assert_neq(access(below(name), F_OK), 0);
    manifest_free(&m);
    cr_assert_eq(copy(one), TCK_OK, "%s", err.text);
}

Test(archive_dir, what_is_forgotten_is_forgotten_there_too)
{
    uint64_t term = 0;
    make(one);
    cr_assert_eq(copy(one), TCK_OK, "%s", err.text);
    cr_assert_eq(persistent_forget(tier, false, &term, &err), TCK_OK, "%s", err.text);
    cr_assert_eq(access(below("forgotten"), F_OK), 0);
}

Test(archive_dir, one_that_is_not_mounted_is_an_error_and_not_empty)
{
    struct published *list = NULL;
    size_t count = 0;
    snprintf(objects_config.archive_dir, sizeof(objects_config.archive_dir), "%s/missing/archive", dir);
    cr_assert_eq(open_second(), TCK_OK, "the tier opens without it: %s", err.text);
    cr_assert_eq(persistent_list(tier, &list, &count, &err), TCK_ERR_IO);
    make(three);
    expect_restorable(three, false);
}

Test(archive_dir, one_that_was_never_used_counts_as_empty_and_is_not_made_by_a_reader)
{
    struct published *list = NULL;
    size_t count = 9;
    cr_assert_eq(persistent_list(tier, &list, &count, &err), TCK_OK, "%s", err.text);
    cr_assert_eq(count, 0);
    free(list);
    cr_assert_neq(access(dir, F_OK), 0);
}

static void expect_no_list(void)
{
    struct published *list = NULL;
    size_t count = 0;
    cr_assert_eq(persistent_list(tier, &list, &count, &err), TCK_ERR_IO, "%s", err.text);
    cr_assert_not_null(strstr(err.text, "archive_dir"), "%s", err.text);
}

Test(archive_dir, one_that_was_used_and_is_no_longer_mounted_does_not_count_as_empty)
{
    char command[1024];
    make(one);
    cr_assert_eq(copy(one), TCK_OK, "%s", err.text);
    memory_store_set(objects_store, objects_key(one, MANIFEST_NAME), NULL, 0);
    cr_assert_eq(open_second(), TCK_OK, "%s", err.text);
    snprintf(command, sizeof(command), "mv '%s' '%s.away'", dir, dir);
    run_command(command);
    expect_no_list();
    cr_assert_eq(mkdir(dir, 0755), 0);
    expect_no_list(); /* what an unmounted directory leaves is an empty one */
    archive_free(archive);
    cr_assert_eq(archive_new(&objects_config, tier, NULL, &archive, &err), TCK_OK);
    struct version version;
    uint64_t wall_ms;
    cr_assert_eq(archive_newest(archive, &version, &wall_ms, &err), TCK_ERR_IO);
    cr_assert_neq(access(below(""), F_OK), 0, "nothing is made there");
    snprintf(command, sizeof(command), "rmdir '%s' && mv '%s.away' '%s'", dir, dir, dir);
    run_command(command);
    expect_restorable(one, true);
}

Test(archive_dir, a_version_that_is_being_copied_is_not_pruned_by_a_publish)
{
    objects_config.max_ckpt_num = 1;
    make(one);
    persistent_pin(tier, one);
    for (uint64_t step = 20; step <= 30; step += 10) {
        uint8_t *images[FILES];
        struct manifest m = manifest_of((struct version){1, step}, images);
        make(m.version);
        const struct publish_ask ask = {.manifest = &m, .term = 1};
        cr_assert_eq(persistent_publish_now(tier, &ask, &err), TCK_OK, "%s", err.text);
        for (uint32_t i = 0; i < FILES; i++) {
            free(images[i]);
        }
        manifest_free(&m);
    }
    cr_assert(memory_store_has(objects_store, objects_key(one, MANIFEST_NAME)));
    cr_assert_not(memory_store_has(objects_store, objects_key(two, MANIFEST_NAME)));
}

Test(archive_dir, that_is_save_dir_by_another_path_is_refused)
{
    char link[300];
    struct published *list = NULL;
    struct version version;
    size_t count = 0;
    uint64_t wall_ms;
    cr_assert_eq(mkdir(dir, 0755), 0);
    snprintf(link, sizeof(link), "%.250s/link", dir);
    snprintf(objects_config.save_dir, sizeof(objects_config.save_dir), "%.250s/save", dir);
    cr_assert_eq(mkdir(objects_config.save_dir, 0755), 0);
    cr_assert_eq(symlink("save", link), 0);
    snprintf(objects_config.archive_dir, sizeof(objects_config.archive_dir), "%s", link);
    archive_free(archive);
    persistent_free(tier);
    const struct persistent_setup setup = {.config = &objects_config};
    cr_assert_eq(persistent_new(&setup, &tier, &err), TCK_OK, "%s", err.text);
    cr_assert_eq(archive_new(&objects_config, tier, NULL, &archive, &err), TCK_OK);
    cr_assert_eq(archive_newest(archive, &version, &wall_ms, &err), TCK_ERR_CONFIG, "%s", err.text);
    cr_assert_eq(persistent_list(tier, &list, &count, &err), TCK_ERR_CONFIG, "%s", err.text);
}

Test(archive_dir, whose_directory_of_the_job_was_removed_is_begun_again_once_its_note_is_gone)
{
    char command[600];
    make(one);
    cr_assert_eq(copy(one), TCK_OK, "%s", err.text);
    snprintf(command, sizeof(command), "rm -r '%s'", below(""));
    run_command(command);
    make(two);
    cr_assert_eq(copy(two), TCK_ERR_IO, "%s", err.text);
    cr_assert_eq(copy(two), TCK_ERR_IO, "%s", err.text);
    cr_assert_not_null(strstr(err.text, "remove the file \"archive\""), "%s", err.text);
    memory_store_set(objects_store, OBJECTS_JOB "/archive", NULL, 0);
    cr_assert_eq(copy(two), TCK_OK, "%s", err.text);
    expect_newest(two);
    memory_store_set(objects_store, objects_key(two, MANIFEST_NAME), NULL, 0);
    expect_restorable(two, true);
}

/* SPDX-License-Identifier: Apache-2.0
 * Versions in a store of objects: put, published, read, checked and deleted, with answers that are lost, late or come
 * twice, and with other starts in between. */
#include "objects_rig.h"

#include "base/image_check.h"
#include "base/layout.h"
#include "base/record.h"
#include "tiers/persistent_impl.h"

#include <criterion/criterion.h>
#include <endian.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define IMAGE_BYTES ((9u * CHUNK_BYTES) + 4096u) /* three parts, the last one small */
#define SMALL_BYTES 8192u
#define SHARDS      2u

static const struct version one = {1, 10}, two = {1, 20}, three = {1, 30};
static struct persistent *tier;
static uint64_t term;

static void begin(void)
{
    objects_begin();
    tier = objects_tier(true);
    cr_assert_eq(persistent_claim_term(tier, 1, &term, &objects_err), TCK_OK, "%s", objects_err.text);
}

static void end(void)
{
    persistent_free(tier);
    objects_end();
}

TestSuite(versions, .init = begin, .fini = end, .timeout = 200);

static void fail(unsigned ops, const char *key, enum memory_fault fault)
{
    const struct memory_failure failure = {.ops = ops, .key = key, .fault = fault, .count = 1};
    memory_store_fail(objects_store, &failure);
}

static uint64_t bytes_of(uint32_t number)
{
    return number == 0 ? IMAGE_BYTES : SMALL_BYTES;
}

static struct tier_item item_of(struct version version, uint32_t number)
{
    struct tier_item item = {.version = version, .shard = {9, number}, .image_bytes = bytes_of(number)};
    item.image = malloc(item.image_bytes);
    item.crcs = calloc(chunk_count(item.image_bytes), sizeof(*item.crcs));
    for (uint64_t i = 0; i < item.image_bytes; i += 8) {
        uint64_t word = i * 0x9e3779b97f4a7c15u + number + 1000 * version.step;
        memcpy(item.image + i, &word, sizeof(word));
    }
    item.root = digest_image(item.image, item.image_bytes, item.crcs);
    return item;
}

static void item_free(struct tier_item *item)
{
    free(item->image);
    free(item->crcs);
}

static struct manifest manifest_of(struct version version)
{
    struct manifest m = {
        .job = OBJECTS_JOB, .version = version, .world_size = 1, .wall_ms = version.step, .file_count = SHARDS};
    m.files = calloc(SHARDS, sizeof(*m.files));
    for (uint32_t i = 0; i < SHARDS; i++) {
        struct tier_item item = item_of(version, i);
        m.files[i] = (struct manifest_file){
            .shard = item.shard, .bytes = item.image_bytes, .root = item.root, .crcs = item.crcs};
        manifest_file_name(item.shard, m.files[i].name);
        free(item.image);
    }
    return m;
}

static bool published(struct version version)
{
    return memory_store_has(objects_store, objects_key(version, MANIFEST_NAME));
}

static struct error put(struct version version, uint32_t number)
{
    struct tier_item item = item_of(version, number);
    objects_err = (struct error){0};
    struct error outcome = objects_wait(persistent_put(tier, &item, objects_ended, &objects_err, &objects_err));
    item_free(&item);
    return outcome;
}

static struct error publish(struct version version, uint64_t by)
{
    struct manifest manifest = manifest_of(version);
    const struct publish_ask ask = {.manifest = &manifest, .term = by};
    objects_err = (struct error){0};
    struct error outcome = objects_wait(persistent_publish(tier, &ask, objects_ended, &objects_err, &objects_err));
    objects_settle();
    manifest_free(&manifest);
    return outcome;
}

static void expect(struct error outcome, tck_status_t status, const char *text)
{
    cr_assert_eq(outcome.code, status, "%d: %s", outcome.code, outcome.text);
    cr_assert(text == NULL || strstr(outcome.text, text) != NULL, "%s", outcome.text);
}

static void make(struct version version)
{
    for (uint32_t i = 0; i < SHARDS; i++) {
        expect(put(version, i), TCK_OK, NULL);
    }
    expect(publish(version, term), TCK_OK, NULL);
}

static size_t listed(struct version *newest)
{
    struct published *list = NULL;
    size_t count = 0;
    cr_assert_eq(persistent_list(tier, &list, &count, &objects_err), TCK_OK, "%s", objects_err.text);
    if (count > 0 && newest != NULL) {
        *newest = list[0].version;
    }
    free(list);
    return count;
}

/* Loads a file and compares it. */
static struct error load(struct version version, uint32_t number)
{
    struct tier_item want = item_of(version, number), got = item_of(version, number);
    struct found_file found = {.shard = want.shard};
    memset(got.image, 0, got.image_bytes);
    got.root = (struct hash128){0, 0};
    persistent_find(tier, version, &found, 1);
    struct error outcome = found.outcome;
    if (outcome.code == TCK_OK) {
        objects_err = (struct error){0};
        outcome = objects_wait(
            persistent_get(tier, &found.which, &found.file, &got, objects_ended, &objects_err, &objects_err));
    }
    cr_assert(outcome.code != TCK_OK || memcmp(want.image, got.image, want.image_bytes) == 0);
    free(found.file.crcs);
    item_free(&want);
    item_free(&got);
    return outcome;
}

static tck_status_t verify(struct version version)
{
    const struct published which = {.version = version};
    return persistent_verify(tier, &which, &objects_err);
}

/* ---- the way there and back ------------------------------------------------------------------------------------ */

Test(versions, what_was_put_and_published_is_read_back)
{
    struct version newest = VERSION_NONE;
    make(one);
    make(two);
    cr_assert_eq(listed(&newest), 2);
    cr_assert(version_is(newest, two));
    for (uint32_t i = 0; i < SHARDS; i++) {
        expect(load(two, i), TCK_OK, NULL);
    }
    cr_assert_eq(verify(two), TCK_OK, "%s", objects_err.text);
    cr_assert_eq(memory_store_uploads(objects_store), 0);
}

Test(versions, bytes_are_sent_once_and_never_read_back)
{
    uint64_t before = memory_store_sent(objects_store);
    uint32_t gets = memory_store_calls(objects_store, MEMORY_GET);
    expect(put(one, 0), TCK_OK, NULL);
    cr_assert_eq(memory_store_sent(objects_store) - before, IMAGE_BYTES);
    cr_assert_eq(memory_store_calls(objects_store, MEMORY_PART), 3);
    cr_assert_eq(memory_store_calls(objects_store, MEMORY_GET), gets);
}

Test(versions, a_version_without_a_manifest_is_none)
{
    expect(put(one, 0), TCK_OK, NULL);
    expect(put(one, 1), TCK_OK, NULL);
    cr_assert_eq(listed(NULL), 0);
    expect(publish(one, term), TCK_OK, NULL);
    cr_assert_eq(listed(NULL), 1);
}

Test(versions, a_version_that_lacks_a_file_is_not_published)
{
    expect(put(one, 0), TCK_OK, NULL);
    expect(publish(one, term), TCK_ERR_NOENT, "shard-");
    cr_assert_not(published(one));
}

Test(versions, an_image_that_differs_from_its_digests_is_refused_by_the_server)
{
    struct tier_item item = item_of(one, 0);
    item.image[5 * CHUNK_BYTES] ^= 1;
    expect(objects_wait(persistent_put(tier, &item, objects_ended, &objects_err, &objects_err)), TCK_ERR_CORRUPT,
           "part 2 of 3");
    cr_assert_not(memory_store_has(objects_store, objects_shard_key(one, 0)));
    cr_assert_eq(memory_store_uploads(objects_store), 0);
    item_free(&item);
}

Test(versions, what_a_server_that_ignores_checksums_has_stored_is_read_back)
{
    struct tier_item item = item_of(one, 0);
    struct persistent *careful;
    objects_config.storage_verify = SWITCH_ON;
    memory_store_forget_checksums(objects_store);
    careful = objects_tier(true); /* it finds out */
    item.image[5 * CHUNK_BYTES] ^= 1;
    expect(objects_wait(persistent_put(careful, &item, objects_ended, &objects_err, &objects_err)), TCK_ERR_IO,
           "read back");
    item.image[5 * CHUNK_BYTES] ^= 1;
    expect(objects_wait(persistent_put(careful, &item, objects_ended, &objects_err, &objects_err)), TCK_OK, NULL);
    persistent_free(careful);
    item_free(&item);
}

/* The content of the blob that is .metadata's. */
#define METADATA "what DCP reads"

static struct tier_item item_with_metadata(struct version version)
{
    struct layout layout = {0};
    uint64_t prefix = htole64(strlen(METADATA));
    cr_assert_eq(layout_add_blob(&layout, TCK_METADATA_KEY, 5000, NULL, NULL, &objects_err), TCK_OK);
    cr_assert_eq(layout_build(&layout, 0, 1, &objects_err), TCK_OK, "%s", objects_err.text);
    const struct shard *shard = &layout.shards[0];
    struct tier_item item = {.version = version, .shard = {9, 5}, .image_bytes = shard->image_bytes};
    item.image = calloc(1, item.image_bytes);
    item.crcs = calloc(chunk_count(item.image_bytes), sizeof(*item.crcs));
    uint8_t *blob = item.image + layout.records[0].image_offset;
    memcpy(item.image, shard->header, shard->header_bytes);
    memcpy(blob, &prefix, sizeof(prefix));
    memcpy(blob + sizeof(prefix), METADATA, strlen(METADATA));
    item.root = digest_image(item.image, item.image_bytes, item.crcs);
    layout_free(&layout);
    return item;
}

Test(versions, the_metadata_blob_is_an_object_that_the_manifest_describes)
{
    struct tier_item item = item_with_metadata(one);
    struct manifest_file file = {.shard = item.shard, .bytes = item.image_bytes, .root = item.root, .crcs = item.crcs};
    struct manifest manifest = {.job = OBJECTS_JOB, .version = one, .world_size = 1, .file_count = 1, .files = &file};
    const struct publish_ask ask = {.manifest = &manifest, .term = term};
    char *text = NULL;
    size_t len = 0;
    manifest_file_name(file.shard, file.name);
    expect(objects_wait(persistent_put(tier, &item, objects_ended, &objects_err, &objects_err)), TCK_OK, NULL);
    expect(objects_wait(persistent_publish(tier, &ask, objects_ended, &objects_err, &objects_err)), TCK_OK, NULL);
    objects_settle();
    cr_assert_eq(
        objects_store->ops->get(objects_store, NULL, objects_key(one, METADATA_NAME), 100, &text, &len, &objects_err),
        TCK_OK, "%s", objects_err.text);
    cr_assert_str_eq(text, METADATA);
    free(text);
    cr_assert_eq(verify(one), TCK_OK, "%s", objects_err.text);
    memory_store_damage(objects_store, objects_key(one, METADATA_NAME), 3);
    cr_assert_eq(verify(one), TCK_ERR_CORRUPT);
    cr_assert_not_null(strstr(objects_err.text, METADATA_NAME), "%s", objects_err.text);
    item_free(&item);
}

Test(versions, the_headers_are_an_object_that_the_manifest_describes)
{
    struct tier_item item = item_with_metadata(one);
    struct manifest_file file = {.shard = item.shard, .bytes = item.image_bytes, .root = item.root, .crcs = item.crcs};
    struct manifest manifest = {.job = OBJECTS_JOB, .version = one, .world_size = 1, .file_count = 1, .files = &file};
    const struct publish_ask ask = {.manifest = &manifest, .term = term};
    char *text = NULL;
    size_t len = 0;
    uint64_t header = 0;
    manifest_file_name(file.shard, file.name);
    expect(objects_wait(persistent_put(tier, &item, objects_ended, &objects_err, &objects_err)), TCK_OK, NULL);
    expect(objects_wait(persistent_publish(tier, &ask, objects_ended, &objects_err, &objects_err)), TCK_OK, NULL);
    objects_settle();
    cr_assert_eq(image_header_bytes(item.image, item.image_bytes, item.image_bytes, &header, NULL), TCK_OK);
    cr_assert_eq(objects_store->ops->get(objects_store, NULL, objects_key(one, VERSION_INDEX_NAME), 1 << 20, &text,
                                         &len, &objects_err),
                 TCK_OK, "%s", objects_err.text);
    cr_assert_eq(len, header);
    cr_assert_arr_eq(text, item.image, len);
    free(text);
    cr_assert_eq(verify(one), TCK_OK, "%s", objects_err.text);
    memory_store_damage(objects_store, objects_key(one, VERSION_INDEX_NAME), 3);
    cr_assert_eq(verify(one), TCK_ERR_CORRUPT);
    cr_assert_not_null(strstr(objects_err.text, VERSION_INDEX_NAME), "%s", objects_err.text);
    item_free(&item);
}

Test(versions, what_is_damaged_on_its_way_does_not_condemn_the_slot)
{
    fail(MEMORY_PART, "", MEMORY_WRONG);
    expect(put(one, 0), TCK_ERR_IO, "of 3");
    expect(put(one, 0), TCK_OK, NULL);
}

Test(versions, damage_is_found_and_named)
{
    make(one);
    memory_store_damage(objects_store, objects_shard_key(one, 0), 6 * CHUNK_BYTES + 5);
    cr_assert_eq(verify(one), TCK_ERR_CORRUPT);
    cr_assert_not_null(strstr(objects_err.text, "chunk 6 of 10"), "%s", objects_err.text);
    expect(load(one, 0), TCK_ERR_CORRUPT, "chunk 6");
    memory_store_set(objects_store, objects_shard_key(one, 1), "short", 5);
    cr_assert_eq(listed(NULL), 0);
    struct survey survey;
    cr_assert_eq(persistent_survey(tier, &survey, &objects_err), TCK_OK);
    cr_assert(survey.count == 1 && survey.candidates[0].standing == STANDING_DAMAGED);
    survey_free(&survey);
}

Test(versions, a_damaged_file_is_repaired_from_memory)
{
    struct tier_item item = item_of(one, 0);
    struct manifest manifest = manifest_of(one);
    const struct published which = {.version = one};
    make(one);
    memory_store_damage(objects_store, objects_shard_key(one, 0), 6 * CHUNK_BYTES + 5);
    item.image[0] ^= 1; /* that chunk is good where it is */
    cr_assert_eq(persistent_repair(tier, &which, &manifest.files[0], item.image, &objects_err), TCK_OK, "%s",
                 objects_err.text);
    cr_assert_eq(verify(one), TCK_OK, "%s", objects_err.text);
    memory_store_damage(objects_store, objects_shard_key(one, 0), 5);
    cr_assert_eq(persistent_repair(tier, &which, &manifest.files[0], item.image, &objects_err), TCK_ERR_CORRUPT);
    cr_assert_eq(memory_store_uploads(objects_store), 0);
    manifest_free(&manifest);
    item_free(&item);
}

/* ---- errors ---------------------------------------------------------------------------------------------------- */

Test(versions, what_cannot_be_read_is_not_missing)
{
    struct published *list = NULL;
    size_t count = 0;
    struct survey survey;
    make(one);
    fail(MEMORY_LIST, "", MEMORY_GONE);
    cr_assert_eq(persistent_list(tier, &list, &count, &objects_err), TCK_ERR_IO, "%s", objects_err.text);
    fail(MEMORY_HEAD, MANIFEST_NAME, MEMORY_NEVER);
    cr_assert_eq(persistent_list(tier, &list, &count, &objects_err), TCK_ERR_TIMEDOUT);
    fail(MEMORY_GET, MANIFEST_NAME, MEMORY_DENIED);
    cr_assert_eq(persistent_survey(tier, &survey, &objects_err), TCK_OK);
    cr_assert(survey.count == 1 && survey.candidates[0].standing == STANDING_UNREADABLE);
    survey_free(&survey);
    fail(MEMORY_GET, "shard-", MEMORY_DENIED);
    expect(load(one, 0), TCK_ERR_DENIED, "AccessDenied");
    fail(MEMORY_GET, "shard-", MEMORY_WRONG);
    expect(load(one, 0), TCK_ERR_CORRUPT, NULL);
}

static enum standing standing(void)
{
    struct survey survey;
    cr_assert_eq(persistent_survey(tier, &survey, &objects_err), TCK_OK, "%s", objects_err.text);
    cr_assert_eq(survey.count, 1);
    enum standing of = survey.candidates[0].standing;
    survey_free(&survey);
    return of;
}

Test(versions, an_answer_that_makes_no_sense_proves_no_damage)
{
    make(one);
    fail(MEMORY_GET, MANIFEST_NAME, MEMORY_GARBLED);
    cr_assert_eq(standing(), STANDING_UNREADABLE);
    fail(MEMORY_LIST, "/v", MEMORY_GARBLED);
    cr_assert_eq(standing(), STANDING_UNREADABLE);
    fail(MEMORY_GET, "shard-", MEMORY_GARBLED);
    expect(load(one, 0), TCK_ERR_IO, "makes no sense");
    cr_assert_eq(standing(), STANDING_GOOD);
}

Test(versions, a_garbled_listing_after_the_manifest_was_made_does_not_unpublish)
{
    const struct memory_failure second = {
        .ops = MEMORY_LIST, .key = "/v", .fault = MEMORY_GARBLED, .skip = 1, .count = 1};
    expect(put(one, 0), TCK_OK, NULL);
    expect(put(one, 1), TCK_OK, NULL);
    memory_store_fail(objects_store, &second);
    expect(publish(one, term), TCK_OK, NULL);
    cr_assert(published(one));
}

Test(versions, a_failed_part_names_itself_and_its_object)
{
    fail(MEMORY_PART, "", MEMORY_DENIED);
    struct error outcome = put(one, 0);
    expect(outcome, TCK_ERR_DENIED, "of 3");
    expect(outcome, TCK_ERR_DENIED, "shard-");
    const char *url = strstr(outcome.text, "s3://memory/");
    cr_assert(url != NULL && strstr(url + 1, "s3://memory") == NULL, "%s", outcome.text);
    expect(put(one, 0), TCK_OK, NULL);
}

Test(versions, a_lost_answer_to_the_end_of_an_upload_is_no_error)
{
    fail(MEMORY_FINISH, "", MEMORY_LOST);
    expect(put(one, 0), TCK_OK, NULL);
    fail(MEMORY_FINISH, "", MEMORY_NEVER);
    expect(put(two, 0), TCK_ERR_TIMEDOUT, NULL);
}

Test(versions, another_object_of_the_same_size_is_not_taken_for_the_one_whose_answer_was_lost)
{
    struct tier_item other = item_of(two, 0);
    memory_store_set(objects_store, objects_shard_key(one, 0), other.image, other.image_bytes);
    fail(MEMORY_FINISH, "", MEMORY_NEVER);
    expect(put(one, 0), TCK_ERR_TIMEDOUT, NULL);
    item_free(&other);
}

Test(versions, a_manifest_whose_answer_was_lost_is_found_by_the_next_attempt)
{
    expect(put(one, 0), TCK_OK, NULL);
    expect(put(one, 1), TCK_OK, NULL);
    fail(MEMORY_CREATE, MANIFEST_NAME, MEMORY_LOST);
    expect(publish(one, term), TCK_ERR_TIMEDOUT, NULL);
    expect(publish(one, term), TCK_OK, NULL);
    cr_assert_eq(listed(NULL), 1);
}

Test(versions, a_manifest_that_arrives_late_is_the_same_version)
{
    expect(put(one, 0), TCK_OK, NULL);
    expect(put(one, 1), TCK_OK, NULL);
    fail(MEMORY_CREATE, MANIFEST_NAME, MEMORY_LATE);
    expect(publish(one, term), TCK_ERR_TIMEDOUT, NULL);
    expect(publish(one, term), TCK_OK, NULL);
    memory_store_deliver(objects_store);
    cr_assert_eq(verify(one), TCK_OK, "%s", objects_err.text);
}

/* ---- other starts ---------------------------------------------------------------------------------------------- */

Test(versions, a_term_that_is_over_publishes_nothing)
{
    struct persistent *other = objects_tier(false);
    uint64_t next = 0;
    expect(put(one, 0), TCK_OK, NULL);
    expect(put(one, 1), TCK_OK, NULL);
    cr_assert_eq(persistent_claim_term(other, 1, &next, &objects_err), TCK_OK);
    expect(publish(one, term), TCK_ERR_DENIED, "is over");
    cr_assert_not(published(one));
    persistent_free(other);
}

Test(versions, the_same_version_published_by_another_coordinator_is_success)
{
    struct manifest other = manifest_of(one);
    char *text = NULL;
    size_t len = 0;
    expect(put(one, 0), TCK_OK, NULL);
    expect(put(one, 1), TCK_OK, NULL);
    other.wall_ms = 77;
    cr_assert_eq(manifest_print(&other, &text, &len, &objects_err), TCK_OK);
    memory_store_set(objects_store, objects_key(one, MANIFEST_NAME), text, len);
    expect(publish(one, term), TCK_OK, NULL);
    free(text);
    other.files[0].root.lo ^= 1;
    other.files[0].crcs[0] ^= 1;
    other.files[0].root = digest_root(other.files[0].crcs, other.files[0].bytes);
    cr_assert_eq(manifest_print(&other, &text, &len, &objects_err), TCK_OK);
    memory_store_set(objects_store, objects_key(one, MANIFEST_NAME), text, len);
    expect(publish(one, term), TCK_ERR_EXIST, "different content");
    free(text);
    manifest_free(&other);
}

/* Another coordinator publishes between the look and the creation. */
static char *their_manifest;
static size_t their_bytes;

static void publish_theirs(void *ctx, enum memory_op op, const char *key)
{
    (void)ctx;
    if (op == MEMORY_LIST && strstr(key, "/v") != NULL && their_manifest != NULL) {
        char *text = their_manifest;
        their_manifest = NULL;
        memory_store_set(objects_store, objects_key(one, MANIFEST_NAME), text, their_bytes);
        free(text);
    }
}

Test(versions, of_two_coordinators_one_creates_the_manifest_and_the_other_finds_it)
{
    struct manifest other = manifest_of(one);
    expect(put(one, 0), TCK_OK, NULL);
    expect(put(one, 1), TCK_OK, NULL);
    other.wall_ms = 77;
    cr_assert_eq(manifest_print(&other, &their_manifest, &their_bytes, &objects_err), TCK_OK);
    memory_store_watch(objects_store, publish_theirs, NULL);
    expect(publish(one, term), TCK_OK, NULL);
    cr_assert_null(their_manifest);
    struct manifest found;
    const struct published which = {.version = one};
    cr_assert_eq(persistent_manifest(tier, &which, &found, &objects_err), TCK_OK);
    cr_assert_eq(found.wall_ms, 77);
    manifest_free(&found);
    manifest_free(&other);
}

/* A newer term sweeps while the manifest is on its way. */
static void sweep_now(void *ctx, enum memory_op op, const char *key)
{
    (void)ctx;
    if (op == MEMORY_CREATE && strstr(key, MANIFEST_NAME) != NULL) {
        memory_store_set(objects_store, objects_shard_key(one, 1), NULL, 0);
    }
}

Test(versions, a_version_whose_files_were_swept_meanwhile_does_not_stay_published)
{
    expect(put(one, 0), TCK_OK, NULL);
    expect(put(one, 1), TCK_OK, NULL);
    memory_store_watch(objects_store, sweep_now, NULL);
    expect(publish(one, term), TCK_ERR_DENIED, "were deleted");
    cr_assert_not(published(one));
}

/* The only version is superseded while versions are listed: it is found unpublished, and its successor was not
 * published yet when that was looked at. */
static const struct version successor = {2, 10};

static void supersede(void *ctx, enum memory_op op, const char *key)
{
    if (op == MEMORY_HEAD && strcmp(key, objects_key(successor, MANIFEST_NAME)) == 0 && !*(bool *)ctx) {
        struct manifest m = manifest_of(successor);
        char *text;
        size_t len;
        *(bool *)ctx = true;
        cr_assert_eq(manifest_print(&m, &text, &len, &objects_err), TCK_OK);
        memory_store_set(objects_store, objects_key(successor, MANIFEST_NAME), text, len);
        memory_store_set(objects_store, objects_key(two, MANIFEST_NAME), NULL, 0);
        free(text);
        manifest_free(&m);
    }
}

Test(versions, a_version_that_is_superseded_while_listing_is_not_taken_for_none)
{
    struct version newest = VERSION_NONE;
    bool superseded = false;
    make(two);
    expect(put(successor, 0), TCK_OK, NULL);
    expect(put(successor, 1), TCK_OK, NULL);
    memory_store_watch(objects_store, supersede, &superseded);
    cr_assert_eq(listed(&newest), 1);
    cr_assert(superseded && version_is(newest, successor));
}

/* ---- retention and sweeping ------------------------------------------------------------------------------------ */

Test(versions, a_publish_deletes_what_it_supersedes)
{
    make(one);
    make(two);
    make(three);
    cr_assert_eq(listed(NULL), 2);
    cr_assert_eq(memory_store_count(objects_store, objects_key(one, "")), 0);
}

static uint32_t removals;

static void count_removals(void *ctx, enum memory_op op, const char *key)
{
    (void)ctx;
    if (op == MEMORY_REMOVE && removals++ == 0) {
        cr_assert_not_null(strstr(key, MANIFEST_NAME), "%s", key);
    }
}

Test(versions, the_manifest_is_deleted_first_and_a_later_term_sweeps_the_rest)
{
    struct published *removed = NULL;
    size_t count = 0;
    make(one);
    make(two);
    removals = 0;
    memory_store_watch(objects_store, count_removals, NULL);
    fail(MEMORY_REMOVE, "shard-", MEMORY_NEVER);
    cr_assert_eq(persistent_prune(tier, 1, VERSION_NONE, false, &removed, &count, &objects_err), TCK_ERR_TIMEDOUT);
    memory_store_watch(objects_store, NULL, NULL);
    free(removed);
    cr_assert_not(published(one));
    cr_assert_eq(memory_store_count(objects_store, objects_key(one, "")), SHARDS);
    cr_assert_eq(persistent_sweep(tier, term, VERSION_NONE, &objects_err), TCK_OK);
    cr_assert_eq(memory_store_count(objects_store, objects_key(one, "")), 0);
    cr_assert_eq(listed(NULL), 1);
}

static void create_during_sweep(void *ctx, enum memory_op op, const char *key)
{
    if (op == MEMORY_REMOVE && strstr(key, MANIFEST_NAME) != NULL && !*(bool *)ctx) {
        struct manifest m = manifest_of(one);
        char *text;
        size_t len;
        *(bool *)ctx = true;
        cr_assert_eq(manifest_print(&m, &text, &len, &objects_err), TCK_OK);
        memory_store_set(objects_store, objects_key(one, MANIFEST_NAME), text, len);
        free(text);
        manifest_free(&m);
    }
}

Test(versions, a_manifest_that_is_made_during_a_sweep_does_not_outlive_its_files)
{
    bool made = false;
    expect(put(one, 0), TCK_OK, NULL);
    expect(put(one, 1), TCK_OK, NULL);
    memory_store_watch(objects_store, create_during_sweep, &made);
    cr_assert_eq(persistent_sweep(tier, term, VERSION_NONE, &objects_err), TCK_OK);
    cr_assert(made && !published(one));
}

static void create_after_head(void *ctx, enum memory_op op, const char *key)
{
    if (op == MEMORY_HEAD && strcmp(key, objects_key(one, MANIFEST_NAME)) == 0) {
        create_during_sweep(ctx, MEMORY_REMOVE, key);
    }
}

/* The question for the manifest and the listing must not be two. */
Test(versions, a_version_that_is_published_right_before_it_is_listed_is_not_swept)
{
    bool made = false;
    expect(put(one, 0), TCK_OK, NULL);
    expect(put(one, 1), TCK_OK, NULL);
    memory_store_watch(objects_store, create_after_head, &made);
    cr_assert_eq(persistent_sweep(tier, term, VERSION_NONE, &objects_err), TCK_OK);
    memory_store_watch(objects_store, NULL, NULL);
    make(two);
    cr_assert_eq(persistent_sweep(tier, term, VERSION_NONE, &objects_err), TCK_OK);
    cr_assert(published(two) && verify(two) == TCK_OK);
    cr_assert(!made || published(one));
}

Test(versions, a_manifest_without_any_of_its_files_is_swept)
{
    make(one);
    memory_store_set(objects_store, objects_shard_key(one, 0), NULL, 0);
    cr_assert_eq(persistent_sweep(tier, term, VERSION_NONE, &objects_err), TCK_OK);
    cr_assert(published(one), "with one file left it is damaged, and that is for its user to see");
    memory_store_set(objects_store, objects_shard_key(one, 1), NULL, 0);
    cr_assert_eq(persistent_sweep(tier, term, VERSION_NONE, &objects_err), TCK_OK);
    cr_assert_not(published(one));
}

static void try_versions_lock(void *ctx, enum memory_op op, const char *key)
{
    if (op != MEMORY_LIST && strcmp(key, objects_key(one, VERSION_INDEX_NAME)) == 0 &&
        pthread_mutex_trylock(&tier->versions_lock) == 0) {
        pthread_mutex_unlock(&tier->versions_lock);
        *(bool *)ctx = true;
    }
}

/* Reading the headers may take long, and the sweep of a new term must not count as hanging meanwhile. */
Test(versions, a_sweep_need_not_wait_for_the_index_of_a_publish)
{
    struct tier_item item = item_with_metadata(one);
    struct manifest_file file = {.shard = item.shard, .bytes = item.image_bytes, .root = item.root, .crcs = item.crcs};
    struct manifest manifest = {.job = OBJECTS_JOB, .version = one, .world_size = 1, .file_count = 1, .files = &file};
    const struct publish_ask ask = {.manifest = &manifest, .term = term};
    bool was_free = false;
    manifest_file_name(file.shard, file.name);
    expect(objects_wait(persistent_put(tier, &item, objects_ended, &objects_err, &objects_err)), TCK_OK, NULL);
    memory_store_watch(objects_store, try_versions_lock, &was_free);
    expect(objects_wait(persistent_publish(tier, &ask, objects_ended, &objects_err, &objects_err)), TCK_OK, NULL);
    memory_store_watch(objects_store, NULL, NULL);
    objects_settle();
    cr_assert(was_free);
    item_free(&item);
}

static void claim_next(void *ctx, enum memory_op op, const char *key)
{
    (void)ctx;
    if (op == MEMORY_CREATE && strstr(key, MANIFEST_NAME) != NULL) {
        memory_store_set(objects_store, OBJECTS_JOB "/term.7", "{}", 2);
    }
}

Test(versions, a_term_that_is_claimed_while_the_manifest_is_made_ends_the_publish)
{
    expect(put(one, 0), TCK_OK, NULL);
    expect(put(one, 1), TCK_OK, NULL);
    memory_store_watch(objects_store, claim_next, NULL);
    expect(publish(one, term), TCK_ERR_DENIED, "is over");
}

Test(versions, a_file_that_the_manifest_does_not_name_is_not_deleted_with_its_version)
{
    struct published *removed = NULL;
    size_t count = 0;
    char name[MANIFEST_FILE_NAME];
    make(one);
    make(two);
    manifest_file_name((struct hash128){7, 7}, name);
    memory_store_set(objects_store, objects_key(one, name), "x", 1);
    cr_assert_eq(persistent_prune(tier, 1, VERSION_NONE, false, &removed, &count, &objects_err), TCK_ERR_DENIED);
    free(removed);
    cr_assert(published(one));
}

Test(versions, foreign_objects_are_never_deleted)
{
    struct published *removed = NULL;
    size_t count = 0;
    make(one);
    make(two);
    memory_store_set(objects_store, objects_key(one, "notes.txt"), "x", 1);
    memory_store_set(objects_store, OBJECTS_JOB "2/v000000000001.t1/" MANIFEST_NAME, "x", 1);
    cr_assert_eq(persistent_prune(tier, 1, VERSION_NONE, false, &removed, &count, &objects_err), TCK_ERR_DENIED);
    free(removed);
    cr_assert(published(one));
    expect(put(three, 0), TCK_OK, NULL);
    memory_store_set(objects_store, objects_key(three, "dir/notes.txt"), "x", 1);
    cr_assert_eq(persistent_sweep(tier, term, VERSION_NONE, &objects_err), TCK_OK);
    cr_assert(memory_store_has(objects_store, objects_shard_key(three, 0)));
}

Test(versions, a_sweep_spares_published_newer_and_kept_ones)
{
    const struct version newer = {2, 5};
    make(one);
    expect(put(two, 1), TCK_OK, NULL);
    expect(put(three, 1), TCK_OK, NULL);
    expect(put(newer, 1), TCK_OK, NULL);
    cr_assert_eq(persistent_sweep(tier, term, three, &objects_err), TCK_OK);
    cr_assert(published(one));
    cr_assert_not(memory_store_has(objects_store, objects_shard_key(two, 1)));
    cr_assert(memory_store_has(objects_store, objects_shard_key(three, 1)));
    cr_assert(memory_store_has(objects_store, objects_shard_key(newer, 1)));
}

static void leave_upload(const char *key)
{
    struct object_upload upload = {0};
    cr_assert_eq(objects_store->ops->upload_begin(objects_store, NULL, key, &upload, &objects_err), TCK_OK);
    free(upload.id);
}

Test(versions, a_sweep_aborts_the_uploads_that_are_ours_and_old)
{
    leave_upload(objects_shard_key(one, 0));
    leave_upload(objects_shard_key((struct version){2, 5}, 0));
    leave_upload(objects_key(one, "notes.txt"));
    leave_upload(OBJECTS_JOB "2/v000000000010.t1/" MANIFEST_NAME);
    cr_assert_eq(persistent_sweep(tier, term, VERSION_NONE, &objects_err), TCK_OK, "%s", objects_err.text);
    cr_assert_eq(memory_store_uploads(objects_store), 3);
    fail(MEMORY_LIST, "", MEMORY_NEVER);
    cr_assert_eq(persistent_sweep(tier, term, VERSION_NONE, &objects_err), TCK_ERR_TIMEDOUT);
}

Test(versions, listing_costs_do_not_depend_on_other_jobs)
{
    char key[OBJECT_KEY_MAX];
    make(one);
    uint32_t before = memory_store_calls(objects_store, ~0u);
    cr_assert_eq(listed(NULL), 1);
    uint32_t alone = memory_store_calls(objects_store, ~0u) - before;
    for (int i = 0; i < 100; i++) {
        snprintf(key, sizeof(key), "other%d/v000000000010.t1/" MANIFEST_NAME, i);
        memory_store_set(objects_store, key, "x", 1);
    }
    before = memory_store_calls(objects_store, ~0u);
    cr_assert_eq(listed(NULL), 1);
    cr_assert_eq(memory_store_calls(objects_store, ~0u) - before, alone);
}

Test(versions, each_version_is_asked_for_once_in_a_listing)
{
    make(one);
    make(two);
    memory_store_set(objects_store, "job/v000000000099.t1/shard-x", "x", 1); /* not published */
    uint32_t before = memory_store_calls(objects_store, MEMORY_HEAD);
    cr_assert_eq(listed(NULL), 2);
    cr_assert_eq(memory_store_calls(objects_store, MEMORY_HEAD) - before, 4, "%u",
                 memory_store_calls(objects_store, MEMORY_HEAD) - before);
}

/* ---- nothing is sent twice ------------------------------------------------------------------------------------- */

static uint32_t calls(unsigned ops)
{
    return memory_store_calls(objects_store, ops);
}

static void expect_calls(uint32_t begun, uint32_t parts)
{
    cr_assert_eq(calls(MEMORY_BEGIN), begun, "%u uploads were begun", calls(MEMORY_BEGIN));
    cr_assert_eq(calls(MEMORY_PART), parts, "%u parts were sent", calls(MEMORY_PART));
}

Test(versions, a_put_after_one_that_failed_sends_only_the_missing_part)
{
    fail(MEMORY_PART, objects_shard_key(one, 0), MEMORY_NEVER);
    expect(put(one, 0), TCK_ERR_TIMEDOUT, " of 3");
    cr_assert_eq(memory_store_uploads(objects_store), 1);
    expect(put(one, 0), TCK_OK, NULL);
    expect_calls(1, 4);
    cr_assert_eq(memory_store_uploads(objects_store), 0);
    expect(put(one, 1), TCK_OK, NULL);
    expect(publish(one, term), TCK_OK, NULL);
    const struct published which = {.version = one};
    cr_assert_eq(persistent_verify(tier, &which, &objects_err), TCK_OK, "%s", objects_err.text);
}

Test(versions, an_upload_whose_end_is_undecided_is_finished_by_the_next_put)
{
    fail(MEMORY_FINISH, "", MEMORY_NEVER);
    expect(put(one, 0), TCK_ERR_TIMEDOUT, NULL);
    expect(put(one, 0), TCK_OK, NULL);
    expect_calls(1, 3);
    cr_assert(memory_store_has(objects_store, objects_shard_key(one, 0)));
}

Test(versions, an_upload_that_cannot_be_finished_is_begun_anew)
{
    const struct memory_failure failure = {.ops = MEMORY_FINISH, .key = "", .fault = MEMORY_NEVER, .count = 3};
    memory_store_fail(objects_store, &failure);
    for (int i = 0; i < 3; i++) {
        cr_assert_eq(memory_store_uploads(objects_store), i > 0);
        expect(put(one, 0), TCK_ERR_TIMEDOUT, NULL);
    }
    cr_assert_eq(memory_store_uploads(objects_store), 0);
    expect(put(one, 0), TCK_OK, NULL);
    expect_calls(2, 6);
}

Test(versions, a_shard_that_is_there_is_not_sent_again)
{
    uint32_t before = calls(MEMORY_PUT);
    for (uint32_t number = 0; number < SHARDS; number++) {
        expect(put(one, number), TCK_OK, NULL);
        expect(put(one, number), TCK_OK, NULL);
    }
    expect_calls(1, 3);
    cr_assert_eq(calls(MEMORY_PUT) - before, 1);
    fail(MEMORY_HEAD, "", MEMORY_NEVER);
    expect(put(one, 0), TCK_ERR_TIMEDOUT, NULL);
    expect_calls(1, 3);
    memory_store_set(objects_store, objects_shard_key(one, 0), NULL, 0);
    expect(put(one, 0), TCK_OK, NULL);
    expect_calls(2, 6);
}

Test(versions, other_content_is_sent_whole)
{
    fail(MEMORY_PART, "", MEMORY_NEVER);
    expect(put(one, 0), TCK_ERR_TIMEDOUT, NULL);
    struct tier_item item = item_of(two, 0);
    item.version = one;
    expect(objects_wait(persistent_put(tier, &item, objects_ended, &objects_err, &objects_err)), TCK_OK, NULL);
    item_free(&item);
    expect_calls(2, 6);
    cr_assert_eq(memory_store_uploads(objects_store), 0);
}

Test(versions, what_is_left_of_an_older_version_is_aborted)
{
    fail(MEMORY_PART, "", MEMORY_NEVER);
    expect(put(one, 0), TCK_ERR_TIMEDOUT, NULL);
    cr_assert_eq(memory_store_uploads(objects_store), 1);
    fail(MEMORY_PUT, "", MEMORY_NEVER);
    expect(put(two, 1), TCK_ERR_TIMEDOUT, NULL);
    cr_assert_eq(memory_store_uploads(objects_store), 1);
    expect(put(two, 1), TCK_OK, NULL);
    cr_assert_eq(memory_store_uploads(objects_store), 0);
}

Test(versions, a_part_that_is_gone_with_its_upload_is_sent_again)
{
    fail(MEMORY_PART, "", MEMORY_NEVER);
    expect(put(one, 0), TCK_ERR_TIMEDOUT, NULL);
    cr_assert_eq(persistent_sweep(tier, term, VERSION_NONE, &objects_err), TCK_OK, "%s", objects_err.text);
    expect(put(one, 0), TCK_ERR_NOENT, "part ");
    expect(put(one, 0), TCK_OK, NULL);
    expect_calls(2, 7);
}

static void give_up_at_parts(void *ctx, enum memory_op op, const char *key)
{
    (void)ctx;
    (void)key;
    if (op == MEMORY_PART) {
        persistent_give_up(tier);
    }
}

Test(versions, a_part_during_which_the_slot_may_have_changed_is_sent_again)
{
    memory_store_watch(objects_store, give_up_at_parts, NULL);
    expect(put(one, 0), TCK_ERR_CANCELED, NULL);
    uint32_t parts = calls(MEMORY_PART);
    memory_store_watch(objects_store, NULL, NULL);
    expect(put(one, 0), TCK_OK, NULL);
    expect_calls(2, parts + 3);
    cr_assert_eq(memory_store_uploads(objects_store), 0);
}

/* ---- giving up, pacing, closing -------------------------------------------------------------------------------- */

static void give_up(void *ctx, enum memory_op op, const char *key)
{
    (void)ctx;
    (void)key;
    if (op == MEMORY_BEGIN) {
        persistent_give_up(tier);
    }
}

Test(versions, a_put_that_is_given_up_makes_no_object)
{
    memory_store_watch(objects_store, give_up, NULL);
    expect(put(one, 0), TCK_ERR_CANCELED, NULL);
    cr_assert_not(memory_store_has(objects_store, objects_shard_key(one, 0)));
    cr_assert_eq(memory_store_uploads(objects_store), 0);
}

static bool refuses;
static atomic_uint asked;

static bool take(void *ctx, uint64_t bytes)
{
    (void)ctx;
    cr_assert(bytes > 0 && bytes <= CHUNK_BYTES);
    atomic_fetch_add(&asked, 1);
    return !refuses;
}

/* Begins a put, and returns when its first part is throttled. */
static struct tier_item begin_throttled(void)
{
    struct tier_item item = item_of(one, 0);
    persistent_free(tier);
    objects_pace = (struct tier_pace){.take = take};
    tier = objects_tier(true);
    refuses = true;
    asked = 0;
    objects_err = (struct error){0};
    cr_assert_eq(persistent_put(tier, &item, objects_ended, &objects_err, &objects_err), TCK_OK);
    while (atomic_load(&asked) == 0) {
        objects_settle();
    }
    return item;
}

Test(versions, a_throttled_put_goes_on_when_it_may)
{
    struct tier_item item = begin_throttled();
    uint64_t moved_ms = persistent_moved_ms(tier);
    usleep(5000);
    persistent_resume(tier);
    cr_assert_gt(persistent_moved_ms(tier), moved_ms, "it waits for its turn, and seems to wait for storage");
    cr_assert_eq(memory_store_calls(objects_store, MEMORY_PART), 0);
    refuses = false;
    persistent_resume(tier);
    loop_run(objects_loop);
    cr_assert_eq(objects_err.code, TCK_OK, "%s", objects_err.text);
    cr_assert_eq(memory_store_calls(objects_store, MEMORY_PART), 3);
    cr_assert_eq(atomic_load(&asked), 2 + chunk_count(IMAGE_BYTES));
    item_free(&item);
}

Test(versions, a_throttled_put_ends_when_it_is_given_up)
{
    struct tier_item item = begin_throttled();
    persistent_give_up(tier);
    persistent_resume(tier);
    loop_run(objects_loop);
    cr_assert_eq(objects_err.code, TCK_ERR_CANCELED, "%s", objects_err.text);
    cr_assert_eq(memory_store_uploads(objects_store), 0);
    item_free(&item);
}

/* The server accepts the new bytes with the new digests, so the old version would have the new one's content. */
Test(versions, a_slot_that_is_filled_again_during_a_put_makes_no_object)
{
    struct tier_item item = begin_throttled(), other = item_of(two, 0);
    memcpy(item.image, other.image, item.image_bytes);
    memcpy(item.crcs, other.crcs, chunk_count(item.image_bytes) * sizeof(*item.crcs));
    refuses = false;
    persistent_resume(tier);
    expect(objects_wait(TCK_OK), TCK_ERR_CORRUPT, "of 3");
    cr_assert_not(memory_store_has(objects_store, objects_shard_key(one, 0)));
    item_free(&item);
    item_free(&other);
}

Test(versions, a_slot_whose_digests_are_not_those_of_its_root_is_not_put)
{
    struct tier_item item = item_of(one, 0);
    item.image[5] ^= 1;
    item.crcs[0] = crc32c(0, item.image, chunk_size(item.image_bytes, 0));
    objects_err = (struct error){0};
    expect(objects_wait(persistent_put(tier, &item, objects_ended, &objects_err, &objects_err)), TCK_ERR_CORRUPT,
           "do not match its root");
    cr_assert_eq(memory_store_calls(objects_store, MEMORY_BEGIN | MEMORY_PART), 0);
    item_free(&item);
}

static void give_up_after_a_part(void *ctx, enum memory_op op, const char *key)
{
    (void)ctx;
    (void)key;
    if (op == MEMORY_PART) {
        persistent_give_up(tier);
    }
}

/* Otherwise it would be sent from a slot that has another content by then, as often as the client tries. */
Test(versions, a_call_that_hangs_ends_when_its_put_is_given_up)
{
    fail(MEMORY_PART, "", MEMORY_HANGS);
    memory_store_watch(objects_store, give_up_after_a_part, NULL);
    expect(put(one, 0), TCK_ERR_CANCELED, NULL);
    cr_assert_not(memory_store_has(objects_store, objects_shard_key(one, 0)));
    cr_assert_eq(memory_store_uploads(objects_store), 0);
}

Test(versions, a_throttled_put_ends_with_the_tier)
{
    struct tier_item item = begin_throttled();
    persistent_free(tier);
    cr_assert_eq(objects_err.code, TCK_ERR_CANCELED, "%s", objects_err.text);
    item_free(&item);
    tier = objects_tier(true);
}

static struct manifest_file file_of(struct tier_item *item)
{
    struct manifest_file file = {
        .shard = item->shard, .bytes = item->image_bytes, .root = item->root, .crcs = item->crcs};
    manifest_file_name(item->shard, file.name);
    return file;
}

static struct error late;

static void get_another(void *ctx, const struct error *outcome)
{
    struct manifest_file file = file_of(ctx);
    const struct published which = {.version = one};
    (void)outcome;
    late.code = persistent_get(tier, &which, &file, ctx, objects_ended, &objects_err, &late);
}

Test(versions, nothing_is_begun_while_the_tier_is_freed)
{
    struct tier_item item = begin_throttled(), small = item_of(one, 1);
    cr_assert_eq(persistent_put(tier, &small, get_another, &small, &objects_err), TCK_OK);
    while (atomic_load(&asked) < 2) {
        objects_settle();
    }
    persistent_free(tier);
    cr_assert_eq(late.code, TCK_ERR_CANCELED, "%s", late.text);
    item_free(&item);
    item_free(&small);
    tier = objects_tier(true);
}

Test(versions, a_file_without_bytes_is_no_transfer_that_never_ends)
{
    make(one);
    struct tier_item item = item_of(one, 1);
    item.image_bytes = 0;
    item.root = (struct hash128){0, 0};
    struct manifest_file file = file_of(&item);
    const struct published which = {.version = one};
    objects_err = (struct error){0};
    expect(objects_wait(persistent_get(tier, &which, &file, &item, objects_ended, &objects_err, &objects_err)),
           TCK_ERR_INVAL, NULL);
    item_free(&item);
}

static void *sweep_in_thread(void *ctx)
{
    struct error err;
    *(tck_status_t *)ctx = persistent_sweep(tier, term, VERSION_NONE, &err);
    return NULL;
}

/* A process that ends joins such threads first. */
Test(versions, a_blocking_call_ends_when_the_tier_is_canceled)
{
    pthread_t thread;
    tck_status_t status = TCK_OK;
    fail(MEMORY_LIST, "", MEMORY_HANGS);
    cr_assert_eq(pthread_create(&thread, NULL, sweep_in_thread, &status), 0);
    persistent_cancel(tier);
    pthread_join(thread, NULL);
    cr_assert_eq(status, TCK_ERR_CANCELED);
}

Test(versions, freeing_the_tier_ends_its_calls)
{
    struct tier_item item = item_of(one, 0);
    objects_err = (struct error){0};
    cr_assert_eq(persistent_put(tier, &item, objects_ended, &objects_err, &objects_err), TCK_OK);
    persistent_free(tier);
    cr_assert_eq(objects_err.code, TCK_ERR_CANCELED, "%s", objects_err.text);
    item_free(&item);
    tier = objects_tier(true);
}

Test(versions, versions_of_load_dir_are_read_from_its_store)
{
    struct object_store *store = memory_store_new();
    struct persistent *other = NULL;
    const struct persistent_setup setup = {
        .config = &objects_config, .save_store = store, .load_store = memory_store_client(objects_store)};
    struct published *list = NULL;
    size_t count = 0;
    make(one);
    snprintf(objects_config.load_dir, sizeof(objects_config.load_dir), "s3://other");
    cr_assert_eq(persistent_new(&setup, &other, &objects_err), TCK_OK, "%s", objects_err.text);
    cr_assert_eq(persistent_list(other, &list, &count, &objects_err), TCK_OK);
    cr_assert(count == 1 && list[0].from_second);
    cr_assert_eq(persistent_verify(other, &list[0], &objects_err), TCK_OK, "%s", objects_err.text);
    free(list);
    persistent_free(other);
}

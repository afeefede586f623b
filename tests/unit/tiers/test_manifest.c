/* SPDX-License-Identifier: Apache-2.0
 * Manifests survive a round trip, and edited, truncated and invented ones do not parse. */
#include "tiers/manifest.h"

#include "base/secret.h"
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SHA_TAIL 77 /* ,"sha256":"<64 digits>"} */

static struct manifest_file sample_file(uint64_t lo, uint64_t bytes)
{
    struct manifest_file file = {.shard = {7, lo}, .bytes = bytes};
    manifest_file_name(file.shard, file.name);
    file.crcs = calloc(chunk_count(bytes), sizeof(*file.crcs));
    for (uint32_t i = 0; i < chunk_count(bytes); i++) {
        file.crcs[i] = 0xdeadbeefu + i;
    }
    file.root = digest_root(file.crcs, bytes);
    return file;
}

static struct manifest sample(void)
{
    struct manifest manifest = {.job = "job",
                                .version = {3, 1200},
                                .world_size = 8,
                                .layout = {1, 2},
                                .wall_ms = 1700000000000,
                                .file_count = 2};
    manifest.files = calloc(2, sizeof(*manifest.files));
    manifest.files[0] = sample_file(1, 4096);
    manifest.files[1] = sample_file(2, 2 * CHUNK_BYTES + 8192);
    return manifest;
}

static char *sample_text(size_t *len_out)
{
    struct manifest manifest = sample();
    char *text;
    cr_assert_eq(manifest_print(&manifest, &text, len_out, NULL), TCK_OK);
    manifest_free(&manifest);
    return text;
}

static tck_status_t parse(const char *text, struct error *err)
{
    struct manifest manifest;
    tck_status_t status = manifest_parse(text, strlen(text), &manifest, err);
    if (status == TCK_OK) {
        manifest_free(&manifest);
    }
    return status;
}

/* Replaces one string by another of any length in the sample and puts a fitting digest under the result. */
static char *signed_edit(const char *from, const char *to)
{
    size_t len;
    char *text = sample_text(&len);
    text[len - SHA_TAIL] = '\0';
    char *at = strstr(text, from);
    cr_assert_not_null(at, "%s is not in %s", from, text);
    char *edited = malloc(len + strlen(to) + 1);
    int edited_len = sprintf(edited, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
    uint8_t digest[MAC_BYTES];
    sha256(edited, (size_t)edited_len, digest);
    char *end = edited + edited_len;
    end += sprintf(end, ",\"sha256\":\"");
    for (size_t i = 0; i < sizeof(digest); i++) {
        end += sprintf(end, "%02x", digest[i]);
    }
    sprintf(end, "\"}");
    free(text);
    return edited;
}

static void assert_refused(const char *from, const char *to, tck_status_t code, const char *reason)
{
    struct error err = {0};
    char *text = signed_edit(from, to);
    cr_assert_eq(parse(text, &err), code, "%s: %s", to, err.text);
    cr_assert_not_null(strstr(err.text, reason), "%s", err.text);
    free(text);
}

Test(manifest, survives_a_round_trip)
{
    struct error err = {0};
    struct manifest got, want = sample();
    size_t len;
    char *text = sample_text(&len);

    cr_assert_eq(manifest_parse(text, len, &got, &err), TCK_OK, "%s", err.text);
    cr_assert_str_eq(got.job, want.job);
    cr_assert(version_is(got.version, want.version));
    cr_assert_eq(got.world_size, want.world_size);
    cr_assert(hash128_is(got.layout, want.layout));
    cr_assert_eq(got.wall_ms, want.wall_ms);
    cr_assert_eq(got.file_count, want.file_count);
    for (uint32_t i = 0; i < want.file_count; i++) {
        cr_assert(hash128_is(got.files[i].shard, want.files[i].shard));
        cr_assert(hash128_is(got.files[i].root, want.files[i].root));
        cr_assert_str_eq(got.files[i].name, want.files[i].name);
        cr_assert_eq(got.files[i].bytes, want.files[i].bytes);
        cr_assert_arr_eq(got.files[i].crcs, want.files[i].crcs, chunk_count(want.files[i].bytes) * sizeof(uint32_t));
    }
    manifest_free(&got);
    manifest_free(&want);
    free(text);
}

Test(manifest, names_the_metadata_and_the_index_of_a_version_that_has_them)
{
    struct error err = {0};
    struct manifest got, want = sample();
    char *text;
    size_t len;
    want.metadata = sample_file(0, 300);
    want.index = sample_file(1, 5 * CHUNK_BYTES);
    cr_assert_eq(manifest_print(&want, &text, &len, &err), TCK_OK, "%s", err.text);
    cr_assert_eq(manifest_parse(text, len, &got, &err), TCK_OK, "%s", err.text);
    cr_assert_str_eq(got.metadata.name, METADATA_NAME);
    cr_assert_eq(got.metadata.bytes, 300);
    cr_assert_eq(got.metadata.crcs[0], want.metadata.crcs[0]);
    cr_assert(hash128_is(got.metadata.root, want.metadata.root));
    cr_assert_str_eq(got.index.name, VERSION_INDEX_NAME);
    cr_assert_eq(got.index.bytes, 5 * CHUNK_BYTES);
    cr_assert_arr_eq(got.index.crcs, want.index.crcs, 5 * sizeof(uint32_t));
    cr_assert(manifest_has_name(&got, VERSION_INDEX_NAME) && manifest_has_name(&got, METADATA_NAME));
    manifest_free(&got);
    manifest_free(&want);
    free(text);
}

Test(manifest, prints_the_same_bytes_again_after_parsing)
{
    struct manifest manifest;
    size_t len, again_len;
    char *again, *text = sample_text(&len);

    cr_assert_eq(manifest_parse(text, len, &manifest, NULL), TCK_OK);
    cr_assert_eq(manifest_print(&manifest, &again, &again_len, NULL), TCK_OK);
    cr_assert_str_eq(again, text);
    manifest_free(&manifest);
    free(again);
    free(text);
}

Test(manifest, refuses_every_truncation)
{
    struct manifest manifest;
    size_t len;
    char *text = sample_text(&len);
    for (size_t cut = 0; cut < len; cut++) {
        cr_assert_neq(manifest_parse(text, cut, &manifest, NULL), TCK_OK, "%zu bytes", cut);
    }
    free(text);
}

Test(manifest, refuses_every_flipped_byte)
{
    struct manifest manifest;
    size_t len;
    char *text = sample_text(&len);
    for (size_t i = 0; i < len; i++) {
        text[i] ^= 1;
        cr_assert_neq(manifest_parse(text, len, &manifest, NULL), TCK_OK, "byte %zu", i);
        text[i] ^= 1;
    }
    free(text);
}

Test(manifest, names_both_formats_of_a_newer_one)
{
    assert_refused("\"format\":1", "\"format\":2", TCK_ERR_PROTO, "format 2, this build reads format 1");
}

Test(manifest, refuses_contradictory_contents_with_a_correct_digest)
{
    assert_refused("\"job\":\"job\"", "\"job\":\"../x\"", TCK_ERR_CORRUPT, "job");
    assert_refused("\"term\":3", "\"term\":0", TCK_ERR_CORRUPT, "term");
    assert_refused("\"step\":1200", "\"step\":-1", TCK_ERR_CORRUPT, "step");
    assert_refused("\"world_size\":8", "\"world_size\":4294967296", TCK_ERR_CORRUPT, "world_size");
    assert_refused("\"chunk_bytes\":4194304", "\"chunk_bytes\":1", TCK_ERR_CORRUPT, "chunk_bytes");
    assert_refused("\"name\":\"shard-", "\"name\":\"/etc/", TCK_ERR_CORRUPT, "name");
    assert_refused("\"bytes\":4096", "\"bytes\":0", TCK_ERR_CORRUPT, "size");
    assert_refused("\"bytes\":4096", "\"bytes\":18446744073709551615", TCK_ERR_CORRUPT, "size");
    assert_refused("\"bytes\":4096", "\"bytes\":8192", TCK_ERR_CORRUPT, "root");
    assert_refused("deadbeef", "deadbee0", TCK_ERR_CORRUPT, "root");
    assert_refused("deadbeef", "DEADBEEF", TCK_ERR_CORRUPT, "crc32c");
    assert_refused("deadbeef", "deadbeefdeadbeef", TCK_ERR_CORRUPT, "crc32c");
    assert_refused("\"files\":[", "\"files\":[null,", TCK_ERR_CORRUPT, "shard");
}

Test(manifest, refuses_files_out_of_order)
{
    struct error err = {0};
    struct manifest manifest = sample();
    struct manifest_file first = manifest.files[0];
    manifest.files[0] = manifest.files[1];
    manifest.files[1] = first;
    char *text;
    size_t len;
    cr_assert_eq(manifest_print(&manifest, &text, &len, NULL), TCK_OK);
    cr_assert_eq(parse(text, &err), TCK_ERR_CORRUPT);
    cr_assert_not_null(strstr(err.text, "sorted by shard"), "%s", err.text);
    manifest_free(&manifest);
    free(text);
}

Test(manifest, finds_files_by_shard)
{
    struct manifest manifest = sample();
    cr_assert_eq(manifest_find(&manifest, (struct hash128){7, 2}), &manifest.files[1]);
    cr_assert_null(manifest_find(&manifest, (struct hash128){7, 3}));
    manifest_free(&manifest);
}

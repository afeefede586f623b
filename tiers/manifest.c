/* SPDX-License-Identifier: Apache-2.0
 * Prints and parses manifest.json. Chunk CRCs are one hex string per file, since a large version has millions of them.
 */
#include "tiers/manifest.h"

#include "base/hex.h"
#include "base/secret.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FILE_HEAD  "shard-"
#define FILE_END   ".safetensors"
#define CRC_DIGITS 8
#define BYTES_MAX  ((uint64_t)1 << 50) /* of one file: keeps every later product inside 64 bits */
#define TAIL_HEAD  ",\"sha256\":\""
#define TAIL_END   "\"}"
#define TAIL_BYTES (sizeof(TAIL_HEAD) - 1 + 2 * (size_t)MAC_BYTES + sizeof(TAIL_END) - 1)

void manifest_file_name(struct hash128 shard, char out[MANIFEST_FILE_NAME])
{
    char hex[HASH128_TEXT];
    hash128_text(shard, hex);
    char *at = mempcpy(out, FILE_HEAD, sizeof(FILE_HEAD) - 1);
    at = mempcpy(at, hex, sizeof(hex) - 1);
    memcpy(at, FILE_END, sizeof(FILE_END));
}

bool manifest_is_file_name(const char *name)
{
    char hex[HASH128_TEXT], again[MANIFEST_FILE_NAME];
    struct hash128 shard;
    if (sscanf(name, "shard-%32[0-9a-f].safetensors", hex) != 1 || !hash128_parse(hex, &shard)) {
        return false;
    }
    manifest_file_name(shard, again);
    return strcmp(name, again) == 0;
}

bool manifest_is_name_in_version(const char *name)
{
    return strcmp(name, MANIFEST_NAME) == 0 || strcmp(name, METADATA_NAME) == 0 ||
           strcmp(name, VERSION_INDEX_NAME) == 0 || manifest_is_file_name(name);
}

bool manifest_has_name(const struct manifest *manifest, const char *name)
{
    if (strcmp(name, MANIFEST_NAME) == 0 || (manifest->metadata.bytes > 0 && strcmp(name, METADATA_NAME) == 0) ||
        (manifest->index.bytes > 0 && strcmp(name, VERSION_INDEX_NAME) == 0)) {
        return true;
    }
    for (uint32_t i = 0; i < manifest->file_count; i++) {
        if (strcmp(name, manifest->files[i].name) == 0) {
            return true;
        }
    }
    return false;
}

void manifest_free(struct manifest *manifest)
{
    free(manifest->metadata.crcs);
    free(manifest->index.crcs);
    for (uint32_t i = 0; manifest->files != NULL && i < manifest->file_count; i++) {
        free(manifest->files[i].crcs);
    }
    free(manifest->files);
    memset(manifest, 0, sizeof(*manifest));
}

static int compare_shard(const void *key, const void *file)
{
    return hash128_cmp(*(const struct hash128 *)key, ((const struct manifest_file *)file)->shard);
}

const struct manifest_file *manifest_find(const struct manifest *manifest, struct hash128 shard)
{
    if (manifest->file_count == 0) {
        return NULL;
    }
    return bsearch(&shard, manifest->files, manifest->file_count, sizeof(*manifest->files), compare_shard);
}

/* The end of a manifest: its last member, the digest of the body before it, and the closing brace. */
static void tail_of(const char *body, size_t len, char out[TAIL_BYTES + 1])
{
    uint8_t digest[MAC_BYTES];
    sha256(body, len, digest);
    char *at = mempcpy(out, TAIL_HEAD, sizeof(TAIL_HEAD) - 1);
    for (size_t i = 0; i < sizeof(digest); i++) {
        hex_write(digest[i], 2, at);
        at += 2;
    }
    memcpy(at, TAIL_END, sizeof(TAIL_END));
}

/* ---- print --------------------------------------------------------------------------------------------------- */

static bool add_hash(json_t *object, const char *key, struct hash128 hash)
{
    char hex[HASH128_TEXT];
    hash128_text(hash, hex);
    return json_add_str(object, key, hex);
}

static bool add_crcs(json_t *object, const struct manifest_file *file)
{
    uint32_t count = chunk_count(file->bytes);
    char *hex = malloc((size_t)count * CRC_DIGITS + 1);
    if (hex == NULL) {
        return false;
    }
    for (uint32_t i = 0; i < count; i++) {
        hex_write(file->crcs[i], CRC_DIGITS, hex + (size_t)i * CRC_DIGITS);
    }
    hex[(size_t)count * CRC_DIGITS] = '\0';
    bool added = json_add_str(object, "crc32c", hex);
    free(hex);
    return added;
}

static bool add_file(json_t *files, const struct manifest_file *file)
{
    json_t *object = json_object();
    if (object == NULL) {
        return false;
    }
    if (!add_hash(object, "shard", file->shard) || !json_add_str(object, "name", file->name) ||
        !json_add_u64(object, "bytes", file->bytes) || !add_hash(object, "root", file->root) ||
        !add_crcs(object, file)) {
        json_free(object);
        return false;
    }
    return json_add(files, NULL, object);
}

static bool add_files(json_t *body, const struct manifest *manifest)
{
    json_t *files = json_array();
    for (uint32_t i = 0; files != NULL && i < manifest->file_count; i++) {
        if (!add_file(files, &manifest->files[i])) {
            json_free(files);
            return false;
        }
    }
    return files != NULL && json_add(body, "files", files);
}

/* A file that belongs to no shard, if there is one. */
static bool add_beside(json_t *body, const char *key, const struct manifest_file *file)
{
    json_t *object = file->bytes == 0 ? NULL : json_object();
    if (file->bytes == 0) {
        return true;
    }
    if (object == NULL || !json_add_u64(object, "bytes", file->bytes) || !add_hash(object, "root", file->root) ||
        !add_crcs(object, file)) {
        json_free(object);
        return false;
    }
    return json_add(body, key, object);
}

/* The manifest without its digest, or NULL. */
static char *print_body(const struct manifest *manifest)
{
    char *text = NULL;
    json_t *body = json_object();
    if (body != NULL && json_add_u64(body, "format", MANIFEST_FORMAT) && json_add_str(body, "job", manifest->job) &&
        json_add_u64(body, "term", manifest->version.term) && json_add_u64(body, "step", manifest->version.step) &&
        json_add_u64(body, "world_size", manifest->world_size) && add_hash(body, "layout", manifest->layout) &&
        json_add_u64(body, "wall_ms", manifest->wall_ms) && json_add_u64(body, "chunk_bytes", CHUNK_BYTES) &&
        add_files(body, manifest) && add_beside(body, "metadata", &manifest->metadata) &&
        add_beside(body, "index", &manifest->index)) {
        text = json_print(body, false);
    }
    json_free(body);
    return text;
}

tck_status_t manifest_print(const struct manifest *manifest, char **text_out, size_t *len_out, struct error *err)
{
    char *body = print_body(manifest);
    size_t body_len = body == NULL ? 0 : strlen(body) - 1; /* the digest goes before the closing brace */
    char *text = body == NULL ? NULL : realloc(body, body_len + TAIL_BYTES + 1);
    if (text == NULL) {
        free(body);
        return error_set(err, TCK_ERR_NOMEM, "no memory to print a manifest of %" PRIu32 " files",
                         manifest->file_count);
    }
    char tail[TAIL_BYTES + 1];
    tail_of(text, body_len, tail);
    memcpy(text + body_len, tail, sizeof(tail));
    *text_out = text;
    *len_out = body_len + TAIL_BYTES;
    return TCK_OK;
}

/* ---- parse --------------------------------------------------------------------------------------------------- */

static tck_status_t bad(struct error *err, const char *what)
{
    return error_set(err, TCK_ERR_CORRUPT, "manifest: %s", what);
}

static bool get_hash(const json_t *object, const char *key, struct hash128 *out)
{
    const char *hex = json_str(json_get(object, key));
    return hex != NULL && hash128_parse(hex, out);
}

static bool get_u32(const json_t *object, const char *key, uint32_t *out)
{
    uint64_t value;
    if (!json_u64(json_get(object, key), &value) || value > UINT32_MAX) {
        return false;
    }
    *out = (uint32_t)value;
    return true;
}

static tck_status_t check_format(const json_t *json, struct error *err)
{
    uint64_t format;
    if (!json_u64(json_get(json, "format"), &format)) {
        return bad(err, "no format number");
    }
    if (format != MANIFEST_FORMAT) {
        return error_set(err, TCK_ERR_PROTO, "manifest: format %" PRIu64 ", this build reads format %d", format,
                         MANIFEST_FORMAT);
    }
    return TCK_OK;
}

static tck_status_t check_digest(const char *text, size_t len, struct error *err)
{
    char tail[TAIL_BYTES + 1];
    if (len <= TAIL_BYTES) {
        return bad(err, "no self-digest at its end");
    }
    tail_of(text, len - TAIL_BYTES, tail);
    return memcmp(tail, text + len - TAIL_BYTES, TAIL_BYTES) == 0 ? TCK_OK : bad(err, "its self-digest does not match");
}

static tck_status_t decode_crcs(const json_t *json, struct manifest_file *file, struct error *err)
{
    const char *hex = json_str(json_get(json, "crc32c"));
    uint32_t count = chunk_count(file->bytes);
    size_t digits = (size_t)count * CRC_DIGITS;
    if (hex == NULL || strlen(hex) != digits) {
        return bad(err, "crc32c of a file is not 8 hex digits per chunk");
    }
    file->crcs = calloc(count, sizeof(*file->crcs));
    if (file->crcs == NULL) {
        return error_set(err, TCK_ERR_NOMEM, "no memory for %" PRIu32 " chunk CRCs", count);
    }
    for (uint32_t i = 0; i < count; i++) {
        uint64_t crc;
        if (!hex_read(hex + (size_t)i * CRC_DIGITS, CRC_DIGITS, &crc)) {
            return bad(err, "crc32c of a file is not 8 hex digits per chunk");
        }
        file->crcs[i] = (uint32_t)crc;
    }
    return TCK_OK;
}

static tck_status_t decode_content(const json_t *json, struct manifest_file *file, struct error *err)
{
    if (!get_hash(json, "root", &file->root)) {
        return bad(err, "the root of a file is not 32 hex digits");
    }
    if (!json_u64(json_get(json, "bytes"), &file->bytes) || file->bytes == 0 || file->bytes > BYTES_MAX) {
        return bad(err, "the size of a file is out of range");
    }
    tck_status_t status = decode_crcs(json, file, err);
    if (status == TCK_OK && !hash128_is(digest_root(file->crcs, file->bytes), file->root)) {
        status = bad(err, "the root of a file does not match its chunk CRCs");
    }
    return status;
}

static tck_status_t decode_file(const json_t *json, struct manifest_file *file, struct error *err)
{
    const char *name = json_str(json_get(json, "name"));
    if (!get_hash(json, "shard", &file->shard)) {
        return bad(err, "the shard of a file is not 32 hex digits");
    }
    manifest_file_name(file->shard, file->name);
    if (name == NULL || strcmp(name, file->name) != 0) {
        return bad(err, "the name of a file does not match its shard");
    }
    return decode_content(json, file, err);
}

/* json NULL: there is none. */
static tck_status_t decode_beside(const json_t *json, const char *name, struct manifest_file *out, struct error *err)
{
    if (json == NULL) {
        return TCK_OK;
    }
    snprintf(out->name, sizeof(out->name), "%s", name);
    return decode_content(json, out, err);
}

static tck_status_t decode_files(const json_t *json, struct manifest *out, struct error *err)
{
    size_t count = json_len(json);
    if (!json_is_array(json) || count == 0 || count > UINT32_MAX) {
        return bad(err, "no files");
    }
    out->files = calloc(count, sizeof(*out->files));
    if (out->files == NULL) {
        return error_set(err, TCK_ERR_NOMEM, "no memory for a manifest of %zu files", count);
    }
    out->file_count = (uint32_t)count;
    const struct manifest_file *previous = NULL;
    struct manifest_file *file = out->files;
    for (const json_t *item = json_first(json); item != NULL; item = json_next(item), file++) {
        tck_status_t status = decode_file(item, file, err);
        if (status != TCK_OK) {
            return status;
        }
        if (previous != NULL && hash128_cmp(previous->shard, file->shard) >= 0) {
            return bad(err, "its files are not sorted by shard");
        }
        previous = file;
    }
    return TCK_OK;
}

static tck_status_t decode(const json_t *json, struct manifest *out, struct error *err)
{
    const char *job = json_str(json_get(json, "job"));
    uint32_t chunk_bytes;
    if (job == NULL || !name_is_safe(job)) {
        return bad(err, "job is not a name");
    }
    snprintf(out->job, sizeof(out->job), "%s", job);
    if (!json_u64(json_get(json, "term"), &out->version.term) || version_none(out->version) ||
        !json_u64(json_get(json, "step"), &out->version.step)) {
        return bad(err, "term or step is not a number");
    }
    if (!get_u32(json, "world_size", &out->world_size) || out->world_size == 0 ||
        !get_hash(json, "layout", &out->layout) || !json_u64(json_get(json, "wall_ms"), &out->wall_ms)) {
        return bad(err, "world_size, layout or wall_ms is missing or malformed");
    }
    if (!get_u32(json, "chunk_bytes", &chunk_bytes) || chunk_bytes != CHUNK_BYTES) {
        return bad(err, "chunk_bytes is not that of this format");
    }
    tck_status_t status = decode_beside(json_get(json, "metadata"), METADATA_NAME, &out->metadata, err);
    if (status == TCK_OK) {
        status = decode_beside(json_get(json, "index"), VERSION_INDEX_NAME, &out->index, err);
    }
    return status == TCK_OK ? decode_files(json_get(json, "files"), out, err) : status;
}

tck_status_t manifest_parse(const char *text, size_t len, struct manifest *out, struct error *err)
{
    struct manifest manifest = {0};
    json_t *json = NULL;
    struct error why = {0};
    tck_status_t status = json_parse(text, len, &json, &why);
    if (status != TCK_OK) { /* the file is damaged, whatever its format */
        return error_set(err, status == TCK_ERR_PROTO ? TCK_ERR_CORRUPT : status, "manifest: %s", why.text);
    }
    status = check_format(json, err); /* before the digest, which may differ in another format */
    if (status == TCK_OK) {
        status = check_digest(text, len, err);
    }
    if (status == TCK_OK) {
        status = decode(json, &manifest, err);
    }
    json_free(json);
    if (status != TCK_OK) {
        manifest_free(&manifest);
        return status;
    }
    *out = manifest;
    return TCK_OK;
}

/* SPDX-License-Identifier: Apache-2.0
 * Storage as a bucket of S3 (TRAIT_BUCKET). The client is the product's own, with its decision about the next attempt;
 * one attempt at a request ends here. An attempt may lose its answer, take effect when its sender has given it up, take
 * effect twice, never arrive, or be answered with an error that passes, with or without an effect. */
#include "bucket.h"

#include "tiers/manifest.h"
#include "tiers/names.h"
#include "tiers/object/s3_call.h"
#include "tiers/object/s3_list.h"
#include "tiers/object/s3_objects.h"
#include "tiers/object/s3_retry.h"
#include "tiers/object/s3_store.h"
#include "tiers/object/s3_uploads.h"

#include <stdlib.h>
#include <string.h>

#define LATE_MS 3000

struct value {
    struct value *next; /* with a higher key */
    uint64_t bytes;
    char *data;
    bool created; /* its writer knows that it has the key */
    char key[OBJECT_KEY_MAX];
};

/* A request that takes effect later. */
struct late {
    bool removes, conditional;
    uint64_t bytes;
    char *data;
    char key[OBJECT_KEY_MAX];
};

const bool bucket_is_built = true;

static struct value *objects, *parts; /* a part's key is <key>/<number of its upload>/<number> */
static uint64_t last_upload;

/* ---- values ---------------------------------------------------------------------------------------------------- */

static struct value **place_of(struct value **list, const char *key)
{
    while (*list != NULL && strcmp((*list)->key, key) < 0) {
        list = &(*list)->next;
    }
    return list;
}

static struct value *find(struct value **list, const char *key)
{
    struct value *at = *place_of(list, key);
    return at != NULL && strcmp(at->key, key) == 0 ? at : NULL;
}

static bool begins(const char *key, const char *with)
{
    return strncmp(key, with, strlen(with)) == 0;
}

static char *copy_of(const void *data, uint64_t bytes)
{
    char *copy = calloc(1, bytes + 1);
    if (copy == NULL) {
        abort();
    }
    if (bytes > 0) {
        memcpy(copy, data, bytes);
    }
    return copy;
}

static void set(struct value **list, const char *key, const void *data, uint64_t bytes)
{
    struct value **at = place_of(list, key), *value = find(list, key);
    if (value == NULL) {
        value = calloc(1, sizeof(*value));
        if (value == NULL) {
            abort();
        }
        snprintf(value->key, sizeof(value->key), "%s", key);
        value->next = *at;
        *at = value;
    }
    free(value->data);
    value->data = copy_of(data, bytes);
    value->bytes = bytes;
}

static void unset(struct value **list, const char *key)
{
    struct value **at = place_of(list, key), *value = find(list, key);
    if (value != NULL) {
        *at = value->next;
        free(value->data);
        free(value);
    }
}

/* ---- published versions ---------------------------------------------------------------------------------------- */

/* The name of the version whose manifest this is; false: it is another object. */
static bool manifest_key(const char *key, char name[DIR_NAME_MAX])
{
    char wanted[OBJECT_KEY_MAX];
    const char *slash = strchr(key, '/'), *file = slash != NULL ? strchr(slash + 1, '/') : NULL;
    if (file == NULL || file - slash > DIR_NAME_MAX) {
        return false;
    }
    snprintf(name, DIR_NAME_MAX, "%.*s", (int)(file - slash - 1), slash + 1);
    snprintf(wanted, sizeof(wanted), "%s/%s/%s", sim.hosts[0].config.job, name, MANIFEST_NAME);
    return strcmp(key, wanted) == 0;
}

/* Whether an object that its manifest names is missing, as when the manifest was created after a later term has deleted
 * what had not been published. */
static bool is_torn(const struct value *published, const char *name)
{
    struct manifest manifest;
    struct error ignored;
    bool torn = false;
    if (manifest_parse(published->data, published->bytes, &manifest, &ignored) != TCK_OK) {
        return true;
    }
    for (uint32_t i = 0; i < manifest.file_count && !torn; i++) {
        char key[OBJECT_KEY_MAX];
        snprintf(key, sizeof(key), "%s/%s/%s", sim.hosts[0].config.job, name, manifest.files[i].name);
        const struct value *file = find(&objects, key);
        torn = file == NULL || file->bytes != manifest.files[i].bytes;
    }
    manifest_free(&manifest);
    return torn;
}

bool bucket_published_next(struct published_version *at)
{
    struct published_version newest = {.version = VERSION_NONE};
    bool found = false;
    for (const struct value *value = objects; value != NULL; value = value->next) {
        char name[DIR_NAME_MAX];
        struct version version;
        if (manifest_key(value->key, name) && version_dir_parse(name, &version) &&
            version_cmp(version, at->version) < 0 && (!found || version_cmp(version, newest.version) > 0)) {
            newest = (struct published_version){.version = version, .torn = is_torn(value, name)};
            found = true;
        }
    }
    *at = found ? newest : *at;
    return found;
}

static void judge_created(const char *key)
{
    char name[DIR_NAME_MAX];
    if (manifest_key(key, name)) {
        judge_renamed_in(name);
    }
}

static void judge_deleted(const struct value *value)
{
    char name[DIR_NAME_MAX];
    if (value != NULL && manifest_key(value->key, name) && !is_torn(value, name)) {
        judge_removed(name);
    }
}

static bool is_term(const char *key)
{
    uint64_t term;
    const char *slash = strchr(key, '/');
    return slash != NULL && term_name_parse(slash + 1, &term);
}

/* A term that was claimed stays as its claimer has written it. One that is only reserved may be released. */
static void judge_claim(const struct late *request)
{
    char holder[OBJECT_KEY_MAX + 8];
    const struct value *value = find(&objects, request->key);
    if (value == NULL || !value->created || !is_term(request->key)) {
        return;
    }
    snprintf(holder, sizeof(holder), "%s.holder", request->key);
    bool only_reserved = strstr(value->data, "\"reserved_by\"") != NULL && find(&objects, holder) == NULL;
    bool same =
        !request->removes && request->bytes == value->bytes && memcmp(request->data, value->data, value->bytes) == 0;
    if (!only_reserved && !same) {
        sim_violation("%s was claimed, and is %s", request->key, request->removes ? "removed" : "replaced");
    }
}

/* ---- the server ------------------------------------------------------------------------------------------------ */

static const char *pair_of(const struct s3_pair *pairs, const char *name)
{
    while (pairs->name != NULL && strcmp(pairs->name, name) != 0) {
        pairs++;
    }
    return pairs->name != NULL ? pairs->value : NULL;
}

static void refuse(struct s3_reply *reply, long http, const char *code)
{
    reply->status = http;
    snprintf(reply->code, sizeof(reply->code), "%s", code);
}

/* The one condition that all depends on. */
static void put(const struct late *request, struct s3_reply *reply)
{
    bool taken = find(&objects, request->key) != NULL;
    if (request->removes) {
        judge_deleted(find(&objects, request->key));
        judge_claim(request);
        unset(&objects, request->key);
        reply->status = 204;
    } else if (request->conditional && taken) {
        refuse(reply, 412, "PreconditionFailed");
    } else {
        judge_claim(request);
        set(&objects, request->key, request->data, request->bytes);
        reply->status = 200;
        strcpy(reply->headers.etag, "\"etag\"");
        if (!taken) {
            judge_created(request->key);
        }
    }
}

static void give_range(const struct s3_ask *ask, const struct value *value, struct s3_reply *reply)
{
    const char *range = pair_of(ask->headers, "range");
    uint64_t offset = strtoull(range + strlen("bytes="), NULL, 10);
    if (offset >= value->bytes) {
        refuse(reply, 416, "InvalidRange");
        return;
    }
    reply->filled = value->bytes - offset < ask->into_bytes ? value->bytes - offset : ask->into_bytes;
    reply->headers.range_start = offset;
    reply->headers.range_total = value->bytes;
    reply->status = 206;
    memcpy(ask->into, value->data + offset, reply->filled);
    if (sim.current != NULL) {
        judge_bytes_changed(sim.current, ask->into, reply->filled);
    }
}

static void get(const struct s3_ask *ask, struct s3_reply *reply)
{
    const struct value *value = find(&objects, ask->key);
    bool head = strcmp(ask->method, "HEAD") == 0;
    if (value == NULL) {
        refuse(reply, 404, head ? "" : "NoSuchKey");
        return;
    }
    if (ask->into != NULL) {
        give_range(ask, value, reply);
        return;
    }
    reply->status = 200;
    reply->headers.content_length = value->bytes;
    strcpy(reply->headers.etag, "\"etag\"");
    if (!head) {
        reply->body = copy_of(value->data, value->bytes);
        reply->body_bytes = value->bytes;
    }
}

static void add_entry(struct s3_document *document, const char *key, size_t len, const struct value *value)
{
    const struct s3_entry *last = document->count > 0 ? &document->entries[document->count - 1] : NULL;
    bool folder = key[len] != '\0';
    if (folder && last != NULL && last->folder && strlen(last->key) == len && strncmp(last->key, key, len) == 0) {
        return;
    }
    document->entries = realloc(document->entries, (document->count + 1) * sizeof(*document->entries));
    if (document->entries == NULL) {
        abort();
    }
    document->entries[document->count++] =
        (struct s3_entry){.key = copy_of(key, len), .bytes = folder ? 0 : value->bytes, .folder = folder};
}

static void list(const struct s3_ask *ask, struct s3_reply *reply)
{
    const char *prefix = pair_of(ask->query, "prefix");
    bool folders = pair_of(ask->query, "delimiter") != NULL;
    reply->document.kind = ask->expects;
    reply->status = 200;
    for (const struct value *value = objects; value != NULL && ask->expects == S3_DOC_LIST; value = value->next) {
        if (begins(value->key, prefix)) {
            const char *slash = folders ? strchr(value->key + strlen(prefix), '/') : NULL;
            add_entry(&reply->document, value->key,
                      slash != NULL ? (size_t)(slash + 1 - value->key) : strlen(value->key), value);
        }
    }
}

/* An upload begins with its first part; one that is left over is therefore not listed. */
static void upload(const struct s3_ask *ask, struct s3_reply *reply)
{
    char key[OBJECT_KEY_MAX], text[24];
    const char *id = pair_of(ask->query, "uploadId"), *number = pair_of(ask->query, "partNumber");
    reply->document.kind = ask->expects;
    reply->status = 200;
    if (id == NULL) {
        snprintf(text, sizeof(text), "%" PRIu64, ++last_upload);
        reply->document.upload_id = copy_of(text, strlen(text));
        return;
    }
    snprintf(key, sizeof(key), "%.400s/%s/%06d", ask->key, id, number != NULL ? atoi(number) : 0);
    if (number != NULL) {
        set(&parts, key, ask->body, ask->body_bytes);
        strcpy(reply->headers.etag, "\"part\"");
        return;
    }
    struct late whole = {.data = copy_of("", 0)};
    key[strlen(key) - 6] = '\0';
    snprintf(whole.key, sizeof(whole.key), "%s", ask->key);
    for (struct value *part = *place_of(&parts, key); part != NULL && begins(part->key, key);
         part = *place_of(&parts, key)) {
        whole.data = realloc(whole.data, whole.bytes + part->bytes + 1);
        memcpy(whole.data + whole.bytes, part->data, part->bytes);
        whole.bytes += part->bytes;
        unset(&parts, part->key);
    }
    if (strcmp(ask->method, "POST") == 0 && whole.bytes == 0) {
        refuse(reply, 404, "NoSuchUpload");
    } else if (strcmp(ask->method, "POST") == 0) {
        put(&whole, reply);
    }
    free(whole.data);
}

static bool changes_object(const struct s3_ask *ask)
{
    return ask->query[0].name == NULL && (strcmp(ask->method, "PUT") == 0 || strcmp(ask->method, "DELETE") == 0);
}

static struct late request_of(const struct s3_ask *ask)
{
    struct late request = {.removes = strcmp(ask->method, "DELETE") == 0,
                           .conditional = pair_of(ask->headers, "if-none-match") != NULL,
                           .data = copy_of(ask->body, ask->body_bytes),
                           .bytes = ask->body_bytes};
    snprintf(request.key, sizeof(request.key), "%s", ask->key);
    return request;
}

static void serve(const struct s3_ask *ask, struct s3_reply *reply)
{
    char crc[S3_CRC_BYTES];
    const char *sent = pair_of(ask->headers, "x-amz-checksum-crc32c");
    s3_crc_text(crc32c(0, ask->body, ask->body_bytes), crc);
    if (sent != NULL && strcmp(sent, crc) != 0) {
        refuse(reply, 400, "BadDigest");
    } else if (changes_object(ask)) {
        struct late request = request_of(ask);
        put(&request, reply);
        free(request.data);
    } else if (ask->expects == S3_DOC_LIST || ask->expects == S3_DOC_UPLOADS) {
        list(ask, reply);
    } else if (strcmp(ask->method, "GET") == 0 || strcmp(ask->method, "HEAD") == 0) {
        get(ask, reply);
    } else {
        upload(ask, reply);
    }
}

/* ---- faults ---------------------------------------------------------------------------------------------------- */

static void arrive(void *ctx)
{
    struct late *late = ctx;
    struct s3_reply reply = {0};
    sim_log("a request arrives late: %s %s", late->removes ? "delete" : "put", late->key);
    put(late, &reply);
    free(late->data);
    free(late);
}

static void send_late(const struct s3_ask *ask)
{
    struct late *late = malloc(sizeof(*late));
    if (late == NULL) {
        abort();
    }
    *late = request_of(ask);
    sim_after(faults_lasting(1, LATE_MS), NULL, arrive, late);
}

static bool is_faulty(const struct s3_ask *ask)
{
    bool claims = changes_object(ask) && pair_of(ask->headers, "if-none-match") != NULL;
    return sim.current != NULL && faults.any && sim.us <= faults.until_us && sim_chance(claims ? 25 : 3);
}

static void clear(struct s3_reply *reply)
{
    s3_reply_free(reply);
    http_headers_clear(&reply->headers);
}

/* The server answers 500: what it was asked to do is done or not. */
static void fail_server(const struct s3_ask *ask, bool effect, struct s3_reply *reply)
{
    if (effect) {
        serve(ask, reply);
        clear(reply);
    }
    refuse(reply, 500, "InternalError");
}

/* What the sender sees of the attempt at a write. */
static enum http_end write_badly(const struct s3_ask *ask, struct s3_reply *reply)
{
    uint32_t kind = (uint32_t)sim_between(0, 7);
    static const char *const what[] = {
        "loses its answer", "is late",      "comes again later",          "comes twice",
        "never arrives",    "has an error", "has an error and an effect", "is in conflict"};
    sim_log("%s: %s %s %s", sim.current->name, ask->verb, ask->key, what[kind]);
    switch (kind) {
    case 0:
        serve(ask, reply);
        clear(reply);
        return HTTP_CUT;
    case 1:
        send_late(ask);
        return HTTP_TIMED_OUT;
    case 2:
        send_late(ask);
        serve(ask, reply);
        return HTTP_ANSWERED;
    case 3:
        serve(ask, reply);
        clear(reply);
        serve(ask, reply);
        return HTTP_ANSWERED;
    case 4:
        return HTTP_CUT;
    case 5:
    case 6:
        fail_server(ask, kind == 6, reply);
        return HTTP_ANSWERED;
    default:
        refuse(reply, 409, "ConditionalRequestConflict");
        return HTTP_ANSWERED;
    }
}

static enum http_end attempt(const struct s3_ask *ask, struct s3_reply *reply, uint64_t *elapsed_ms)
{
    enum http_end end = HTTP_ANSWERED;
    host_does_something();
    if (sim.current != NULL && sim.current->refused_by[AT_SAVE_DIR]) {
        refuse(reply, 503, "ServiceUnavailable");
        return end;
    }
    if (!is_faulty(ask)) {
        serve(ask, reply);
        return end;
    }
    if (changes_object(ask)) {
        end = write_badly(ask, reply);
    } else {
        refuse(reply, 503, "SlowDown");
    }
    *elapsed_ms += (end != HTTP_ANSWERED || reply->status >= 500) && sim_chance(30) ? UINT32_MAX : 0; /* the last one */
    return end;
}

/* ---- the client ------------------------------------------------------------------------------------------------ */

tck_status_t __wrap_s3_call(struct s3_store *s, const struct object_call *call, const struct s3_ask *ask,
                            struct s3_reply *reply, struct error *err);

static bool is_canceled(struct s3_store *s, const struct object_call *call)
{
    return atomic_load(&s->canceled) || (call != NULL && call->canceled != NULL && atomic_load(call->canceled));
}

tck_status_t __wrap_s3_call(struct s3_store *s, const struct object_call *call, const struct s3_ask *ask,
                            struct s3_reply *reply, struct error *err)
{
    struct s3_outcome o = {.deadline_ms = call == NULL || call->deadline_ms == 0 ? s->deadline_ms : call->deadline_ms};
    const char *key = ask->key != NULL ? ask->key : "";
    bool uncertain = false;
    *reply = (struct s3_reply){0};
    while (!is_canceled(s, call)) {
        clear(reply);
        o.end = attempt(ask, reply, &o.elapsed_ms);
        o.http = reply->status;
        o.code = reply->code;
        o.attempt++;
        o.random = (uint32_t)sim.us;
        struct s3_next next = s3_decide(&o);
        if (call != NULL && call->moved != NULL && o.end == HTTP_ANSWERED) {
            call->moved(call->moved_ctx, ask->body_bytes + reply->filled);
        }
        reply->uncertain = uncertain;
        if (next.verdict == S3_DONE) {
            return TCK_OK;
        }
        if (next.verdict != S3_WAIT) {
            return error_set(err, next.status, "%s/%s: %s: HTTP %ld %s (%u attempts)", s->base.name, key, ask->verb,
                             reply->status, reply->code, o.attempt);
        }
        o.elapsed_ms += next.wait_ms;
        uncertain = true;
    }
    return error_set(err, TCK_ERR_CANCELED, "%s/%s: %s: canceled", s->base.name, key, ask->verb);
}

static void cancel(struct object_store *store)
{
    atomic_store(&((struct s3_store *)store)->canceled, true);
}

static void release(struct object_store *store)
{
    free(store);
}

/* A creation that is reported as made has the key, and one that is reported as beaten has not. */
static tck_status_t judged_create(struct object_store *store, const struct object_call *call, const char *key,
                                  const struct object_bytes *value, struct error *err)
{
    tck_status_t status = s3_create(store, call, key, value, err);
    struct value *there = find(&objects, key);
    bool ours = there != NULL && there->bytes == value->bytes && memcmp(there->data, value->data, value->bytes) == 0;
    if (status == TCK_OK && !ours) {
        sim_violation("%s is reported as created, and has another value", key);
    }
    if (status == TCK_ERR_EXIST && (ours || there == NULL)) {
        sim_violation("%s is reported as taken by another, and %s", key,
                      ours ? "has the value that was to be created" : "nothing is there");
    }
    if (status == TCK_OK && ours) {
        there->created = true;
    }
    return status;
}

static const struct object_ops ops = {.put = s3_put,
                                      .create = judged_create,
                                      .get = s3_get,
                                      .get_range = s3_get_range,
                                      .head = s3_head,
                                      .list = s3_list,
                                      .remove = s3_remove,
                                      .upload_begin = s3_upload_begin,
                                      .upload_part = s3_upload_part,
                                      .upload_finish = s3_upload_finish,
                                      .upload_abort = s3_upload_abort,
                                      .uploads = s3_uploads,
                                      .cancel = cancel,
                                      .free = release};

tck_status_t s3_store_new(const char *url, struct object_store **out, struct error *err)
{
    struct s3_store *s = calloc(1, sizeof(*s));
    if (s == NULL) {
        return error_set(err, TCK_ERR_NOMEM, "no memory for a store");
    }
    *s = (struct s3_store){.base = {.ops = &ops, .name = s->settings.name}, .deadline_ms = S3_DEADLINE_MS};
    snprintf(s->settings.name, sizeof(s->settings.name), "%s", url);
    *out = &s->base;
    return TCK_OK;
}

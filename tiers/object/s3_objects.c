/* SPDX-License-Identifier: Apache-2.0
 * Objects, one at a time. */
#include "tiers/object/s3_objects.h"
#include "base/clock.h"
#include "base/digest.h"
#include "tiers/object/s3_call.h"
#include "tiers/object/s3_list.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DAMAGED_MAX 3 /* attempts at a value whose bytes do not match the server's checksum */
#define HEAD_MAX    3 /* attempts at the size of an object that comes while it is asked for */

static struct s3_store *store_of(struct object_store *store)
{
    return (struct s3_store *)store;
}

/* The checksum is always sent: it costs little, and it is all that protects a body on its way. */
static void crc_of(const struct object_bytes *value, char out[S3_CRC_BYTES])
{
    s3_crc_text(value->crc32c != NULL ? *value->crc32c : crc32c(0, value->data, value->bytes), out);
}

static tck_status_t send_value(struct s3_store *s, const struct object_call *call, const char *key,
                               const struct object_bytes *value, bool only_if_free, struct error *err)
{
    char crc[S3_CRC_BYTES];
    struct s3_reply reply;
    crc_of(value, crc);
    struct s3_ask ask = {.verb = only_if_free ? "create" : "put",
                         .method = "PUT",
                         .key = key,
                         .headers = {{"content-type", "application/octet-stream"},
                                     {"if-none-match", only_if_free ? "*" : NULL},
                                     {"x-amz-checksum-crc32c", crc}},
                         .body = value->data,
                         .body_bytes = value->bytes};
    tck_status_t status = s3_call(s, call, &ask, &reply, err);
    s3_reply_free(&reply);
    return status;
}

tck_status_t s3_put(struct object_store *store, const struct object_call *call, const char *key,
                    const struct object_bytes *value, struct error *err)
{
    return send_value(store_of(store), call, key, value, false, err);
}

/* Whether the bytes are what the server has a checksum of; of an upload in parts it has none of the whole. */
static bool matches(const struct s3_reply *reply)
{
    char crc[S3_CRC_BYTES];
    if (strlen(reply->headers.crc32c) != S3_CRC_BYTES - 1) {
        return true;
    }
    s3_crc_text(crc32c(0, reply->body, reply->body_bytes), crc);
    return strcmp(crc, reply->headers.crc32c) == 0;
}

static tck_status_t get_once(struct s3_store *s, const struct object_call *call, const char *key, uint64_t max,
                             struct s3_reply *reply, struct error *err)
{
    struct s3_ask ask = {.verb = "get",
                         .method = "GET",
                         .key = key,
                         .headers = {{"x-amz-checksum-mode", "ENABLED"}},
                         .collect_max = max + 1};
    tck_status_t status = s3_call(s, call, &ask, reply, err);
    if (reply->too_big || (status == TCK_OK && reply->body_bytes > max)) {
        reply->too_big = true;
        return error_set(err, TCK_ERR_INVAL, "%.150s/%.150s: get: it is larger than %" PRIu64 " bytes", s->base.name,
                         key, max);
    }
    if (status == TCK_OK && reply->headers.content_length != reply->body_bytes) {
        return error_set(err, TCK_ERR_IO, "%.150s/%.150s: get: the answer does not say how long it is", s->base.name,
                         key);
    }
    return status;
}

/* What there is, if it is not larger than max. */
struct value {
    char *data; /* owned by the caller */
    size_t bytes;
    bool too_big;
};

static tck_status_t get_value(struct s3_store *s, const struct object_call *call, const char *key, uint64_t max,
                              struct value *out, struct error *err)
{
    uint64_t begun = clock_ms();
    struct object_call rest = s3_call_rest(s, call, begun, 1);
    tck_status_t status = TCK_OK;
    bool differs = true;
    for (int i = 0; status == TCK_OK && differs && i < DAMAGED_MAX; i++) {
        struct s3_reply reply;
        status = get_once(s, &rest, key, max, &reply, err);
        differs = status == TCK_OK && !matches(&reply);
        if (status == TCK_OK && !differs) {
            char *body = reply.body != NULL ? reply.body : strdup("");
            *out = (struct value){.data = body, .bytes = reply.body_bytes};
            reply.body = NULL;
            status = body != NULL ? TCK_OK : error_set(err, TCK_ERR_NOMEM, "%.150s: get: no memory", s->base.name);
        }
        out->too_big = reply.too_big;
        s3_reply_free(&reply);
        rest = s3_call_rest(s, call, begun, 1);
    }
    return status == TCK_OK && differs
               ? error_set(err, TCK_ERR_IO,
                           "%.150s/%.150s: get: the bytes do not match the server's checksum, %d times", s->base.name,
                           key, DAMAGED_MAX)
               : status;
}

tck_status_t s3_get(struct object_store *store, const struct object_call *call, const char *key, uint64_t max,
                    char **out, size_t *bytes_out, struct error *err)
{
    struct value value;
    tck_status_t status = get_value(store_of(store), call, key, max, &value, err);
    if (status == TCK_OK) {
        *out = value.data;
        *bytes_out = value.bytes;
    }
    return status;
}

/* The key is taken: by this very value, if the answer to an attempt was lost, to us or to a proxy that has sent it
 * again for us. */
static tck_status_t compare(struct s3_store *s, const struct object_call *call, const char *key,
                            const struct object_bytes *value, struct error *err)
{
    struct value there = {0};
    tck_status_t status = get_value(s, call, key, value->bytes, &there, err);
    if (status == TCK_OK) {
        bool same = there.bytes == value->bytes && memcmp(there.data, value->data, there.bytes) == 0;
        free(there.data);
        return same ? TCK_OK
                    : error_set(err, TCK_ERR_EXIST, "%.150s/%.150s: create: another value is there", s->base.name, key);
    }
    if (there.too_big || status == TCK_ERR_NOENT) {
        return error_set(err, TCK_ERR_EXIST, "%.150s/%.150s: create: another value %s", s->base.name, key,
                         there.too_big ? "is there" : "was there, and was removed meanwhile");
    }
    return error_prefix(err, "create: the key is taken; by which value is not known");
}

tck_status_t s3_create(struct object_store *store, const struct object_call *call, const char *key,
                       const struct object_bytes *value, struct error *err)
{
    struct s3_store *s = store_of(store);
    uint64_t begun = clock_ms();
    tck_status_t status = send_value(s, call, key, value, true, err);
    if (status != TCK_ERR_EXIST) {
        return status;
    }
    struct object_call rest = s3_call_rest(s, call, begun, S3_REST_MS);
    return compare(s, &rest, key, value, err);
}

/* The object ends before the range does, by the word of the server: a whole answer, or the size beside the range. */
static bool is_shorter(const struct s3_ask *ask, const struct s3_reply *reply, uint64_t offset)
{
    if (reply->headers.range_total != HTTP_NO_LENGTH) {
        return reply->headers.range_total < offset + ask->into_bytes;
    }
    return reply->status == 200 && reply->headers.content_length == reply->filled && reply->filled < ask->into_bytes;
}

static tck_status_t check_range(const struct s3_store *s, const struct s3_ask *ask, const struct s3_reply *reply,
                                uint64_t offset, struct error *err)
{
    /* Some servers say 200 with a range. */
    bool ranged = reply->headers.range_total != HTTP_NO_LENGTH;
    bool right = reply->filled == ask->into_bytes &&
                 (ranged ? reply->headers.range_start == offset : reply->status == 200 && offset == 0);
    return right
               ? TCK_OK
               : error_set(err, is_shorter(ask, reply, offset) ? TCK_ERR_CORRUPT : TCK_ERR_IO,
                           "%.120s/%.120s: get: of %" PRIu64 " bytes from %" PRIu64 " on, %" PRIu64 " came (HTTP %ld)",
                           s->base.name, ask->key, ask->into_bytes, offset, reply->filled, reply->status);
}

tck_status_t s3_get_range(struct object_store *store, const struct object_call *call, const char *key, uint64_t offset,
                          void *buffer, uint64_t bytes, struct error *err)
{
    char range[64];
    struct s3_store *s = store_of(store);
    struct s3_reply reply;
    if (bytes == 0) {
        return TCK_OK; /* HTTP has no range of none */
    }
    snprintf(range, sizeof(range), "bytes=%" PRIu64 "-%" PRIu64, offset, offset + bytes - 1);
    struct s3_ask ask = {.verb = "get",
                         .method = "GET",
                         .key = key,
                         .headers = {{"range", range}},
                         .into = buffer,
                         .into_bytes = bytes,
                         .into_whole = offset == 0};
    tck_status_t status = s3_call(s, call, &ask, &reply, err);
    if (status == TCK_OK) {
        status = check_range(s, &ask, &reply, offset, err);
    } else if (reply.too_big) {
        status = error_set(err, TCK_ERR_IO, "%.150s/%.150s: get: more came than the %" PRIu64 " bytes asked for",
                           s->base.name, key, bytes);
    }
    s3_reply_free(&reply);
    return status;
}

/* Sets *absent_out if the answer was 404. It has no document, so it may be the word of something on the way, or be
 * about the bucket. */
static tck_status_t head_once(struct s3_store *s, const struct object_call *call, const char *key,
                              struct object_info *out, bool *absent_out, struct error *err)
{
    struct s3_reply reply;
    struct s3_ask ask = {.verb = "head", .method = "HEAD", .key = key};
    tck_status_t status = s3_call(s, call, &ask, &reply, err);
    if (status == TCK_OK && reply.headers.content_length == HTTP_NO_LENGTH) {
        status = error_set(err, TCK_ERR_IO, "%.150s/%.150s: head: the answer has no size", s->base.name, key);
    }
    if (status == TCK_OK) {
        *out = (struct object_info){.bytes = reply.headers.content_length};
        strcpy(out->etag, reply.headers.etag);
    }
    *absent_out = status != TCK_OK && reply.status == 404;
    s3_reply_free(&reply);
    return status;
}

tck_status_t s3_head(struct object_store *store, const struct object_call *call, const char *key,
                     struct object_info *out, struct error *err)
{
    struct s3_store *s = store_of(store);
    uint64_t begun = clock_ms();
    struct object_call rest = s3_call_rest(s, call, begun, 1);
    tck_status_t status = TCK_OK;
    bool absent = true, listed = true;
    for (int i = 0; i < HEAD_MAX && absent && listed; i++) {
        status = head_once(s, &rest, key, out, &absent, err);
        rest = s3_call_rest(s, call, begun, S3_REST_MS);
        if (!absent) {
            return status;
        }
        tck_status_t known = s3_list_has(store, &rest, key, &listed, err);
        if (known != TCK_OK) {
            return error_prefix(err, "%.150s: head: HTTP 404, and whether the key is there is not known", key);
        }
    }
    return listed ? error_set(err, TCK_ERR_IO, "%.150s/%.150s: head: HTTP 404, but a listing has the key", s->base.name,
                              key)
                  : error_set(err, TCK_ERR_NOENT, "%.150s/%.150s: head: there is no such key", s->base.name, key);
}

tck_status_t s3_remove(struct object_store *store, const struct object_call *call, const char *key, struct error *err)
{
    struct s3_reply reply;
    struct s3_ask ask = {.verb = "remove", .method = "DELETE", .key = key};
    tck_status_t status = s3_call(store_of(store), call, &ask, &reply, err);
    if (status == TCK_ERR_NOENT && strcmp(reply.code, "NoSuchKey") == 0) {
        status = TCK_OK;
    }
    s3_reply_free(&reply);
    return status;
}

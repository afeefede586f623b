/* SPDX-License-Identifier: Apache-2.0
 * URL, headers and signature of a request.
 *
 * A large body is sent as UNSIGNED-PAYLOAD, since SHA-256 would cost more than everything else: its CRC32C is a header,
 * and that is signed. */
#include "tiers/object/s3_request.h"

#include <stdio.h>
#include <string.h>

struct parts {
    char path[HTTP_PATH_MAX + 6 * OBJECT_KEY_MAX];
    char query[30u << 10];
    char hash[S3_PAYLOAD_HASH_BYTES];
    char date[S3_DATE_BYTES];
    struct s3_header headers[S3_SIGNED_HEADERS_MAX];
    size_t count;
};

/* base is part of a URL already; keys of ours have nothing to encode, but what a listing gave may have. */
static bool make_path(const struct s3_settings *settings, const char *key, struct parts *out)
{
    strcpy(out->path, settings->base);
    if (key == NULL) {
        size_t len = strlen(out->path);
        out->path[len > 1 ? len - 1 : len] = '\0'; /* "/bucket/" is the bucket's as "/bucket" */
        return true;
    }
    return s3_encode(settings->prefix, true, out->path, sizeof(out->path)) &&
           s3_encode(key, true, out->path, sizeof(out->path));
}

static bool make_query(const struct s3_pair *pair, char *out, size_t cap)
{
    out[0] = '\0';
    for (; pair->name != NULL; pair++) {
        size_t len = strlen(out);
        if (pair->value == NULL) {
            continue;
        }
        if (snprintf(out + len, cap - len, "%s%s=", len == 0 ? "" : "&", pair->name) >= (int)(cap - len) ||
            !s3_encode(pair->value, false, out, cap)) {
            return false;
        }
    }
    return true;
}

static void add(struct parts *parts, const char *name, const char *value)
{
    parts->headers[parts->count++] = (struct s3_header){name, value};
}

static void make_headers(const struct s3_settings *settings, const struct s3_ask *ask,
                         const struct aws_credentials *credentials, struct parts *parts)
{
    add(parts, "host", settings->host);
    add(parts, "x-amz-date", parts->date);
    add(parts, "x-amz-content-sha256", parts->hash);
    if (credentials->session_token != NULL) {
        add(parts, "x-amz-security-token", credentials->session_token);
    }
    for (const struct s3_pair *own = ask->headers; own->name != NULL; own++) {
        if (own->value != NULL) {
            add(parts, own->name, own->value);
        }
    }
}

/* Expect: libcurl would wait a second for servers that ignore it. Accept: nothing that is not signed. */
static bool make_lines(const struct parts *parts, const char *authorization, struct s3_request *out)
{
    size_t used = 0, count = 0;
    for (size_t i = 0; i <= parts->count; i++) {
        const char *name = i < parts->count ? parts->headers[i].name : "authorization";
        const char *value = i < parts->count ? parts->headers[i].value : authorization;
        int len = snprintf(out->text + used, sizeof(out->text) - used, "%s: %s", name, value);
        if (len < 0 || (size_t)len >= sizeof(out->text) - used || strpbrk(out->text + used, "\r\n") != NULL) {
            return false;
        }
        out->lines[count++] = out->text + used;
        used += (size_t)len + 1;
    }
    out->lines[count++] = "expect:";
    out->lines[count++] = "accept:";
    out->lines[count] = NULL;
    return true;
}

static void hash_body(const struct s3_ask *ask, char out[S3_PAYLOAD_HASH_BYTES])
{
    if (ask->body_bytes > S3_HASHED_MAX) {
        strcpy(out, S3_UNSIGNED_PAYLOAD);
    } else {
        s3_payload_hash(ask->body == NULL ? "" : ask->body, ask->body_bytes, out);
    }
}

tck_status_t s3_request_make(const struct s3_settings *settings, const struct s3_ask *ask,
                             const struct aws_credentials *credentials, time_t now, struct s3_request *out,
                             struct error *err)
{
    struct parts parts = {.count = 0};
    char authorization[S3_AUTHORIZATION_BYTES];
    if (!make_path(settings, ask->key, &parts) || !make_query(ask->query, parts.query, sizeof(parts.query))) {
        return error_set(err, TCK_ERR_INVAL, "the key or what is asked is too long for a URL");
    }
    hash_body(ask, parts.hash);
    s3_date(now, parts.date);
    make_headers(settings, ask, credentials, &parts);
    struct s3_to_sign request = {.method = ask->method,
                                 .path = parts.path,
                                 .query = parts.query,
                                 .headers = parts.headers,
                                 .header_count = parts.count,
                                 .payload_hash = parts.hash,
                                 .region = settings->region,
                                 .service = "s3",
                                 .now = now};
    tck_status_t status =
        s3_sign(&request, (struct s3_keys){credentials->access_key, credentials->secret_key}, authorization, err);
    if (status != TCK_OK) {
        return status;
    }
    int len = snprintf(out->url, sizeof(out->url), "%s://%s%s%s%s", settings->scheme, settings->host, parts.path,
                       parts.query[0] == '\0' ? "" : "?", parts.query);
    if (len >= (int)sizeof(out->url) || !make_lines(&parts, authorization, out)) {
        return error_set(err, TCK_ERR_INVAL,
                         "the request is too long, or a header of it has a line break: the session "
                         "token of the credentials, if it has one, must be one line");
    }
    return TCK_OK;
}

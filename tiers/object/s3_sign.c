/* SPDX-License-Identifier: Apache-2.0
 * Signature Version 4: hash of the canonical request, signed by a key derived from date, region and service. */
#include "tiers/object/s3_sign.h"
#include "base/buf.h"
#include "base/crypto.h"
#include "base/hex.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HEX_BYTES       (2 * SHA256_BYTES + 1)
#define SCOPE_BYTES     160
#define CANONICAL_BYTES (64u << 10)
#define KEY_BYTES       260

void s3_date(time_t now, char out[S3_DATE_BYTES])
{
    struct tm tm;
    if (gmtime_r(&now, &tm) == NULL || strftime(out, S3_DATE_BYTES, "%Y%m%dT%H%M%SZ", &tm) == 0) {
        out[0] = '\0';
    }
}

static void to_hex(const uint8_t digest[SHA256_BYTES], char out[HEX_BYTES])
{
    for (size_t i = 0; i < SHA256_BYTES; i++) {
        hex_write(digest[i], 2, out + 2 * i);
    }
    out[HEX_BYTES - 1] = '\0';
}

void s3_payload_hash(const void *data, size_t len, char out[S3_PAYLOAD_HASH_BYTES])
{
    uint8_t digest[SHA256_BYTES];
    sha256(data, len, digest);
    to_hex(digest, out);
}

bool s3_encode(const char *text, bool keep_slash, char *out, size_t cap)
{
    static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~";
    size_t len = strlen(out);
    for (; *text != '\0'; text++) {
        bool as_it_is = strchr(plain, *text) != NULL || (keep_slash && *text == '/');
        if (len + (as_it_is ? 1 : 3) >= cap) {
            return false;
        }
        len += (size_t)sprintf(out + len, as_it_is ? "%c" : "%%%02X", (unsigned char)*text);
    }
    return true;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct s3_header *)a)->name, ((const struct s3_header *)b)->name);
}

static void put(struct writer *w, const char *text)
{
    write_bytes(w, text, strlen(text));
}

static void put_names(struct writer *w, const struct s3_header *sorted, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        put(w, i == 0 ? "" : ";");
        put(w, sorted[i].name);
    }
}

/* The value without white space around it, and with single spaces inside. */
static void put_trimmed(struct writer *w, const char *value)
{
    const char *space = "";
    for (value += strspn(value, " \t"); *value != '\0'; value += strspn(value, " \t")) {
        size_t word = strcspn(value, " \t");
        put(w, space);
        write_bytes(w, value, word);
        value += word;
        space = " ";
    }
}

static bool canonical_hash(const struct s3_to_sign *request, const struct s3_header *sorted, char out[HEX_BYTES])
{
    struct writer w = writer_new(CANONICAL_BYTES);
    const char *lines[] = {request->method, "\n", request->path, "\n", request->query, "\n"};
    for (size_t i = 0; i < sizeof(lines) / sizeof(*lines); i++) {
        put(&w, lines[i]);
    }
    for (size_t i = 0; i < request->header_count; i++) {
        put(&w, sorted[i].name);
        put(&w, ":");
        put_trimmed(&w, sorted[i].value);
        put(&w, "\n");
    }
    put(&w, "\n");
    put_names(&w, sorted, request->header_count);
    put(&w, "\n");
    put(&w, request->payload_hash);
    bool whole = !w.failed;
    if (whole) {
        s3_payload_hash(w.data, w.len, out);
        explicit_bzero(w.data, w.len); /* a session token is one of the headers */
    }
    writer_free(&w);
    return whole;
}

static struct crypto_bytes bytes_of(const char *text)
{
    return (struct crypto_bytes){text, strlen(text)};
}

/* The key of one day, region and service. */
static void derive_key(const struct s3_to_sign *request, const char *secret_key, const char *day,
                       uint8_t key[SHA256_BYTES])
{
    char first[KEY_BYTES];
    const char *steps[] = {request->region, request->service, "aws4_request"};
    snprintf(first, sizeof(first), "AWS4%s", secret_key);
    hmac_sha256(bytes_of(first), bytes_of(day), bytes_of(""), key);
    explicit_bzero(first, sizeof(first));
    for (size_t i = 0; i < sizeof(steps) / sizeof(*steps); i++) {
        uint8_t next[SHA256_BYTES];
        hmac_sha256((struct crypto_bytes){key, SHA256_BYTES}, bytes_of(steps[i]), bytes_of(""), next);
        memcpy(key, next, SHA256_BYTES);
        explicit_bzero(next, sizeof(next));
    }
}

static void signature(const struct s3_to_sign *request, const char *secret_key, const char *scope,
                      const char request_hash[HEX_BYTES], char out[HEX_BYTES])
{
    char date[S3_DATE_BYTES], day[9], text[SCOPE_BYTES + HEX_BYTES + 64];
    uint8_t key[SHA256_BYTES], mac[SHA256_BYTES];
    s3_date(request->now, date);
    snprintf(day, sizeof(day), "%.8s", date);
    snprintf(text, sizeof(text), "AWS4-HMAC-SHA256\n%s\n%s\n%s", date, scope, request_hash);
    derive_key(request, secret_key, day, key);
    hmac_sha256((struct crypto_bytes){key, SHA256_BYTES}, bytes_of(text), bytes_of(""), mac);
    to_hex(mac, out);
    explicit_bzero(key, sizeof(key));
}

tck_status_t s3_sign(const struct s3_to_sign *request, struct s3_keys keys, char out[S3_AUTHORIZATION_BYTES],
                     struct error *err)
{
    struct s3_header sorted[S3_SIGNED_HEADERS_MAX];
    char date[S3_DATE_BYTES], scope[SCOPE_BYTES], request_hash[HEX_BYTES], signed_hash[HEX_BYTES], tail[128];
    if (request->header_count > S3_SIGNED_HEADERS_MAX || strlen(keys.secret_key) > KEY_BYTES - 5) {
        return error_set(err, TCK_ERR_INVAL, "more headers, or a longer secret key, than can be signed");
    }
    memcpy(sorted, request->headers, request->header_count * sizeof(*sorted));
    qsort(sorted, request->header_count, sizeof(*sorted), by_name);
    s3_date(request->now, date);
    int scope_len = snprintf(scope, sizeof(scope), "%.8s/%s/%s/aws4_request", date, request->region, request->service);
    if (scope_len >= (int)sizeof(scope) || !canonical_hash(request, sorted, request_hash)) {
        return error_set(err, TCK_ERR_INVAL, "the request is too long to be signed");
    }
    signature(request, keys.secret_key, scope, request_hash, signed_hash);
    struct writer w = writer_over(out, S3_AUTHORIZATION_BYTES);
    put(&w, "AWS4-HMAC-SHA256 Credential=");
    put(&w, keys.access_key);
    put(&w, "/");
    put(&w, scope);
    put(&w, ",SignedHeaders=");
    put_names(&w, sorted, request->header_count);
    snprintf(tail, sizeof(tail), ",Signature=%s", signed_hash);
    write_bytes(&w, tail, strlen(tail) + 1);
    return w.failed ? error_set(err, TCK_ERR_INVAL, "the access key is too long to be sent") : TCK_OK;
}

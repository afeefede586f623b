/* SPDX-License-Identifier: Apache-2.0
 * Signatures of requests as AWS defines them (Signature Version 4): a function of the request, the keys and the time.
 * Ours rather than curl's, whose rules for what is encoded already differ between its versions. */
#ifndef TCK_TIERS_S3_SIGN_H
#define TCK_TIERS_S3_SIGN_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <time.h>

#define S3_SIGNED_HEADERS_MAX  16
#define S3_DATE_BYTES          17 /* 20130524T000000Z */
#define S3_AUTHORIZATION_BYTES 1024
#define S3_PAYLOAD_HASH_BYTES  65
#define S3_UNSIGNED_PAYLOAD    "UNSIGNED-PAYLOAD"

struct s3_header {
    const char *name; /* in lower case */
    const char *value;
};

struct s3_keys {
    const char *access_key, *secret_key;
};

/* All that is sent must be signed, so headers has every header but Authorization: host, x-amz-date and
 * x-amz-content-sha256 as well. */
struct s3_to_sign {
    const char *method;
    const char *path;  /* percent-encoded, with its first '/' */
    const char *query; /* percent-encoded, sorted by name, each name with a '='; "" if there is none */
    const struct s3_header *headers;
    size_t header_count;
    const char *payload_hash; /* hex digits, or S3_UNSIGNED_PAYLOAD */
    const char *region, *service;
    time_t now;
};

void s3_date(time_t now, char out[S3_DATE_BYTES]);
void s3_payload_hash(const void *data, size_t len, char out[S3_PAYLOAD_HASH_BYTES]);

/* The value of the header Authorization. TCK_ERR_INVAL: too many headers, or too long. */
must_check tck_status_t s3_sign(const struct s3_to_sign *request, struct s3_keys keys, char out[S3_AUTHORIZATION_BYTES],
                                struct error *err);

/* Appends text in percent-encoding to out, which has cap bytes; '/' stays if keep_slash. False: it does not fit. */
must_check bool s3_encode(const char *text, bool keep_slash, char *out, size_t cap);

#endif

/* SPDX-License-Identifier: Apache-2.0
 * One signed request as URL and header lines: a function of what is asked, the credentials and the time. */
#ifndef TCK_TIERS_S3_REQUEST_H
#define TCK_TIERS_S3_REQUEST_H

#include "tiers/object/aws_sources.h"
#include "tiers/object/s3_settings.h"
#include "tiers/object/s3_sign.h"
#include "tiers/object/s3_xml.h"

#include <time.h>

#define S3_QUERY_MAX   6
#define S3_HEADERS_MAX 6
#define S3_HASHED_MAX  (1u << 20) /* bodies up to this size are signed with their hash */

struct s3_pair {
    const char *name;
    const char *value; /* NULL: left out */
};

struct s3_ask {
    const char *verb; /* for texts */
    const char *method;
    const char *key;                            /* relative to the store's prefix; NULL: the bucket */
    struct s3_pair query[S3_QUERY_MAX + 1];     /* sorted by name, up to a NULL */
    struct s3_pair headers[S3_HEADERS_MAX + 1]; /* names in lower case, up to a NULL */
    const void *body;
    uint64_t body_bytes;
    void *into; /* as in struct http_request */
    uint64_t into_bytes;
    bool into_whole;
    uint64_t collect_max;
    bool slow;                     /* the server may work for long before it answers */
    enum s3_document_kind expects; /* of an answer 2xx; S3_DOC_NONE: its body is no document */
};

struct s3_request {
    char url[40u << 10];
    char text[24u << 10]; /* of the lines */
    const char *lines[S3_SIGNED_HEADERS_MAX + 4];
};

must_check tck_status_t s3_request_make(const struct s3_settings *settings, const struct s3_ask *ask,
                                        const struct aws_credentials *credentials, time_t now, struct s3_request *out,
                                        struct error *err);

#endif

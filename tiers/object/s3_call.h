/* SPDX-License-Identifier: Apache-2.0
 * One call to S3: signed, sent, and made again until it is decided. */
#ifndef TCK_TIERS_S3_CALL_H
#define TCK_TIERS_S3_CALL_H

#include "tiers/object/aws_credentials.h"
#include "tiers/object/s3_request.h"

#define S3_ERROR_BODY_MAX (1u << 20)

struct s3_store {
    struct object_store base;
    struct s3_settings settings;
    struct aws_profile profile;
    struct aws_lookup lookup;
    struct http_client *http;
    struct aws_holder *credentials;
    atomic_bool canceled;
    atomic_llong clock_offset_s; /* the server's time minus ours, once it has refused ours */
    uint32_t deadline_ms, quiet_s;
};

struct s3_reply {
    long status;
    char code[64]; /* of an error document */
    struct http_headers headers;
    char *body; /* NUL-terminated; NULL: none */
    size_t body_bytes;
    uint64_t filled;
    struct s3_document document; /* if one was expected */
    bool too_big;                /* the answer had more bytes than were allowed */
    bool uncertain;              /* an earlier attempt may have taken effect, although its answer is not known */
};

/* Whatever the outcome, s3_reply_free has to follow. call may be NULL. */
must_check tck_status_t s3_call(struct s3_store *s, const struct object_call *call, const struct s3_ask *ask,
                                struct s3_reply *reply, struct error *err);
void s3_reply_free(struct s3_reply *reply);

/* The same call with what is left of its time since it began, and at least least_ms. */
struct object_call s3_call_rest(const struct s3_store *s, const struct object_call *call, uint64_t begun_ms,
                                uint32_t least_ms);
#define S3_REST_MS 1000 /* to read back what has to be known */

/* The value of the header x-amz-checksum-crc32c. */
#define S3_CRC_BYTES 9
void s3_crc_text(uint32_t crc, char out[S3_CRC_BYTES]);

#endif

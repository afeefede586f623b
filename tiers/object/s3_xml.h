/* SPDX-License-Identifier: Apache-2.0
 * The XML documents that S3 and STS answer with, decoded through expat; this module is the only one that includes its
 * header. What comes is bounded: no document type, S3_XML_MAX bytes, values of S3_XML_VALUE_MAX, and elements that we
 * do not know are passed over. */
#ifndef TCK_TIERS_S3_XML_H
#define TCK_TIERS_S3_XML_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define S3_XML_MAX       (16u << 20)
#define S3_XML_VALUE_MAX 8192

enum s3_document_kind {
    S3_DOC_NONE, /* another root element */
    S3_DOC_ERROR,
    S3_DOC_LIST,      /* ListObjectsV2 */
    S3_DOC_UPLOADS,   /* ListMultipartUploads */
    S3_DOC_INITIATED, /* CreateMultipartUpload */
    S3_DOC_COMPLETED, /* CompleteMultipartUpload */
    S3_DOC_ROLE,      /* AssumeRoleWithWebIdentity */
};

/* A key of a listing, a common prefix, or an upload under way. */
struct s3_entry {
    char *key;       /* decoded if the server said that it had encoded it; NULL: the element had none */
    char *upload_id; /* NULL: none */
    uint64_t bytes;
    bool folder;
};

/* Texts are NULL if the element was not there. */
struct s3_document {
    enum s3_document_kind kind;
    char *code, *message;
    char *upload_id, *etag;
    char *truncated, *encoding;
    char *next_token;                                           /* of S3_DOC_LIST */
    char *next_key, *next_upload_id;                            /* of S3_DOC_UPLOADS */
    char *access_key, *secret_key, *session_token, *expiration; /* of S3_DOC_ROLE */
    struct s3_entry *entries;
    size_t count;
};

/* TCK_ERR_PROTO: it is not whole, well-formed XML within the bounds. The document is freed by s3_document_free, which
 * overwrites the texts first. */
must_check tck_status_t s3_xml_decode(const char *text, size_t len, struct s3_document *out, struct error *err);
void s3_document_free(struct s3_document *document);
/* Whether another page follows. Some servers only say where it begins. */
bool s3_document_truncated(const struct s3_document *document);

/* "<CompleteMultipartUpload>..." is written, not read, and has nothing that needs an escape but the quotes of etags;
 * this writes a text with its escapes. False: it does not fit. */
must_check bool s3_xml_escape(const char *text, char *out, size_t cap);

#endif

/* SPDX-License-Identifier: Apache-2.0
 * What we use of the headers of an answer. */
#ifndef TCK_TIERS_HTTP_HEADERS_H
#define TCK_TIERS_HTTP_HEADERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HTTP_NO_LENGTH UINT64_MAX

struct http_headers {
    char etag[80];
    char request_id[80];
    char crc32c[16];        /* base64, as it was sent */
    char bucket_region[40]; /* where the bucket is, if the server says so */
    char date[40];
    uint64_t content_length;           /* HTTP_NO_LENGTH: not sent */
    uint64_t range_start, range_total; /* of Content-Range; both HTTP_NO_LENGTH: not sent, or not understood */
    uint32_t retry_after_s;            /* 0: not sent */
};

void http_headers_clear(struct http_headers *headers);
/* Takes one header line, with or without its end. A value that is too long or has other characters than printable
 * ASCII counts as not sent. */
void http_headers_take(struct http_headers *headers, const char *line, size_t len);

#endif

/* SPDX-License-Identifier: Apache-2.0
 * Any bytes as an answer of a server: its XML document is refused, or decoded within bounds; header lines leave values
 * that are printable and end. */
#include "fuzz.h"
#include "tiers/object/http_headers.h"
#include "tiers/object/s3_xml.h"

static void check_headers(const uint8_t *data, size_t len)
{
    struct http_headers headers;
    http_headers_clear(&headers);
    while (len > 0) {
        const uint8_t *end = memchr(data, '\n', len);
        size_t line = end == NULL ? len : (size_t)(end - data) + 1;
        http_headers_take(&headers, (const char *)data, line);
        data += line;
        len -= line;
    }
    MUST_HOLD(strlen(headers.etag) < sizeof(headers.etag));
    MUST_HOLD(strlen(headers.request_id) < sizeof(headers.request_id));
    MUST_HOLD(headers.retry_after_s <= 3600);
    MUST_HOLD((headers.range_total == HTTP_NO_LENGTH) == (headers.range_start == HTTP_NO_LENGTH));
    MUST_HOLD(headers.range_total == HTTP_NO_LENGTH || headers.range_start < headers.range_total);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct s3_document document;
    struct error err;
    check_headers(data, size);
    if (s3_xml_decode((const char *)data, size, &document, &err) == TCK_OK) {
        MUST_HOLD(document.kind != S3_DOC_NONE || document.count == 0);
        for (size_t i = 0; i < document.count; i++) {
            MUST_HOLD(document.entries[i].key == NULL || strlen(document.entries[i].key) < S3_XML_VALUE_MAX);
        }
        s3_document_free(&document);
    }
    return 0;
}

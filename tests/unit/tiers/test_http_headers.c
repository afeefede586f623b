/* SPDX-License-Identifier: Apache-2.0
 * Header lines as servers send them, and damaged ones. */
#include "tiers/object/http_headers.h"

#include <criterion/criterion.h>
#include <string.h>

static struct http_headers headers;

static void take(const char *line)
{
    http_headers_take(&headers, line, strlen(line));
}

Test(http_headers, values_are_taken_whatever_the_case_of_the_name)
{
    http_headers_clear(&headers);
    take("ETag: \"abc-2\"\r\n");
    take("X-AMZ-Request-Id:\t17F\r\n");
    take("Content-Length: 12\r\n");
    take("content-range: bytes 5-9/443\r\n");
    take("Retry-After: 3\r\n");
    take("Date: Fri, 24 May 2013 00:00:00 GMT\r\n");
    cr_assert_str_eq(headers.etag, "\"abc-2\"");
    cr_assert_str_eq(headers.request_id, "17F");
    cr_assert_eq(headers.content_length, 12);
    cr_assert_eq(headers.range_start, 5);
    cr_assert_eq(headers.range_total, 443);
    cr_assert_eq(headers.retry_after_s, 3);
    cr_assert_str_eq(headers.date, "Fri, 24 May 2013 00:00:00 GMT");
}

Test(http_headers, what_is_damaged_counts_as_not_sent)
{
    http_headers_clear(&headers);
    take("Content-Length: -1");
    take("Content-Length: 99999999999999999999999");
    take("Content-Length: 12x");
    take("Content-Range: bytes 9-5/443");
    take("Content-Range: bytes 0-500/443");
    take("Content-Range: bytes 0-5/*");
    take("x-amz-request-id: a\x1b[31mred");
    take("no colon");
    take("");
    take("Retry-After: Fri, 24 May 2013 00:00:00 GMT");
    cr_assert_eq(headers.content_length, HTTP_NO_LENGTH);
    cr_assert_eq(headers.range_total, HTTP_NO_LENGTH);
    cr_assert_str_empty(headers.request_id);
    cr_assert_eq(headers.retry_after_s, 0);
}

Test(http_headers, a_value_that_is_too_long_counts_as_not_sent)
{
    char line[300] = "ETag: ";
    http_headers_clear(&headers);
    memset(line + 6, 'e', 100);
    take(line);
    cr_assert_str_empty(headers.etag);
    memset(line + 6, 'e', 290);
    take(line);
    cr_assert_str_empty(headers.etag);
}

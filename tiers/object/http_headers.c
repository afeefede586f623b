/* SPDX-License-Identifier: Apache-2.0
 * Header lines of an answer, one at a time. */
#include "tiers/object/http_headers.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define VALUE_MAX 256

static const struct {
    const char *name;
    size_t at, cap;
} texts[] = {
#define TEXT(name, member)                                                                      \
    {                                                                                           \
        name, offsetof(struct http_headers, member), sizeof(((struct http_headers *)0)->member) \
    }
    TEXT("etag", etag),
    TEXT("x-amz-request-id", request_id),
    TEXT("x-amz-checksum-crc32c", crc32c),
    TEXT("x-amz-bucket-region", bucket_region),
    TEXT("date", date),
#undef TEXT
};

void http_headers_clear(struct http_headers *headers)
{
    *headers = (struct http_headers){
        .content_length = HTTP_NO_LENGTH, .range_start = HTTP_NO_LENGTH, .range_total = HTTP_NO_LENGTH};
}

/* The digits at *rest, which is moved behind them. */
static bool take_number(const char **rest, uint64_t *out)
{
    char *end;
    if (**rest < '0' || **rest > '9') {
        return false;
    }
    errno = 0;
    unsigned long long value = strtoull(*rest, &end, 10);
    if (errno != 0 || value >= HTTP_NO_LENGTH) {
        return false;
    }
    *rest = end;
    *out = value;
    return true;
}

/* "bytes 0-9/443"; nothing is taken of one whose total is not known. */
static void take_range(struct http_headers *headers, const char *value)
{
    uint64_t start, last, total;
    if (strncmp(value, "bytes ", 6) != 0) {
        return;
    }
    value += 6;
    if (take_number(&value, &start) && *value++ == '-' && take_number(&value, &last) && *value++ == '/' &&
        take_number(&value, &total) && *value == '\0' && start <= last && last < total) {
        headers->range_start = start;
        headers->range_total = total;
    }
}

static void take_value(struct http_headers *headers, const char *name, const char *value)
{
    uint64_t number;
    for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++) {
        if (strcasecmp(name, texts[i].name) == 0 && strlen(value) < texts[i].cap) {
            strcpy((char *)headers + texts[i].at, value);
        }
    }
    if (strcasecmp(name, "content-range") == 0) {
        take_range(headers, value);
    } else if (strcasecmp(name, "content-length") == 0 && take_number(&value, &number) && *value == '\0') {
        headers->content_length = number;
    } else if (strcasecmp(name, "retry-after") == 0 && take_number(&value, &number) && *value == '\0') {
        headers->retry_after_s = number < 3600 ? (uint32_t)number : 3600;
    }
}

void http_headers_take(struct http_headers *headers, const char *line, size_t len)
{
    char name[VALUE_MAX];
    while (len > 0 && strchr("\r\n \t", line[len - 1]) != NULL) {
        len--;
    }
    if (len >= sizeof(name)) {
        return;
    }
    for (size_t i = 0; i < len; i++) {
        if ((line[i] < ' ' && line[i] != '\t') || line[i] > '~') {
            return;
        }
    }
    memcpy(name, line, len);
    name[len] = '\0';
    char *colon = strchr(name, ':');
    if (colon != NULL) {
        *colon = '\0';
        take_value(headers, name, colon + 1 + strspn(colon + 1, " \t"));
    }
}

/* SPDX-License-Identifier: Apache-2.0
 * URL, endpoint and region. */
#include "tiers/object/s3_settings.h"
#include "base/path.h"

#include <stdio.h>
#include <string.h>

/* One name, without a slash. */
static bool is_name(const char *text)
{
    return path_is_key(text, strlen(text)) && strchr(text, '/') == NULL;
}

/* Nothing, or what a key may begin with; with or without a slash at the end. */
static bool is_prefix(const char *text)
{
    size_t len = strlen(text);
    return len == 0 || path_is_key(text, text[len - 1] == '/' ? len - 1 : len);
}

static tck_status_t take_url(const char *url, struct s3_settings *out, struct error *err)
{
    struct http_url parts;
    struct error why;
    if (http_url_parse(url, &parts, &why) != TCK_OK || strcmp(parts.scheme, "s3") != 0) {
        return error_set(err, TCK_ERR_CONFIG,
                         "an address such as s3://bucket/prefix was expected, without user, query "
                         "and fragment");
    }
    size_t len = strlen(parts.host);
    if (len < 3 || len >= sizeof(out->bucket) || !is_name(parts.host)) {
        return error_set(err, TCK_ERR_CONFIG, "%.80s is no name of a bucket: 3 to 63 letters, digits, '.', '-' and '_'",
                         parts.host);
    }
    const char *path = parts.path + 1; /* it begins with '/' */
    if (!is_prefix(path) || strlen(path) + 2 > sizeof(out->prefix) / 2) {
        return error_set(err, TCK_ERR_CONFIG,
                         "the prefix in s3://%s%.120s must be names of letters, digits, '.', '-' and '_' with single "
                         "'/' between them, at most %zu characters",
                         parts.host, parts.path, sizeof(out->prefix) / 2 - 2);
    }
    strcpy(out->bucket, parts.host);
    len = strlen(path);
    bool ended = len == 0 || path[len - 1] == '/';
    snprintf(out->prefix, sizeof(out->prefix), "%s%s", path, ended ? "" : "/");
    snprintf(out->name, sizeof(out->name), "s3://%s%s%.*s", out->bucket, len == 0 ? "" : "/",
             (int)(len > 0 && ended ? len - 1 : len), path);
    return TCK_OK;
}

static const char *first_set(const char *a, const char *b, const char *c)
{
    return a != NULL ? a : b != NULL ? b : c;
}

static tck_status_t take_region(const char *region, bool own_endpoint, struct s3_settings *out, struct error *err)
{
    if (region == NULL && own_endpoint) {
        region = "us-east-1"; /* what servers other than AWS's take for granted */
    }
    if (region == NULL) {
        return error_set(err, TCK_ERR_CONFIG,
                         "%s: no region is known: set AWS_REGION, or region in the profile; for a server other than "
                         "AWS's, set AWS_ENDPOINT_URL_S3",
                         out->name);
    }
    size_t len = strlen(region);
    if (len >= sizeof(out->region) || !is_name(region)) {
        return error_set(err, TCK_ERR_CONFIG, "%s: %.60s is no name of a region", out->name, region);
    }
    strcpy(out->region, region);
    return TCK_OK;
}

/* A server other than AWS's: the bucket is the first part of the path, since its name may have no address. */
static tck_status_t take_endpoint(const char *endpoint, struct s3_settings *out, struct error *err)
{
    struct http_url parts;
    struct error why;
    tck_status_t status = http_url_parse(endpoint, &parts, &why);
    if (status != TCK_OK || (strcmp(parts.scheme, "http") != 0 && strcmp(parts.scheme, "https") != 0)) {
        return error_set(err, TCK_ERR_CONFIG,
                         "%s: AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL or endpoint_url of the profile must be an address "
                         "such as https://host:9000: %s",
                         out->name, status != TCK_OK ? why.text : "its scheme is neither http nor https");
    }
    size_t len = strlen(parts.path);
    const char *slash = parts.path[len - 1] == '/' ? "" : "/";
    if (snprintf(out->base, sizeof(out->base), "%s%s%s/", parts.path, slash, out->bucket) >= (int)sizeof(out->base)) {
        return error_set(err, TCK_ERR_CONFIG, "%s: the endpoint's address is too long", out->name);
    }
    strcpy(out->scheme, parts.scheme);
    strcpy(out->host, parts.host);
    out->path_style = true;
    return TCK_OK;
}

/* A name with a dot has no certificate of AWS's in front of the host. */
static void take_aws(struct s3_settings *out)
{
    const char *end = strncmp(out->region, "cn-", 3) == 0 ? ".cn" : "";
    out->path_style = strchr(out->bucket, '.') != NULL || strchr(out->bucket, '_') != NULL;
    strcpy(out->scheme, "https");
    if (out->path_style) {
        snprintf(out->host, sizeof(out->host), "s3.%s.amazonaws.com%s", out->region, end);
        snprintf(out->base, sizeof(out->base), "/%s/", out->bucket);
    } else {
        snprintf(out->host, sizeof(out->host), "%s.s3.%s.amazonaws.com%s", out->bucket, out->region, end);
        strcpy(out->base, "/");
    }
}

tck_status_t s3_settings_load(const char *url, const struct aws_profile *profile, struct s3_settings *out,
                              struct error *err)
{
    struct s3_settings settings = {0};
    const char *endpoint =
        first_set(aws_variable("AWS_ENDPOINT_URL_S3"), aws_variable("AWS_ENDPOINT_URL"), profile->endpoint_url);
    const char *region = first_set(aws_variable("AWS_REGION"), aws_variable("AWS_DEFAULT_REGION"), profile->region);
    tck_status_t status = take_url(url, &settings, err);
    if (status == TCK_OK) {
        status = take_region(region, endpoint != NULL, &settings, err);
    }
    if (status == TCK_OK && endpoint != NULL) {
        status = take_endpoint(endpoint, &settings, err);
    } else if (status == TCK_OK) {
        take_aws(&settings);
    }
    if (status == TCK_OK) {
        *out = settings;
    }
    return status;
}

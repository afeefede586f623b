/* SPDX-License-Identifier: Apache-2.0
 * Where a bucket is looked for, by its URL, the environment and a profile. */
#include "tiers/object/s3_settings.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

static struct s3_settings got;
static struct error err;
static struct aws_profile profile;

static void set_up(void)
{
    unsetenv("AWS_ENDPOINT_URL_S3");
    unsetenv("AWS_ENDPOINT_URL");
    unsetenv("AWS_REGION");
    unsetenv("AWS_DEFAULT_REGION");
    profile = (struct aws_profile){0};
    err.text[0] = '\0';
}
TestSuite(s3_settings, .init = set_up);

static tck_status_t load(const char *url)
{
    return s3_settings_load(url, &profile, &got, &err);
}

Test(s3_settings, a_bucket_of_aws_is_part_of_the_host)
{
    setenv("AWS_REGION", "eu-west-1", 1);
    cr_assert_eq(load("s3://bucket/a/b"), TCK_OK, "%s", err.text);
    cr_assert_str_eq(got.scheme, "https");
    cr_assert_str_eq(got.host, "bucket.s3.eu-west-1.amazonaws.com");
    cr_assert_str_eq(got.base, "/");
    cr_assert_str_eq(got.prefix, "a/b/");
    cr_assert_str_eq(got.name, "s3://bucket/a/b");
    cr_assert_eq(load("s3://my.bucket"), TCK_OK);
    cr_assert_str_eq(got.host, "s3.eu-west-1.amazonaws.com");
    cr_assert_str_eq(got.base, "/my.bucket/");
    cr_assert_str_empty(got.prefix);
    cr_assert_str_eq(got.name, "s3://my.bucket");
    setenv("AWS_REGION", "cn-north-1", 1);
    cr_assert_eq(load("s3://bucket/"), TCK_OK);
    cr_assert_str_eq(got.host, "bucket.s3.cn-north-1.amazonaws.com.cn");
}

Test(s3_settings, a_bucket_of_another_server_is_part_of_the_path)
{
    setenv("AWS_ENDPOINT_URL", "http://other:1", 1);
    setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:9000", 1);
    cr_assert_eq(load("s3://bucket/a/"), TCK_OK, "%s", err.text);
    cr_assert_str_eq(got.host, "127.0.0.1:9000");
    cr_assert_str_eq(got.base, "/bucket/");
    cr_assert_str_eq(got.prefix, "a/");
    cr_assert_str_eq(got.name, "s3://bucket/a");
    cr_assert_str_eq(got.region, "us-east-1");
    unsetenv("AWS_ENDPOINT_URL_S3");
    cr_assert_eq(load("s3://bucket/a"), TCK_OK);
    cr_assert_str_eq(got.host, "other:1");
    setenv("AWS_ENDPOINT_URL", "https://host:443/base", 1);
    cr_assert_eq(load("s3://bucket/a"), TCK_OK);
    cr_assert_str_eq(got.host, "host");
    cr_assert_str_eq(got.base, "/base/bucket/");
}

Test(s3_settings, the_profile_is_asked_last)
{
    char endpoint[] = "https://profile", region[] = "r-1";
    profile.endpoint_url = endpoint;
    profile.region = region;
    cr_assert_eq(load("s3://bucket"), TCK_OK, "%s", err.text);
    cr_assert_str_eq(got.host, "profile");
    cr_assert_str_eq(got.region, "r-1");
    setenv("AWS_DEFAULT_REGION", "r-2", 1);
    cr_assert_eq(load("s3://bucket"), TCK_OK);
    cr_assert_str_eq(got.region, "r-2");
    setenv("AWS_REGION", "r-3", 1);
    cr_assert_eq(load("s3://bucket"), TCK_OK);
    cr_assert_str_eq(got.region, "r-3");
}

Test(s3_settings, without_a_region_aws_is_not_guessed)
{
    cr_assert_eq(load("s3://bucket"), TCK_ERR_CONFIG);
    cr_assert(strstr(err.text, "AWS_REGION") != NULL);
}

Test(s3_settings, what_is_no_such_address_is_refused)
{
    static const char *const bad[] = {"",
                                      "bucket",
                                      "http://bucket/a",
                                      "s3://",
                                      "s3://b",
                                      "s3://user:password@bucket/a",
                                      "s3://bucket/a?versionId=1",
                                      "s3://bucket/a#b",
                                      "s3://bucket//a",
                                      "s3://bucket/a/../b",
                                      "s3://bucket/a/./b",
                                      "s3://bucket/a%20b",
                                      "s3://bucket:80/a"};
    setenv("AWS_REGION", "eu-west-1", 1);
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        cr_assert_eq(load(bad[i]), TCK_ERR_CONFIG, "%s", bad[i]);
        cr_assert(strstr(err.text, "password") == NULL);
    }
    setenv("AWS_ENDPOINT_URL_S3", "ftp://host", 1);
    cr_assert_eq(load("s3://bucket/a"), TCK_ERR_CONFIG);
    setenv("AWS_ENDPOINT_URL_S3", "http://key:secret@host", 1);
    cr_assert_eq(load("s3://bucket/a"), TCK_ERR_CONFIG);
    cr_assert(strstr(err.text, "secret") == NULL);
}

/* SPDX-License-Identifier: Apache-2.0
 * Where a bucket is, from its URL, the environment and the profile, as AWS's libraries find it. */
#ifndef TCK_TIERS_S3_SETTINGS_H
#define TCK_TIERS_S3_SETTINGS_H

#include "tiers/object/aws_files.h"
#include "tiers/object/http.h"
#include "tiers/object/object_store.h"

#define S3_BUCKET_MAX 64
#define S3_REGION_MAX 48

struct s3_settings {
    char bucket[S3_BUCKET_MAX];
    char prefix[OBJECT_KEY_MAX];                   /* "" or components with '/' between them and after the last */
    char name[S3_BUCKET_MAX + OBJECT_KEY_MAX + 8]; /* s3://bucket/prefix */
    char region[S3_REGION_MAX];
    char scheme[16];
    char host[HTTP_HOST_MAX + S3_BUCKET_MAX]; /* of requests; has the bucket's name unless path_style */
    char base[HTTP_PATH_MAX];                 /* before the key: "/" or "/bucket/", perhaps with more before it */
    bool path_style;
};

/* "s3://bucket/prefix". Endpoint: AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, the profile's endpoint_url, else AWS by the
 * region: AWS_REGION, AWS_DEFAULT_REGION, the profile's region. TCK_ERR_CONFIG names what is wrong. */
must_check tck_status_t s3_settings_load(const char *url, const struct aws_profile *profile, struct s3_settings *out,
                                         struct error *err);

#endif

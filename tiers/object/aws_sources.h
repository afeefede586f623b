/* SPDX-License-Identifier: Apache-2.0
 * Where credentials may come from, each a function. TCK_ERR_NOENT: this source is not configured, so the next one is
 * asked. Any other error is one of a source that is configured, and no other source is asked in its place; of a service
 * that did not answer, or not with what was expected, it is one that aws_error_passes. */
#ifndef TCK_TIERS_AWS_SOURCES_H
#define TCK_TIERS_AWS_SOURCES_H

#include "tiers/object/aws_files.h"
#include "tiers/object/http.h"

struct aws_credentials {
    char *access_key, *secret_key;
    char *session_token; /* NULL: none */
    int64_t expires_s;   /* since 1970; 0: never */
    const char *source;  /* for texts */
};

void aws_credentials_free(struct aws_credentials *credentials); /* overwrites them first */

struct aws_lookup {
    struct http_client *http;
    const struct aws_profile *profile;
    const char *region; /* of STS; may be "" */
    uint64_t until_ms;  /* of clock_ms: no source is asked any longer; 0: each has limits of its own only */
};

typedef tck_status_t aws_source_fn(const struct aws_lookup *lookup, struct aws_credentials *out, struct error *err);

aws_source_fn aws_from_environment;
aws_source_fn aws_from_web_identity; /* a token in a file, for a role, at STS */
aws_source_fn aws_from_profile;
aws_source_fn aws_from_container;
aws_source_fn aws_from_instance; /* the metadata service of EC2, version 2 */

#endif

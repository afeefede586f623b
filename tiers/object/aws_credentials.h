/* SPDX-License-Identifier: Apache-2.0
 * The credentials of this process, looked for in the order in which AWS's libraries look, kept, and fetched again
 * before they expire. */
#ifndef TCK_TIERS_AWS_CREDENTIALS_H
#define TCK_TIERS_AWS_CREDENTIALS_H

#include "tiers/object/aws_sources.h"

struct aws_holder;

/* lookup, and what it points to, must live as long as the holder. Looks nowhere yet. */
must_check tck_status_t aws_holder_new(const struct aws_lookup *lookup, struct aws_holder **out, struct error *err);
void aws_holder_free(struct aws_holder *holder);

/* A copy, for the caller to free. May be called by any thread; the others wait for the caller that asks a source, until
 * until_ms (of clock_ms; 0: without an end). For a while after a service has failed, its error is the answer, and it is
 * not asked again. TCK_ERR_DENIED: there are none anywhere; the text has every place. */
must_check tck_status_t aws_holder_get(struct aws_holder *holder, int64_t now_s, uint64_t until_ms,
                                       struct aws_credentials *out, struct error *err);
/* Whether an error of aws_holder_get may be gone the next time: a service did not answer, or not with credentials. */
bool aws_error_passes(tck_status_t status);
/* A server has said that these have expired: the next call gets others, unless somebody else has got them already. */
void aws_holder_expire(struct aws_holder *holder, const char *access_key);

/* Whether credentials are to be fetched again (early, so that a failure leaves time), and whether they may still be
 * used. */
bool aws_credentials_due(int64_t expires_s, int64_t now_s);
bool aws_credentials_valid(int64_t expires_s, int64_t now_s);

#endif

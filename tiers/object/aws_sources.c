/* SPDX-License-Identifier: Apache-2.0
 * Sources of credentials that need no network: the environment and a profile. */
#include "tiers/object/aws_sources.h"

#include <stdlib.h>
#include <string.h>

void aws_credentials_free(struct aws_credentials *credentials)
{
    aws_wipe(credentials->access_key);
    aws_wipe(credentials->secret_key);
    aws_wipe(credentials->session_token);
    *credentials = (struct aws_credentials){0};
}

static tck_status_t keys(const char *access_key, const char *secret_key, const char *session_token,
                         struct aws_credentials *out, struct error *err)
{
    struct aws_credentials made = {.access_key = strdup(access_key), .secret_key = strdup(secret_key)};
    made.session_token = session_token == NULL ? NULL : strdup(session_token);
    if (made.access_key == NULL || made.secret_key == NULL || (session_token != NULL && made.session_token == NULL)) {
        aws_credentials_free(&made);
        return error_set(err, TCK_ERR_NOMEM, "no memory for credentials");
    }
    *out = made;
    return TCK_OK;
}

tck_status_t aws_from_environment(const struct aws_lookup *lookup, struct aws_credentials *out, struct error *err)
{
    const char *access_key = aws_variable("AWS_ACCESS_KEY_ID"), *secret_key = aws_variable("AWS_SECRET_ACCESS_KEY");
    (void)lookup;
    if (access_key == NULL && secret_key == NULL) {
        return error_set(err, TCK_ERR_NOENT, "AWS_ACCESS_KEY_ID is not set");
    }
    if (access_key == NULL || secret_key == NULL) {
        return error_set(err, TCK_ERR_CONFIG, "only one of AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY is set");
    }
    tck_status_t status = keys(access_key, secret_key, aws_variable("AWS_SESSION_TOKEN"), out, err);
    if (status == TCK_OK) {
        out->source = "the environment";
    }
    return status;
}

static tck_status_t keys_of(const struct aws_profile *p, struct aws_credentials *out, struct error *err)
{
    if (p->role_arn != NULL || p->credential_process != NULL || p->sso != NULL) {
        return error_set(err, TCK_ERR_UNSUPPORTED,
                         "the profile %.60s takes its credentials from %s, which is not supported: put keys into it, "
                         "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or use a web identity",
                         p->name,
                         p->role_arn != NULL             ? "another profile (role_arn)"
                         : p->credential_process != NULL ? "a program (credential_process)"
                                                         : "a sign-on (sso)");
    }
    if (p->access_key == NULL && p->secret_key == NULL) {
        return error_set(err, TCK_ERR_NOENT, "the profile %.60s has no keys", p->name);
    }
    if (p->access_key == NULL || p->secret_key == NULL) {
        return error_set(err, TCK_ERR_CONFIG,
                         "the profile %.60s has only one of aws_access_key_id and aws_secret_access_key", p->name);
    }
    return keys(p->access_key, p->secret_key, p->session_token, out, err);
}

tck_status_t aws_from_profile(const struct aws_lookup *lookup, struct aws_credentials *out, struct error *err)
{
    struct aws_profile now;
    (void)lookup; /* the files are read again: a tool may have put new keys into them */
    tck_status_t status = aws_profile_load(&now, err);
    if (status != TCK_OK) {
        return status;
    }
    status = keys_of(&now, out, err);
    if (status == TCK_OK) {
        out->source = "the profile";
    }
    aws_profile_free(&now);
    return status;
}

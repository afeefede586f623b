/* SPDX-License-Identifier: Apache-2.0
 * The settings of one profile, from ~/.aws/credentials and ~/.aws/config (or where AWS_SHARED_CREDENTIALS_FILE and
 * AWS_CONFIG_FILE say). */
#ifndef TCK_TIERS_AWS_FILES_H
#define TCK_TIERS_AWS_FILES_H

#include "base/status.h"

/* Texts are NULL if they are not set. */
struct aws_profile {
    char *name;
    char *access_key, *secret_key, *session_token;
    char *region, *endpoint_url, *ca_bundle;
    char *role_arn, *role_session_name, *web_identity_token_file;
    char *source_profile, *credential_source, *credential_process, *sso; /* what we do not do, to say so */
};

/* The profile that AWS_PROFILE names, else "default", which need not exist. TCK_ERR_CONFIG: the named one is in neither
 * file. A file that exists and cannot be read is an error. No text has a value of the files. */
must_check tck_status_t aws_profile_load(struct aws_profile *out, struct error *err);
/* Overwrites the texts first. */
void aws_profile_free(struct aws_profile *profile);

/* The content of a small file, NUL-terminated; the caller frees it after overwriting it. TCK_ERR_NOENT: no such file.
 */
must_check tck_status_t aws_file_read(const char *path, char **out, struct error *err);

/* The value of an environment variable; NULL if it is not set or empty. */
const char *aws_variable(const char *name);
void aws_wipe(char *text); /* overwrites and frees; NULL is fine */

#endif

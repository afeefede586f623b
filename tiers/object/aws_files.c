/* SPDX-License-Identifier: Apache-2.0
 * Shared files of AWS's tools, read and closed. */
#include "tiers/object/aws_files.h"
#include "tiers/object/aws_profile.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FILE_MAX (1u << 20)

static const struct {
    const char *name;
    size_t at;
} settings[] = {
#define SETTING(name, member)                      \
    {                                              \
        name, offsetof(struct aws_profile, member) \
    }
    SETTING("aws_access_key_id", access_key),
    SETTING("aws_secret_access_key", secret_key),
    SETTING("aws_session_token", session_token),
    SETTING("region", region),
    SETTING("endpoint_url", endpoint_url),
    SETTING("ca_bundle", ca_bundle),
    SETTING("role_arn", role_arn),
    SETTING("role_session_name", role_session_name),
    SETTING("web_identity_token_file", web_identity_token_file),
    SETTING("source_profile", source_profile),
    SETTING("credential_source", credential_source),
    SETTING("credential_process", credential_process),
    SETTING("sso_session", sso),
    SETTING("sso_start_url", sso),
#undef SETTING
};

const char *aws_variable(const char *name)
{
    const char *value = getenv(name);
    return value == NULL || value[0] == '\0' ? NULL : value;
}

void aws_wipe(char *text)
{
    if (text != NULL) {
        explicit_bzero(text, strlen(text));
        free(text);
    }
}

void aws_profile_free(struct aws_profile *profile)
{
    for (size_t i = 0; i < sizeof(settings) / sizeof(*settings); i++) {
        char **place = (char **)(void *)((char *)profile + settings[i].at);
        aws_wipe(*place);
        *place = NULL;
    }
    free(profile->name);
    profile->name = NULL;
}

static tck_status_t read_all(FILE *file, const char *path, char **out, struct error *err)
{
    char *text = malloc(FILE_MAX + 1);
    if (text == NULL) {
        return error_set(err, TCK_ERR_NOMEM, "%s: no memory to read it", path);
    }
    setvbuf(file, NULL, _IONBF, 0); /* no copy in a buffer of stdio */
    size_t len = fread(text, 1, FILE_MAX + 1, file);
    tck_status_t status = TCK_OK;
    if (ferror(file) != 0) {
        status = error_set(err, status_of_errno(errno), "%s: %m", path);
    } else if (len > FILE_MAX || memchr(text, '\0', len) != NULL) {
        status = error_set(err, TCK_ERR_CONFIG, "%s: is over %u bytes long or no text", path, FILE_MAX);
    }
    if (status != TCK_OK) {
        explicit_bzero(text, len);
        free(text);
        return status;
    }
    text[len] = '\0';
    *out = text;
    return TCK_OK;
}

tck_status_t aws_file_read(const char *path, char **out, struct error *err)
{
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        return error_set(err, status_of_errno(errno), "%s: %m", path);
    }
    tck_status_t status = read_all(file, path, out, err);
    fclose(file);
    return status;
}

struct filling {
    struct aws_profile *profile;
    bool no_memory;
};

/* The first value stays: keys of the credentials file, which is read first, go before those of the other one. */
static void take(void *ctx, const char *name, const char *value)
{
    struct filling *filling = ctx;
    for (size_t i = 0; i < sizeof(settings) / sizeof(*settings); i++) {
        char **place = (char **)(void *)((char *)filling->profile + settings[i].at);
        if (strcmp(name, settings[i].name) == 0 && *place == NULL && value[0] != '\0') {
            *place = strdup(value);
            filling->no_memory |= *place == NULL;
        }
    }
}

static bool path_of(const char *variable, const char *below_home, char out[PATH_MAX])
{
    const char *set = aws_variable(variable), *home = aws_variable("HOME");
    int len = set != NULL ? snprintf(out, PATH_MAX, "%s", set)
                          : snprintf(out, PATH_MAX, "%s/%s", home == NULL ? "" : home, below_home);
    return (set != NULL || home != NULL) && len < PATH_MAX;
}

/* *found is set if the file has the section. */
static tck_status_t read_section(const char *path, const char *section, struct aws_profile *profile, bool *found,
                                 struct error *err)
{
    char *text = NULL;
    struct filling filling = {.profile = profile};
    tck_status_t status = aws_file_read(path, &text, err);
    if (status != TCK_OK) {
        return status == TCK_ERR_NOENT ? TCK_OK : status;
    }
    size_t len = strlen(text);
    *found |= aws_profile_read(text, section, take, &filling);
    explicit_bzero(text, len);
    free(text);
    return filling.no_memory ? error_set(err, TCK_ERR_NOMEM, "%s: no memory", path) : TCK_OK;
}

static tck_status_t read_both(struct aws_profile *profile, bool *found, struct error *err)
{
    char path[PATH_MAX], section[280];
    tck_status_t status = TCK_OK;
    if (path_of("AWS_SHARED_CREDENTIALS_FILE", ".aws/credentials", path)) {
        status = read_section(path, profile->name, profile, found, err);
    }
    if (status == TCK_OK && path_of("AWS_CONFIG_FILE", ".aws/config", path)) {
        snprintf(section, sizeof(section), "profile %s", profile->name);
        status = read_section(path, section, profile, found, err);
        if (status == TCK_OK && strcmp(profile->name, "default") == 0) {
            status = read_section(path, "default", profile, found, err);
        }
    }
    return status;
}

tck_status_t aws_profile_load(struct aws_profile *out, struct error *err)
{
    const char *named = aws_variable("AWS_PROFILE");
    struct aws_profile profile = {.name = strdup(named == NULL ? "default" : named)};
    bool found = false;
    if (profile.name == NULL) {
        return error_set(err, TCK_ERR_NOMEM, "no memory for the name of a profile");
    }
    tck_status_t status = read_both(&profile, &found, err);
    if (status == TCK_OK && named != NULL && !found) {
        status = error_set(err, TCK_ERR_CONFIG,
                           "AWS_PROFILE names the profile %.100s, which is neither in ~/.aws/credentials nor in "
                           "~/.aws/config (or the files that AWS_SHARED_CREDENTIALS_FILE and AWS_CONFIG_FILE name)",
                           named);
    }
    if (status == TCK_OK) {
        *out = profile;
    } else {
        aws_profile_free(&profile);
    }
    return status;
}

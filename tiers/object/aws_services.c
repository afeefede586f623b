/* SPDX-License-Identifier: Apache-2.0
 * Sources of credentials that are asked over HTTP: STS, the endpoint of a container, and the metadata of an instance.
 */
#include "base/json.h"
#include "tiers/object/aws_fetch.h"
#include "tiers/object/aws_sources.h"
#include "tiers/object/s3_sign.h"
#include "tiers/object/s3_xml.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define URL_BYTES      2048
#define LINE_BYTES     8192
#define STS_MS         20000
#define CONTAINER_MS   10000
#define INSTANCE_MS    2000
#define CONTAINER_HOST "http://169.254.170.2"
#define INSTANCE_HOST  "http://169.254.169.254"
#define INSTANCE_ROLES "/latest/meta-data/iam/security-credentials/"
#define INSTANCE_TTL   "x-aws-ec2-metadata-token-ttl-seconds: 21600"

/* Takes over the texts, which may be NULL. */
static tck_status_t timed(const char *what, struct aws_credentials made, const char *expiration,
                          struct aws_credentials *out, struct error *err)
{
    struct tm tm = {0};
    const char *end = expiration == NULL ? NULL : strptime(expiration, "%Y-%m-%dT%H:%M:%S", &tm);
    if (made.access_key == NULL || made.secret_key == NULL || (expiration != NULL && end == NULL)) {
        aws_credentials_free(&made);
        return error_set(err, TCK_ERR_PROTO, "%s: the answer has no credentials", what);
    }
    made.expires_s = expiration == NULL ? 0 : (int64_t)timegm(&tm);
    made.source = what;
    *out = made;
    return TCK_OK;
}

/* ---- STS ----------------------------------------------------------------------------------------------------- */

static char *taken(char **place)
{
    char *text = *place;
    *place = NULL;
    return text;
}

static tck_status_t decode_role(const char *text, struct aws_credentials *out, struct error *err)
{
    static const char what[] = "STS (AssumeRoleWithWebIdentity)";
    struct s3_document document;
    tck_status_t status = s3_xml_decode(text, strlen(text), &document, err);
    if (status != TCK_OK) {
        return error_prefix(err, "%s", what);
    }
    struct aws_credentials made = {.access_key = taken(&document.access_key),
                                   .secret_key = taken(&document.secret_key),
                                   .session_token = taken(&document.session_token)};
    status = timed(what, made, document.expiration, out, err);
    s3_document_free(&document);
    return status;
}

static bool sts_url(const char *region, char url[URL_BYTES])
{
    const char *set = aws_variable("AWS_ENDPOINT_URL_STS");
    if (set == NULL) {
        set = aws_variable("AWS_ENDPOINT_URL");
    }
    int len = set != NULL         ? snprintf(url, URL_BYTES, "%s", set)
              : region[0] == '\0' ? snprintf(url, URL_BYTES, "https://sts.amazonaws.com/")
                                  : snprintf(url, URL_BYTES, "https://sts.%s.amazonaws.com%s/", region,
                                             strncmp(region, "cn-", 3) == 0 ? ".cn" : "");
    return len > 0 && len < URL_BYTES;
}

/* The token without the newline that its file may end with. */
static bool role_form(const char *role, const char *session, char *token, char form[], size_t cap)
{
    token[strcspn(token, "\r\n")] = '\0';
    snprintf(form, cap, "Action=AssumeRoleWithWebIdentity&Version=2011-06-15&RoleArn=");
    bool fits = s3_encode(role, false, form, cap);
    fits = fits && strlen(form) + 20 < cap && stpcpy(form + strlen(form), "&RoleSessionName=") != NULL &&
           s3_encode(session, false, form, cap);
    fits = fits && strlen(form) + 20 < cap && stpcpy(form + strlen(form), "&WebIdentityToken=") != NULL &&
           s3_encode(token, false, form, cap);
    return fits;
}

static tck_status_t assume_role(const struct aws_lookup *lookup, const char *role, const char *session, char *token,
                                struct aws_credentials *out, struct error *err)
{
    static const char *const headers[] = {"Expect:", "Content-Type: application/x-www-form-urlencoded", NULL};
    char url[URL_BYTES], *answer = NULL;
    size_t cap = 3 * (strlen(token) + strlen(role) + strlen(session)) + 256;
    char *form = malloc(cap);
    tck_status_t status;
    if (form == NULL || !sts_url(lookup->region, url) || !role_form(role, session, token, form, cap)) {
        status = error_set(err, TCK_ERR_INVAL, "STS: the address or the token is too long");
    } else {
        struct aws_fetch fetch = {.what = "STS (AssumeRoleWithWebIdentity)",
                                  .method = "POST",
                                  .url = url,
                                  .headers = headers,
                                  .body = form,
                                  .deadline_ms = STS_MS,
                                  .until_ms = lookup->until_ms};
        status = aws_fetch(lookup->http, &fetch, &answer, err);
        explicit_bzero(form, cap);
    }
    if (status == TCK_OK) {
        status = decode_role(answer, out, err);
    }
    aws_wipe(answer);
    free(form);
    return status;
}

tck_status_t aws_from_web_identity(const struct aws_lookup *lookup, struct aws_credentials *out, struct error *err)
{
    const char *file = aws_variable("AWS_WEB_IDENTITY_TOKEN_FILE"), *role = aws_variable("AWS_ROLE_ARN");
    const char *session = aws_variable("AWS_ROLE_SESSION_NAME");
    char *token = NULL;
    if (file == NULL && lookup->profile->web_identity_token_file != NULL) {
        file = lookup->profile->web_identity_token_file;
        role = lookup->profile->role_arn;
        session = lookup->profile->role_session_name;
    }
    if (file == NULL) {
        return error_set(err, TCK_ERR_NOENT, "AWS_WEB_IDENTITY_TOKEN_FILE is not set");
    }
    if (role == NULL) {
        return error_set(err, TCK_ERR_CONFIG, "AWS_WEB_IDENTITY_TOKEN_FILE is set, but AWS_ROLE_ARN is not");
    }
    if (aws_file_read(file, &token, err) != TCK_OK) {
        /* Not "not configured": a file that is named must be there. */
        return error_set(err, TCK_ERR_CONFIG, "AWS_WEB_IDENTITY_TOKEN_FILE: %.200s cannot be read", file);
    }
    tck_status_t status = assume_role(lookup, role, session == NULL ? "tierckpt" : session, token, out, err);
    aws_wipe(token);
    return status == TCK_ERR_NOENT ? error_set(err, TCK_ERR_CONFIG, "STS: HTTP 404: not an address of STS") : status;
}

/* ---- JSON of containers and instances ------------------------------------------------------------------------- */

static char *copied(const json_t *json, const char *key)
{
    const char *text = json_str(json_get(json, key));
    return text == NULL ? NULL : strdup(text);
}

static tck_status_t decode_json(const char *what, const char *text, struct aws_credentials *out, struct error *err)
{
    json_t *json = NULL;
    tck_status_t status = json_parse(text, strlen(text), &json, err);
    if (status != TCK_OK) {
        return error_prefix(err, "%s", what);
    }
    struct aws_credentials made = {.access_key = copied(json, "AccessKeyId"),
                                   .secret_key = copied(json, "SecretAccessKey"),
                                   .session_token = copied(json, "Token")};
    status = timed(what, made, json_str(json_get(json, "Expiration")), out, err);
    json_free(json);
    return status;
}

/* ---- container ------------------------------------------------------------------------------------------------ */

/* Plain HTTP only to this machine or to the addresses that AWS has set aside: a token is sent along. */
static bool may_send_token(const char *url)
{
    static const char *const hosts[] = {"127.0.0.1",      "localhost",      "[::1]", "169.254.170.2",
                                        "169.254.170.23", "[fd00:ec2::23]", NULL};
    struct http_url parts;
    struct error ignored;
    if (http_url_parse(url, &parts, &ignored) != TCK_OK) {
        return false;
    }
    for (size_t i = 0; hosts[i] != NULL; i++) {
        size_t len = strlen(hosts[i]);
        if (strncmp(parts.host, hosts[i], len) == 0 && (parts.host[len] == '\0' || parts.host[len] == ':')) {
            return true;
        }
    }
    return strcmp(parts.scheme, "https") == 0;
}

/* "Authorization: <token>", from the environment or a file; "" if there is none. */
static tck_status_t container_token(char line[LINE_BYTES], struct error *err)
{
    const char *file = aws_variable("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE");
    const char *value = aws_variable("AWS_CONTAINER_AUTHORIZATION_TOKEN");
    char *text = NULL;
    line[0] = '\0';
    if (file != NULL) {
        if (aws_file_read(file, &text, err) != TCK_OK) {
            return error_set(err, TCK_ERR_CONFIG, "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE: %.200s cannot be read",
                             file);
        }
        text[strcspn(text, "\r\n")] = '\0';
        value = text;
    }
    bool fits = value == NULL || snprintf(line, LINE_BYTES, "Authorization: %s", value) < LINE_BYTES;
    bool one_line = strpbrk(line, "\r\n") == NULL;
    aws_wipe(text);
    return fits && one_line ? TCK_OK
                            : error_set(err, TCK_ERR_CONFIG, "the container's authorization token is no line of text");
}

tck_status_t aws_from_container(const struct aws_lookup *lookup, struct aws_credentials *out, struct error *err)
{
    static const char what[] = "the container's credentials";
    const char *relative = aws_variable("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI");
    const char *full = aws_variable("AWS_CONTAINER_CREDENTIALS_FULL_URI");
    char url[URL_BYTES], token[LINE_BYTES], *answer = NULL;
    if (relative == NULL && full == NULL) {
        return error_set(err, TCK_ERR_NOENT, "AWS_CONTAINER_CREDENTIALS_FULL_URI is not set");
    }
    int len = relative != NULL ? snprintf(url, sizeof(url), "%s%s", CONTAINER_HOST, relative)
                               : snprintf(url, sizeof(url), "%s", full);
    if (len >= (int)sizeof(url) || (relative == NULL && !may_send_token(url))) {
        return error_set(err, TCK_ERR_CONFIG,
                         "AWS_CONTAINER_CREDENTIALS_FULL_URI must be https, or lead to this machine");
    }
    tck_status_t status = container_token(token, err);
    const char *const headers[] = {"Expect:", token[0] == '\0' ? NULL : token, NULL};
    struct aws_fetch fetch = {.what = what,
                              .method = "GET",
                              .url = url,
                              .headers = headers,
                              .deadline_ms = CONTAINER_MS,
                              .until_ms = lookup->until_ms,
                              .direct = true};
    if (status == TCK_OK) {
        status = aws_fetch(lookup->http, &fetch, &answer, err);
    }
    explicit_bzero(token, sizeof(token));
    if (status == TCK_OK) {
        status = decode_json(what, answer, out, err);
    }
    aws_wipe(answer);
    return status == TCK_ERR_NOENT ? error_set(err, TCK_ERR_CONFIG, "%s: HTTP 404", what) : status;
}

/* ---- instance ------------------------------------------------------------------------------------------------- */

static tck_status_t ask_instance(const struct aws_lookup *lookup, const char *method, const char *path,
                                 const char *header, char **out, struct error *err)
{
    const char *host = aws_variable("AWS_EC2_METADATA_SERVICE_ENDPOINT");
    char url[URL_BYTES];
    const char *const headers[] = {"Expect:", header, NULL};
    host = host == NULL ? INSTANCE_HOST : host;
    size_t len = strlen(host);
    if (snprintf(url, sizeof(url), "%.*s%s", (int)(host[len - 1] == '/' ? len - 1 : len), host, path) >=
        (int)sizeof(url)) {
        return error_set(err, TCK_ERR_CONFIG, "AWS_EC2_METADATA_SERVICE_ENDPOINT is too long");
    }
    struct aws_fetch fetch = {.what = "the instance's metadata",
                              .method = method,
                              .url = url,
                              .headers = headers,
                              .deadline_ms = INSTANCE_MS,
                              .until_ms = lookup->until_ms,
                              .direct = true};
    return aws_fetch(lookup->http, &fetch, out, err);
}

/* With the session's token as a header: the name of the role, then its credentials. */
static tck_status_t ask_role(const struct aws_lookup *lookup, const char *header, struct aws_credentials *out,
                             struct error *err)
{
    char path[URL_BYTES] = INSTANCE_ROLES, *role = NULL, *answer = NULL;
    tck_status_t status = ask_instance(lookup, "GET", INSTANCE_ROLES, header, &role, err);
    if (status != TCK_OK) {
        return status;
    }
    role[strcspn(role, "\r\n")] = '\0';
    if (!s3_encode(role, false, path, sizeof(path))) {
        status = error_set(err, TCK_ERR_PROTO, "the instance's metadata: the name of the role is too long");
    } else {
        status = ask_instance(lookup, "GET", path, header, &answer, err);
    }
    if (status == TCK_OK) {
        status = decode_json("the instance's metadata", answer, out, err);
    }
    aws_wipe(answer);
    free(role);
    return status;
}

tck_status_t aws_from_instance(const struct aws_lookup *lookup, struct aws_credentials *out, struct error *err)
{
    const char *disabled = aws_variable("AWS_EC2_METADATA_DISABLED");
    char header[LINE_BYTES], *token = NULL;
    if (disabled != NULL && strcasecmp(disabled, "true") == 0) {
        return error_set(err, TCK_ERR_NOENT, "the metadata of the instance is disabled");
    }
    tck_status_t status = ask_instance(lookup, "PUT", "/latest/api/token", INSTANCE_TTL, &token, err);
    if (status == TCK_ERR_UNREACHABLE) { /* one that is there and slow is another matter */
        return error_set(err, TCK_ERR_NOENT, "this machine has no metadata service of EC2");
    }
    if (status != TCK_OK) {
        return status;
    }
    token[strcspn(token, "\r\n")] = '\0';
    bool fits = snprintf(header, sizeof(header), "x-aws-ec2-metadata-token: %s", token) < (int)sizeof(header);
    status = fits ? ask_role(lookup, header, out, err)
                  : error_set(err, TCK_ERR_PROTO, "the instance's metadata: the token is too long");
    explicit_bzero(header, sizeof(header));
    aws_wipe(token);
    return status;
}

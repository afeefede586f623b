/* SPDX-License-Identifier: Apache-2.0
 * Credentials are found in the order of AWS's libraries, renewed in time, and never appear in a text. */
#include "base/clock.h"
#include "http_fake.h"
#include "tiers/object/aws_credentials.h"
#include "tiers/object/aws_profile.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define NOW 1900000000 /* in 2030 */

static char home[] = "/tmp/aws_credentials.XXXXXX";
static struct http_client *http;
static struct aws_profile profile;
static struct aws_lookup lookup;
static struct aws_holder *holder;
static struct aws_credentials got;
static struct error err;
static char asked[1 << 16]; /* first lines and headers of the fake server's requests */
static const char *failing = "HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n";

static void write_file(const char *name, const char *text)
{
    char path[200];
    snprintf(path, sizeof(path), "%s/%s", home, name);
    FILE *file = fopen(path, "w");
    cr_assert(file != NULL && fputs(text, file) >= 0);
    fclose(file);
}

static void set_up(void)
{
    static const char *const names[] = {"AWS_ACCESS_KEY_ID",
                                        "AWS_SECRET_ACCESS_KEY",
                                        "AWS_SESSION_TOKEN",
                                        "AWS_PROFILE",
                                        "AWS_WEB_IDENTITY_TOKEN_FILE",
                                        "AWS_ROLE_ARN",
                                        "AWS_ENDPOINT_URL",
                                        "AWS_ENDPOINT_URL_STS",
                                        "AWS_CONTAINER_CREDENTIALS_FULL_URI",
                                        "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
                                        "AWS_CONTAINER_AUTHORIZATION_TOKEN",
                                        "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
                                        "AWS_EC2_METADATA_SERVICE_ENDPOINT",
                                        "AWS_SHARED_CREDENTIALS_FILE",
                                        "AWS_CONFIG_FILE"};
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        unsetenv(names[i]);
    }
    setenv("AWS_EC2_METADATA_DISABLED", "true", 1);
    cr_assert(mkdtemp(home) != NULL);
    setenv("HOME", home, 1);
    char path[100];
    snprintf(path, sizeof(path), "%s/.aws", home);
    cr_assert_eq(mkdir(path, 0700), 0);
    cr_assert_eq(http_client_new(NULL, &http, &err), TCK_OK);
}

static void tear_down(void)
{
    char command[200];
    aws_holder_free(holder);
    aws_profile_free(&profile);
    http_client_free(http);
    snprintf(command, sizeof(command), "rm -rf %s", home);
    cr_assert_eq(system(command), 0);
}
TestSuite(aws_credentials, .init = set_up, .fini = tear_down, .timeout = 200);

static tck_status_t get(int64_t now)
{
    if (holder == NULL) {
        tck_status_t status = aws_profile_load(&profile, &err);
        if (status != TCK_OK) {
            return status;
        }
        lookup = (struct aws_lookup){.http = http, .profile = &profile, .region = "eu-west-1"};
        cr_assert_eq(aws_holder_new(&lookup, &holder, &err), TCK_OK);
    }
    return aws_holder_get(holder, now, 0, &got, &err);
}

static void expect(const char *access_key, const char *secret_key, const char *token)
{
    cr_assert_eq(get(NOW), TCK_OK, "%s", err.text);
    cr_assert_str_eq(got.access_key, access_key);
    cr_assert_str_eq(got.secret_key, secret_key);
    if (token == NULL) {
        cr_assert(got.session_token == NULL);
    } else {
        cr_assert_str_eq(got.session_token, token);
    }
    aws_credentials_free(&got);
}

static void expect_error(tck_status_t status, const char *word)
{
    cr_assert_eq(get(NOW), status, "%s", err.text);
    cr_assert(strstr(err.text, word) != NULL, "%s", err.text);
    cr_assert(strstr(err.text, "hush") == NULL, "%s", err.text);
}

/* ---- environment and files ------------------------------------------------------------------------------------ */

Test(aws_credentials, the_environment_goes_before_all_others)
{
    write_file(".aws/credentials", "[default]\naws_access_key_id = file\naws_secret_access_key = hush\n");
    setenv("AWS_ACCESS_KEY_ID", "env", 1);
    setenv("AWS_SECRET_ACCESS_KEY", "hush", 1);
    setenv("AWS_SESSION_TOKEN", "token", 1);
    expect("env", "hush", "token");
}

Test(aws_credentials, half_of_a_pair_is_an_error)
{
    setenv("AWS_ACCESS_KEY_ID", "env", 1);
    expect_error(TCK_ERR_CONFIG, "AWS_SECRET_ACCESS_KEY");
}

Test(aws_credentials, a_profile_is_read_from_both_files)
{
    write_file(".aws/credentials",
               "; comment\n[default]\naws_access_key_id=wrong\naws_secret_access_key=wrong\n"
               "[Dev]\naws_access_key_id = wrong\n"
               "[dev]\n# comment\naws_access_key_id = id # comment\naws_secret_access_key=a/b+c=#d\n"
               "aws_session_token = t\n");
    write_file(".aws/config", "[profile dev]\nregion = eu-north-1\ns3 =\n  endpoint_url = nested\n"
                              "endpoint_url = http://host\n[dev]\nca_bundle = wrong\n");
    setenv("AWS_PROFILE", "dev", 1);
    expect("id", "a/b+c=#d", "t");
    cr_assert_str_eq(profile.region, "eu-north-1");
    cr_assert_str_eq(profile.endpoint_url, "http://host");
    cr_assert(profile.ca_bundle == NULL);
}

Test(aws_credentials, a_long_token_is_read_whole)
{
    char text[6000] = "[default]\r\naws_access_key_id=a\r\naws_secret_access_key=b\r\naws_session_token=", token[4097];
    memset(token, 't', 4096);
    token[4096] = '\0';
    strcat(strcat(text, token), "\r\n");
    write_file(".aws/credentials", text);
    expect("a", "b", token);
}

Test(aws_credentials, a_named_profile_must_exist)
{
    write_file(".aws/credentials", "[default]\naws_access_key_id=a\naws_secret_access_key=hush\n");
    setenv("AWS_PROFILE", "other", 1);
    expect_error(TCK_ERR_CONFIG, "other");
}

Test(aws_credentials, a_file_that_cannot_be_read_is_an_error)
{
    setenv("AWS_SHARED_CREDENTIALS_FILE", home, 1);
    expect_error(TCK_ERR_IO, home);
}

Test(aws_credentials, what_is_not_supported_is_refused_by_name)
{
    write_file(".aws/config", "[default]\ncredential_process = /bin/hush\n");
    expect_error(TCK_ERR_UNSUPPORTED, "credential_process");
}

Test(aws_credentials, without_any_all_places_are_named)
{
    expect_error(TCK_ERR_DENIED, "AWS_ACCESS_KEY_ID");
    cr_assert(strstr(err.text, "AWS_CONTAINER_CREDENTIALS_FULL_URI") != NULL);
}

Test(aws_credentials, keys_that_a_tool_has_replaced_are_taken_once_the_old_ones_have_expired)
{
    write_file(".aws/credentials", "[default]\naws_access_key_id=a\naws_secret_access_key=b\n");
    expect("a", "b", NULL);
    write_file(".aws/credentials", "[default]\naws_access_key_id=c\naws_secret_access_key=d\n");
    expect("a", "b", NULL);
    aws_holder_expire(holder, "another");
    expect("a", "b", NULL);
    aws_holder_expire(holder, "a");
    expect("c", "d", NULL);
}

/* ---- services ------------------------------------------------------------------------------------------------- */

#define OK_ANSWER "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n"

static unsigned served;

static const char *answer_json(const char *request)
{
    static char answer[1000];
    snprintf(asked + strlen(asked), sizeof(asked) - strlen(asked), "%s\n", request);
    served++;
    if (strncmp(request, "PUT /latest/api/token", 21) == 0) {
        return OK_ANSWER "session-token";
    }
    if (strstr(request, "security-credentials/ HTTP") != NULL) {
        return OK_ANSWER "the role\n";
    }
    snprintf(answer, sizeof(answer),
             OK_ANSWER "{\"Code\":\"Success\",\"AccessKeyId\":\"id%u\",\"SecretAccessKey\":\"s\",\"Token\":\"t\","
                       "\"Expiration\":\"2030-03-17T18:%02u:20Z\"}",
             served, served == 1 ? 0 : 59); /* NOW is 2030-03-17T17:46:40Z */
    return answer;
}

static const char *answer_error(const char *request)
{
    (void)request;
    served++;
    return failing;
}

static const char *answer_sts(const char *request)
{
    snprintf(asked + strlen(asked), sizeof(asked) - strlen(asked), "%s\n", request);
    return OK_ANSWER "<AssumeRoleWithWebIdentityResponse xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/\">"
                     "<AssumeRoleWithWebIdentityResult><Credentials><AccessKeyId>role</AccessKeyId>"
                     "<SecretAccessKey>s</SecretAccessKey><SessionToken>t</SessionToken>"
                     "<Expiration>2030-03-17T19:00:00Z</Expiration></Credentials></AssumeRoleWithWebIdentityResult>"
                     "</AssumeRoleWithWebIdentityResponse>";
}

Test(aws_credentials, a_web_identity_goes_before_the_files)
{
    char url[64], path[100];
    http_fake_start(answer_sts, url);
    write_file(".aws/credentials", "[default]\naws_access_key_id=wrong\naws_secret_access_key=wrong\n");
    write_file("token", "to/ken\n");
    snprintf(path, sizeof(path), "%s/token", home);
    setenv("AWS_ENDPOINT_URL_STS", url, 1);
    setenv("AWS_WEB_IDENTITY_TOKEN_FILE", path, 1);
    expect_error(TCK_ERR_CONFIG, "AWS_ROLE_ARN");
    setenv("AWS_ROLE_ARN", "arn:aws:iam::1:role/r", 1);
    expect("role", "s", "t");
    cr_assert(strstr(asked, "RoleArn=arn%3Aaws%3Aiam%3A%3A1%3Arole%2Fr&RoleSessionName=tierckpt&"
                            "WebIdentityToken=to%2Fken\n") != NULL,
              "%s", asked);
}

Test(aws_credentials, a_container_is_asked_with_its_token)
{
    char url[64];
    http_fake_start(answer_json, url);
    setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", url, 1);
    setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN", "Bearer x", 1);
    expect("id1", "s", "t");
    cr_assert(strstr(asked, "Authorization: Bearer x\r\n") != NULL, "%s", asked);
}

Test(aws_credentials, a_container_token_goes_to_no_other_machine_in_the_clear)
{
    setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://localhost.example.com/", 1);
    expect_error(TCK_ERR_CONFIG, "https");
}

Test(aws_credentials, an_instance_is_asked_with_a_session)
{
    char url[64];
    unsetenv("AWS_EC2_METADATA_DISABLED");
    http_fake_start(answer_json, url);
    setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", url, 1);
    expect("id3", "s", "t");
    cr_assert(strstr(asked, "x-aws-ec2-metadata-token-ttl-seconds: ") != NULL, "%s", asked);
    cr_assert(strstr(asked, "GET /latest/meta-data/iam/security-credentials/the%20role HTTP") != NULL, "%s", asked);
    cr_assert(strstr(asked, "x-aws-ec2-metadata-token: session-token\r\n") != NULL, "%s", asked);
}

Test(aws_credentials, they_are_renewed_before_they_expire)
{
    char url[64];
    http_fake_start(answer_json, url);
    setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", url, 1);
    expect("id1", "s", "t");
    expect("id1", "s", "t");
    cr_assert_eq(get(NOW + 600), TCK_OK); /* 200 s before the end */
    cr_assert_str_eq(got.access_key, "id2");
    aws_credentials_free(&got);
}

Test(aws_credentials, valid_ones_are_used_while_the_source_fails)
{
    char url[64];
    http_fake_start(answer_json, url);
    setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", url, 1);
    expect("id1", "s", "t");
    http_fake_start(answer_error, url);
    setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", url, 1);
    cr_assert_eq(get(NOW + 600), TCK_OK);
    aws_credentials_free(&got);
    unsigned before = served;
    cr_assert_eq(get(NOW + 601), TCK_OK); /* not asked at each call */
    aws_credentials_free(&got);
    cr_assert_eq(served, before);
    cr_assert_eq(get(NOW + 815), TCK_ERR_DENIED);
}

Test(aws_credentials, a_source_that_fails_is_not_passed_over)
{
    char url[64];
    http_fake_start(answer_error, url);
    setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", url, 1);
    expect_error(TCK_ERR_DENIED, "container");
    cr_assert(strstr(err.text, "403") != NULL);
}

Test(aws_credentials, a_service_that_fails_is_not_asked_by_each_thread)
{
    char url[64];
    failing = OK_ANSWER "<html>Sign in</html>";
    http_fake_start(answer_error, url);
    setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", url, 1);
    tck_status_t status = get(NOW);
    cr_assert(aws_error_passes(status), "%s", err.text);
    unsigned before = served;
    cr_assert_eq(get(NOW + 1), status);
    cr_assert(strstr(err.text, "container") != NULL, "%s", err.text);
    cr_assert_eq(served, before);
    http_fake_start(answer_json, url);
    setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", url, 1);
    cr_assert_eq(get(NOW + 4), TCK_OK, "%s", err.text);
    aws_credentials_free(&got);
}

static const char *answer_late(const char *request)
{
    sleep(6);
    return answer_error(request);
}

Test(aws_credentials, a_metadata_service_that_is_slow_is_not_one_that_is_missing)
{
    char url[64];
    unsetenv("AWS_EC2_METADATA_DISABLED");
    setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", "http://127.0.0.1:1", 1);
    expect_error(TCK_ERR_DENIED, "no metadata service");
    http_fake_start(answer_late, url);
    setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", url, 1);
    tck_status_t status = get(NOW + 60);
    cr_assert(aws_error_passes(status), "%s", err.text);
}

Test(aws_credentials, no_source_is_asked_after_the_end_of_the_call)
{
    char url[64];
    http_fake_start(answer_late, url);
    setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", url, 1);
    cr_assert_eq(aws_profile_load(&profile, &err), TCK_OK);
    lookup = (struct aws_lookup){.http = http, .profile = &profile, .region = ""};
    cr_assert_eq(aws_holder_new(&lookup, &holder, &err), TCK_OK);
    uint64_t begun = clock_ms();
    tck_status_t status = aws_holder_get(holder, NOW, begun + 300, &got, &err);
    cr_assert(aws_error_passes(status), "%s", err.text);
    cr_assert(clock_ms() - begun < 3000);
}

Test(aws_credentials, when_they_are_due)
{
    cr_assert_not(aws_credentials_due(0, NOW));
    cr_assert(aws_credentials_valid(0, NOW));
    cr_assert_not(aws_credentials_due(NOW + 301, NOW));
    cr_assert(aws_credentials_due(NOW + 300, NOW));
    cr_assert(aws_credentials_valid(NOW + 11, NOW));
    cr_assert_not(aws_credentials_valid(NOW + 10, NOW));
}

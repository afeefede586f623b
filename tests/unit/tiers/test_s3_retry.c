/* SPDX-License-Identifier: Apache-2.0
 * What is attempted again, after which wait, and with which status the rest ends. */
#include "tiers/object/s3_retry.h"

#include <criterion/criterion.h>

static struct s3_outcome answered(long http, const char *code)
{
    return (struct s3_outcome){
        .end = HTTP_ANSWERED, .http = http, .code = code, .attempt = 1, .elapsed_ms = 10, .deadline_ms = 60000};
}

static void expect(struct s3_outcome outcome, enum s3_verdict verdict, tck_status_t status)
{
    struct s3_next next = s3_decide(&outcome);
    cr_assert_eq(next.verdict, verdict, "HTTP %ld %s", outcome.http, outcome.code);
    cr_assert_eq(next.status, status, "HTTP %ld %s", outcome.http, outcome.code);
}

Test(s3_retry, what_passes_is_attempted_again)
{
    static const long statuses[] = {408, 409, 429, 500, 502, 503, 504};
    for (size_t i = 0; i < sizeof(statuses) / sizeof(*statuses); i++) {
        expect(answered(statuses[i], ""), S3_WAIT, TCK_OK);
    }
    expect(answered(400, "RequestTimeout"), S3_WAIT, TCK_OK);
    expect(answered(503, "SlowDown"), S3_WAIT, TCK_OK);
    expect(answered(400, "BadDigest"), S3_WAIT, TCK_OK);
    struct s3_outcome cut = {.end = HTTP_CUT, .code = "", .attempt = 1, .deadline_ms = 60000};
    expect(cut, S3_WAIT, TCK_OK);
    cut.end = HTTP_TIMED_OUT;
    expect(cut, S3_WAIT, TCK_OK);
}

Test(s3_retry, what_is_decided_ends_with_its_status)
{
    expect(answered(200, ""), S3_DONE, TCK_OK);
    expect(answered(204, ""), S3_DONE, TCK_OK);
    expect(answered(404, "NoSuchKey"), S3_FAIL, TCK_ERR_NOENT);
    expect(answered(404, "NoSuchUpload"), S3_FAIL, TCK_ERR_NOENT);
    expect(answered(412, "PreconditionFailed"), S3_FAIL, TCK_ERR_EXIST);
    expect(answered(403, "AccessDenied"), S3_FAIL, TCK_ERR_DENIED);
    expect(answered(403, "SignatureDoesNotMatch"), S3_FAIL, TCK_ERR_DENIED);
    expect(answered(416, "InvalidRange"), S3_FAIL, TCK_ERR_CORRUPT);
    expect(answered(416, ""), S3_FAIL, TCK_ERR_IO);
    expect(answered(400, "InvalidPart"), S3_FAIL, TCK_ERR_IO);
    expect(answered(301, "PermanentRedirect"), S3_FAIL, TCK_ERR_CONFIG);
    expect(answered(501, "NotImplemented"), S3_FAIL, TCK_ERR_UNSUPPORTED);
    expect(answered(400, "InvalidArgument"), S3_FAIL, TCK_ERR_IO);
    struct s3_outcome canceled = {.end = HTTP_CANCELED, .code = "", .attempt = 1, .deadline_ms = 1};
    expect(canceled, S3_FAIL, TCK_ERR_CANCELED);
}

Test(s3_retry, a_missing_bucket_or_a_page_404_says_nothing_about_a_key)
{
    expect(answered(404, "NoSuchBucket"), S3_FAIL, TCK_ERR_IO);
    expect(answered(404, ""), S3_FAIL, TCK_ERR_IO);
    expect(answered(404, "NotFound"), S3_FAIL, TCK_ERR_IO);
    expect(answered(400, "NoSuchKey"), S3_FAIL, TCK_ERR_IO);
}

Test(s3_retry, an_error_document_in_an_answer_200_is_an_error)
{
    expect(answered(200, "InternalError"), S3_WAIT, TCK_OK);
    expect(answered(200, "NoSuchThing"), S3_FAIL, TCK_ERR_IO);
}

Test(s3_retry, an_expired_token_is_renewed_once)
{
    struct s3_outcome outcome = answered(400, "ExpiredToken");
    expect(outcome, S3_RENEW, TCK_OK);
    outcome.renewed = true;
    expect(outcome, S3_FAIL, TCK_ERR_DENIED);
}

Test(s3_retry, an_answer_400_without_a_document_may_be_an_expired_token)
{
    struct s3_outcome outcome = answered(400, "");
    expect(outcome, S3_RENEW, TCK_OK);
    outcome.renewed = true;
    expect(outcome, S3_FAIL, TCK_ERR_IO);
}

Test(s3_retry, the_clock_is_corrected_once)
{
    struct s3_outcome outcome = answered(403, "RequestTimeTooSkewed");
    expect(outcome, S3_CLOCK, TCK_OK);
    outcome.clock_set = true;
    expect(outcome, S3_FAIL, TCK_ERR_DENIED);
}

Test(s3_retry, damage_on_the_way_is_attempted_four_times)
{
    struct s3_outcome outcome = answered(400, "BadDigest");
    outcome.attempt = 4;
    expect(outcome, S3_FAIL, TCK_ERR_CORRUPT);
    outcome = (struct s3_outcome){.end = HTTP_GARBLED, .code = "", .attempt = 4, .deadline_ms = 60000};
    expect(outcome, S3_FAIL, TCK_ERR_IO);
}

Test(s3_retry, waits_grow_to_their_limit_and_differ)
{
    struct s3_outcome outcome = answered(503, "SlowDown");
    uint64_t before = 0;
    for (uint32_t attempt = 1; attempt < 40; attempt++) {
        outcome.attempt = attempt;
        outcome.random = 0;
        uint64_t least = s3_decide(&outcome).wait_ms;
        outcome.random = 0x7fffffff;
        uint64_t other = s3_decide(&outcome).wait_ms;
        cr_assert(least >= before && least >= S3_WAIT_FIRST_MS / 2);
        cr_assert(other >= least && other <= S3_WAIT_MAX_MS && other <= 2 * least + 1);
        before = least;
    }
}

Test(s3_retry, the_server_may_ask_for_a_longer_wait)
{
    struct s3_outcome outcome = answered(503, "SlowDown");
    outcome.retry_after_s = 7;
    cr_assert(s3_decide(&outcome).wait_ms >= 7000);
    outcome.retry_after_s = 70;
    expect(outcome, S3_FAIL, TCK_ERR_TIMEDOUT);
}

Test(s3_retry, no_wait_ends_after_the_deadline)
{
    struct s3_outcome outcome = answered(500, "");
    outcome.elapsed_ms = outcome.deadline_ms - 1;
    expect(outcome, S3_FAIL, TCK_ERR_TIMEDOUT);
}

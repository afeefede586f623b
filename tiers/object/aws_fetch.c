/* SPDX-License-Identifier: Apache-2.0
 * Requests for credentials. */
#include "tiers/object/aws_fetch.h"
#include "base/clock.h"
#include "base/crypto.h"
#include "tiers/object/s3_retry.h"
#include "tiers/object/s3_xml.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define CODE_BYTES 64

/* The code of an error document of STS; "" if there is none. */
static void code_of(const struct http_answer *answer, char code[CODE_BYTES])
{
    struct s3_document document;
    struct error ignored;
    code[0] = '\0';
    if (answer->body != NULL && s3_xml_decode(answer->body, answer->body_bytes, &document, &ignored) == TCK_OK) {
        snprintf(code, CODE_BYTES, "%s", document.code == NULL ? "" : document.code);
        s3_document_free(&document);
    }
}

static void sleep_ms(uint64_t ms)
{
    struct timespec left = {.tv_sec = (time_t)(ms / 1000), .tv_nsec = (long)(ms % 1000) * 1000000};
    while (nanosleep(&left, &left) != 0) {
    }
}

static tck_status_t failed(const struct aws_fetch *fetch, const struct http_answer *answer, const char *code,
                           struct s3_next next, struct error *err)
{
    if (answer->end == HTTP_ANSWERED) {
        return error_set(err, answer->status == 404 ? TCK_ERR_NOENT : next.status, "%s: HTTP %ld %s", fetch->what, answer->status, code);
    }
    return error_set(err, next.status, "%s: %s", fetch->what, answer->reason);
}

tck_status_t aws_fetch(struct http_client *http, const struct aws_fetch *fetch, char **out, struct error *err)
{
    struct http_answer answer;
    struct s3_outcome outcome = {.deadline_ms = fetch->deadline_ms, .renewed = true, .clock_set = true};
    uint64_t begun = clock_ms();
    for (;;) {
        char code[CODE_BYTES];
        struct http_request request = {
            .method = fetch->method,
            .url = fetch->url,
            .headers = fetch->headers,
            .body = fetch->body,
            .body_bytes = fetch->body == NULL ? 0 : strlen(fetch->body),
            .collect_max = AWS_ANSWER_MAX,
            .total_ms = outcome.elapsed_ms < fetch->deadline_ms ? fetch->deadline_ms - (uint32_t)outcome.elapsed_ms : 1,
            .direct = fetch->direct};
        http_do(http, &request, &answer);
        code_of(&answer, code);
        outcome.end = answer.end;
        outcome.http = answer.status;
        outcome.code = code;
        outcome.attempt++;
        outcome.elapsed_ms = clock_ms() - begun;
        outcome.retry_after_s = answer.headers.retry_after_s;
        if (random_bytes(&outcome.random, sizeof(outcome.random)) != TCK_OK) {
            outcome.random = 0;
        }
        struct s3_next next = s3_decide(&outcome);
        if (next.verdict == S3_DONE) {
            *out = answer.body == NULL ? strdup("") : answer.body;
            return *out == NULL ? error_set(err, TCK_ERR_NOMEM, "%s: no memory", fetch->what) : TCK_OK;
        }
        if (next.verdict != S3_WAIT) {
            tck_status_t status = failed(fetch, &answer, code, next, err);
            http_answer_free(&answer);
            return status;
        }
        http_answer_free(&answer);
        sleep_ms(next.wait_ms);
        outcome.elapsed_ms = clock_ms() - begun;
    }
}

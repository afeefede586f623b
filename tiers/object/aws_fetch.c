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

/* What is left of the time when it begins. */
static uint32_t time_of(const struct aws_fetch *fetch, uint64_t now_ms)
{
    if (fetch->until_ms == 0 || now_ms + fetch->deadline_ms <= fetch->until_ms) {
        return fetch->deadline_ms;
    }
    return fetch->until_ms > now_ms ? (uint32_t)(fetch->until_ms - now_ms) : 1;
}

static tck_status_t failed(const struct aws_fetch *fetch, const struct http_answer *answer, const char *code,
                           struct s3_next next, bool connected, struct error *err)
{
    if (answer->end == HTTP_ANSWERED) {
        return error_set(err, answer->status == 404 ? TCK_ERR_NOENT : next.status, "%s: HTTP %ld %s", fetch->what,
                         answer->status, code);
    }
    return error_set(err, next.status == TCK_ERR_TIMEDOUT && !connected ? TCK_ERR_UNREACHABLE : next.status, "%s: %s",
                     fetch->what, answer->reason);
}

tck_status_t aws_fetch(struct http_client *http, const struct aws_fetch *fetch, char **out, struct error *err)
{
    struct http_answer answer;
    uint64_t begun = clock_ms();
    uint32_t deadline_ms = time_of(fetch, begun);
    struct s3_outcome outcome = {.deadline_ms = deadline_ms, .renewed = true, .clock_set = true};
    bool connected = false;
    for (;;) {
        char code[CODE_BYTES];
        struct http_request request = {
            .method = fetch->method,
            .url = fetch->url,
            .headers = fetch->headers,
            .body = fetch->body,
            .body_bytes = fetch->body == NULL ? 0 : strlen(fetch->body),
            .collect_max = AWS_ANSWER_MAX,
            .total_ms = outcome.elapsed_ms < deadline_ms ? deadline_ms - (uint32_t)outcome.elapsed_ms : 1,
            .direct = fetch->direct};
        http_do(http, &request, &answer);
        code_of(&answer, code);
        connected |= answer.sends > 0;
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
            tck_status_t status = failed(fetch, &answer, code, next, connected, err);
            http_answer_free(&answer);
            return status;
        }
        http_answer_free(&answer);
        sleep_ms(next.wait_ms);
        outcome.elapsed_ms = clock_ms() - begun;
    }
}

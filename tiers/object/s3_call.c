/* SPDX-License-Identifier: Apache-2.0
 * The loop of attempts around one request. */
#include "tiers/object/s3_call.h"
#include "base/clock.h"
#include "base/crypto.h"
#include "tiers/object/s3_retry.h"

#include <endian.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SLICE_MS 20
#define ASK_MS   500 /* until credentials are asked for again */
#define SKEW_S   600 /* servers accept 15 minutes */

/* A call while it runs. */
struct run {
    struct s3_store *s;
    const struct object_call *call;
    const struct s3_ask *ask;
    struct s3_reply *reply;
    struct s3_request *request;
    struct http_answer answer;
    struct s3_outcome outcome;
    uint64_t begun_ms, moved_ms; /* moved_ms: when a byte has moved last */
    char access_key[160];        /* of the last attempt; no secret */
    char message[160];           /* of the last error document */
};

void s3_crc_text(uint32_t crc, char out[S3_CRC_BYTES])
{
    uint32_t big = htobe32(crc);
    base64(&big, sizeof(big), out);
}

struct object_call s3_call_rest(const struct s3_store *s, const struct object_call *call, uint64_t begun_ms,
                                uint32_t least_ms)
{
    struct object_call rest = call == NULL ? (struct object_call){0} : *call;
    uint64_t whole = rest.deadline_ms == 0 ? s->deadline_ms : rest.deadline_ms, spent = clock_ms() - begun_ms;
    rest.deadline_ms = whole > spent + least_ms ? (uint32_t)(whole - spent) : least_ms;
    return rest;
}

void s3_reply_free(struct s3_reply *reply)
{
    free(reply->body);
    s3_document_free(&reply->document);
    *reply = (struct s3_reply){0};
}

static bool is_canceled(const struct run *r)
{
    return atomic_load(&r->s->canceled) ||
           (r->call != NULL && r->call->canceled != NULL && atomic_load(r->call->canceled));
}

static int64_t now_s(const struct s3_store *s)
{
    return (int64_t)(clock_wall_ms() / 1000) + atomic_load(&s->clock_offset_s);
}

static void wait_slices(const struct run *r, uint64_t ms)
{
    uint64_t end = clock_ms() + ms;
    while (clock_ms() < end && !is_canceled(r)) {
        struct timespec slice = {.tv_nsec = SLICE_MS * 1000000L};
        nanosleep(&slice, NULL);
    }
}

static tck_status_t canceled(const struct run *r, struct error *err)
{
    return error_set(err, TCK_ERR_CANCELED, "%.150s/%.150s: %s: canceled", r->s->base.name,
                     r->ask->key == NULL ? "" : r->ask->key, r->ask->verb);
}

/* Whatever a source of credentials has said, it has said nothing about an object, and neither may its status. */
static tck_status_t no_credentials(const struct run *r, struct error *err)
{
    if (is_canceled(r)) {
        return canceled(r, err);
    }
    tck_status_t status = error_prefix(err, "%.150s", r->s->base.name);
    if (status != TCK_ERR_NOMEM) {
        err->code = r->reply->uncertain ? TCK_ERR_TIMEDOUT : TCK_ERR_UNREACHABLE;
    }
    return err->code;
}

static tck_status_t take_credentials(const struct run *r, struct aws_credentials *out, struct error *err)
{
    uint64_t until_ms = r->begun_ms + r->outcome.deadline_ms;
    for (;;) {
        tck_status_t status = aws_holder_get(r->s->credentials, (int64_t)(clock_wall_ms() / 1000), until_ms, out, err);
        if (status == TCK_OK) {
            return TCK_OK;
        }
        if (is_canceled(r) || !aws_error_passes(status) || clock_ms() + ASK_MS >= until_ms) {
            return no_credentials(r, err);
        }
        wait_slices(r, ASK_MS);
    }
}

static tck_status_t prepare(struct run *r, struct error *err)
{
    struct aws_credentials credentials;
    tck_status_t status = take_credentials(r, &credentials, err);
    if (status != TCK_OK) {
        return status;
    }
    snprintf(r->access_key, sizeof(r->access_key), "%s", credentials.access_key);
    status = s3_request_make(&r->s->settings, r->ask, &credentials, now_s(r->s), r->request, err);
    aws_credentials_free(&credentials);
    return status == TCK_ERR_INVAL ? (err->code = TCK_ERR_CONFIG) : status; /* of get, the former is a larger value */
}

static void moved(void *ctx, uint64_t bytes)
{
    struct run *r = ctx;
    r->moved_ms = clock_ms();
    if (r->call != NULL && r->call->moved != NULL) {
        r->call->moved(r->call->moved_ctx, bytes);
    }
}

/* Milliseconds from the beginning within which something may be attempted again. */
static uint64_t allowed_ms(const struct run *r)
{
    uint64_t quiet_ms = r->call == NULL ? 0 : r->call->quiet_ms, until_ms = r->moved_ms - r->begun_ms + quiet_ms;
    return quiet_ms == 0 || until_ms > r->outcome.deadline_ms ? r->outcome.deadline_ms : until_ms;
}

/* Seconds after which an attempt that moves no bytes ends: no later than the caller waits for a call that is quiet. */
static uint32_t attempt_quiet_s(const struct run *r)
{
    uint32_t quiet_ms = r->call == NULL ? 0 : r->call->quiet_ms, quiet_s = quiet_ms < 1000 ? 1 : quiet_ms / 1000;
    return quiet_ms == 0 || quiet_s > r->s->quiet_s ? r->s->quiet_s : quiet_s;
}

static void send_once(struct run *r)
{
    const struct s3_ask *ask = r->ask;
    uint64_t spent = clock_ms() - r->begun_ms;
    struct http_request request = {
        .method = ask->method,
        .url = r->request->url,
        .headers = r->request->lines,
        .body = ask->body,
        .body_bytes = ask->body_bytes,
        .into = ask->into,
        .into_bytes = ask->into_bytes,
        .into_whole = ask->into_whole,
        .collect_max = ask->collect_max > 0 ? ask->collect_max : S3_ERROR_BODY_MAX,
        .total_ms = spent < r->outcome.deadline_ms ? (uint32_t)(r->outcome.deadline_ms - spent) : 1,
        .quiet_s = ask->slow ? 0 : attempt_quiet_s(r),
        .canceled = r->call == NULL ? NULL : r->call->canceled,
        .moved = moved,
        .moved_ctx = r,
        .waits = ask->slow,
    };
    http_do(r->s->http, &request, &r->answer);
    explicit_bzero(r->request->text, sizeof(r->request->text));
}

/* Text of a server's, for ours. */
static void copy_printable(char *out, size_t cap, const char *text)
{
    size_t len = 0;
    for (; text != NULL && *text != '\0' && len + 1 < cap; text++) {
        out[len++] = (char)(*text >= ' ' && *text <= '~' ? *text : '?');
    }
    out[len] = '\0';
}

static void take_error(struct run *r, const struct s3_document *document)
{
    copy_printable(r->reply->code, sizeof(r->reply->code), document->code);
    copy_printable(r->message, sizeof(r->message), document->message);
}

static void read_error(struct run *r)
{
    struct s3_document document;
    struct error ignored;
    if (r->answer.body != NULL && s3_xml_decode(r->answer.body, r->answer.body_bytes, &document, &ignored) == TCK_OK) {
        take_error(r, &document);
        s3_document_free(&document);
    }
}

/* An answer 2xx to what is answered with a document: that may be an error as well, and may be cut. */
static void read_document(struct run *r)
{
    struct error why;
    const char *text = r->answer.body == NULL ? "" : r->answer.body;
    if (s3_xml_decode(text, r->answer.body_bytes, &r->reply->document, &why) != TCK_OK) {
        r->answer.end = HTTP_GARBLED;
        snprintf(r->answer.reason, sizeof(r->answer.reason), "%.200s", why.text);
        return;
    }
    enum s3_document_kind kind = r->reply->document.kind;
    if (kind == S3_DOC_ERROR) {
        take_error(r, &r->reply->document);
        if (r->reply->code[0] == '\0') {
            strcpy(r->reply->code, "InternalError");
        }
    } else if (kind != r->ask->expects) {
        r->answer.end = HTTP_GARBLED;
        snprintf(r->answer.reason, sizeof(r->answer.reason), "the answer is another document than was expected");
    }
}

/* A clock that differs is refused with 403, which for HEAD comes without a document: the dates tell. */
static void suspect_clock(struct run *r)
{
    int64_t theirs = r->answer.headers.date[0] == '\0' ? -1 : http_date(r->answer.headers.date);
    if (r->answer.status == 403 && r->reply->code[0] == '\0' && theirs > 0 && llabs(theirs - now_s(r->s)) > SKEW_S) {
        strcpy(r->reply->code, "RequestTimeTooSkewed");
    }
}

static void read_answer(struct run *r)
{
    struct s3_outcome *o = &r->outcome;
    r->reply->code[0] = r->message[0] = '\0';
    if (r->answer.end == HTTP_ANSWERED && r->answer.status >= 300) {
        read_error(r);
        suspect_clock(r);
    } else if (r->answer.end == HTTP_ANSWERED && r->ask->expects != S3_DOC_NONE) {
        read_document(r);
    }
    r->reply->status = r->answer.status;
    r->reply->headers = r->answer.headers;
    r->reply->too_big = r->answer.end == HTTP_TOO_BIG;
    o->end = r->answer.end;
    o->http = r->answer.status;
    o->code = r->reply->code;
    o->attempt++;
    o->elapsed_ms = clock_ms() - r->begun_ms;
    o->retry_after_s = r->answer.headers.retry_after_s;
    if (random_bytes(&o->random, sizeof(o->random)) != TCK_OK) {
        o->random = 0;
    }
    bool lost = r->answer.end != HTTP_ANSWERED || r->answer.status >= 500 || r->answer.status < 300;
    r->reply->uncertain |= r->answer.sends > 1 || (lost && r->answer.sends > 0);
}

/* The time in the answer becomes ours for signatures. */
static bool take_clock(struct run *r)
{
    int64_t theirs = http_date(r->answer.headers.date);
    if (theirs > 0) {
        atomic_store(&r->s->clock_offset_s, theirs - (int64_t)(clock_wall_ms() / 1000));
        r->outcome.clock_set = true;
    }
    return theirs > 0;
}

static bool asks_condition(const struct s3_ask *ask)
{
    for (const struct s3_pair *header = ask->headers; header->name != NULL; header++) {
        if (header->value != NULL && strcmp(header->name, "if-none-match") == 0) {
            return true;
        }
    }
    return false;
}

/* The beginning of the request's address, as in https://host:port. */
static int origin_bytes(const struct run *r)
{
    const char *host = strstr(r->request->url, "://");
    return host == NULL ? 0 : (int)(host + 3 - r->request->url + (ptrdiff_t)strcspn(host + 3, "/"));
}

static void hint_at_certificate(const struct run *r, char *out, size_t cap)
{
    static const char *const texts[] = {
        [HTTP_TRUSTED] = "",
        [HTTP_NO_TLS] = "",
        [HTTP_DISTRUSTED] =
            "it cannot be verified; if its CA is your own, AWS_CA_BUNDLE has to name a file with that CA",
        [HTTP_UNKNOWN_ISSUER] = "it was issued by a CA unknown here; AWS_CA_BUNDLE has to name a file with that CA",
        [HTTP_OUT_OF_DATE] = "it has expired or is not valid yet; renew it, or set this machine's clock",
        [HTTP_OTHER_NAME] = "it is for another host; AWS_ENDPOINT_URL_S3 has to have a name that is in it",
        [HTTP_NO_BUNDLE] = "there is nothing to verify it with; AWS_CA_BUNDLE has to name a file of certificates"};
    if (r->answer.distrust != HTTP_TRUSTED) {
        snprintf(out, cap, ": the certificate of %.*s: %s", origin_bytes(r), r->request->url,
                 texts[r->answer.distrust]);
    }
}

/* What helps, if we know. */
static void hint(const struct run *r, char *out, size_t cap)
{
    const char *code = r->reply->code, *region = r->answer.headers.bucket_region;
    out[0] = '\0';
    if (strcmp(code, "RequestTimeTooSkewed") == 0) {
        snprintf(out, cap, ": this machine's clock is wrong; set it (the server's time: %s)", r->answer.headers.date);
    } else if (region[0] != '\0' && strcmp(region, r->s->settings.region) != 0) {
        snprintf(out, cap, ": the bucket is in the region %s; set AWS_REGION", region);
    } else if (asks_condition(r->ask) && (r->answer.status == 501 || strcmp(code, "NotImplemented") == 0)) {
        snprintf(out, cap,
                 ": the server cannot create a key only if it is free (If-None-Match), which writers need so "
                 "that none replaces another's: use one that can");
    } else if (strcmp(code, "SignatureDoesNotMatch") == 0) {
        snprintf(out, cap, ": the secret key is wrong, or something on the way changes requests");
    } else if (r->answer.distrust == HTTP_NO_TLS) {
        snprintf(
            out, cap,
            ": %.*s answers without TLS; AWS_ENDPOINT_URL_S3 has to begin with http://, or to name the port for TLS",
            origin_bytes(r), r->request->url);
    } else if (r->answer.end == HTTP_REFUSED) {
        hint_at_certificate(r, out, cap);
    }
}

static tck_status_t fail(const struct run *r, tck_status_t status, struct error *err)
{
    char what[200], help[280], id[100] = "";
    const char *key = r->ask->key == NULL ? "" : r->ask->key;
    if (r->answer.end == HTTP_ANSWERED && r->answer.status > 0) {
        snprintf(what, sizeof(what), "HTTP %ld%s%.40s%s%.110s", r->answer.status, r->reply->code[0] == '\0' ? "" : " ",
                 r->reply->code, r->message[0] == '\0' ? "" : ": ", r->message);
    } else {
        copy_printable(what, sizeof(what), r->answer.reason);
    }
    if (r->answer.headers.request_id[0] != '\0') {
        snprintf(id, sizeof(id), ", request id %s", r->answer.headers.request_id);
    }
    hint(r, help, sizeof(help));
    return error_set(err, status, "%.100s/%.100s: %s: %s%s (%u attempt%s in %" PRIu64 " ms%s)", r->s->base.name, key,
                     r->ask->verb, what, help, r->outcome.attempt, r->outcome.attempt == 1 ? "" : "s",
                     r->outcome.elapsed_ms, id);
}

static void keep_body(struct run *r)
{
    r->reply->body = r->answer.body;
    r->reply->body_bytes = r->answer.body_bytes;
    r->reply->filled = r->answer.filled;
    r->answer.body = NULL;
}

/* After an attempt: whether the call has ended, with *status_out. */
static bool settle(struct run *r, tck_status_t *status_out, struct error *err)
{
    struct s3_outcome outcome = r->outcome;
    outcome.deadline_ms = allowed_ms(r);
    struct s3_next next = s3_decide(&outcome);
    if (next.verdict == S3_CLOCK && !take_clock(r)) {
        next = (struct s3_next){.verdict = S3_FAIL, .status = TCK_ERR_DENIED};
    }
    switch (next.verdict) {
    case S3_DONE:
        keep_body(r);
        *status_out = TCK_OK;
        return true;
    case S3_RENEW:
        aws_holder_expire(r->s->credentials, r->access_key);
        r->outcome.renewed = true;
        return false;
    case S3_CLOCK:
        return false;
    case S3_WAIT:
        wait_slices(r, next.wait_ms);
        return false;
    case S3_FAIL:
        break;
    }
    *status_out = next.status == TCK_ERR_CANCELED ? canceled(r, err) : fail(r, next.status, err);
    return true;
}

static tck_status_t attempts(struct run *r, struct error *err)
{
    for (;;) {
        if (is_canceled(r)) {
            return canceled(r, err);
        }
        tck_status_t status = prepare(r, err);
        if (status != TCK_OK) {
            return status;
        }
        send_once(r);
        bool uncertain_before = r->reply->uncertain;
        read_answer(r);
        bool ended = settle(r, &status, err);
        http_answer_free(&r->answer);
        if (ended) {
            /* What this attempt itself was answered is certain, but libcurl may have sent it twice. */
            r->reply->uncertain = uncertain_before || r->answer.sends > 1;
            return status;
        }
        s3_document_free(&r->reply->document);
    }
}

tck_status_t s3_call(struct s3_store *s, const struct object_call *call, const struct s3_ask *ask,
                     struct s3_reply *reply, struct error *err)
{
    struct run r = {.s = s, .call = call, .ask = ask, .reply = reply, .begun_ms = clock_ms()};
    *reply = (struct s3_reply){0};
    r.moved_ms = r.begun_ms;
    r.outcome.deadline_ms = call == NULL || call->deadline_ms == 0 ? s->deadline_ms : call->deadline_ms;
    r.request = malloc(sizeof(*r.request));
    if (r.request == NULL) {
        return error_set(err, TCK_ERR_NOMEM, "%.150s: no memory for a request", s->base.name);
    }
    tck_status_t status = attempts(&r, err);
    free(r.request);
    return status;
}

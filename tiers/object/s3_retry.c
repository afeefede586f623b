/* SPDX-License-Identifier: Apache-2.0
 * Whether an attempt is made again. Waits grow and differ at random between writers, because many ranks that were
 * refused at the same moment would otherwise all return at the same moment. */
#include "tiers/object/s3_retry.h"

#include <string.h>

#define DOUBLINGS_MAX 16

static bool is_any(const char *code, const char *const *codes)
{
    for (; *codes != NULL; codes++) {
        if (strcmp(code, *codes) == 0) {
            return true;
        }
    }
    return false;
}

/* Error codes that pass, whatever their HTTP status: a 200 may carry one as well. */
static bool passes(const struct s3_outcome *o)
{
    static const char *const codes[] = {"SlowDown",
                                        "RequestTimeout",
                                        "InternalError",
                                        "ServiceUnavailable",
                                        "OperationAborted",
                                        "ConditionalRequestConflict",
                                        "Throttling",
                                        "ThrottlingException",
                                        "RequestThrottled",
                                        "TooManyRequests",
                                        "RequestLimitExceeded",
                                        "BandwidthLimitExceeded",
                                        "IDPCommunicationError",
                                        NULL};
    /* What arrived at the server was not what we sent: another attempt sends it again. */
    static const char *const damaged[] = {"BadDigest", "XAmzContentChecksumMismatch", "XAmzContentSHA256Mismatch",
                                          "IncompleteBody", NULL};
    return is_any(o->code, codes) || (is_any(o->code, damaged) && o->attempt < 4) || o->http == 408 || o->http == 409 ||
           o->http == 429 || o->http == 500 || o->http == 502 || o->http == 503 || o->http == 504;
}

static bool expired(const char *code)
{
    static const char *const codes[] = {"ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired",
                                        "RequestExpired", NULL};
    return is_any(code, codes);
}

/* Only these say that something is not there. A bucket that is missing, or the page 404 of something on the way, does
 * not: a caller that reads TCK_ERR_NOENT takes it for the bucket's word that nothing was written. */
static bool is_absent(const struct s3_outcome *o)
{
    static const char *const codes[] = {"NoSuchKey", "NoSuchUpload", NULL};
    return o->http == 404 && is_any(o->code, codes);
}

static tck_status_t status_of(const struct s3_outcome *o)
{
    /* What was sent again and again differs from its checksum, or an object is shorter than what was asked of it. All
     * else that is wrong with an answer is the way's doing, and proves nothing about an object. */
    static const char *const damaged[] = {"BadDigest", "XAmzContentChecksumMismatch", "XAmzContentSHA256Mismatch",
                                          "InvalidRange", NULL};
    static const char *const denied[] = {"ExpiredToken", "InvalidToken",          "InvalidAccessKeyId",
                                         "AccessDenied", "SignatureDoesNotMatch", NULL};
    if (is_any(o->code, damaged)) {
        return TCK_ERR_CORRUPT;
    }
    if (is_any(o->code, denied) || expired(o->code) || o->http == 401 || o->http == 403) {
        return TCK_ERR_DENIED;
    }
    if (is_absent(o)) {
        return TCK_ERR_NOENT;
    }
    switch (o->http) {
    case 412:
        return TCK_ERR_EXIST;
    case 301:
    case 302:
    case 307:
    case 308:
        return TCK_ERR_CONFIG;
    case 405:
    case 501:
        return TCK_ERR_UNSUPPORTED;
    case 507:
        return TCK_ERR_NOSPC;
    default:
        return TCK_ERR_IO;
    }
}

static struct s3_next fail(tck_status_t status)
{
    return (struct s3_next){.verdict = S3_FAIL, .status = status};
}

/* Between half of the wait and all of it. */
static uint64_t wait_ms(const struct s3_outcome *o)
{
    uint32_t doublings = o->attempt - 1 < DOUBLINGS_MAX ? o->attempt - 1 : DOUBLINGS_MAX;
    uint64_t most = (uint64_t)S3_WAIT_FIRST_MS << doublings;
    most = most < S3_WAIT_MAX_MS ? most : S3_WAIT_MAX_MS;
    uint64_t wait = most / 2 + o->random % (most / 2 + 1);
    uint64_t asked = (uint64_t)o->retry_after_s * 1000;
    return asked > wait ? asked + o->random % (asked / 4 + 1) : wait;
}

static struct s3_next again(const struct s3_outcome *o)
{
    uint64_t wait = wait_ms(o);
    if (o->elapsed_ms + wait >= o->deadline_ms) {
        return fail(TCK_ERR_TIMEDOUT);
    }
    return (struct s3_next){.verdict = S3_WAIT, .wait_ms = wait};
}

static struct s3_next after_answer(const struct s3_outcome *o)
{
    if (o->http >= 200 && o->http < 300 && o->code[0] == '\0') {
        return (struct s3_next){.verdict = S3_DONE};
    }
    /* The answer to HEAD has no document: of an expired token it is just 400. */
    bool unexplained = o->http == 400 && o->code[0] == '\0';
    if ((expired(o->code) || unexplained) && !o->renewed) {
        return (struct s3_next){.verdict = S3_RENEW};
    }
    if (strcmp(o->code, "RequestTimeTooSkewed") == 0 && !o->clock_set) {
        return (struct s3_next){.verdict = S3_CLOCK};
    }
    return passes(o) ? again(o) : fail(status_of(o));
}

struct s3_next s3_decide(const struct s3_outcome *o)
{
    switch (o->end) {
    case HTTP_ANSWERED:
        return after_answer(o);
    case HTTP_CUT:
    case HTTP_TIMED_OUT:
        return again(o);
    case HTTP_GARBLED:
        return o->attempt < 4 ? again(o) : fail(TCK_ERR_IO);
    case HTTP_CANCELED:
        return fail(TCK_ERR_CANCELED);
    case HTTP_TOO_BIG:
        return fail(TCK_ERR_IO);
    case HTTP_NO_MEMORY:
        return fail(TCK_ERR_NOMEM);
    case HTTP_REFUSED:
        return fail(TCK_ERR_UNREACHABLE);
    }
    return fail(TCK_ERR_INTERNAL);
}

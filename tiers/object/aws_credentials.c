/* SPDX-License-Identifier: Apache-2.0
 * The chain of sources, and what the last one gave. */
#include "tiers/object/aws_credentials.h"
#include "base/clock.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define RENEW_BEFORE_S 300
#define LAST_S         10
#define RETRY_S        15
#define FAILED_S       3 /* the same while there are none that are valid: somebody waits */

struct aws_holder {
    const struct aws_lookup *lookup;
    pthread_mutex_t lock;
    struct aws_credentials now; /* access_key NULL: none yet */
    bool expired;               /* a server has said so */
    int64_t retry_s;            /* no source is asked again before, */
    struct error failure;       /* because of this */
};

bool aws_credentials_due(int64_t expires_s, int64_t now_s)
{
    return expires_s != 0 && now_s >= expires_s - RENEW_BEFORE_S;
}

bool aws_credentials_valid(int64_t expires_s, int64_t now_s)
{
    return expires_s == 0 || now_s < expires_s - LAST_S;
}

tck_status_t aws_holder_new(const struct aws_lookup *lookup, struct aws_holder **out, struct error *err)
{
    struct aws_holder *holder = calloc(1, sizeof(*holder));
    if (holder == NULL) {
        return error_set(err, TCK_ERR_NOMEM, "no memory for credentials");
    }
    holder->lookup = lookup;
    pthread_mutex_init(&holder->lock, NULL);
    *out = holder;
    return TCK_OK;
}

void aws_holder_free(struct aws_holder *holder)
{
    if (holder != NULL) {
        aws_credentials_free(&holder->now);
        pthread_mutex_destroy(&holder->lock);
        free(holder);
    }
}

bool aws_error_passes(tck_status_t status)
{
    return status == TCK_ERR_UNREACHABLE || status == TCK_ERR_TIMEDOUT || status == TCK_ERR_PROTO ||
           status == TCK_ERR_CORRUPT || status == TCK_ERR_IO;
}

static tck_status_t ask_all(const struct aws_lookup *lookup, struct aws_credentials *out, struct error *err)
{
    static aws_source_fn *const sources[] = {aws_from_environment, aws_from_web_identity, aws_from_profile,
                                             aws_from_container, aws_from_instance};
    char places[ERROR_TEXT_BYTES] = "";
    for (size_t i = 0; i < sizeof(sources) / sizeof(*sources); i++) {
        struct error why = {0};
        tck_status_t status = sources[i](lookup, out, &why);
        if (status == TCK_OK) {
            return TCK_OK;
        }
        if (status != TCK_ERR_NOENT) {
            return error_set(err, status, "credentials: %s", why.text);
        }
        size_t len = strlen(places);
        snprintf(places + len, sizeof(places) - len, "%s%.90s", len == 0 ? "" : "; ", why.text);
    }
    return error_set(err, TCK_ERR_DENIED, "no credentials: %s", places);
}

static tck_status_t copy(const struct aws_credentials *from, struct aws_credentials *out, struct error *err)
{
    struct aws_credentials made = *from;
    made.access_key = strdup(from->access_key);
    made.secret_key = strdup(from->secret_key);
    made.session_token = from->session_token == NULL ? NULL : strdup(from->session_token);
    if (made.access_key == NULL || made.secret_key == NULL ||
        (from->session_token != NULL && made.session_token == NULL)) {
        aws_credentials_free(&made);
        return error_set(err, TCK_ERR_NOMEM, "no memory for credentials");
    }
    *out = made;
    return TCK_OK;
}

/* Errors that cost nothing to find again, such as those of the configuration, are looked for at each call. */
static bool is_kept(tck_status_t status)
{
    return status == TCK_ERR_DENIED || aws_error_passes(status);
}

/* With the lock held. */
static tck_status_t renew(struct aws_holder *holder, int64_t now_s, uint64_t until_ms, struct error *err)
{
    struct aws_credentials got = {0};
    struct aws_lookup lookup = *holder->lookup;
    lookup.until_ms = until_ms;
    bool usable =
        holder->now.access_key != NULL && !holder->expired && aws_credentials_valid(holder->now.expires_s, now_s);
    if (usable && (!aws_credentials_due(holder->now.expires_s, now_s) || now_s < holder->retry_s)) {
        return TCK_OK;
    }
    if (!usable && now_s < holder->retry_s && is_kept(holder->failure.code)) {
        return error_set(err, holder->failure.code, "%s", holder->failure.text);
    }
    tck_status_t status = ask_all(&lookup, &got, &holder->failure);
    if (status == TCK_OK) {
        aws_credentials_free(&holder->now);
        holder->now = got;
        holder->expired = false;
        holder->retry_s = 0;
        return TCK_OK;
    }
    holder->retry_s = now_s + (usable ? RETRY_S : FAILED_S);
    return usable ? TCK_OK : error_set(err, status, "%s", holder->failure.text);
}

static bool take_lock(struct aws_holder *holder, uint64_t until_ms)
{
    uint64_t now_ms = clock_ms(), end_ms = clock_wall_ms() + (until_ms > now_ms ? until_ms - now_ms : 0);
    struct timespec end = {.tv_sec = (time_t)(end_ms / 1000), .tv_nsec = (long)(end_ms % 1000) * 1000000};
    if (until_ms != 0) {
        return pthread_mutex_timedlock(&holder->lock, &end) == 0;
    }
    pthread_mutex_lock(&holder->lock);
    return true;
}

tck_status_t aws_holder_get(struct aws_holder *holder, int64_t now_s, uint64_t until_ms, struct aws_credentials *out,
                            struct error *err)
{
    if (!take_lock(holder, until_ms)) {
        return error_set(err, TCK_ERR_TIMEDOUT, "credentials: another thread still asks for them");
    }
    tck_status_t status = renew(holder, now_s, until_ms, err);
    if (status == TCK_OK) {
        status = copy(&holder->now, out, err);
    }
    pthread_mutex_unlock(&holder->lock);
    return status;
}

void aws_holder_expire(struct aws_holder *holder, const char *access_key)
{
    pthread_mutex_lock(&holder->lock);
    if (holder->now.access_key != NULL && strcmp(holder->now.access_key, access_key) == 0) {
        holder->expired = true;
    }
    pthread_mutex_unlock(&holder->lock);
}

/* SPDX-License-Identifier: Apache-2.0
 * HTTP through libcurl; this module is the only one that includes its header. A client keeps its connections and may be
 * used by any thread; a request blocks the thread that makes it. Nothing here repeats a request or follows a redirect.
 */
#ifndef TCK_TIERS_HTTP_H
#define TCK_TIERS_HTTP_H

#include "base/status.h"
#include "tiers/object/http_end.h"
#include "tiers/object/http_headers.h"

#include <stdatomic.h>

struct http_client;

/* ca_bundle: a file of certificates to trust in place of the system's; NULL or "": the system's. */
must_check tck_status_t http_client_new(const char *ca_bundle, struct http_client **out, struct error *err);
void http_client_free(struct http_client *client); /* no request may be under way */
/* Requests under way and later ones end with HTTP_CANCELED, within about a second. */
void http_client_cancel(struct http_client *client);

struct http_request {
    const char *method; /* GET, HEAD, PUT, POST, DELETE */
    const char *url;
    const char *const *headers; /* whole lines, up to a NULL */
    const void *body;           /* sent from where it is; for PUT and POST */
    uint64_t body_bytes;
    void *into; /* where the body goes of an answer that is a range, or of any 2xx if into_whole; NULL: collected */
    uint64_t into_bytes;
    bool into_whole;
    uint64_t collect_max; /* of a body that is collected; of an answer that is an error, HTTP_ERROR_MAX are kept */
    uint32_t total_ms;
    uint32_t quiet_s;            /* given up if less than HTTP_SLOW_BYTES_S moved for this long; 0: no limit */
    bool direct;                 /* never through a proxy */
    const atomic_bool *canceled; /* may be NULL */
    void (*moved)(void *ctx, uint64_t bytes);
    void *moved_ctx;
    bool waits; /* moved is called with 0, too, about each second, while the request was sent and its answer is awaited
                 */
};

#define HTTP_ERROR_MAX    (64u << 10)
#define HTTP_CONNECT_MS   10000
#define HTTP_SLOW_BYTES_S 1024

struct http_answer {
    enum http_end end;
    long status;    /* 0: there was no answer */
    uint32_t sends; /* how often the request was put on a connection: libcurl repeats it if an idle one was closed */
    struct http_headers headers;
    char *body; /* NUL-terminated; NULL: it went elsewhere or there is none */
    size_t body_bytes;
    uint64_t filled;  /* bytes of into */
    char reason[256]; /* of what is no whole answer */
    enum http_distrust distrust;
};

void http_do(struct http_client *client, const struct http_request *request, struct http_answer *out);
/* Overwrites the body first. */
void http_answer_free(struct http_answer *answer);

#define HTTP_HOST_MAX 256
#define HTTP_PATH_MAX 1024

struct http_url {
    char scheme[16];
    char host[HTTP_HOST_MAX]; /* with the port unless it is the scheme's; IPv6 in brackets */
    char path[HTTP_PATH_MAX]; /* percent-encoded as it was; "/" if there is none */
};

/* TCK_ERR_INVAL: no URL, or one with a user, a query or a fragment. The text never has the URL. */
must_check tck_status_t http_url_parse(const char *text, struct http_url *out, struct error *err);
/* Seconds since 1970 of a date of HTTP; -1: not one. */
int64_t http_date(const char *text);

#endif

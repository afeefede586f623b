/* SPDX-License-Identifier: Apache-2.0
 * The door to libcurl: a pool of handles, each of which keeps its connection. */
#include "tiers/object/http.h"

#include <curl/curl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BUFFER_BYTES  (512L << 10)
#define IDLE_MAX      64
#define KEEPALIVE_S   30L
#define COLLECT_FIRST 4096

struct http_client {
    pthread_mutex_t lock;
    CURL *idle[IDLE_MAX];
    size_t idle_count;
    atomic_bool canceled;
    char *ca_bundle; /* NULL: the system's */
};

/* One request while it runs. */
struct transfer {
    struct http_client *client;
    const struct http_request *request;
    struct http_answer *out;
    CURL *curl;
    size_t cap;
    uint64_t moved;
    char text[CURL_ERROR_SIZE];
};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static CURLcode started;

static void start(void)
{
    started = curl_global_init(CURL_GLOBAL_DEFAULT);
}

tck_status_t http_client_new(const char *ca_bundle, struct http_client **out, struct error *err)
{
    pthread_once(&once, start);
    if (started != CURLE_OK) {
        return error_set(err, TCK_ERR_INTERNAL, "libcurl cannot start: %s", curl_easy_strerror(started));
    }
    struct http_client *client = calloc(1, sizeof(*client));
    bool trusts = ca_bundle != NULL && ca_bundle[0] != '\0';
    if (client != NULL && trusts) {
        client->ca_bundle = strdup(ca_bundle);
    }
    if (client == NULL || (trusts && client->ca_bundle == NULL)) {
        free(client);
        return error_set(err, TCK_ERR_NOMEM, "no memory for an HTTP client");
    }
    pthread_mutex_init(&client->lock, NULL);
    *out = client;
    return TCK_OK;
}

void http_client_free(struct http_client *client)
{
    if (client == NULL) {
        return;
    }
    for (size_t i = 0; i < client->idle_count; i++) {
        curl_easy_cleanup(client->idle[i]);
    }
    pthread_mutex_destroy(&client->lock);
    free(client->ca_bundle);
    free(client);
}

void http_client_cancel(struct http_client *client)
{
    atomic_store(&client->canceled, true);
}

static CURL *take_handle(struct http_client *client)
{
    CURL *curl = NULL;
    pthread_mutex_lock(&client->lock);
    if (client->idle_count > 0) {
        curl = client->idle[--client->idle_count];
    }
    pthread_mutex_unlock(&client->lock);
    return curl == NULL ? curl_easy_init() : curl;
}

static void give_handle(struct http_client *client, CURL *curl)
{
    curl_easy_reset(curl); /* forgets headers and buffers; connections stay open */
    pthread_mutex_lock(&client->lock);
    bool kept = client->idle_count < IDLE_MAX;
    if (kept) {
        client->idle[client->idle_count++] = curl;
    }
    pthread_mutex_unlock(&client->lock);
    if (!kept) {
        curl_easy_cleanup(curl);
    }
}

static bool is_canceled(const struct transfer *t)
{
    return atomic_load_explicit(&t->client->canceled, memory_order_relaxed) ||
           (t->request->canceled != NULL && atomic_load_explicit(t->request->canceled, memory_order_relaxed));
}

static int on_progress(void *ctx, curl_off_t down_total, curl_off_t down, curl_off_t up_total, curl_off_t up)
{
    struct transfer *t = ctx;
    uint64_t moved = (uint64_t)down + (uint64_t)up;
    (void)down_total;
    (void)up_total;
    bool waits = t->request->waits && t->out->sends > 0;
    if (t->request->moved != NULL && (moved > t->moved || waits)) {
        t->request->moved(t->request->moved_ctx, moved - t->moved);
        t->moved = moved;
    }
    return is_canceled(t);
}

/* libcurl itself sends a request again if a connection that was kept turns out to be dead, so a PUT may arrive twice.
 * That does no harm by itself, as both have the same value. A server that carries out the first one late could replace
 * a later value of the key, as after any attempt whose answer was lost: what must not be replaced is created, and
 * s3_objects.c compares what is there if a creation may have arrived twice. */
static int on_connected(void *ctx, char *remote, char *local, int remote_port, int local_port)
{
    struct transfer *t = ctx;
    (void)remote;
    (void)local;
    (void)remote_port;
    (void)local_port;
    t->out->sends++;
    return CURL_PREREQFUNC_OK;
}

static size_t on_header(char *line, size_t size, size_t count, void *ctx)
{
    struct transfer *t = ctx;
    if (size * count >= 5 && memcmp(line, "HTTP/", 5) == 0) {
        http_headers_clear(&t->out->headers); /* those of an interim answer are of no use */
    }
    http_headers_take(&t->out->headers, line, size * count);
    return size * count;
}

static long status_of(const struct transfer *t)
{
    long status = 0;
    curl_easy_getinfo(t->curl, CURLINFO_RESPONSE_CODE, &status);
    return status;
}

static bool collect(struct transfer *t, const char *data, size_t len, uint64_t max)
{
    struct http_answer *out = t->out;
    if (len > max - out->body_bytes) {
        out->end = HTTP_TOO_BIG;
        return false;
    }
    if (out->body_bytes + len + 1 > t->cap) {
        size_t cap = 2 * t->cap > out->body_bytes + len + 1 ? 2 * t->cap : out->body_bytes + len + COLLECT_FIRST;
        char *grown = malloc(cap);
        if (grown == NULL) {
            out->end = HTTP_NO_MEMORY;
            return false;
        }
        if (out->body != NULL) {
            memcpy(grown, out->body, out->body_bytes);
            explicit_bzero(out->body, out->body_bytes); /* it may hold credentials */
            free(out->body);
        }
        out->body = grown;
        t->cap = cap;
    }
    memcpy(out->body + out->body_bytes, data, len);
    out->body_bytes += len;
    out->body[out->body_bytes] = '\0';
    return true;
}

static bool fill(struct transfer *t, const char *data, size_t len)
{
    struct http_answer *out = t->out;
    if (len > t->request->into_bytes - out->filled) {
        out->end = HTTP_TOO_BIG;
        return false;
    }
    memcpy((char *)t->request->into + out->filled, data, len);
    out->filled += len;
    return true;
}

/* The caller's buffer is for what was asked for, and not for an error document, of which the beginning suffices. */
static size_t on_body(char *data, size_t size, size_t count, void *ctx)
{
    struct transfer *t = ctx;
    size_t len = size * count;
    long status = status_of(t);
    bool taken;
    if (status >= 300) {
        size_t room = HTTP_ERROR_MAX - t->out->body_bytes;
        taken = collect(t, data, len < room ? len : room, HTTP_ERROR_MAX);
    } else if (t->request->into != NULL &&
               (status == 206 || t->request->into_whole || t->out->headers.range_total != HTTP_NO_LENGTH)) {
        taken = fill(t, data, len);
    } else {
        taken = collect(t, data, len, t->request->collect_max);
    }
    return taken ? len : 0;
}

static void set_limits(CURL *curl, const struct http_request *request)
{
    long total = request->total_ms > 0 ? (long)request->total_ms : 1;
    curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, total);
    curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT_MS, total < HTTP_CONNECT_MS ? total : (long)HTTP_CONNECT_MS);
    if (request->quiet_s > 0) {
        curl_easy_setopt(curl, CURLOPT_LOW_SPEED_LIMIT, (long)HTTP_SLOW_BYTES_S);
        curl_easy_setopt(curl, CURLOPT_LOW_SPEED_TIME, (long)request->quiet_s);
    }
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl, CURLOPT_TCP_KEEPALIVE, 1L);
    curl_easy_setopt(curl, CURLOPT_TCP_KEEPIDLE, KEEPALIVE_S);
}

static void set_connection(CURL *curl, const struct http_client *client, const struct http_request *request)
{
    curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(curl, CURLOPT_HTTP_VERSION, CURL_HTTP_VERSION_1_1); /* a connection for each large transfer */
    curl_easy_setopt(curl, CURLOPT_FOLLOWLOCATION, 0L);
    curl_easy_setopt(curl, CURLOPT_PATH_AS_IS, 1L); /* it was signed as it is */
    curl_easy_setopt(curl, CURLOPT_BUFFERSIZE, BUFFER_BYTES);
    curl_easy_setopt(curl, CURLOPT_UPLOAD_BUFFERSIZE, BUFFER_BYTES);
    if (client->ca_bundle != NULL) {
        curl_easy_setopt(curl, CURLOPT_CAINFO, client->ca_bundle);
    }
    if (request->direct) {
        curl_easy_setopt(curl, CURLOPT_NOPROXY, "*");
    }
}

/* POSTFIELDS with the name of another method: libcurl then takes the body from where it is and can send it again. */
static void set_method(CURL *curl, const struct http_request *request)
{
    if (strcmp(request->method, "PUT") == 0 || strcmp(request->method, "POST") == 0) {
        curl_easy_setopt(curl, CURLOPT_POSTFIELDS, request->body == NULL ? "" : request->body);
        curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)request->body_bytes);
    } else if (strcmp(request->method, "HEAD") == 0) {
        curl_easy_setopt(curl, CURLOPT_NOBODY, 1L);
        return;
    }
    curl_easy_setopt(curl, CURLOPT_CUSTOMREQUEST, request->method);
}

static void set_callbacks(struct transfer *t)
{
    curl_easy_setopt(t->curl, CURLOPT_ERRORBUFFER, t->text);
    curl_easy_setopt(t->curl, CURLOPT_NOPROGRESS, 0L);
    curl_easy_setopt(t->curl, CURLOPT_XFERINFOFUNCTION, on_progress);
    curl_easy_setopt(t->curl, CURLOPT_XFERINFODATA, t);
    curl_easy_setopt(t->curl, CURLOPT_PREREQFUNCTION, on_connected);
    curl_easy_setopt(t->curl, CURLOPT_PREREQDATA, t);
    curl_easy_setopt(t->curl, CURLOPT_HEADERFUNCTION, on_header);
    curl_easy_setopt(t->curl, CURLOPT_HEADERDATA, t);
    curl_easy_setopt(t->curl, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(t->curl, CURLOPT_WRITEDATA, t);
}

/* A connection that is cut during the handshake has the same code: only OpenSSL's reason distinguishes the two. */
static bool answers_without_tls(CURLcode code, const struct transfer *t)
{
    return code == CURLE_SSL_CONNECT_ERROR && strstr(t->text, "wrong version number") != NULL;
}

static enum http_end end_of(CURLcode code, const struct transfer *t)
{
    switch ((int)code) {
    case CURLE_OK:
        return HTTP_ANSWERED;
    case CURLE_OPERATION_TIMEDOUT:
        return HTTP_TIMED_OUT;
    case CURLE_ABORTED_BY_CALLBACK:
        return HTTP_CANCELED;
    case CURLE_WRITE_ERROR: /* our own functions have said why */
        return t->out->end != HTTP_ANSWERED ? t->out->end : HTTP_CUT;
    case CURLE_OUT_OF_MEMORY:
        return HTTP_NO_MEMORY;
    case CURLE_WEIRD_SERVER_REPLY:
    case CURLE_UNSUPPORTED_PROTOCOL:
    case CURLE_BAD_CONTENT_ENCODING:
        return t->out->sends > 0 ? HTTP_GARBLED : HTTP_REFUSED;
    case CURLE_URL_MALFORMAT:
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_SSL_CERTPROBLEM:
    case CURLE_SSL_ISSUER_ERROR:
    case CURLE_FAILED_INIT:
    case CURLE_NOT_BUILT_IN:
    case CURLE_BAD_FUNCTION_ARGUMENT:
    case CURLE_UNKNOWN_OPTION:
        return HTTP_REFUSED;
    default:
        return answers_without_tls(code, t) ? HTTP_REFUSED : HTTP_CUT;
    }
}

/* Numbers of OpenSSL, which are the same in all its versions (X509_V_ERR_... in openssl/x509_vfy.h). libcurl itself
 * compares the names, before it asks OpenSSL for the result: that is still 1 if they differ. */
static enum http_distrust distrust_of_openssl(long result)
{
    switch (result) {
    case 1:
        return HTTP_OTHER_NAME;
    case 9:
    case 10:
        return HTTP_OUT_OF_DATE;
    case 2:
    case 18:
    case 19:
    case 20:
    case 21:
        return HTTP_UNKNOWN_ISSUER;
    default:
        return HTTP_DISTRUSTED;
    }
}

static enum http_distrust distrust_of(CURLcode code, const struct transfer *t)
{
    const char *library = curl_version_info(CURLVERSION_NOW)->ssl_version;
    long result = -1;
    if (code == CURLE_SSL_CACERT_BADFILE) {
        return HTTP_NO_BUNDLE;
    }
    if (answers_without_tls(code, t)) {
        return HTTP_NO_TLS;
    }
    if (code != CURLE_PEER_FAILED_VERIFICATION) {
        return HTTP_TRUSTED;
    }
    bool known = library != NULL && strncmp(library, "OpenSSL/", 8) == 0 &&
                 curl_easy_getinfo(t->curl, CURLINFO_SSL_VERIFYRESULT, &result) == CURLE_OK;
    return known ? distrust_of_openssl(result) : HTTP_DISTRUSTED;
}

static struct curl_slist *header_list(const char *const *headers)
{
    struct curl_slist *list = NULL;
    for (; *headers != NULL; headers++) {
        struct curl_slist *longer = curl_slist_append(list, *headers);
        if (longer == NULL) {
            curl_slist_free_all(list);
            return NULL;
        }
        list = longer;
    }
    return list;
}

static void wipe_list(struct curl_slist *list)
{
    for (struct curl_slist *item = list; item != NULL; item = item->next) {
        explicit_bzero(item->data, strlen(item->data)); /* a session token is one of them */
    }
    curl_slist_free_all(list);
}

static void perform(struct transfer *t)
{
    static const char *const nothing[] = {"Expect:", NULL};
    const struct http_request *request = t->request;
    struct curl_slist *headers = header_list(request->headers == NULL ? nothing : request->headers);
    if (headers == NULL) {
        t->out->end = HTTP_NO_MEMORY;
        return;
    }
    curl_easy_setopt(t->curl, CURLOPT_URL, request->url);
    curl_easy_setopt(t->curl, CURLOPT_HTTPHEADER, headers);
    set_connection(t->curl, t->client, request);
    set_limits(t->curl, request);
    set_method(t->curl, request);
    set_callbacks(t);
    CURLcode code = curl_easy_perform(t->curl);
    curl_easy_getinfo(t->curl, CURLINFO_RESPONSE_CODE, &t->out->status);
    t->out->end = end_of(code, t);
    t->out->distrust = distrust_of(code, t);
    if (code != CURLE_OK) {
        snprintf(t->out->reason, sizeof(t->out->reason), "%s", t->text[0] != '\0' ? t->text : curl_easy_strerror(code));
    }
    curl_easy_setopt(t->curl, CURLOPT_HTTPHEADER, NULL);
    wipe_list(headers);
}

void http_do(struct http_client *client, const struct http_request *request, struct http_answer *out)
{
    *out = (struct http_answer){.end = HTTP_ANSWERED};
    http_headers_clear(&out->headers);
    struct transfer t = {.client = client, .request = request, .out = out, .curl = take_handle(client)};
    if (t.curl == NULL) {
        out->end = HTTP_NO_MEMORY;
        return;
    }
    if (is_canceled(&t)) {
        out->end = HTTP_CANCELED;
    } else {
        perform(&t);
    }
    give_handle(client, t.curl);
}

void http_answer_free(struct http_answer *answer)
{
    if (answer->body != NULL) {
        explicit_bzero(answer->body, answer->body_bytes);
        free(answer->body);
    }
    answer->body = NULL;
}

/* A part of the URL; "" if it has none. False: it does not fit. */
static bool url_part(CURLU *url, CURLUPart part, unsigned flags, char *out, size_t cap)
{
    char *text = NULL;
    out[0] = '\0';
    if (curl_url_get(url, part, &text, flags) != CURLUE_OK) {
        return true;
    }
    int len = snprintf(out, cap, "%s", text);
    curl_free(text);
    return len >= 0 && (size_t)len < cap;
}

static bool split(CURLU *url, struct http_url *out)
{
    char port[8], unwanted[8];
    bool fits = url_part(url, CURLUPART_SCHEME, 0, out->scheme, sizeof(out->scheme)) &&
                url_part(url, CURLUPART_HOST, 0, out->host, sizeof(out->host)) &&
                url_part(url, CURLUPART_PATH, 0, out->path, sizeof(out->path)) &&
                url_part(url, CURLUPART_PORT, CURLU_NO_DEFAULT_PORT, port, sizeof(port));
    if (!fits || out->host[0] == '\0') {
        return false;
    }
    static const CURLUPart refused[] = {CURLUPART_USER, CURLUPART_PASSWORD, CURLUPART_QUERY, CURLUPART_FRAGMENT};
    for (size_t i = 0; i < sizeof(refused) / sizeof(*refused); i++) {
        if (!url_part(url, refused[i], 0, unwanted, sizeof(unwanted)) || unwanted[0] != '\0') {
            return false;
        }
    }
    size_t len = strlen(out->host);
    int added = snprintf(out->host + len, sizeof(out->host) - len, "%s%s", port[0] == '\0' ? "" : ":", port);
    return added >= 0 && (size_t)added < sizeof(out->host) - len;
}

tck_status_t http_url_parse(const char *text, struct http_url *out, struct error *err)
{
    struct http_url parts;
    CURLU *url = curl_url();
    if (url == NULL) {
        return error_set(err, TCK_ERR_NOMEM, "no memory for a URL");
    }
    CURLUcode code = curl_url_set(url, CURLUPART_URL, text, CURLU_NON_SUPPORT_SCHEME | CURLU_PATH_AS_IS);
    bool usable = code == CURLUE_OK && split(url, &parts);
    curl_url_cleanup(url);
    if (!usable) {
        return error_set(err, TCK_ERR_INVAL, "%s",
                         code != CURLUE_OK ? curl_url_strerror(code)
                                           : "a URL of scheme, host, port and path was expected, without user, query "
                                             "and fragment");
    }
    *out = parts;
    return TCK_OK;
}

int64_t http_date(const char *text)
{
    return (int64_t)curl_getdate(text, NULL);
}

/* SPDX-License-Identifier: Apache-2.0
 * Serves the metrics with libmicrohttpd. This file accepts the connections and ends them when their time is over, the
 * library does what HTTP asks for in between. */
#include "agent/metrics/metrics_http.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/thread.h"

#include <errno.h>
#include <microhttpd.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#define CONNECTIONS_MAX  32u
#define PER_HOST_MAX     16u /* so that one host cannot keep the others away */
#define CONNECTION_MS    5000u
#define CONNECTION_BYTES ((size_t)8192) /* for the head of a request */
#define LONGEST_SLEEP_MS 1000
#define BACKLOG          64
#define NICE             10 /* trainers need the processors more */

/* One connection. Only the thread sees it. */
struct visit {
    struct visit *next;
    int fd;
    uint64_t until_ms;
};

struct metrics_http {
    char at[SOCKET_ADDRESS_TEXT];
    int listen_fd, wake_fd;
    struct MHD_Daemon *daemon;
    pthread_t thread;
    atomic_bool stop;
    struct visit *visits;
    unsigned visit_count;
    uint64_t accept_after_ms; /* nothing is accepted before */
    pthread_mutex_t lock;
    struct MHD_Response *page; /* under lock; NULL before the first one */
};

/* ---- requests ------------------------------------------------------------------------------------------------ */

/* One request per connection: a connection's time is then that of a request. NULL: out of memory; text is freed if the
 * mode says that it is to be. */
static struct MHD_Response *response(char *text, size_t len, enum MHD_ResponseMemoryMode mode)
{
    struct MHD_Response *r = MHD_create_response_from_buffer(len, text, mode);
    if (r == NULL && mode == MHD_RESPMEM_MUST_FREE) {
        free(text);
    }
    if (r != NULL &&
        (MHD_add_response_header(r, "Connection", "close") != MHD_YES ||
         MHD_add_response_header(r, "Content-Type", "text/plain; version=0.0.4; charset=utf-8") != MHD_YES)) {
        MHD_destroy_response(r);
        return NULL;
    }
    return r;
}

static enum MHD_Result refuse(struct MHD_Connection *connection, unsigned code, const char *why)
{
    struct MHD_Response *r = response((char *)(uintptr_t)why, strlen(why), MHD_RESPMEM_PERSISTENT); /* is only read */
    if (r == NULL) {
        return MHD_NO; /* ends the connection */
    }
    enum MHD_Result queued =
        code == MHD_HTTP_METHOD_NOT_ALLOWED ? MHD_add_response_header(r, "Allow", "GET, HEAD") : MHD_YES;
    queued = queued == MHD_YES ? MHD_queue_response(connection, code, r) : MHD_NO;
    MHD_destroy_response(r);
    return queued;
}

static enum MHD_Result show_page(struct metrics_http *http, struct MHD_Connection *connection)
{
    pthread_mutex_lock(&http->lock);
    enum MHD_Result queued = http->page != NULL ? MHD_queue_response(connection, MHD_HTTP_OK, http->page) : MHD_NO;
    bool none = http->page == NULL;
    pthread_mutex_unlock(&http->lock);
    return none ? refuse(connection, MHD_HTTP_SERVICE_UNAVAILABLE, "the agent is starting\n") : queued;
}

/* NOLINTNEXTLINE(readability-function-size): the library's parameters */
static enum MHD_Result on_request(void *ctx, struct MHD_Connection *connection, const char *url, const char *method,
                                  const char *version, const char *body, size_t *body_len, void **request)
{
    (void)version;
    (void)body;
    (void)body_len;
    (void)request;
    if (strcmp(method, MHD_HTTP_METHOD_GET) != 0 && strcmp(method, MHD_HTTP_METHOD_HEAD) != 0) {
        return refuse(connection, MHD_HTTP_METHOD_NOT_ALLOWED, "only GET and HEAD\n");
    }
    if (strcmp(url, "/metrics") != 0) {
        return refuse(connection, MHD_HTTP_NOT_FOUND, "the metrics of this agent are at /metrics\n");
    }
    return show_page(ctx, connection);
}

/* ---- connections --------------------------------------------------------------------------------------------- */

static void visit_begin(struct metrics_http *http, struct MHD_Connection *connection, void **out)
{
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    struct visit *v = calloc(1, sizeof(*v));
    if (v == NULL || info == NULL) {
        free(v);
        return; /* the library's own time-out is left, which ends connections on which nothing comes */
    }
    *v = (struct visit){.next = http->visits, .fd = info->connect_fd, .until_ms = clock_ms() + CONNECTION_MS};
    http->visits = v;
    *out = v;
}

static void visit_end(struct metrics_http *http, struct visit *v)
{
    struct visit **at = &http->visits;
    while (*at != NULL && *at != v) {
        at = &(*at)->next;
    }
    if (*at != NULL) {
        *at = v->next;
        free(v);
    }
}

static void on_connection(void *ctx, struct MHD_Connection *connection, void **socket_ctx,
                          enum MHD_ConnectionNotificationCode code)
{
    struct metrics_http *http = ctx;
    if (code == MHD_CONNECTION_NOTIFY_STARTED) {
        http->visit_count++;
        visit_begin(http, connection, socket_ctx);
    } else {
        http->visit_count--;
        visit_end(http, *socket_ctx);
    }
}

/* The library notices the end of the connection, and closes it. What was not sent yet is discarded then: otherwise the
 * kernel would keep it for minutes for a client that does not read. */
static void cut_overdue(const struct metrics_http *http)
{
    const struct linger discard = {.l_onoff = 1};
    uint64_t now = clock_ms();
    for (const struct visit *v = http->visits; v != NULL; v = v->next) {
        if (now >= v->until_ms) {
            (void)setsockopt(v->fd, SOL_SOCKET, SO_LINGER, &discard, sizeof(discard));
            (void)shutdown(v->fd, SHUT_RDWR);
        }
    }
}

static void accept_some(struct metrics_http *http)
{
    for (unsigned i = 0; i < CONNECTIONS_MAX && http->visit_count < CONNECTIONS_MAX; i++) {
        struct sockaddr_storage from;
        socklen_t len = sizeof(from);
        int fd = accept4(http->listen_fd, (struct sockaddr *)&from, &len, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0) {
            /* None waits, or there is no descriptor for it: then it waits on, and poll would return at once. */
            http->accept_after_ms = errno == EAGAIN || errno == ECONNABORTED ? 0 : clock_ms() + LONGEST_SLEEP_MS;
            return;
        }
        (void)MHD_add_connection(http->daemon, fd, (struct sockaddr *)&from, len); /* closes it on failure */
    }
}

/* ---- the thread ---------------------------------------------------------------------------------------------- */

static int sleep_ms(const struct metrics_http *http)
{
    MHD_UNSIGNED_LONG_LONG wanted;
    bool sooner = MHD_get_timeout(http->daemon, &wanted) == MHD_YES && wanted < LONGEST_SLEEP_MS;
    return sooner ? (int)wanted : LONGEST_SLEEP_MS;
}

static void *serve(void *ctx)
{
    struct metrics_http *http = ctx;
    const union MHD_DaemonInfo *info = MHD_get_daemon_info(http->daemon, MHD_DAEMON_INFO_EPOLL_FD);
    (void)setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), NICE); /* of this thread alone */
    while (!atomic_load(&http->stop)) {
        bool accepts = http->visit_count < CONNECTIONS_MAX && clock_ms() >= http->accept_after_ms;
        struct pollfd fds[] = {{.fd = http->wake_fd, .events = POLLIN},
                               {.fd = info->epoll_fd, .events = POLLIN},
                               {.fd = accepts ? http->listen_fd : -1, .events = POLLIN}};
        bool woken = poll(fds, sizeof(fds) / sizeof(*fds), sleep_ms(http)) > 0;
        if (woken && fds[2].revents != 0) {
            accept_some(http);
        }
        cut_overdue(http);
        (void)MHD_run(http->daemon);
    }
    return NULL;
}

/* ---- life ---------------------------------------------------------------------------------------------------- */

/* The library would write to standard error. */
static void no_log(void *ctx, const char *format, va_list args)
{
    (void)ctx;
    (void)format;
    (void)args;
}

static tck_status_t start_daemon(struct metrics_http *http, struct error *err)
{
    http->daemon =
        MHD_start_daemon(MHD_USE_EPOLL | MHD_USE_NO_LISTEN_SOCKET | MHD_USE_ERROR_LOG, 0, NULL, NULL, on_request, http,
                         MHD_OPTION_EXTERNAL_LOGGER, no_log, NULL, MHD_OPTION_NOTIFY_CONNECTION, on_connection, http,
                         MHD_OPTION_CONNECTION_LIMIT, CONNECTIONS_MAX, MHD_OPTION_PER_IP_CONNECTION_LIMIT, PER_HOST_MAX,
                         MHD_OPTION_CONNECTION_TIMEOUT, CONNECTION_MS / 1000, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
                         CONNECTION_BYTES, MHD_OPTION_END);
    const union MHD_DaemonInfo *info =
        http->daemon != NULL ? MHD_get_daemon_info(http->daemon, MHD_DAEMON_INFO_EPOLL_FD) : NULL;
    if (info == NULL || info->epoll_fd < 0) {
        return error_set(err, TCK_ERR_NOMEM, "the HTTP server cannot be started");
    }
    return TCK_OK;
}

static tck_status_t start_thread(struct metrics_http *http, struct error *err)
{
    http->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (http->wake_fd < 0) {
        return error_set(err, status_of_errno(errno), "create eventfd: %m");
    }
    errno = thread_start(&http->thread, serve, http);
    return errno == 0 ? TCK_OK : error_set(err, status_of_errno(errno), "start the thread of the HTTP server: %m");
}

static void release(struct metrics_http *http)
{
    if (http->daemon != NULL) {
        MHD_stop_daemon(http->daemon); /* closes the connections that are left */
    }
    if (http->page != NULL) {
        MHD_destroy_response(http->page);
    }
    if (http->wake_fd >= 0) {
        close(http->wake_fd);
    }
    if (http->listen_fd >= 0) {
        close(http->listen_fd);
    }
    pthread_mutex_destroy(&http->lock);
    free(http);
}

tck_status_t metrics_http_start(const struct socket_address *address, struct metrics_http **out, struct error *err)
{
    struct metrics_http *http = calloc(1, sizeof(*http));
    if (http == NULL) {
        return error_set(err, TCK_ERR_NOMEM, "agent: out of memory");
    }
    http->listen_fd = http->wake_fd = -1;
    pthread_mutex_init(&http->lock, NULL);
    tck_status_t status = listen_address_open(address, BACKLOG, &http->listen_fd, http->at, err);
    if (status == TCK_OK) {
        status = start_daemon(http, err);
    }
    if (status == TCK_OK) {
        status = start_thread(http, err);
    }
    if (status != TCK_OK) {
        release(http);
        return status;
    }
    *out = http;
    return TCK_OK;
}

void metrics_http_stop(struct metrics_http *http)
{
    if (http == NULL) {
        return;
    }
    atomic_store(&http->stop, true);
    eventfd_write(http->wake_fd, 1);
    pthread_join(http->thread, NULL);
    release(http);
}

const char *metrics_http_at(const struct metrics_http *http)
{
    return http->at;
}

void metrics_http_show(struct metrics_http *http, char *text, size_t len)
{
    struct MHD_Response *page = response(text, len, MHD_RESPMEM_MUST_FREE), *before = NULL;
    if (page == NULL) {
        return;
    }
    pthread_mutex_lock(&http->lock);
    before = http->page;
    http->page = page;
    pthread_mutex_unlock(&http->lock);
    if (before != NULL) {
        MHD_destroy_response(before); /* when the last connection has sent it */
    }
}

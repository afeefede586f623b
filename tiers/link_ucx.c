/* SPDX-License-Identifier: Apache-2.0
 * The link over UCX: active messages only (put and get over TCP are slow and let a dying peer abort this process), PEER
 * error mode everywhere, workers used by the loop's thread alone, one for each address.
 *
 * UCX calls back from inside ucp_worker_progress. Those callbacks touch no UCX object; they queue an event
 * (link_conn.h), and the poll function hands the events to the owner afterwards. Only a chunk's buffer is requested
 * from the owner inside the callback. */
#include "base/clock.h"
#include "base/log.h"
#include "tiers/link_address.h"
#include "tiers/link_conn.h"
#include "tiers/link_lanes.h"
#include "tiers/link_log.h"
#include "tiers/link_mark.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <ucp/api/ucp.h>

#define AM_MESSAGE        0
#define AM_CHUNK          1
#define PROGRESS_PER_TURN 64 /* then timers and other sources get their turn */
#define PORT_TRIES        8
#define FREE_WAIT_MS      10000 /* closed endpoints end at once; if not, UCX has lost a request */

/* A control message that UCX has not taken yet. */
struct outgoing {
    struct link_conn *conn;
    uint8_t data[];
};

/* ---- callbacks of UCX ---- */

static void on_error(void *arg, ucp_ep_h ep, ucs_status_t status)
{
    (void)ep;
    conn_fail(arg, ucs_status_string(status));
}

static void on_connect_request(ucp_conn_request_h request, void *arg)
{
    struct accept *accept = calloc(1, sizeof(*accept));
    struct port *port = arg;

    if (accept == NULL) {
        ucp_listener_reject(port->listener, request);
        return;
    }
    accept->port = port;
    accept->request = request;
    queue_event(port->link, &accept->event, EVENT_ACCEPT, NULL);
}

/* NULL: closed meanwhile, dying, or a sender that did not connect through the listener. */
static struct link_conn *sender_of(struct link *link, const ucp_am_recv_param_t *param)
{
    bool known = (param->recv_attr & UCP_AM_RECV_ATTR_FIELD_REPLY_EP) != 0;
    struct link_conn *conn = known ? conn_of_ep(link, param->reply_ep) : NULL;

    return conn == NULL || conn->dead ? NULL : conn;
}

static ucs_status_t on_message(void *arg, const void *header, size_t header_len, void *data, size_t len,
                               const ucp_am_recv_param_t *param)
{
    struct link_conn *conn = sender_of(arg, param);
    bool rndv = (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0;
    struct message *message;

    (void)header;
    if (conn == NULL) {
        return rndv ? UCS_ERR_REJECTED : UCS_OK;
    }
    if (rndv || header_len != 0 || len > LINK_MESSAGE_MAX) {
        conn_fail(conn, "malformed control message");
        return rndv ? UCS_ERR_REJECTED : UCS_OK;
    }
    message = malloc(sizeof(*message) + len);
    if (message == NULL) {
        conn_fail(conn, "no memory for a control message");
        return UCS_OK;
    }
    message->len = len;
    if (len > 0) {
        memcpy(message->data, data, len);
    }
    conn->pending++;
    queue_event(conn->link, &message->event, EVENT_MESSAGE, conn);
    return UCS_OK;
}

static void on_received(void *request, ucs_status_t status, size_t len, void *arg)
{
    struct chunk *chunk = arg;

    (void)len;
    chunk->ok = status == UCS_OK;
    queue_event(chunk->event.conn->link, &chunk->event, EVENT_CHUNK, chunk->event.conn);
    ucp_request_free(request);
}

/* Asks the owner for a buffer and receives into it. From here on the chunk ends in on_received, or at once if UCX does
 * not accept the request; its sender would then wait forever, so the connection ends, too. */
static void receive_chunk(struct chunk *chunk, void *desc, void *buffer, size_t len)
{
    struct link_conn *conn = chunk->event.conn;
    ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA |
                                                 UCP_OP_ATTR_FIELD_MEMORY_TYPE | UCP_OP_ATTR_FLAG_NO_IMM_CMPL,
                                 .cb.recv_am = on_received,
                                 .user_data = chunk,
                                 .memory_type = UCS_MEMORY_TYPE_HOST};
    ucs_status_ptr_t request;

    conn->pending++;
    request = ucp_am_recv_data_nbx(conn->port->worker, desc, buffer, len, &param);
    if (UCS_PTR_IS_ERR(request)) {
        queue_event(conn->link, &chunk->event, EVENT_CHUNK, conn);
        conn_fail(conn, ucs_status_string(UCS_PTR_STATUS(request)));
    }
}

/* A refusal must be an error status: after UCS_OK, the sender would consider a dropped chunk received. */
static ucs_status_t on_chunk(void *arg, const void *header, size_t header_len, void *desc, size_t len,
                             const ucp_am_recv_param_t *param)
{
    struct link *link = arg;
    struct link_conn *conn = sender_of(link, param);
    struct chunk *chunk;
    void *buffer;

    if (conn == NULL) {
        return UCS_ERR_REJECTED;
    }
    if ((param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) == 0 || header_len > LINK_HEADER_MAX || len == 0) {
        conn_fail(conn, "malformed chunk");
        return UCS_ERR_REJECTED;
    }
    chunk = calloc(1, sizeof(*chunk));
    if (chunk == NULL) {
        return UCS_ERR_NO_MEMORY;
    }
    chunk->event.conn = conn;
    chunk->header_len = header_len;
    if (header_len > 0) {
        memcpy(chunk->header, header, header_len);
    }
    buffer = link->setup.chunk(link->setup.ctx, conn, chunk->header, header_len, len);
    if (buffer == NULL) {
        free(chunk);
        return UCS_ERR_REJECTED;
    }
    receive_chunk(chunk, desc, buffer, len);
    return UCS_OK;
}

static void on_sent(void *request, ucs_status_t status, void *arg)
{
    struct outgoing *outgoing = arg;

    (void)status;
    conn_release(outgoing->conn);
    free(outgoing);
    ucp_request_free(request);
}

static void on_pushed(void *request, ucs_status_t status, void *arg)
{
    struct push *push = arg;

    push->ok = status == UCS_OK;
    queue_event(push->event.conn->link, &push->event, EVENT_PUSHED, push->event.conn);
    ucp_request_free(request);
}

static void on_closed(void *request, ucs_status_t status, void *arg)
{
    (void)status;
    conn_release(arg);
    ucp_request_free(request);
}

/* ---- turns of the loop ---- */

/* If this fails, the connection is gone. */
static tck_status_t make_ep(struct link_conn *conn, ucp_ep_params_t *params)
{
    params->field_mask |= UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER;
    params->err_mode = UCP_ERR_HANDLING_MODE_PEER;
    params->err_handler = (ucp_err_handler_t){.cb = on_error, .arg = conn};
    if (ucp_ep_create(conn->port->worker, params, &conn->ep) != UCS_OK) {
        conn_free(conn);
        return TCK_ERR_UNREACHABLE;
    }
    if (!conn_index(conn)) {
        link_close(conn);
        return TCK_ERR_NOMEM;
    }
    return TCK_OK;
}

static void accept_request(struct port *port, ucp_conn_request_h request)
{
    ucp_ep_params_t params = {.field_mask = UCP_EP_PARAM_FIELD_CONN_REQUEST, .conn_request = request};
    struct link *link = port->link;
    struct link_conn *conn = link->ending ? NULL : conn_new(port);

    if (conn == NULL) {
        ucp_listener_reject(port->listener, request);
        return;
    }
    if (make_ep(conn, &params) == TCK_OK) {
        (void)link_remote(conn); /* sets conn->peer */
        link_mark_soon(link);
        link->setup.accepted(link->setup.ctx, conn);
    }
}

static bool progress(struct link *link)
{
    bool worked = false;

    for (size_t p = 0; p < link->port_count; p++) {
        for (int i = 0; i < PROGRESS_PER_TURN && ucp_worker_progress(link->port[p].worker) != 0; i++) {
            worked = true;
        }
    }
    return worked;
}

static bool arm(struct link *link)
{
    bool armed = true;

    for (size_t p = 0; p < link->port_count; p++) {
        armed = ucp_worker_arm(link->port[p].worker) != UCS_ERR_BUSY && armed;
    }
    return armed;
}

/* The loop may sleep only when a whole turn did nothing and UCX has then armed its descriptors. */
static bool on_poll(void *ctx)
{
    struct link *link = ctx;
    bool worked = progress(link);

    if (deliver_events(link, accept_request) || worked) {
        return true;
    }
    return !arm(link);
}

static void on_readable(void *ctx, uint32_t epoll_events)
{
    (void)ctx; /* only wakes the loop: on_poll is called before it sleeps again */
    (void)epoll_events;
}

/* ---- connections as their owner sees them ---- */

tck_status_t link_connect(struct link *link, const char *address, size_t number, void *user, struct link_conn **out,
                          struct error *err)
{
    ucp_ep_params_t params = {.field_mask = UCP_EP_PARAM_FIELD_FLAGS | UCP_EP_PARAM_FIELD_SOCK_ADDR |
                                            UCP_EP_PARAM_FIELD_LOCAL_SOCK_ADDR,
                              .flags = UCP_EP_PARAMS_FLAGS_CLIENT_SERVER};
    struct socket_address remote, local;
    struct link_conn *conn;
    tck_status_t status = link_address_parse(address, &remote, err);
    struct ip ip;
    size_t from;

    if (status != TCK_OK) {
        return status;
    }
    ip = ip_of((struct sockaddr *)&remote.socket);
    from = link_places_toward(&link->places, &ip, number);
    if (ip.family != link->places.of[from].address.family) {
        return error_set(err, TCK_ERR_CONFIG, "%s and %s are not both IPv4 or both IPv6: set net_address on all nodes",
                         address, link->address);
    }
    conn = conn_new(&link->port[from]);
    if (conn == NULL) {
        return error_set(err, TCK_ERR_NOMEM, "no memory for a connection to %s", address);
    }
    local = socket_address_of(&link->places.of[from].address, 0);
    conn->user = user;
    conn->peer = ip;
    params.sockaddr = (ucs_sock_addr_t){.addr = (struct sockaddr *)&remote.socket, .addrlen = remote.len};
    params.local_sockaddr = (ucs_sock_addr_t){.addr = (struct sockaddr *)&local.socket, .addrlen = local.len};
    status = make_ep(conn, &params);
    if (status != TCK_OK) {
        return error_set(err, status, "connect to %s from %s", address, link->address);
    }
    link_mark_soon(link);
    *out = conn;
    return TCK_OK;
}

/* Leaves out as it is if the address is neither IPv4 nor IPv6. */
static struct ip print_address(const struct sockaddr_storage *from, char out[ADDRESS_TEXT])
{
    struct ip ip = ip_of((const struct sockaddr *)from);
    char text[SOCKET_ADDRESS_TEXT];

    if (!ip_is_none(&ip)) {
        socket_address_print((const struct sockaddr *)from, text);
        snprintf(out, ADDRESS_TEXT, "%s", text);
    }
    return ip;
}

const char *link_remote(struct link_conn *conn)
{
    ucp_ep_attr_t attr = {.field_mask = UCP_EP_ATTR_FIELD_REMOTE_SOCKADDR};

    if (!conn->closed && ucp_ep_query(conn->ep, &attr) == UCS_OK) {
        struct ip ip = print_address(&attr.remote_sockaddr, conn->remote);

        conn->peer = ip_is_none(&ip) ? conn->peer : ip;
    }
    return conn->remote;
}

static void name_transports(const struct link_conn *conn, char *out, size_t cap)
{
    char *text = NULL;
    size_t len;
    FILE *to = open_memstream(&text, &len);

    if (to == NULL) {
        return;
    }
    ucp_ep_print_info(conn->ep, to);
    if (fclose(to) == 0) {
        link_lanes(text, out, cap);
    }
    free(text);
}

void link_route(const struct link_conn *conn, struct link_route *out)
{
    ucp_ep_attr_t attr = {.field_mask = UCP_EP_ATTR_FIELD_LOCAL_SOCKADDR | UCP_EP_ATTR_FIELD_REMOTE_SOCKADDR};

    memset(out, 0, sizeof(*out));
    if (conn->dead || conn->closed) {
        return;
    }
    if (ucp_ep_query(conn->ep, &attr) == UCS_OK) {
        (void)print_address(&attr.local_sockaddr, out->local);
        (void)print_address(&attr.remote_sockaddr, out->remote);
    }
    name_transports(conn, out->transports, sizeof(out->transports));
}

void link_set_user(struct link_conn *conn, void *user)
{
    conn->user = user;
}

void *link_user(const struct link_conn *conn)
{
    return conn->user;
}

void link_close(struct link_conn *conn)
{
    ucp_request_param_t param = {.op_attr_mask =
                                     UCP_OP_ATTR_FIELD_FLAGS | UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA,
                                 .flags = UCP_EP_CLOSE_FLAG_FORCE,
                                 .cb.send = on_closed,
                                 .user_data = conn};
    ucp_ep_h ep = conn->ep;
    ucs_status_ptr_t request;

    conn->closed = true;
    conn_unindex(conn);
    conn->pending++; /* the close request's */
    request = ucp_ep_close_nbx(ep, &param);
    if (!UCS_PTR_IS_PTR(request)) {
        conn_release(conn);
    }
}

tck_status_t link_send(struct link_conn *conn, const void *data, size_t len)
{
    ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS | UCP_OP_ATTR_FIELD_CALLBACK |
                                                 UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_MEMORY_TYPE,
                                 .flags = UCP_AM_SEND_FLAG_REPLY | UCP_AM_SEND_FLAG_EAGER,
                                 .cb.send = on_sent,
                                 .memory_type = UCS_MEMORY_TYPE_HOST};
    struct outgoing *outgoing;
    ucs_status_ptr_t request;

    if (conn->dead || conn->closed) {
        return TCK_ERR_UNREACHABLE;
    }
    if (len > LINK_MESSAGE_MAX) {
        return TCK_ERR_INVAL;
    }
    outgoing = malloc(sizeof(*outgoing) + len);
    if (outgoing == NULL) {
        return TCK_ERR_NOMEM;
    }
    outgoing->conn = conn;
    memcpy(outgoing->data, data, len);
    param.user_data = outgoing;
    conn->pending++;
    request = ucp_am_send_nbx(conn->ep, AM_MESSAGE, NULL, 0, outgoing->data, len, &param);
    if (UCS_PTR_IS_PTR(request)) {
        return TCK_OK; /* on_sent frees it; NOLINT(clang-analyzer-unix.Malloc) */
    }
    conn_release(conn);
    free(outgoing);
    return request == NULL ? TCK_OK : TCK_ERR_UNREACHABLE;
}

tck_status_t link_push(struct link_conn *conn, const void *header, size_t header_len, const void *data, size_t len,
                       link_pushed_fn *pushed, void *ctx)
{
    ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS | UCP_OP_ATTR_FIELD_CALLBACK |
                                                 UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_MEMORY_TYPE,
                                 .flags = UCP_AM_SEND_FLAG_REPLY | UCP_AM_SEND_FLAG_RNDV,
                                 .cb.send = on_pushed,
                                 .memory_type = UCS_MEMORY_TYPE_HOST};
    struct push *push;
    ucs_status_ptr_t request;

    if (conn->dead || conn->closed) {
        return TCK_ERR_UNREACHABLE;
    }
    if (header_len > LINK_HEADER_MAX || len == 0) {
        return TCK_ERR_INVAL;
    }
    push = calloc(1, sizeof(*push));
    if (push == NULL) {
        return TCK_ERR_NOMEM;
    }
    push->event.conn = conn;
    push->pushed = pushed;
    push->ctx = ctx;
    memcpy(push->header, header, header_len);
    param.user_data = push;
    conn->pending++;
    request = ucp_am_send_nbx(conn->ep, AM_CHUNK, push->header, header_len, data, len, &param);
    if (UCS_PTR_IS_ERR(request)) {
        conn_release(conn);
        free(push);
        return TCK_ERR_UNREACHABLE;
    }
    if (request == NULL) {
        push->ok = true;
        queue_event(conn->link, &push->event, EVENT_PUSHED, conn);
    }
    return TCK_OK; /* the event's end frees push; NOLINT(clang-analyzer-unix.Malloc) */
}

const char *link_address(const struct link *link)
{
    return link->address;
}

/* ---- making and ending a link ---- */

static tck_status_t ucx_error(struct error *err, ucs_status_t status, const char *what)
{
    return error_set(err, status == UCS_ERR_NO_MEMORY ? TCK_ERR_NOMEM : TCK_ERR_UNREACHABLE, "%s: %s", what,
                     ucs_status_string(status));
}

void link_version(unsigned out[3])
{
    ucp_get_version(&out[0], &out[1], &out[2]);
}

/* 1.13 is Debian's, with which most tests run; 1.22 is the wheel's. */
static void warn_if_untested(void)
{
    unsigned major, minor, release;

    ucp_get_version(&major, &minor, &release);
    if (major != 1 || (minor != 13 && minor != 22)) {
        log_warn("UCX %u.%u.%u: only 1.13 and 1.22 were tested; other releases have other defaults and protocols",
                 major, minor, release);
    }
    if (getenv("UCX_TCP_PUT_ENABLE") == NULL) {
        log_warn("UCX_TCP_PUT_ENABLE is not set to n: this agent may abort when a peer fails");
    }
}

/* UCX has read this by now. An agent whose setting is not that of its peers would abort, and so would they. */
static tck_status_t check_family(const struct link *link, struct error *err)
{
    const char *set = getenv("UCX_TCP_AF_PRIO");
    bool ipv6 = link->places.of[0].address.family == AF_INET6;

    if (set != NULL ? (strncmp(set, "inet6", strlen("inet6")) == 0) == ipv6 : !ipv6) {
        return TCK_OK;
    }
    return error_set(err, TCK_ERR_CONFIG, "UCX_TCP_AF_PRIO is %s, and the address of this agent is IPv%d: unset it",
                     set != NULL ? set : "not set", ipv6 ? 6 : 4);
}

/* Several contexts must each have the device of their own address, even if UCX_NET_DEVICES lists all of them. */
static bool is_device_chosen(const struct link *link)
{
    return link->places.count == 1 && getenv("UCX_NET_DEVICES") != NULL;
}

static tck_status_t open_context(struct port *port, const struct link_place *place, struct error *err)
{
    ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES, .features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP};
    ucp_config_t *config;
    ucs_status_t status;

    link_log_begin();
    status = ucp_config_read(NULL, NULL, &config);
    if (status != UCS_OK) {
        return ucx_error(err, status, "read the UCX configuration");
    }
    if (place->device[0] != '\0' && !is_device_chosen(port->link)) {
        status = ucp_config_modify(config, "NET_DEVICES", place->device);
    }
    if (status == UCS_OK) {
        status = ucp_init(&params, config, &port->context);
    }
    ucp_config_release(config);
    return status == UCS_OK ? TCK_OK : ucx_error(err, status, "start UCX");
}

static ucs_status_t set_handler(struct port *port, unsigned id, ucp_am_recv_callback_t handler)
{
    ucp_am_handler_param_t param = {.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_FLAGS |
                                                  UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG,
                                    .id = id,
                                    .flags = UCP_AM_FLAG_WHOLE_MSG,
                                    .cb = handler,
                                    .arg = port->link};

    return ucp_worker_set_am_recv_handler(port->worker, &param);
}

static tck_status_t open_worker(struct port *port, struct error *err)
{
    ucp_worker_params_t params = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
                                  .thread_mode = UCS_THREAD_MODE_SINGLE};
    ucs_status_t status = ucp_worker_create(port->context, &params, &port->worker);

    if (status != UCS_OK) {
        return ucx_error(err, status, "create a UCX worker");
    }
    status = set_handler(port, AM_MESSAGE, on_message);
    if (status == UCS_OK) {
        status = set_handler(port, AM_CHUNK, on_chunk);
    }
    if (status != UCS_OK) {
        ucp_worker_destroy(port->worker);
        return ucx_error(err, status, "set the handlers of a UCX worker");
    }
    return TCK_OK;
}

/* Listens and finds out the port's number, unless it is given. */
static tck_status_t open_listener(struct port *port, const struct link_place *place, uint16_t *number,
                                  struct error *err)
{
    struct socket_address address = socket_address_of(&place->address, *number);
    ucp_listener_params_t params = {.field_mask =
                                        UCP_LISTENER_PARAM_FIELD_SOCK_ADDR | UCP_LISTENER_PARAM_FIELD_CONN_HANDLER,
                                    .sockaddr = {.addr = (struct sockaddr *)&address.socket, .addrlen = address.len},
                                    .conn_handler = {.cb = on_connect_request, .arg = port}};
    ucp_listener_attr_t attr = {.field_mask = UCP_LISTENER_ATTR_FIELD_SOCKADDR};
    char text[SOCKET_ADDRESS_TEXT];
    ucs_status_t status;

    socket_address_print((struct sockaddr *)&address.socket, text);
    status = ucp_listener_create(port->worker, &params, &port->listener);
    if (status != UCS_OK) {
        ucx_error(err, status, "listen");
        return error_prefix(err, "%s", text);
    }
    status = ucp_listener_query(port->listener, &attr);
    if (status != UCS_OK) {
        ucp_listener_destroy(port->listener);
        return ucx_error(err, status, "query the port of the listener");
    }
    *number = socket_address_port((struct sockaddr *)&attr.sockaddr);
    socket_address_print((struct sockaddr *)&attr.sockaddr, text);
    if (!address_list_add(port->link->address, sizeof(port->link->address), text)) {
        ucp_listener_destroy(port->listener);
        return error_set(err, TCK_ERR_CONFIG,
                         "the addresses of this agent take more than %d bytes: set fewer in net_device or net_address",
                         ADDRESS_TEXT - 1);
    }
    return TCK_OK;
}

static tck_status_t watch_port(struct port *port, struct error *err)
{
    int fd;
    ucs_status_t ucs_status = ucp_worker_get_efd(port->worker, &fd);

    if (ucs_status != UCS_OK) {
        return ucx_error(err, ucs_status, "get the event descriptor of a UCX worker");
    }
    if (loop_fd_add(port->link->setup.loop, fd, EPOLLIN, on_readable, port, &port->source) != TCK_OK) {
        return error_set(err, TCK_ERR_NOMEM, "watch the event descriptor of a UCX worker");
    }
    return TCK_OK;
}

static tck_status_t open_port(struct port *port, const struct link_place *place, uint16_t *number, struct error *err)
{
    tck_status_t status = open_context(port, place, err);

    if (status != TCK_OK) {
        return status;
    }
    status = open_worker(port, err);
    if (status != TCK_OK) {
        goto cleanup_context;
    }
    status = open_listener(port, place, number, err);
    if (status != TCK_OK) {
        goto destroy_worker;
    }
    status = watch_port(port, err);
    if (status != TCK_OK) {
        goto destroy_listener;
    }
    return TCK_OK;

destroy_listener:
    ucp_listener_destroy(port->listener);
destroy_worker:
    ucp_worker_destroy(port->worker);
cleanup_context:
    ucp_cleanup(port->context);
    return status;
}

static void close_ports(struct link *link)
{
    while (link->port_count > 0) {
        struct port *port = &link->port[--link->port_count];

        loop_fd_remove(port->source);
        ucp_listener_destroy(port->listener);
        ucp_worker_destroy(port->worker);
        ucp_cleanup(port->context);
    }
}

static tck_status_t open_ports_once(struct link *link, struct error *err)
{
    uint16_t number = link->setup.port;
    tck_status_t status = TCK_OK;

    link->address[0] = '\0';
    while (status == TCK_OK && link->port_count < link->places.count) {
        struct port *port = &link->port[link->port_count];

        port->link = link;
        status = open_port(port, &link->places.of[link->port_count], &number, err);
        link->port_count += status == TCK_OK;
    }
    if (status != TCK_OK) {
        close_ports(link);
    }
    return status;
}

/* All addresses have the same port number, so that this agent finds each of them again after a restart. One that is
 * free at the first address may be in use at another one; then another number is tried. */
static tck_status_t open_ports(struct link *link, struct error *err)
{
    int tries = link->setup.port == 0 && link->places.count > 1 ? PORT_TRIES : 1;
    tck_status_t status;

    do {
        status = open_ports_once(link, err);
    } while (status != TCK_OK && --tries > 0);
    if (status == TCK_OK && loop_poll_add(link->setup.loop, on_poll, link) != TCK_OK) {
        close_ports(link);
        status = error_set(err, TCK_ERR_NOMEM, "add the poll function of a link");
    }
    return status;
}

static tck_status_t find_listeners(struct listeners *out, struct error *err)
{
    if (listeners_find(out)) {
        return TCK_OK;
    }
    return error_set(err, status_of_errno(errno), "list the open files of this process: /proc/self/fd: %m");
}

tck_status_t link_new(const struct link_setup *setup, struct link **out, struct error *err)
{
    struct link_places places;
    struct listeners before;
    struct link *link;
    tck_status_t status = link_places_find(setup->device, setup->address, &places, err);

    if (status != TCK_OK) {
        return status;
    }
    link = calloc(1, sizeof(*link));
    if (link == NULL) {
        return error_set(err, TCK_ERR_NOMEM, "no memory for a link");
    }
    link->setup = *setup;
    link->event_end = &link->first_event;
    link->places = places;
    warn_if_untested();
    status = check_family(link, err);
    if (status == TCK_OK) {
        status = find_listeners(&before, err);
    }
    if (status != TCK_OK) {
        goto free_link;
    }
    status = open_ports(link, err);
    if (status != TCK_OK) {
        goto free_link;
    }
    status = find_listeners(&link->listeners, err);
    if (status != TCK_OK) {
        goto close_link;
    }
    listeners_subtract(&link->listeners, &before);
    status = link_mark_begin(link, err);
    if (status != TCK_OK) {
        goto close_link;
    }
    *out = link;
    return TCK_OK;

close_link:
    loop_poll_remove(setup->loop, on_poll, link);
    close_ports(link);
free_link:
    free(link);
    return status;
}

bool link_is_listening(const struct link *link)
{
    return listeners_are_open(&link->listeners);
}

void link_free(struct link *link)
{
    uint64_t give_up_ms = clock_ms() + FREE_WAIT_MS;
    struct link_conn *next;

    if (link == NULL) {
        return;
    }
    link->ending = true;
    for (struct link_conn *conn = link->conns; conn != NULL; conn = next) {
        next = conn->next;
        if (!conn->closed) {
            link_close(conn);
        }
    }
    do {
        progress(link);
        deliver_events(link, accept_request);
    } while (link->conns != NULL && clock_ms() < give_up_ms);
    if (link->conns != NULL) {
        log_error("link %s: connections are still busy %d ms after they were closed", link->address, FREE_WAIT_MS);
    }
    link_mark_end(link);
    loop_poll_remove(link->setup.loop, on_poll, link);
    close_ports(link);
    free(link);
}

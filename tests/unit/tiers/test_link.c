/* SPDX-License-Identifier: Apache-2.0
 * Two links in one process, on one loop, over the loopback. */
#include "tiers/link.h"
#include "tiers/sockets.h"

#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define CHUNK        (4u << 20)
#define PATIENCE     60000 /* ms until a test that hangs gives up */
#define GOT_BYTES    256
#define MESSAGES_MAX 128

struct end {
    struct link *link;
    struct link_conn *accepted;
    char got[GOT_BYTES];          /* the last message */
    uint8_t firsts[MESSAGES_MAX]; /* the first byte of each */
    size_t messages, bytes, downs;
    uint8_t *buffer; /* for chunks; NULL refuses them */
    size_t chunks, chunks_ok;
};

static struct loop *loop;
static struct loop_timer *restore_timeout;
static struct end server, client;
static size_t pushes, pushes_ok;
static uint8_t tos; /* of links that are opened */

static void on_accepted(void *ctx, struct link_conn *conn)
{
    struct end *end = ctx;
    end->accepted = conn;
    loop_stop(loop);
}

static void on_message(void *ctx, struct link_conn *conn, const void *data, size_t len)
{
    struct end *end = ctx;
    (void)conn;
    end->firsts[end->messages++ % MESSAGES_MAX] = *(const uint8_t *)data;
    end->bytes += len;
    memset(end->got, 0, sizeof(end->got));
    memcpy(end->got, data, len < GOT_BYTES ? len : GOT_BYTES - 1);
    loop_stop(loop);
}

static void *on_chunk(void *ctx, struct link_conn *conn, const void *header, size_t header_len, size_t len)
{
    struct end *end = ctx;
    uint32_t index = 0;
    (void)conn;
    (void)len;
    cr_assert_eq(header_len, sizeof(index));
    memcpy(&index, header, sizeof(index));
    return end->buffer == NULL ? NULL : end->buffer + (size_t)index * CHUNK;
}

static void on_chunk_done(void *ctx, struct link_conn *conn, const void *header, size_t header_len, bool ok)
{
    struct end *end = ctx;
    (void)conn;
    (void)header;
    (void)header_len;
    end->chunks++;
    end->chunks_ok += ok;
    loop_stop(loop);
}

static void on_down(void *ctx, struct link_conn *conn, const char *why)
{
    struct end *end = ctx;
    (void)why;
    end->downs++;
    (void)conn;
    loop_stop(loop);
}

static void on_pushed(void *ctx, bool ok)
{
    (void)ctx;
    pushes++;
    pushes_ok += ok;
    loop_stop(loop);
}

static void on_patience(void *ctx)
{
    (void)ctx;
    cr_assert_fail("nothing happens");
}

static void open_end(struct end *end)
{
    struct link_setup setup = {.loop = loop,
                               .device = "",
                               .address = "127.0.0.1",
                               .tos = tos,
                               .ctx = end,
                               .accepted = on_accepted,
                               .message = on_message,
                               .chunk = on_chunk,
                               .chunk_done = on_chunk_done,
                               .down = on_down};
    struct error err;
    cr_assert_eq(link_new(&setup, &end->link, &err), TCK_OK, "%s", err.text);
}

static void set_up(void)
{
    struct error err;
    link_environment("lo");
    link_environment_family(false);
    cr_assert_eq(loop_new(&loop, &err), TCK_OK);
    cr_assert_eq(loop_timer_add(loop, on_patience, NULL, &restore_timeout), TCK_OK);
    loop_timer_set(restore_timeout, PATIENCE, false);
    open_end(&server);
    open_end(&client);
}

static void free_end(struct end *end)
{
    link_free(end->link);
    end->link = NULL;
}

static void tear_down(void)
{
    free_end(&client);
    free_end(&server);
    loop_timer_remove(restore_timeout);
    loop_free(loop);
}

/* Runs the loop until the counter has reached the value. */
static void run_until(const size_t *counter, size_t value)
{
    while (*counter < value) {
        loop_run(loop);
    }
}

static struct link_conn *connect_them(void)
{
    struct link_conn *conn;
    struct error err;
    cr_assert_eq(link_connect(client.link, link_address(server.link), 0, NULL, &conn, &err), TCK_OK, "%s", err.text);
    while (server.accepted == NULL) {
        loop_run(loop);
    }
    return conn;
}

static void push(struct link_conn *conn, const uint8_t *data, uint32_t index)
{
    cr_assert_eq(link_push(conn, &index, sizeof(index), data + (size_t)index * CHUNK, CHUNK, on_pushed, NULL), TCK_OK);
}

static uint8_t *pattern(size_t len)
{
    uint8_t *data = malloc(len);
    cr_assert_not_null(data);
    for (size_t i = 0; i < len; i++) {
        data[i] = (uint8_t)(i * 31 + (i >> 12));
    }
    return data;
}

TestSuite(link, .init = set_up, .fini = tear_down, .timeout = 200);

Test(link, carries_messages_both_ways_over_one_connection)
{
    struct link_conn *conn = connect_them();
    cr_assert_eq(link_send(conn, "to server", 10), TCK_OK);
    run_until(&server.messages, 1);
    cr_expect_str_eq(server.got, "to server");
    cr_assert_eq(link_send(server.accepted, "to client", 10), TCK_OK);
    run_until(&client.messages, 1);
    cr_expect_str_eq(client.got, "to client");
}

Test(link, keeps_the_order_of_small_and_large_messages)
{
    struct link_conn *conn = connect_them();
    uint8_t *large = pattern(LINK_MESSAGE_MAX);
    for (int i = 0; i < 50; i++) {
        large[0] = (uint8_t)(2 * i);
        cr_assert_eq(link_send(conn, large, LINK_MESSAGE_MAX), TCK_OK);
        cr_assert_eq(link_send(conn, &(uint8_t){(uint8_t)(2 * i + 1)}, 1), TCK_OK);
    }
    run_until(&server.messages, 100);
    for (uint8_t i = 0; i < 100; i++) {
        cr_assert_eq(server.firsts[i], i);
    }
    cr_expect_eq(server.bytes, 50 * (LINK_MESSAGE_MAX + 1));
    free(large);
}

Test(link, refuses_a_message_over_the_limit)
{
    struct link_conn *conn = connect_them();
    uint8_t *large = pattern(LINK_MESSAGE_MAX + 1);
    cr_expect_eq(link_send(conn, large, LINK_MESSAGE_MAX + 1), TCK_ERR_INVAL);
    free(large);
}

Test(link, moves_chunks_straight_into_the_given_buffer)
{
    struct link_conn *conn = connect_them();
    uint8_t *data = pattern(8 * CHUNK);
    server.buffer = calloc(8, CHUNK);
    for (uint32_t i = 0; i < 8; i++) {
        push(conn, data, i);
    }
    run_until(&server.chunks_ok, 8);
    run_until(&pushes_ok, 8);
    cr_expect_eq(memcmp(server.buffer, data, 8 * CHUNK), 0);
    free(data);
    free(server.buffer);
}

Test(link, reports_a_refused_chunk_to_the_sender)
{
    struct link_conn *conn = connect_them();
    uint8_t *data = pattern(CHUNK);
    push(conn, data, 0);
    run_until(&pushes, 1);
    cr_expect_eq(pushes_ok, 0);
    cr_expect_eq(server.chunks, 0);
    cr_expect_eq(link_send(conn, "still alive", 12), TCK_OK);
    run_until(&server.messages, 1);
    free(data);
}

Test(link, ends_every_push_once_when_its_connection_is_closed)
{
    struct link_conn *conn = connect_them();
    uint8_t *data = pattern(8 * CHUNK);
    server.buffer = calloc(8, CHUNK);
    for (uint32_t i = 0; i < 8; i++) {
        push(conn, data, i);
    }
    run_until(&server.chunks, 1);
    link_close(conn);
    run_until(&pushes, 8);
    run_until(&server.downs, 1);
    free_end(&client);
    free_end(&server);
    cr_expect_eq(pushes, 8);
    cr_expect_leq(server.chunks, 8);
    free(data);
    free(server.buffer);
}

Test(link, ends_every_received_chunk_once_when_the_receiver_closes)
{
    struct link_conn *conn = connect_them();
    uint8_t *data = pattern(8 * CHUNK);
    server.buffer = calloc(8, CHUNK);
    for (uint32_t i = 0; i < 8; i++) {
        push(conn, data, i);
    }
    run_until(&server.chunks, 1);
    link_close(server.accepted);
    run_until(&client.downs, 1);
    run_until(&pushes, 8);
    free_end(&server);
    cr_expect_eq(pushes, 8);
    free(data);
    free(server.buffer);
}

Test(link, reports_a_closed_port_as_down)
{
    struct link_conn *conn;
    struct error err;
    char address[ADDRESS_TEXT];
    snprintf(address, sizeof(address), "%s", link_address(server.link));
    free_end(&server);
    cr_assert_eq(link_connect(client.link, address, 0, NULL, &conn, &err), TCK_OK, "%s", err.text);
    run_until(&client.downs, 1);
}

Test(link, closes_a_connection_that_is_still_connecting)
{
    struct link_conn *conn;
    struct error err;
    cr_assert_eq(link_connect(client.link, link_address(server.link), 0, NULL, &conn, &err), TCK_OK, "%s", err.text);
    link_close(conn);
}

Test(link, cannot_send_on_a_dead_connection)
{
    struct link_conn *conn = connect_them();
    link_close(conn);
    run_until(&server.downs, 1);
    cr_expect_eq(link_send(server.accepted, "x", 1), TCK_ERR_UNREACHABLE);
}

static void send_garbage(const char *address)
{
    struct sockaddr_in to = {.sin_family = AF_INET};
    char garbage[4096];
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    inet_pton(AF_INET, "127.0.0.1", &to.sin_addr);
    to.sin_port = htons((uint16_t)strtoul(strrchr(address, ':') + 1, NULL, 10));
    memset(garbage, 0xA5, sizeof(garbage));
    cr_assert_eq(connect(fd, (struct sockaddr *)&to, sizeof(to)), 0);
    cr_assert_gt(write(fd, garbage, sizeof(garbage)), 0);
    close(fd);
}

Test(link, is_not_disturbed_by_garbage_from_a_plain_socket)
{
    struct link_conn *conn = connect_them();
    for (int i = 0; i < 20; i++) {
        send_garbage(link_address(server.link));
    }
    cr_assert_eq(link_send(conn, "hello", 6), TCK_OK);
    run_until(&server.messages, 1);
    cr_expect_str_eq(server.got, "hello");
    cr_expect_eq(server.downs, 0);
}

Test(link, names_an_address_that_it_cannot_connect_to)
{
    struct link_conn *conn;
    struct error err;
    cr_expect_eq(link_connect(client.link, "[fd00::1]:4000", 0, NULL, &conn, &err), TCK_ERR_CONFIG);
    cr_expect_not_null(strstr(err.text, "[fd00::1]:4000 and 127.0.0.1:"), "%s", err.text);
    cr_expect_eq(link_connect(client.link, "10.0.0.1", 0, NULL, &conn, &err), TCK_ERR_INVAL);
    cr_expect_eq(link_connect(client.link, "10.0.0.1:0", 0, NULL, &conn, &err), TCK_ERR_INVAL);
    cr_expect_eq(link_connect(client.link, "10.0.0.1:70000", 0, NULL, &conn, &err), TCK_ERR_INVAL);
    cr_expect_eq(link_connect(client.link, "host:4000", 0, NULL, &conn, &err), TCK_ERR_INVAL);
}

#define CS1 0x20

static int tos_of(int fd)
{
    int value = -1;
    socklen_t len = sizeof(value);
    cr_assert_eq(getsockopt(fd, IPPROTO_IP, IP_TOS, &value, &len), 0);
    return value;
}

/* A socket of the process that is none of UCX's: listening, or connected with that one. */
static int other_socket(const struct sockaddr_in *listener)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK + 1)}};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (listener != NULL) {
        cr_assert_eq(connect(fd, (const struct sockaddr *)listener, sizeof(*listener)), 0);
    } else {
        cr_assert(bind(fd, (struct sockaddr *)&at, sizeof(at)) == 0 && listen(fd, 4) == 0);
    }
    return fd;
}

static void count_marked(void *ctx, int fd)
{
    struct sockaddr_in remote;
    socklen_t len = sizeof(remote);
    if (socket_option(fd, SO_DOMAIN) == AF_INET && getpeername(fd, (struct sockaddr *)&remote, &len) == 0) {
        *(size_t *)ctx += tos_of(fd) == CS1;
    }
}

static void look_for_marked(void *ctx)
{
    cr_assert(descriptors_each(count_marked, ctx));
    loop_stop(loop);
}

Test(link, gives_its_class_to_its_own_sockets_and_to_no_others)
{
    struct end marked = {0};
    struct sockaddr_in at;
    socklen_t len = sizeof(at);
    struct loop_timer *timer;
    struct link_conn *conn;
    struct error err;
    size_t found = 0;
    int listener = other_socket(NULL);
    cr_assert_eq(getsockname(listener, (struct sockaddr *)&at, &len), 0);
    int before = other_socket(&at);
    tos = CS1;
    open_end(&marked);
    cr_assert_eq(link_connect(marked.link, link_address(server.link), 0, NULL, &conn, &err), TCK_OK, "%s", err.text);
    int after = other_socket(&at);
    cr_assert_eq(loop_timer_add(loop, look_for_marked, &found, &timer), TCK_OK);
    loop_timer_set(timer, 20, true);
    run_until(&found, 1);
    cr_expect_eq(tos_of(listener), 0);
    cr_expect_eq(tos_of(before), 0);
    cr_expect_eq(tos_of(after), 0);
    loop_timer_remove(timer);
    free_end(&marked);
    close(after);
    close(before);
    close(listener);
}

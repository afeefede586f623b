/* SPDX-License-Identifier: Apache-2.0
 * The server of the metrics: its answers, and that no client can keep it from answering others for long. */
#include "agent/metrics/metrics_http.h"

#include <criterion/criterion.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static struct metrics_http *http;

static void set_up(void)
{
    struct socket_address address;
    struct error err = {0};
    cr_assert_eq(listen_address_parse(":0", &address, &err), TCK_OK, "%s", err.text);
    cr_assert_eq(metrics_http_start(&address, &http, &err), TCK_OK, "%s", err.text);
}

static void tear_down(void)
{
    metrics_http_stop(http);
}

TestSuite(metrics_http, .init = set_up, .fini = tear_down, .timeout = 120);

static void show(const char *text)
{
    metrics_http_show(http, strdup(text), strlen(text));
}

static int visit(void)
{
    struct socket_address there;
    struct error err = {0};
    cr_assert_eq(listen_address_parse(metrics_http_at(http), &there, &err), TCK_OK, "%s", err.text);
    int fd = socket(there.socket.ss_family, SOCK_STREAM, 0);
    cr_assert_eq(connect(fd, (const struct sockaddr *)&there.socket, there.len), 0, "%m");
    return fd;
}

static void say(int fd, const char *text)
{
    (void)send(fd, text, strlen(text), MSG_NOSIGNAL);
}

/* Returns everything received until the end of the connection, which is then closed. */
static void hear(int fd, char *out, size_t cap)
{
    size_t len = 0;
    for (ssize_t got; len < cap - 1 && (got = recv(fd, out + len, cap - 1 - len, 0)) > 0;) {
        len += (size_t)got;
    }
    out[len] = '\0';
    close(fd);
}

static void ask(const char *request, char *out, size_t cap)
{
    int fd = visit();
    say(fd, request);
    hear(fd, out, cap);
}

static void expect(const char *request, const char *status, const char *body)
{
    char answer[4096], *end;
    ask(request, answer, sizeof(answer));
    cr_assert_eq(strncmp(answer, status, strlen(status)), 0, "%s: %s", request, answer);
    end = strstr(answer, "\r\n\r\n");
    cr_assert_not_null(end, "%s: %s", request, answer);
    cr_assert_str_eq(end + 4, body);
}

#define GET "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"

/* While others use all the connections of this host, any further ones are closed at once. */
static void expect_answer_in_the_end(void)
{
    char answer[4096] = "";
    while (strncmp(answer, "HTTP/1.1 200", 12) != 0) {
        usleep(20000);
        ask(GET, answer, sizeof(answer));
    }
}

Test(metrics_http, serves_the_newest_text)
{
    expect(GET, "HTTP/1.1 503", "the agent is starting\n");
    show("a 1\n");
    expect(GET, "HTTP/1.1 200", "a 1\n");
    show("a 2\n");
    expect(GET, "HTTP/1.1 200", "a 2\n");
}

Test(metrics_http, serves_nothing_else)
{
    show("a 1\n");
    expect("HEAD /metrics HTTP/1.1\r\nHost: x\r\n\r\n", "HTTP/1.1 200", "");
    expect("GET / HTTP/1.1\r\nHost: x\r\n\r\n", "HTTP/1.1 404", "the metrics of this agent are at /metrics\n");
    expect("GET /metrics/../../etc/passwd HTTP/1.1\r\nHost: x\r\n\r\n", "HTTP/1.1 404",
           "the metrics of this agent are at /metrics\n");
    expect("POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 100000000\r\n\r\nabc", "HTTP/1.1 405",
           "only GET and HEAD\n");
    expect("DELETE /metrics HTTP/1.1\r\nHost: x\r\n\r\n", "HTTP/1.1 405", "only GET and HEAD\n");
}

Test(metrics_http, ends_a_request_that_never_ends)
{
    char answer[4096];
    show("a 1\n");
    int slow = visit();
    struct pollfd end = {.fd = slow, .events = POLLIN | POLLHUP};
    say(slow, "GET /metrics HTTP/1.1\r\nX: ");
    while (poll(&end, 1, 200) == 0) { /* always active, so that no time-out for silence helps */
        say(slow, "y");
        expect(GET, "HTTP/1.1 200", "a 1\n");
    }
    hear(slow, answer, sizeof(answer));
    cr_assert(strstr(answer, "a 1\n") == NULL);
}

Test(metrics_http, survives_garbage)
{
    char garbage[65536], answer[4096];
    unsigned random = 1;
    show("a 1\n");
    for (int round = 0; round < 200; round++) {
        size_t len = (size_t)rand_r(&random) % sizeof(garbage);
        for (size_t i = 0; i < len; i++) {
            garbage[i] = (char)(rand_r(&random) % (round % 2 ? 256 : 128));
        }
        int fd = visit();
        if (round % 4 == 0) {
            say(fd, "GET /metrics HTTP/1.1\r\n");
        }
        (void)send(fd, garbage, len, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (round % 3 == 0) {
            shutdown(fd, SHUT_WR);
            hear(fd, answer, sizeof(answer));
        } else {
            close(fd);
        }
    }
    expect_answer_in_the_end();
}

Test(metrics_http, refuses_a_head_without_end)
{
    char answer[4096];
    show("a 1\n");
    int fd = visit();
    say(fd, "GET /metrics HTTP/1.1\r\n");
    for (int i = 0; i < 10000; i++) {
        say(fd, "X-Y: zzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzz\r\n");
    }
    hear(fd, answer, sizeof(answer));
    cr_assert(strncmp(answer, "HTTP/1.1 2", 10) != 0, "%s", answer);
    expect_answer_in_the_end();
}

Test(metrics_http, connections_that_stay_open_do_not_block_others_forever)
{
    int fds[200];
    show("a 1\n");
    for (size_t i = 0; i < sizeof(fds) / sizeof(*fds); i++) {
        fds[i] = visit();
        say(fds[i], i % 2 ? GET : "GET /met"); /* and no answer is read */
    }
    expect_answer_in_the_end();
    for (size_t i = 0; i < sizeof(fds) / sizeof(*fds); i++) {
        close(fds[i]);
    }
}

Test(metrics_http, a_large_text_that_is_not_read_is_given_up)
{
    size_t len = 64u << 20; /* more than sockets hold */
    char *large = malloc(len), answer[4096];
    memset(large, 'a', len);
    metrics_http_show(http, large, len);
    int fd = visit();
    say(fd, GET);
    struct pollfd end = {.fd = fd, .events = POLLRDHUP};
    cr_assert_eq(poll(&end, 1, -1), 1);
    show("a 1\n");
    expect(GET, "HTTP/1.1 200", "a 1\n");
    hear(fd, answer, sizeof(answer));
}

Test(metrics_http, stops_while_a_client_is_connected)
{
    show("a 1\n");
    int fd = visit();
    say(fd, "GET ");
    metrics_http_stop(http);
    http = NULL;
    char answer[64];
    hear(fd, answer, sizeof(answer));
}

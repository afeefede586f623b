/* SPDX-License-Identifier: Apache-2.0
 * Sessions between agents: which agents are accepted, what is transferred, and how a loss is noticed. */
#include "peer_rig.h"

#include "base/clock.h"
#include "tiers/peer_internal.h"

#include <arpa/inet.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static struct agent a, b, c;

static void tear_down(void)
{
    agent_close(&a);
    agent_close(&b);
    agent_close(&c);
    rig_close();
}

TestSuite(peer, .init = rig_open, .fini = tear_down, .timeout = 120);

Test(peer, comes_up_on_both_sides_once)
{
    struct peer *to_b, *to_a;
    agent_open(&a, 1, NULL, 7);
    agent_open(&b, 2, NULL, 7);
    agents_meet(&a, &b, &to_b, &to_a);
    rig_run_until(&a.beats, 10);
    cr_expect_eq(a.ups, 1);
    cr_expect_eq(b.ups, 1);
    cr_expect_str_eq(peer_node(to_a)->name, "node1");
    cr_expect_str_eq(peer_node(to_a)->domain, "rack1");
}

Test(peer, carries_messages_of_every_size_in_order)
{
    static const size_t sizes[] = {0, 1, 65000, 65536, 65537, 300000, 5 << 20};
    struct peer *to_b, *to_a;
    uint8_t *data = malloc(5 << 20);
    agent_open(&a, 1, NULL, 7);
    agent_open(&b, 2, NULL, 7);
    agents_meet(&a, &b, &to_b, &to_a);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        memset(data, (int)i + 1, sizes[i]);
        cr_assert_eq(peer_send(to_a, (uint16_t)(40000 + i), data, sizes[i]), TCK_OK);
        rig_run_until(&a.messages, i + 1);
        cr_expect_eq(a.last_type, 40000 + i);
        cr_assert_eq(a.last_len, sizes[i]);
        cr_expect_eq(memcmp(a.last, data, sizes[i]), 0);
    }
    free(data);
}

Test(peer, accepts_an_agent_that_it_does_not_want_itself)
{
    agent_open(&a, 1, NULL, 7);
    agent_open(&b, 2, NULL, 7);
    agent_want(&a, &b);
    rig_run_until(&b.ups, 1);
    cr_expect_eq(peer_node(b.last_peer)->agent_id, 1);
}

Test(peer, is_reached_by_the_larger_id_too_when_only_the_larger_id_wants_it)
{
    agent_open(&a, 1, NULL, 7);
    agent_open(&b, 2, NULL, 7);
    agent_want(&b, &a);
    rig_run_until(&a.ups, 1);
    rig_run_until(&b.ups, 1);
}

/* The other one does not know that it is needed. */
Test(peer, is_reached_by_the_larger_id_at_once_when_it_alone_wants_copies)
{
    struct peer *peer;
    struct error err;
    agent_open(&a, 1, NULL, 7);
    agent_open(&b, 2, NULL, 7);
    cr_assert_eq(peers_want_copies(b.peers, peers_self(a.peers), false, &peer, &err), TCK_OK, "%s", err.text);
    cr_assert_leq(peer->connect_at_ms, clock_ms());
    rig_run_until(&b.ups, 1);
    cr_assert(peer_takes_copies(peer));
}

Test(peer, never_comes_up_with_another_secret)
{
    agent_open(&a, 1, NULL, 7);
    agent_open(&b, 2, NULL, 8);
    agent_want(&a, &b);
    agent_want(&b, &a);
    rig_run_ms(600);
    cr_expect_eq(a.ups + b.ups, 0);
}

Test(peer, never_comes_up_with_another_job)
{
    agent_open(&a, 1, "one", 7);
    agent_open(&b, 2, "two", 7);
    agent_want(&a, &b);
    agent_want(&b, &a);
    rig_run_ms(600);
    cr_expect_eq(a.ups + b.ups, 0);
}

Test(peer, refuses_to_want_itself)
{
    struct peer *peer;
    struct error err;
    agent_open(&a, 1, NULL, 7);
    cr_expect_eq(peers_want(a.peers, peers_self(a.peers), &peer, &err), TCK_ERR_INVAL);
}

Test(peer, notices_an_agent_that_ends_and_reconnects_at_its_new_address)
{
    struct peer *to_b, *to_a;
    agent_open(&a, 1, NULL, 7);
    agent_open(&b, 2, NULL, 7);
    agents_meet(&a, &b, &to_b, &to_a);
    agent_close(&b);
    rig_run_until(&a.downs, 1);
    cr_expect_eq(peer_send(to_b, 1, "x", 1), TCK_ERR_UNREACHABLE);
    agent_open(&b, 2, NULL, 7);
    cr_expect_eq(agent_want(&a, &b), to_b);
    rig_run_until(&a.ups, 2);
    rig_run_until(&b.ups, 1);
}

Test(peer, connects_three_agents_in_a_ring)
{
    agent_open(&a, 1, NULL, 7);
    agent_open(&b, 2, NULL, 7);
    agent_open(&c, 3, NULL, 7);
    agent_want(&a, &b);
    agent_want(&b, &c);
    agent_want(&c, &a);
    rig_run_until(&a.ups, 2);
    rig_run_until(&b.ups, 2);
    rig_run_until(&c.ups, 2);
    cr_expect_eq(peers_count(a.peers), 2);
}

Test(peer, ends_a_session_that_is_no_longer_wanted)
{
    struct peer *to_b, *to_a;
    agent_open(&a, 1, NULL, 7);
    agent_open(&b, 2, NULL, 7);
    agents_meet(&a, &b, &to_b, &to_a);
    peers_unwant(a.peers, to_b);
    cr_expect_eq(peers_count(a.peers), 0);
    rig_run_until(&b.downs, 1);
    cr_expect_eq(a.downs, 0);
}

static void send_garbage(const char *address)
{
    struct sockaddr_in to = {.sin_family = AF_INET};
    char garbage[1024];
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    inet_pton(AF_INET, "127.0.0.1", &to.sin_addr);
    to.sin_port = htons((uint16_t)strtoul(strrchr(address, ':') + 1, NULL, 10));
    memset(garbage, 0x5A, sizeof(garbage));
    cr_assert_eq(connect(fd, (struct sockaddr *)&to, sizeof(to)), 0);
    cr_assert_gt(write(fd, garbage, sizeof(garbage)), 0);
    close(fd);
}

Test(peer, is_not_disturbed_by_garbage_on_its_port)
{
    struct peer *to_b, *to_a;
    agent_open(&a, 1, NULL, 7);
    agent_open(&b, 2, NULL, 7);
    agents_meet(&a, &b, &to_b, &to_a);
    for (size_t i = 0; i < 20; i++) {
        send_garbage(peers_self(b.peers)->address);
        cr_assert_eq(peer_send(to_b, 9, &i, sizeof(i)), TCK_OK);
        rig_run_until(&b.messages, i + 1);
    }
    cr_expect_eq(a.downs + b.downs, 0);
}

/* ---- strangers: a bare link that is connected to an agent ---- */

struct stranger {
    struct link *link;
    struct link_conn *conn;
    size_t downs, pushed, pushed_ok;
};

static struct stranger stranger;

static void stranger_down(void *ctx, struct link_conn *conn, const char *why)
{
    (void)ctx;
    (void)why;
    (void)conn;
    stranger.downs++;
    loop_stop(rig_loop);
}

static void stranger_message(void *ctx, struct link_conn *conn, const void *data, size_t len)
{
    (void)ctx;
    (void)conn;
    (void)data;
    (void)len;
}

static void stranger_pushed(void *ctx, bool ok)
{
    (void)ctx;
    stranger.pushed++;
    stranger.pushed_ok += ok;
    loop_stop(rig_loop);
}

static void stranger_open_at(const char *address)
{
    struct link_setup setup = {
        .loop = rig_loop, .device = "lo", .address = "127.0.0.1", .message = stranger_message, .down = stranger_down};
    struct error err;
    cr_assert_eq(link_new(&setup, &stranger.link, &err), TCK_OK, "%s", err.text);
    cr_assert_eq(link_connect(stranger.link, address, 0, NULL, &stranger.conn, &err), TCK_OK, "%s", err.text);
}

static void stranger_open(const struct agent *agent)
{
    stranger_open_at(peers_self(agent->peers)->address);
}

Test(peer, closes_a_connection_that_begins_with_something_else)
{
    agent_open(&a, 1, NULL, 7);
    stranger_open(&a);
    cr_assert_eq(link_send(stranger.conn, "GET / HTTP/1.0", 14), TCK_OK);
    rig_run_until(&stranger.downs, 1);
    link_free(stranger.link);
    cr_expect_eq(a.ups, 0);
}

Test(peer, closes_a_connection_that_sends_nothing)
{
    agent_open(&a, 1, NULL, 7);
    stranger_open(&a);
    rig_run_until(&stranger.downs, 1);
    link_free(stranger.link);
}

Test(peer, accepts_no_chunk_from_a_stranger)
{
    static const uint8_t chunk[4096], header[12];
    agent_open(&a, 1, NULL, 7);
    stranger_open(&a);
    cr_assert_eq(link_push(stranger.conn, header, sizeof(header), chunk, sizeof(chunk), stranger_pushed, NULL), TCK_OK);
    rig_run_until(&stranger.pushed, 1);
    link_free(stranger.link);
    cr_expect_eq(stranger.pushed_ok, 0);
}

#define CROWD     300
#define CROWD_MAX 256 /* the number of them that are kept */

/* The crowd is a process of its own, so that the agent's process has only the accepting ends. It is forked before UCX
 * is used. */
struct crowd {
    pid_t pid;
    int to, from;
};

static void crowd_run(int from, int to)
{
    char address[ADDRESS_TEXT] = "", end;
    struct link_conn *conn;
    struct error err;
    rig_open();
    if (read(from, address, sizeof(address) - 1) <= 0) {
        _exit(1);
    }
    stranger_open_at(address);
    for (int i = 1; i < CROWD; i++) {
        if (link_connect(stranger.link, address, 0, NULL, &conn, &err) != TCK_OK) {
            _exit(1);
        }
    }
    while (stranger.downs < CROWD - CROWD_MAX) {
        rig_run_ms(10);
    }
    _exit(write(to, "", 1) != 1 || read(from, &end, 1) != 0);
}

static struct crowd crowd_start(void)
{
    int in[2], out[2];
    cr_assert_eq(pipe(in) | pipe(out), 0);
    pid_t pid = fork();
    if (pid == 0) {
        close(in[1]);
        close(out[0]);
        crowd_run(in[0], out[1]);
    }
    cr_assert_gt(pid, 0);
    close(in[0]);
    close(out[1]);
    return (struct crowd){.pid = pid, .to = in[1], .from = out[0]};
}

/* Whether the connections beyond the limit have been closed. */
static bool crowd_is_told(const struct crowd *crowd)
{
    char byte;
    struct pollfd from = {.fd = crowd->from, .events = POLLIN};
    if (poll(&from, 1, 0) == 0) {
        return false;
    }
    cr_assert_eq(read(crowd->from, &byte, 1), 1, "the crowd has ended");
    return true;
}

static void crowd_end(const struct crowd *crowd)
{
    int status;
    close(crowd->to);
    close(crowd->from);
    cr_assert_eq(waitpid(crowd->pid, &status, 0), crowd->pid);
    cr_expect(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void strangers_until(uint64_t deadline_ms)
{
    for (struct channel *channel = a.peers->strangers; channel != NULL; channel = channel->next) {
        channel->deadline_ms = channel->refused ? channel->deadline_ms : deadline_ms;
    }
}

/* The connections that are kept do not reach their time limit here: each one that is closed exceeded the number. */
Test(peer, keeps_a_bounded_number_of_strangers_and_accepts_others_when_they_are_gone)
{
    struct crowd crowd = crowd_start();
    agent_open(&a, 2, NULL, 7);
    agent_open(&b, 1, NULL, 7);
    const char *address = peers_self(a.peers)->address;
    cr_assert_gt(write(crowd.to, address, strlen(address)), 0);
    while (!crowd_is_told(&crowd)) {
        rig_run_ms(10);
        cr_assert_leq(a.peers->stranger_count, CROWD_MAX, "%zu are kept", a.peers->stranger_count);
        strangers_until(UINT64_MAX);
    }
    agent_want(&b, &a);
    strangers_until(0);
    rig_run_until(&a.ups, 1);
    crowd_end(&crowd);
}

/* ---- several addresses ---- */

/* The node of another agent, with a further address before its own. */
static struct node_info with_address(const struct agent *other, const char *first)
{
    struct node_info node = *peers_self(other->peers);
    snprintf(node.address, sizeof(node.address), "%s", first);
    cr_assert(address_list_add(node.address, sizeof(node.address), peers_self(other->peers)->address));
    return node;
}

static struct peer *want_at(struct agent *agent, const struct node_info *node)
{
    struct peer *peer;
    struct error err;
    cr_assert_eq(peers_want(agent->peers, node, &peer, &err), TCK_OK, "%s", err.text);
    return peer;
}

Test(peer, is_reached_at_its_second_address_if_the_first_one_refuses)
{
    agent_open(&a, 1, NULL, 7);
    agent_open(&b, 2, NULL, 7);
    struct node_info node = with_address(&b, "127.0.0.9:1");
    struct peer *to_b = want_at(&a, &node);
    rig_run_until(&a.ups, 1);
    cr_expect_str_eq(peer_address(to_b), peers_self(b.peers)->address);
}

/* Connections to it are never accepted. */
static int open_deaf_listener(char text[ADDRESS_ITEM])
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK + 8)}};
    socklen_t len = sizeof(at);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    cr_assert(fd >= 0 && bind(fd, (struct sockaddr *)&at, len) == 0 && listen(fd, 1) == 0 &&
              getsockname(fd, (struct sockaddr *)&at, &len) == 0);
    snprintf(text, ADDRESS_ITEM, "127.0.0.9:%u", ntohs(at.sin_port));
    return fd;
}

Test(peer, is_reached_at_its_second_address_if_the_first_one_does_not_answer)
{
    char deaf[ADDRESS_ITEM];
    int fd = open_deaf_listener(deaf);
    agent_open(&a, 1, NULL, 7);
    agent_open(&b, 2, NULL, 7);
    struct node_info node = with_address(&b, deaf);
    uint64_t began_ms = clock_ms();
    want_at(&a, &node);
    rig_run_until(&a.ups, 1);
    cr_expect_geq(clock_ms() - began_ms, RIG_TIMEOUT_MS / 2, "the first address was not tried");
    close(fd);
}

/* Pretends that the session uses the last address, so that the first one is checked at once. */
static struct peer *meet_and_check(const char *first)
{
    struct peer *to_b, *to_a;
    agent_open(&a, 1, NULL, 7);
    agent_open(&b, 2, NULL, 7);
    agents_meet(&a, &b, &to_b, &to_a);
    struct node_info node = with_address(&b, first);
    peer_set_node(to_b, &node);
    to_b->addresses.in_use = 1;
    to_b->check_at_ms = 0;
    return to_b;
}

/* Until a check of the first address has ended so; it takes longer where others use the processors. */
static void run_until_first_is(struct peer *to_b, bool failed, struct peer_reach *reach)
{
    for (int tries = 0; tries < 20; tries++) {
        cr_assert_eq(peer_reach(to_b, reach), 2);
        if (reach[0].failed == failed) {
            return;
        }
        to_b->check_at_ms = 0;
        rig_run_ms(RIG_TIMEOUT_MS);
    }
}

Test(peer, notices_that_an_address_that_it_does_not_use_does_not_answer)
{
    struct peer_reach reach[ADDRESSES_MAX];
    struct peer *to_b = meet_and_check("127.0.0.9:1");
    rig_run_ms(RIG_TIMEOUT_MS);
    cr_assert_eq(peer_reach(to_b, reach), 2);
    cr_expect_not(reach[0].failed, "a connection that breaks once may be that of an agent that has died");
    run_until_first_is(to_b, true, reach);
    cr_expect(reach[0].failed && !reach[0].in_use);
    cr_expect(!reach[1].failed && reach[1].in_use);
    cr_expect_eq(a.downs, 0);
}

Test(peer, notices_that_an_address_answers_again)
{
    struct peer_reach reach[ADDRESSES_MAX];
    struct peer *to_b = meet_and_check("127.0.0.9:1");
    char *comma = strchr(to_b->node.address, ',');
    cr_assert_not_null(comma);
    memcpy(to_b->list.of[0], comma + 1, strlen(comma + 1) + 1);
    snprintf(to_b->list.of[1], sizeof(to_b->list.of[1]), "127.0.0.9:1");
    addresses_failed(&to_b->addresses, 0, 1);
    run_until_first_is(to_b, false, reach);
    cr_expect_not(reach[0].failed);
    cr_expect_eq(b.downs, 0);
    cr_expect_eq(b.ups, 1, "a check is no session");
    cr_expect_eq(b.peers->stranger_count, 0, "the connection of a check stays");
}

Test(peer, is_freed_while_an_address_is_checked)
{
    char deaf[ADDRESS_ITEM];
    int fd = open_deaf_listener(deaf);
    struct peer *to_b = meet_and_check(deaf);
    rig_run_ms(50);
    cr_assert_not_null(to_b->check);
    peers_unwant(a.peers, to_b);
    rig_run_ms(50);
    close(fd);
}

/* ---- a peer in another process ---- */

/* Runs an agent in a child process until it is killed. Forked before this process has used UCX, which does not survive
 * a fork. */
static pid_t fork_agent(struct node_info *node)
{
    int fds[2];
    pid_t pid;
    cr_assert_eq(pipe(fds), 0);
    pid = fork();
    cr_assert_geq(pid, 0);
    if (pid == 0) {
        rig_open();
        agent_open(&b, 2, NULL, 7);
        if (write(fds[1], peers_self(b.peers), sizeof(*node)) != (ssize_t)sizeof(*node)) {
            _exit(1);
        }
        for (;;) {
            loop_run(rig_loop);
        }
    }
    cr_assert_eq(read(fds[0], node, sizeof(*node)), (ssize_t)sizeof(*node));
    close(fds[0]);
    close(fds[1]);
    return pid;
}

TestSuite(peer_process, .timeout = 120);

Test(peer_process, is_down_within_the_timeout_when_it_stops_and_up_when_it_continues)
{
    struct node_info node;
    struct error err;
    struct peer *peer;
    pid_t pid = fork_agent(&node);
    rig_open();
    agent_open(&a, 1, NULL, 7);
    cr_assert_eq(peers_want(a.peers, &node, &peer, &err), TCK_OK);
    rig_run_until(&a.ups, 1);
    kill(pid, SIGSTOP);
    rig_run_until(&a.downs, 1);
    kill(pid, SIGCONT);
    rig_run_until(&a.ups, 2);
    kill(pid, SIGKILL);
    rig_run_until(&a.downs, 2);
    waitpid(pid, NULL, 0);
    agent_close(&a);
    rig_close();
}

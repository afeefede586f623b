/* SPDX-License-Identifier: Apache-2.0
 * A client that keeps no rule of the agent's socket: every message type with no payload, with noise, cut short, in the
 * wrong order, from a process that leaves at once. The agent must answer or hang up each time, and live. */
#include "base/ipc.h"
#include "base/message.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define ANSWER_MS 5000

static const char *path;

static int connect_or_die(void)
{
    struct error err;
    int fd = -1;
    if (ipc_connect(path, &fd, &err) != TCK_OK) {
        printf("CANNOT CONNECT: %s\n", err.text);
        exit(1);
    }
    return fd;
}

/* The agent says something, or hangs up; silence ends the test. */
static void must_react(int fd, const char *what, uint32_t type)
{
    struct ipc_frame frame;
    struct error err;
    tck_status_t status = ipc_recv(fd, ANSWER_MS, &frame, &err);
    if (status == TCK_ERR_TIMEDOUT) {
        printf("NO REACTION to %s of type %u\n", what, type);
        exit(1);
    }
    if (status == TCK_OK) {
        ipc_frame_free(&frame);
    }
}

static bool is_answered(uint32_t type)
{
    return type != MSG_SEAL && type != MSG_ABANDON && type != MSG_RESTORE_DONE && type != MSG_ROOTS;
}

static void send_raw(int fd, uint32_t type, const void *payload, size_t len)
{
    struct error err;
    if (ipc_send(fd, type, payload, len, NULL, 0, ANSWER_MS, &err) != TCK_OK) {
        printf("NOT TAKEN: type %u: %s\n", type, err.text);
        exit(1);
    }
}

static void noise(const char *what, bool greeted, const void *hello, size_t hello_len, size_t len)
{
    uint8_t bytes[512];
    for (uint32_t type = 0; type < 70; type++) {
        int fd = connect_or_die();
        if (greeted) {
            send_raw(fd, MSG_HELLO, hello, hello_len);
            must_react(fd, "HELLO", MSG_HELLO);
        }
        for (size_t i = 0; i < len; i++) {
            bytes[i] = (uint8_t)rand();
        }
        send_raw(fd, type, bytes, len);
        if (is_answered(type)) {
            must_react(fd, what, type);
        }
        close(fd);
    }
}

static struct writer hello_of(const char *job, uint32_t rank)
{
    struct msg_hello hello = {.seq = 1, .format = MESSAGE_FORMAT, .rank = rank, .world_size = 4};
    struct writer w = writer_new(0);
    snprintf(hello.job, sizeof(hello.job), "%s", job);
    msg_hello_encode(&hello, &w);
    return w;
}

/* Well-formed, but said out of turn. */
static void out_of_turn(const struct writer *hello, bool greeted)
{
    struct writer small = writer_new(0);
    write_u32(&small, 7);
    write_u64(&small, 3);
    struct writer world = writer_new(0);
    struct msg_world nothing = {.seq = 9};
    msg_world_encode(&nothing, &world);
    static const uint32_t types[] = {MSG_CLAIM_TERM, MSG_BEGIN,       MSG_RESTORE, MSG_QUERY,
                                     MSG_REGISTER,   MSG_SEGMENT_GET, MSG_JOIN,    MSG_DETACH};
    for (size_t i = greeted ? 1 : 0; i < sizeof(types) / sizeof(*types); i++) {
        int fd = connect_or_die();
        if (greeted) {
            send_raw(fd, MSG_HELLO, hello->data, hello->len);
            must_react(fd, "HELLO", MSG_HELLO);
        }
        const struct writer *w = types[i] == MSG_REGISTER || types[i] == MSG_JOIN ? &world : &small;
        send_raw(fd, types[i], w->data, w->len);
        must_react(fd, "out of turn", types[i]);
        close(fd);
    }
    writer_free(&world);
    writer_free(&small);
}

/* Requests whose asker does not wait for the answer, while other connections come and take its descriptor. */
static void leave_at_once(void)
{
    static const char *const requests[] = {"{\"op\":\"verify\"}", "{\"op\":\"plan\"}", "{\"op\":\"status\"}", "{", ""};
    for (size_t i = 0; i < 5 * sizeof(requests) / sizeof(*requests); i++) {
        const char *request = requests[i % (sizeof(requests) / sizeof(*requests))];
        int fd = connect_or_die();
        send_raw(fd, MSG_CONTROL, request, strlen(request));
        close(fd);
    }
}

/* A trainer that dies while a process forked from it keeps its socket open. */
static void leave_a_child(const struct writer *hello)
{
    pid_t trainer = fork();
    if (trainer == 0) {
        int fd = connect_or_die();
        send_raw(fd, MSG_HELLO, hello->data, hello->len);
        must_react(fd, "HELLO", MSG_HELLO);
        if (fork() == 0) {
            sleep(60);
        }
        _exit(0);
    }
    (void)waitpid(trainer, NULL, 0);
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        return 2;
    }
    path = argv[1];
    struct writer hello = hello_of(argv[2], 3);
    noise("nothing", false, NULL, 0, 0);
    noise("noise", false, NULL, 0, 100);
    noise("noise after HELLO", true, hello.data, hello.len, 300);
    noise("a part", true, hello.data, hello.len, 4);
    out_of_turn(&hello, false);
    out_of_turn(&hello, true);
    leave_at_once();
    leave_a_child(&hello);
    writer_free(&hello);
    printf("DONE\n");
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "base/ipc.h"
#include "base/ipc_header.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define WAIT_MS 60000

static struct error err;

/* A connected pair, without a path. */
struct pair {
    int a, b;
};

static struct pair pair_new(void)
{
    int fds[2];

    cr_assert_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds), 0);
    return (struct pair){fds[0], fds[1]};
}

static void pair_close(struct pair pair)
{
    close(pair.a);
    close(pair.b);
}

static int open_fd_count(void)
{
    int count = 0;

    for (int fd = 0; fd < 256; fd++) {
        count += fcntl(fd, F_GETFD) >= 0;
    }
    return count;
}

/* ---- frames ---- */

Test(ipc, carries_type_and_payload)
{
    struct pair pair = pair_new();
    struct ipc_frame frame;

    cr_assert_eq(ipc_send(pair.a, 7, "hello", 5, NULL, 0, WAIT_MS, &err), TCK_OK);
    cr_assert_eq(ipc_recv(pair.b, WAIT_MS, &frame, &err), TCK_OK, "%s", err.text);
    cr_assert_eq(frame.type, 7);
    cr_assert_eq(frame.len, 5);
    cr_assert_arr_eq(frame.payload, "hello", 5);
    cr_assert_eq(frame.fd_count, 0);
    ipc_frame_free(&frame);
    pair_close(pair);
}

Test(ipc, carries_an_empty_payload)
{
    struct pair pair = pair_new();
    struct ipc_frame frame;

    cr_assert_eq(ipc_send(pair.a, 1, NULL, 0, NULL, 0, WAIT_MS, &err), TCK_OK);
    cr_assert_eq(ipc_recv(pair.b, WAIT_MS, &frame, &err), TCK_OK, "%s", err.text);
    cr_assert_eq(frame.len, 0);
    cr_assert_null(frame.payload);
    pair_close(pair);
}

/* Sends len bytes with fd_count copies of standard input and checks what arrives. */
static void check_round_trip(size_t len, uint32_t fd_count)
{
    struct pair pair = pair_new();
    int fds[IPC_MAX_FDS] = {0};
    uint8_t *payload = malloc(len);
    struct ipc_frame frame;

    cr_assert_not_null(payload);
    for (size_t i = 0; i < len; i++) {
        payload[i] = (uint8_t)(i * 31 + i / 4096);
    }
    cr_assert_eq(ipc_send(pair.a, 9, payload, len, fds, fd_count, WAIT_MS, &err), TCK_OK, "%s", err.text);
    cr_assert_eq(ipc_recv(pair.b, WAIT_MS, &frame, &err), TCK_OK, "%s", err.text);
    cr_assert_eq(frame.len, len);
    cr_assert_eq(frame.fd_count, fd_count);
    cr_assert_eq(memcmp(frame.payload, payload, len), 0);
    for (uint32_t i = 0; i < fd_count; i++) {
        cr_assert_eq(fcntl(frame.fds[i], F_GETFD), FD_CLOEXEC);
    }
    ipc_frame_free(&frame);
    free(payload);
    pair_close(pair);
}

Test(ipc, carries_the_largest_inline_payload)
{
    check_round_trip(IPC_INLINE_BYTES, 0);
}

Test(ipc, carries_a_payload_one_byte_over_the_inline_size)
{
    check_round_trip(IPC_INLINE_BYTES + 1, 0);
}

Test(ipc, carries_all_descriptors_beside_a_large_payload)
{
    check_round_trip(3u << 20, IPC_MAX_FDS);
}

Test(ipc, received_descriptor_refers_to_the_senders_file)
{
    struct pair pair = pair_new();
    struct ipc_frame frame;
    int pipe_fds[2];
    char c = 0;

    cr_assert_eq(pipe2(pipe_fds, O_CLOEXEC), 0);
    cr_assert_eq(ipc_send(pair.a, 1, "x", 1, &pipe_fds[1], 1, WAIT_MS, &err), TCK_OK);
    cr_assert_eq(ipc_recv(pair.b, WAIT_MS, &frame, &err), TCK_OK, "%s", err.text);
    cr_assert_eq(frame.fd_count, 1);
    cr_assert_eq(write(frame.fds[0], "q", 1), 1);
    cr_assert_eq(read(pipe_fds[0], &c, 1), 1);
    cr_assert_eq(c, 'q');
    ipc_frame_free(&frame);
    pair_close(pair);
}

Test(ipc, freeing_a_frame_closes_only_the_descriptors_left_in_it)
{
    struct pair pair = pair_new();
    struct ipc_frame frame;
    int fds[2] = {0, 0};
    int kept;

    cr_assert_eq(ipc_send(pair.a, 1, "x", 1, fds, 2, WAIT_MS, &err), TCK_OK);
    cr_assert_eq(ipc_recv(pair.b, WAIT_MS, &frame, &err), TCK_OK, "%s", err.text);
    kept = frame.fds[0];
    frame.fds[0] = -1;
    fds[1] = frame.fds[1];
    ipc_frame_free(&frame);
    cr_assert_geq(fcntl(kept, F_GETFD), 0);
    cr_assert_lt(fcntl(fds[1], F_GETFD), 0);
    pair_close(pair);
}

Test(ipc, keeps_frames_in_order_and_apart)
{
    struct pair pair = pair_new();
    struct ipc_frame frame;

    for (uint32_t i = 0; i < 5; i++) {
        cr_assert_eq(ipc_send(pair.a, i, "abcdef", i + 1, NULL, 0, WAIT_MS, &err), TCK_OK);
    }
    for (uint32_t i = 0; i < 5; i++) {
        cr_assert_eq(ipc_recv(pair.b, WAIT_MS, &frame, &err), TCK_OK, "%s", err.text);
        cr_assert_eq(frame.type, i);
        cr_assert_eq(frame.len, i + 1);
        ipc_frame_free(&frame);
    }
    pair_close(pair);
}

Test(ipc, receive_times_out_when_nothing_arrives)
{
    struct pair pair = pair_new();
    struct ipc_frame frame;

    cr_assert_eq(ipc_recv(pair.b, 0, &frame, &err), TCK_ERR_TIMEDOUT);
    cr_assert_eq(ipc_recv(pair.b, 10, &frame, &err), TCK_ERR_TIMEDOUT);
    pair_close(pair);
}

Test(ipc, send_times_out_when_the_peer_does_not_read)
{
    struct pair pair = pair_new();
    static const uint8_t payload[IPC_INLINE_BYTES];
    tck_status_t status = TCK_OK;

    for (int i = 0; i < 100000 && status == TCK_OK; i++) {
        status = ipc_send(pair.a, 1, payload, sizeof(payload), NULL, 0, 0, &err);
    }
    cr_assert_eq(status, TCK_ERR_TIMEDOUT);
    cr_assert_eq(ipc_send(pair.a, 1, payload, sizeof(payload), NULL, 0, 20, &err), TCK_ERR_TIMEDOUT);
    pair_close(pair);
}

Test(ipc, receive_fails_when_the_peer_is_gone)
{
    struct pair pair = pair_new();
    struct ipc_frame frame;

    close(pair.a);
    cr_assert_eq(ipc_recv(pair.b, WAIT_MS, &frame, &err), TCK_ERR_UNREACHABLE);
    close(pair.b);
}

Test(ipc, send_to_a_peer_that_is_gone_fails_without_a_signal)
{
    struct pair pair = pair_new();

    signal(SIGPIPE, SIG_DFL);
    close(pair.a);
    cr_assert_eq(ipc_send(pair.b, 1, "x", 1, NULL, 0, WAIT_MS, &err), TCK_ERR_UNREACHABLE);
    close(pair.b);
}

Test(ipc, last_frame_of_a_closed_peer_still_arrives)
{
    struct pair pair = pair_new();
    struct ipc_frame frame;

    cr_assert_eq(ipc_send(pair.a, 4, "bye", 3, NULL, 0, WAIT_MS, &err), TCK_OK);
    close(pair.a);
    cr_assert_eq(ipc_recv(pair.b, WAIT_MS, &frame, &err), TCK_OK, "%s", err.text);
    cr_assert_eq(frame.type, 4);
    ipc_frame_free(&frame);
    cr_assert_eq(ipc_recv(pair.b, WAIT_MS, &frame, &err), TCK_ERR_UNREACHABLE);
    close(pair.b);
}

Test(ipc, refuses_to_send_more_than_the_limits)
{
    struct pair pair = pair_new();
    int fds[IPC_MAX_FDS + 1] = {0};

    cr_assert_eq(ipc_send(pair.a, 1, "x", 1, fds, IPC_MAX_FDS + 1, WAIT_MS, &err), TCK_ERR_INVAL);
    cr_assert_eq(ipc_send(pair.a, 1, "x", IPC_MAX_BYTES + 1, NULL, 0, WAIT_MS, &err), TCK_ERR_INVAL);
    pair_close(pair);
}

/* ---- a peer that does not keep to the protocol ---- */

/* Sends raw bytes with any number of descriptors; the last one is last_fd. */
static void send_raw(int socket_fd, const void *data, size_t len, int last_fd, size_t fd_count)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(64 * sizeof(int))];
    } control = {0};
    struct iovec part = {.iov_base = (void *)(uintptr_t)data, .iov_len = len};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    struct cmsghdr *head;

    if (fd_count > 0) {
        message.msg_control = control.bytes;
        message.msg_controllen = CMSG_SPACE(fd_count * sizeof(int));
        head = CMSG_FIRSTHDR(&message);
        head->cmsg_level = SOL_SOCKET;
        head->cmsg_type = SCM_RIGHTS;
        head->cmsg_len = CMSG_LEN(fd_count * sizeof(int));
        memcpy(CMSG_DATA(head) + (fd_count - 1) * sizeof(int), &last_fd, sizeof(last_fd));
    }
    cr_assert_eq(sendmsg(socket_fd, &message, 0), (ssize_t)len);
}

/* The raw datagram must be refused as malformed, with no descriptor left open. */
static void check_refused(const void *data, size_t len, int last_fd, size_t fd_count)
{
    struct pair pair = pair_new();
    struct ipc_frame frame;
    int before = open_fd_count();

    send_raw(pair.a, data, len, last_fd, fd_count);
    cr_assert_eq(ipc_recv(pair.b, WAIT_MS, &frame, &err), TCK_ERR_PROTO);
    cr_assert_eq(open_fd_count(), before);
    pair_close(pair);
}

static void check_header_refused(struct ipc_header header, size_t payload_len, int fd, size_t fd_count)
{
    static uint8_t datagram[IPC_HEADER_BYTES + IPC_INLINE_BYTES + 1];

    ipc_header_encode(&header, datagram);
    check_refused(datagram, IPC_HEADER_BYTES + payload_len, fd, fd_count);
}

static int new_memfd(off_t len, int seals)
{
    int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    cr_assert_geq(fd, 0);
    cr_assert_eq(ftruncate(fd, len), 0);
    cr_assert_eq(fcntl(fd, F_ADD_SEALS, seals), 0);
    return fd;
}

#define LARGE (IPC_INLINE_BYTES * 2)
#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE)

Test(ipc, refuses_bytes_that_are_no_frame)
{
    check_refused("GET / HTTP/1.1\r\n\r\n", 18, 0, 0);
    check_refused("x", 1, 0, 0);
}

Test(ipc, refuses_a_length_that_is_not_the_datagrams)
{
    check_header_refused((struct ipc_header){.type = 1, .len = 5}, 4, 0, 0);
    check_header_refused((struct ipc_header){.type = 1, .len = 5}, 6, 0, 0);
    check_header_refused((struct ipc_header){.type = 1, .len = UINT32_MAX}, 0, 0, 0);
}

Test(ipc, refuses_a_datagram_over_the_inline_size)
{
    check_header_refused((struct ipc_header){.type = 1, .len = IPC_INLINE_BYTES + 1}, IPC_INLINE_BYTES + 1, 0, 0);
}

Test(ipc, refuses_more_descriptors_than_a_frame_holds)
{
    check_header_refused((struct ipc_header){.type = 1}, 0, 0, IPC_MAX_FDS + 1);
    check_header_refused((struct ipc_header){.type = 1}, 0, 0, IPC_MAX_FDS + 2);
    check_header_refused((struct ipc_header){.type = 1}, 0, 0, 64);
}

Test(ipc, refuses_a_memfd_frame_without_its_memfd)
{
    check_header_refused((struct ipc_header){.type = 1, .len = LARGE, .in_memfd = true}, 0, 0, 0);
}

Test(ipc, refuses_a_memfd_that_lacks_any_seal)
{
    static const int seals[] = {F_SEAL_SHRINK, F_SEAL_GROW, F_SEAL_WRITE, F_SEAL_SEAL};
    int all = SEALS | F_SEAL_SEAL;

    for (size_t i = 0; i < 4; i++) {
        int fd = new_memfd(LARGE, all & ~seals[i]);

        check_header_refused((struct ipc_header){.type = 1, .len = LARGE, .in_memfd = true}, 0, fd, 1);
        close(fd);
    }
}

Test(ipc, refuses_a_memfd_of_another_size)
{
    int fd = new_memfd(LARGE - 1, SEALS | F_SEAL_SEAL);

    check_header_refused((struct ipc_header){.type = 1, .len = LARGE, .in_memfd = true}, 0, fd, 1);
    close(fd);
}

Test(ipc, refuses_a_descriptor_that_is_no_memfd)
{
    int fds[2];

    cr_assert_eq(pipe2(fds, O_CLOEXEC), 0);
    check_header_refused((struct ipc_header){.type = 1, .len = LARGE, .in_memfd = true}, 0, fds[0], 1);
}

Test(ipc, refuses_a_memfd_payload_over_the_limit)
{
    int fd = new_memfd((off_t)IPC_MAX_BYTES + 1, SEALS | F_SEAL_SEAL);

    check_header_refused((struct ipc_header){.type = 1, .len = IPC_MAX_BYTES + 1, .in_memfd = true}, 0, fd, 1);
    close(fd);
}

Test(ipc, connection_is_usable_after_a_refused_frame)
{
    struct pair pair = pair_new();
    struct ipc_frame frame;

    send_raw(pair.a, "garbage", 7, 0, 3);
    cr_assert_eq(ipc_recv(pair.b, WAIT_MS, &frame, &err), TCK_ERR_PROTO);
    cr_assert_eq(ipc_send(pair.a, 3, "ok", 2, NULL, 0, WAIT_MS, &err), TCK_OK);
    cr_assert_eq(ipc_recv(pair.b, WAIT_MS, &frame, &err), TCK_OK, "%s", err.text);
    ipc_frame_free(&frame);
    pair_close(pair);
}

/* ---- sockets ---- */

static char dir[4096];
static char path[4200];

/* dir: a directory that does not exist yet, below a new one; path: the socket in it. */
static void make_place(void)
{
    char base[] = "/tmp/tck-ipc-XXXXXX";

    cr_assert_not_null(mkdtemp(base));
    snprintf(dir, sizeof(dir), "%s/run", base);
    snprintf(path, sizeof(path), "%s/sock", dir);
}

static void remove_place(void)
{
    char command[8300];

    *strstr(dir, "/run") = '\0';
    snprintf(command, sizeof(command), "rm -rf '%s'", dir);
    cr_assert_eq(system(command), 0);
}

TestSuite(ipc_socket, .init = make_place, .fini = remove_place);

Test(ipc_socket, connects_both_ends)
{
    int listen_fd, client, server;
    pid_t pid;
    struct ipc_frame frame;

    cr_assert_eq(ipc_listen(dir, "sock", &listen_fd, &err), TCK_OK, "%s", err.text);
    cr_assert_eq(ipc_accept(listen_fd, &server, &pid, &err), TCK_ERR_BUSY);
    cr_assert_eq(ipc_connect(path, &client, &err), TCK_OK, "%s", err.text);
    cr_assert_eq(ipc_accept(listen_fd, &server, &pid, &err), TCK_OK, "%s", err.text);
    cr_assert_eq(pid, getpid());
    cr_assert_eq(ipc_send(client, 5, "abc", 3, NULL, 0, WAIT_MS, &err), TCK_OK);
    cr_assert_eq(ipc_recv(server, WAIT_MS, &frame, &err), TCK_OK, "%s", err.text);
    cr_assert_eq(frame.type, 5);
    ipc_frame_free(&frame);
}

Test(ipc_socket, makes_the_directory_and_its_parents_private)
{
    int listen_fd;
    struct stat st;

    strcat(dir, "/a/b");
    umask(0);
    cr_assert_eq(ipc_listen(dir, "sock", &listen_fd, &err), TCK_OK, "%s", err.text);
    cr_assert_eq(stat(dir, &st), 0);
    cr_assert_eq(st.st_mode & 0777, 0700);
}

Test(ipc_socket, refuses_a_directory_open_to_others)
{
    int listen_fd;

    cr_assert_eq(mkdir(dir, 0700), 0);
    cr_assert_eq(chmod(dir, 0710), 0);
    cr_assert_eq(ipc_listen(dir, "sock", &listen_fd, &err), TCK_ERR_DENIED);
}

Test(ipc_socket, refuses_a_symlink_as_directory)
{
    int listen_fd;
    char target[4200];

    snprintf(target, sizeof(target), "%s-elsewhere", dir);
    cr_assert_eq(mkdir(target, 0700), 0);
    cr_assert_eq(symlink(target, dir), 0);
    cr_assert_neq(ipc_listen(dir, "sock", &listen_fd, &err), TCK_OK);
}

Test(ipc_socket, works_below_a_directory_longer_than_a_socket_address)
{
    int listen_fd, client;

    while (strlen(dir) < 600) {
        strcat(dir, "/a-directory-with-a-long-name");
    }
    snprintf(path, sizeof(path), "%s/sock", dir);
    cr_assert_eq(ipc_listen(dir, "sock", &listen_fd, &err), TCK_OK, "%s", err.text);
    cr_assert_eq(ipc_connect(path, &client, &err), TCK_OK, "%s", err.text);
}

Test(ipc_socket, refuses_a_name_that_leaves_the_directory)
{
    int listen_fd;

    cr_assert_eq(ipc_listen(dir, "../sock", &listen_fd, &err), TCK_ERR_INVAL);
    cr_assert_eq(ipc_listen(dir, "", &listen_fd, &err), TCK_ERR_INVAL);
}

Test(ipc_socket, second_listener_gets_an_error)
{
    int first, second;

    cr_assert_eq(ipc_listen(dir, "sock", &first, &err), TCK_OK, "%s", err.text);
    cr_assert_eq(ipc_listen(dir, "sock", &second, &err), TCK_ERR_EXIST);
}

Test(ipc_socket, replaces_the_socket_of_a_dead_listener)
{
    int listen_fd, client;

    cr_assert_eq(ipc_listen(dir, "sock", &listen_fd, &err), TCK_OK, "%s", err.text);
    close(listen_fd);
    cr_assert_eq(ipc_listen(dir, "sock", &listen_fd, &err), TCK_OK, "%s", err.text);
    cr_assert_eq(ipc_connect(path, &client, &err), TCK_OK, "%s", err.text);
}

Test(ipc_socket, leaves_a_file_that_is_no_socket_alone)
{
    int listen_fd, file;

    cr_assert_eq(mkdir(dir, 0700), 0);
    file = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    cr_assert_geq(file, 0);
    cr_assert_eq(ipc_listen(dir, "sock", &listen_fd, &err), TCK_ERR_EXIST);
    cr_assert_eq(access(path, F_OK), 0);
    close(file);
}

Test(ipc_socket, failed_listen_leaves_no_descriptor_open)
{
    int first, second, before;

    cr_assert_eq(ipc_listen(dir, "sock", &first, &err), TCK_OK, "%s", err.text);
    before = open_fd_count();
    cr_assert_eq(ipc_listen(dir, "sock", &second, &err), TCK_ERR_EXIST);
    cr_assert_eq(open_fd_count(), before);
}

Test(ipc_socket, connect_tells_missing_from_dead)
{
    int fd;

    cr_assert_eq(ipc_connect(path, &fd, &err), TCK_ERR_NOENT);
    cr_assert_eq(ipc_listen(dir, "sock", &fd, &err), TCK_OK, "%s", err.text);
    close(fd);
    cr_assert_eq(ipc_connect(path, &fd, &err), TCK_ERR_UNREACHABLE);
    cr_assert_not_null(strstr(err.text, path));
}

Test(ipc_socket, of_several_starters_exactly_one_listens)
{
    pid_t pids[8];
    int winners = 0;
    int gate[2];

    cr_assert_eq(pipe2(gate, O_CLOEXEC), 0);
    for (int i = 0; i < 8; i++) {
        pids[i] = fork();
        cr_assert_geq(pids[i], 0);
        if (pids[i] == 0) {
            int fd = -1;
            char c;
            tck_status_t status = ipc_listen(dir, "sock", &fd, NULL);

            close(gate[1]); /* the listener stays until all processes have tried */
            _exit(read(gate[0], &c, 1) == 0 && status == TCK_OK ? 1 : status == TCK_ERR_EXIST ? 0 : 2);
        }
    }
    close(gate[1]);
    for (int i = 0; i < 8; i++) {
        int wait_status;

        cr_assert_eq(waitpid(pids[i], &wait_status, 0), pids[i]);
        cr_assert_lt(WEXITSTATUS(wait_status), 2);
        winners += WEXITSTATUS(wait_status);
    }
    cr_assert_eq(winners, 1);
}

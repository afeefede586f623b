/* SPDX-License-Identifier: Apache-2.0
 * Parking descriptors uses sd_notify's protocol, and taking them back reads LISTEN_FDS as sd_listen_fds does. */
#include "tiers/sd_notify.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define PATH_BYTES 512

/* A service manager's socket in a directory of its own. */
struct manager {
    char dir[PATH_BYTES], path[PATH_BYTES + 16];
    int fd;
};

/* Binds relative to the directory, whose path may be longer than an address. */
static struct manager manager_in(const char *dir)
{
    struct manager manager = {.fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0)};
    struct sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = "notify.sock"};
    snprintf(manager.dir, sizeof(manager.dir), "%s", dir);
    snprintf(manager.path, sizeof(manager.path), "%s/notify.sock", dir);
    cr_assert_eq(chdir(dir), 0);
    cr_assert_eq(bind(manager.fd, (struct sockaddr *)&address, sizeof(address)), 0);
    return manager;
}

static struct manager manager_new(void)
{
    char dir[] = "/tmp/tck-park-XXXXXX";
    cr_assert_not_null(mkdtemp(dir));
    return manager_in(dir);
}

static void manager_free(struct manager *manager)
{
    close(manager->fd);
    unlink(manager->path);
    rmdir(manager->dir);
}

/* The text of the next message; *fd_out the descriptor with it, or -1. */
static void receive(const struct manager *manager, char *text, size_t cap, int *fd_out)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control;
    struct iovec part = {.iov_base = text, .iov_len = cap - 1};
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof(control.bytes)};
    ssize_t len = recvmsg(manager->fd, &message, MSG_DONTWAIT);
    cr_assert_geq(len, 0);
    text[len] = '\0';
    *fd_out = -1;
    const struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    if (header != NULL && header->cmsg_type == SCM_RIGHTS) {
        memcpy(fd_out, CMSG_DATA(header), sizeof(int));
    }
}

static void assert_same_file(int a, int b)
{
    struct stat st_a, st_b;
    cr_assert_eq(fstat(a, &st_a), 0);
    cr_assert_eq(fstat(b, &st_b), 0);
    cr_assert_eq(st_a.st_ino, st_b.st_ino);
}

Test(store_fd, stores_a_descriptor_under_its_name)
{
    struct manager manager = manager_new();
    struct error err = {0};
    char text[256];
    int got, fd = memfd_create("x", MFD_CLOEXEC);

    cr_assert_eq(sd_notify_store(manager.path, PARK_WAIT_MS, "d.01", fd, &err), TCK_OK, "%s", err.text);
    receive(&manager, text, sizeof(text), &got);
    cr_assert_str_eq(text, "FDSTORE=1\nFDNAME=d.01\n");
    assert_same_file(fd, got);
    close(fd);
    close(got);
    manager_free(&manager);
}

Test(store_fd, removes_by_name_and_sends_states_without_a_descriptor)
{
    struct manager manager = manager_new();
    char text[256];
    int got;

    cr_assert_eq(sd_notify_remove(manager.path, PARK_WAIT_MS, "d.01", NULL), TCK_OK);
    receive(&manager, text, sizeof(text), &got);
    cr_assert_str_eq(text, "FDSTOREREMOVE=1\nFDNAME=d.01\n");
    cr_assert_eq(got, -1);
    cr_assert_eq(sd_notify_send(manager.path, PARK_WAIT_MS, "READY=1", NULL), TCK_OK);
    receive(&manager, text, sizeof(text), &got);
    cr_assert_str_eq(text, "READY=1");
    manager_free(&manager);
}

Test(store_fd, reaches_a_socket_whose_path_is_longer_than_an_address)
{
    char dir[PATH_BYTES], text[256];
    char top[] = "/tmp/tck-park-XXXXXX";
    int got;
    cr_assert_not_null(mkdtemp(top));
    snprintf(dir, sizeof(dir), "%s/%0150d", top, 0);
    cr_assert_eq(mkdir(dir, 0700), 0);
    struct manager manager = manager_in(dir);

    cr_assert_eq(sd_notify_send(manager.path, PARK_WAIT_MS, "READY=1", NULL), TCK_OK);
    receive(&manager, text, sizeof(text), &got);
    cr_assert_str_eq(text, "READY=1");
    manager_free(&manager);
    rmdir(top);
}

Test(store_fd, reaches_an_abstract_socket)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct manager manager = {.fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0)};
    char name[64], text[256];
    int got;
    int len = snprintf(name, sizeof(name), "@tck-test-park-%d", (int)getpid());
    memcpy(address.sun_path + 1, name + 1, (size_t)len - 1);
    socklen_t address_len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + (size_t)len);
    cr_assert_eq(bind(manager.fd, (struct sockaddr *)&address, address_len), 0);

    cr_assert_eq(sd_notify_send(name, PARK_WAIT_MS, "READY=1", NULL), TCK_OK);
    receive(&manager, text, sizeof(text), &got);
    cr_assert_str_eq(text, "READY=1");
    close(manager.fd);
}

Test(store_fd, reports_that_nobody_listens)
{
    struct manager manager = manager_new();
    struct error err = {0};

    close(manager.fd);
    cr_assert_eq(sd_notify_send(manager.path, PARK_WAIT_MS, "READY=1", &err), TCK_ERR_UNREACHABLE);
    cr_assert_not_null(strstr(err.text, manager.path), "%s", err.text);
    unlink(manager.path);
    cr_assert_eq(sd_notify_send(manager.path, PARK_WAIT_MS, "READY=1", NULL), TCK_ERR_UNREACHABLE);
    rmdir(manager.dir);
}

Test(store_fd, reports_a_listener_that_does_not_read)
{
    struct manager manager = manager_new();
    struct error err = {0};
    tck_status_t status = TCK_OK;

    for (int i = 0; status == TCK_OK && i < 1 << 20; i++) {
        status = sd_notify_send(manager.path, 0, "STATUS=running", &err);
    }
    cr_assert_eq(status, TCK_ERR_TIMEDOUT);
    cr_assert_eq(sd_notify_store(manager.path, 0, "d.01", 0, NULL), TCK_ERR_TIMEDOUT);
    cr_assert_eq(sd_notify_remove(manager.path, 1, "d.01", NULL), TCK_ERR_TIMEDOUT);
    manager_free(&manager);
}

Test(store_fd, refuses_names_that_would_not_be_returned)
{
    char longest[PARK_NAME_MAX + 1];
    memset(longest, 'a', PARK_NAME_MAX);
    longest[PARK_NAME_MAX] = '\0';

    cr_assert_eq(sd_notify_store("/nowhere", PARK_WAIT_MS, "", 0, NULL), TCK_ERR_INVAL);
    cr_assert_eq(sd_notify_store("/nowhere", PARK_WAIT_MS, "a:b", 0, NULL), TCK_ERR_INVAL);
    cr_assert_eq(sd_notify_store("/nowhere", PARK_WAIT_MS, "a\nFDNAME=b", 0, NULL), TCK_ERR_INVAL);
    cr_assert_eq(sd_notify_store("/nowhere", PARK_WAIT_MS, longest, 0, NULL), TCK_ERR_INVAL);
    cr_assert_eq(sd_notify_remove("/nowhere", PARK_WAIT_MS, "a b", NULL), TCK_ERR_INVAL);
}

/* ---- take back ------------------------------------------------------------------------------------------------- */

struct taken {
    int count;
    char names[4][PARK_NAME_MAX];
    int fds[4];
};

static void take(void *ctx, const char *name, int fd)
{
    struct taken *taken = ctx;
    cr_assert_lt(taken->count, 4);
    snprintf(taken->names[taken->count], PARK_NAME_MAX, "%s", name);
    taken->fds[taken->count++] = fd;
}

/* Puts new files at 3 and 4, as a service manager does; the test runner's files there are not needed here. */
static void listen_with(pid_t pid, const char *count, const char *names)
{
    char text[16];
    for (int fd = 3; fd < 5; fd++) {
        int from = memfd_create("x", 0);
        dup2(from, fd);
        if (from >= 5) {
            close(from);
        }
    }
    snprintf(text, sizeof(text), "%d", (int)pid);
    setenv("LISTEN_PID", text, 1);
    setenv("LISTEN_FDS", count, 1);
    setenv("LISTEN_FDNAMES", names, 1);
}

/* Criterion uses descriptors of its own, so these run in a child that only exits. */
#define IN_CHILD(statement)                       \
    do {                                          \
        pid_t pid = fork();                       \
        int how = 0;                              \
        if (pid == 0) {                           \
            _exit((statement) ? 0 : 1);           \
        }                                         \
        cr_assert_eq(waitpid(pid, &how, 0), pid); \
        cr_assert_eq(how, 0);                     \
    } while (0)

static bool takes_both(void)
{
    struct taken taken = {0};
    listen_with(getpid(), "2", "d.01:m.01");
    sd_notify_take_back(take, &taken);
    return taken.count == 2 && strcmp(taken.names[0], "d.01") == 0 && taken.fds[0] == 3 &&
           strcmp(taken.names[1], "m.01") == 0 && taken.fds[1] == 4 && (fcntl(4, F_GETFD) & FD_CLOEXEC) != 0 &&
           getenv("LISTEN_FDS") == NULL && getenv("LISTEN_PID") == NULL && getenv("LISTEN_FDNAMES") == NULL;
}

Test(store_fd, takes_back_each_descriptor_with_its_name_and_forgets_the_variables)
{
    IN_CHILD(takes_both());
}

static bool takes_none_of(pid_t pid, const char *count)
{
    struct taken taken = {0};
    listen_with(pid, count, "d.01:m.01");
    sd_notify_take_back(take, &taken);
    return taken.count == 0;
}

Test(store_fd, leaves_descriptors_that_were_meant_for_another_process)
{
    IN_CHILD(takes_none_of(1, "2"));
}

Test(store_fd, takes_nothing_for_a_count_that_is_none)
{
    IN_CHILD(takes_none_of(getpid(), "two"));
    IN_CHILD(takes_none_of(getpid(), "-1"));
    IN_CHILD(takes_none_of(getpid(), "99999999999999999999"));
}

static bool takes_one_without_name(void)
{
    struct taken taken = {0};
    listen_with(getpid(), "2", "d.01");
    sd_notify_take_back(take, &taken);
    return taken.count == 2 && taken.names[1][0] == '\0';
}

Test(store_fd, takes_a_descriptor_that_lost_its_name)
{
    IN_CHILD(takes_one_without_name());
}

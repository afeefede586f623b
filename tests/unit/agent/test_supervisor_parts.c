/* SPDX-License-Identifier: Apache-2.0
 * The supervisor's parts: the store, whose messages it accepts, and when it stops restarting the agent. */
#include "supervisor/supervisor_child.h"
#include "supervisor/supervisor_notify.h"

#include "base/clock.h"
#include <criterion/criterion.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static int new_file(void)
{
    int fd = memfd_create("x", MFD_CLOEXEC);
    cr_assert_geq(fd, 0);
    return fd;
}

static bool is_open(int fd)
{
    return fcntl(fd, F_GETFD) >= 0;
}

/* ---- store --------------------------------------------------------------------------------------------------- */

Test(supervisor_store, replaces_a_descriptor_of_the_same_name)
{
    struct store store = {0};
    int first = new_file(), second = new_file();

    cr_assert_eq(store_put(&store, "a", first, NULL), TCK_OK);
    cr_assert_eq(store_put(&store, "a", second, NULL), TCK_OK);
    cr_assert_eq(store.count, 1);
    cr_assert_eq(store.entries[0]->fd, second);
    cr_assert_not(is_open(first));
    store_free(&store);
    cr_assert_not(is_open(second));
}

Test(supervisor_store, closes_what_is_removed_and_keeps_the_rest)
{
    struct store store = {0};
    int first = new_file(), second = new_file();

    cr_assert_eq(store_put(&store, "a", first, NULL), TCK_OK);
    cr_assert_eq(store_put(&store, "b", second, NULL), TCK_OK);
    cr_assert(store_remove(&store, "a"));
    cr_assert_not(store_remove(&store, "a"));
    cr_assert_not(is_open(first));
    cr_assert(is_open(second));
    store_free(&store);
}

#define MANY 16384 /* files: far more names than one variable of the environment holds */

static void raise_limit(rlim_t descriptors)
{
    struct rlimit limit;
    cr_assert_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
    if (limit.rlim_max < descriptors) {
        cr_skip_test("only %lu descriptors are allowed here", (unsigned long)limit.rlim_max);
    }
    limit.rlim_cur = limit.rlim_max;
    cr_assert_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

static tck_status_t put_number(struct store *store, int i)
{
    char name[PARK_NAME_MAX];
    snprintf(name, sizeof(name), "d.%032d", i);
    int fd = dup(STDERR_FILENO);
    cr_assert_geq(fd, 0);
    return store_put(store, name, fd, NULL);
}

static void count_number(void *ctx, const char *name, int fd)
{
    int *count = ctx;
    char want[PARK_NAME_MAX];
    snprintf(want, sizeof(want), "d.%032d", *count);
    *count += strcmp(name, want) == 0 && fd == 3 + *count;
}

Test(supervisor_store, hands_on_many_descriptors_with_their_names, .timeout = 120)
{
    struct store store = {0};
    int status;

    raise_limit(MANY + 1000);
    for (int i = 0; i < MANY; i++) {
        cr_assert_eq(put_number(&store, i), TCK_OK);
    }
    pid_t pid = fork();
    if (pid == 0) {
        int count = 0;
        bool handed_on = store_hand_on(&store, NULL) == TCK_OK && getenv("LISTEN_FDNAMES") == NULL;
        sd_notify_take_back(count_number, &count);
        _exit(handed_on && count == MANY && getenv(PARK_NAMES_FD) == NULL && !is_open(3 + MANY) ? 0 : 1);
    }
    cr_assert_eq(waitpid(pid, &status, 0), pid);
    cr_assert_eq(status, 0);
    store_free(&store);
}

Test(supervisor_store, refuses_more_than_the_agent_parks)
{
    struct store store = {.count = PARK_FILES_MAX};
    int fd = new_file();

    cr_assert_eq(store_put(&store, "one.more", fd, NULL), TCK_ERR_NOSPC);
    cr_assert_not(is_open(fd));
    cr_assert_eq(store.count, PARK_FILES_MAX);
}

Test(supervisor_store, finds_each_of_many_names_after_others_were_removed)
{
    struct store store = {0};
    char name[PARK_NAME_MAX];

    for (int i = 0; i < 300; i++) {
        cr_assert_eq(put_number(&store, i), TCK_OK);
    }
    for (int i = 0; i < 300; i += 3) {
        snprintf(name, sizeof(name), "d.%032d", i);
        cr_assert(store_remove(&store, name));
    }
    for (int i = 0; i < 300; i++) {
        snprintf(name, sizeof(name), "d.%032d", i);
        cr_assert_eq(store_remove(&store, name), i % 3 != 0);
    }
    cr_assert_eq(store.count, 0);
    store_free(&store);
}

/* In a child, as the supervisor does: all places from 3 on hold the stored files, in whatever order they were opened.
 */
static bool hands_on_in_order(struct store *store)
{
    struct stat want[3], got;
    for (int i = 0; i < 3; i++) {
        fstat(store->entries[i]->fd, &want[i]);
    }
    bool same = store_hand_on(store, NULL) == TCK_OK;
    for (int i = 0; i < 3; i++) {
        same = same && fstat(3 + i, &got) == 0 && got.st_ino == want[i].st_ino && fcntl(3 + i, F_GETFD) == 0;
    }
    return same && strcmp(getenv("LISTEN_FDS"), "3") == 0 && strcmp(getenv("LISTEN_FDNAMES"), "c:b:a") == 0 &&
           atoi(getenv("LISTEN_PID")) == (int)getpid();
}

Test(supervisor_store, hands_on_over_places_that_it_uses_itself)
{
    struct store store = {0};
    int status, a = new_file(), b = new_file(), c = new_file();

    cr_assert_eq(store_put(&store, "c", c, NULL), TCK_OK);
    cr_assert_eq(store_put(&store, "b", b, NULL), TCK_OK);
    cr_assert_eq(store_put(&store, "a", a, NULL), TCK_OK);
    pid_t pid = fork();
    if (pid == 0) {
        _exit(hands_on_in_order(&store) ? 0 : 1);
    }
    cr_assert_eq(waitpid(pid, &status, 0), pid);
    cr_assert_eq(status, 0);
    store_free(&store);
}

/* ---- notify -------------------------------------------------------------------------------------------------- */

struct mailbox {
    char dir[64], path[128];
    int fd;
};

static struct mailbox mailbox_new(void)
{
    struct mailbox box = {.dir = "/tmp/tck-notify-XXXXXX"};
    struct error err = {0};
    cr_assert_not_null(mkdtemp(box.dir));
    snprintf(box.path, sizeof(box.path), "%s/" NOTIFY_SOCKET_NAME, box.dir);
    int dir_fd = open(box.dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    cr_assert_eq(notify_bind(dir_fd, &box.fd, &err), TCK_OK, "%s", err.text);
    close(dir_fd);
    return box;
}

static void mailbox_free(struct mailbox *box)
{
    close(box->fd);
    unlink(box->path);
    rmdir(box->dir);
}

Test(supervisor_notify, is_for_its_own_user_only)
{
    struct mailbox box = mailbox_new();
    struct stat st;

    cr_assert_eq(stat(box.path, &st), 0);
    cr_assert_eq(st.st_mode & 0777, 0600);
    mailbox_free(&box);
}

Test(supervisor_notify, understands_what_park_sends)
{
    struct mailbox box = mailbox_new();
    struct notify_message message;
    int fd = new_file();

    cr_assert_eq(sd_notify_store(box.path, PARK_WAIT_MS, "d.1", fd, NULL), TCK_OK);
    cr_assert_eq(sd_notify_remove(box.path, PARK_WAIT_MS, "d.1", NULL), TCK_OK);
    cr_assert_eq(sd_notify_send(box.path, PARK_WAIT_MS, "STATUS=well\nSTOPPING=1\n", NULL), TCK_OK);
    cr_assert(notify_receive(box.fd, &message));
    cr_assert(message.store && !message.remove && !message.stopping);
    cr_assert_str_eq(message.name, "d.1");
    cr_assert_geq(message.fd, 0);
    close(message.fd);
    cr_assert(notify_receive(box.fd, &message));
    cr_assert(message.remove && !message.store);
    cr_assert_eq(message.fd, -1);
    cr_assert(notify_receive(box.fd, &message));
    cr_assert(message.stopping && !message.ready);
    cr_assert_not(notify_receive(box.fd, &message));
    close(fd);
    mailbox_free(&box);
}

static bool bound_with_credentials;

/* Instead of the C library's: notes whether the socket asks for its senders' credentials when it gets its name. */
int bind(int fd, const struct sockaddr *address, socklen_t len)
{
    int on = 0;
    socklen_t on_len = sizeof(on);
    bound_with_credentials = getsockopt(fd, SOL_SOCKET, SO_PASSCRED, &on, &on_len) == 0 && on != 0;
    return (int)syscall(SYS_bind, fd, address, len);
}

/* Otherwise what an agent stores just then would be dropped, as if another user had sent it. */
Test(supervisor_notify, asks_for_credentials_before_anybody_can_send)
{
    struct mailbox box = mailbox_new();

    cr_assert(bound_with_credentials);
    mailbox_free(&box);
}

Test(supervisor_notify, takes_no_name_that_could_not_be_handed_on)
{
    struct mailbox box = mailbox_new();
    struct notify_message message;

    cr_assert_eq(sd_notify_send(box.path, PARK_WAIT_MS, "FDSTOREREMOVE=1\nFDNAME=a:b", NULL), TCK_OK);
    cr_assert(notify_receive(box.fd, &message));
    cr_assert_str_eq(message.name, "");
    mailbox_free(&box);
}

/* The sender cannot know that its descriptor was lost, so the receiver must say so. */
Test(supervisor_notify, says_that_it_could_not_open_a_descriptor)
{
    struct mailbox box = mailbox_new();
    struct notify_message message;
    struct rlimit before, none_left;
    int fd = new_file();

    cr_assert_eq(sd_notify_store(box.path, PARK_WAIT_MS, "d.1", fd, NULL), TCK_OK);
    cr_assert_eq(sd_notify_store(box.path, PARK_WAIT_MS, "d.2", fd, NULL), TCK_OK);
    cr_assert_eq(getrlimit(RLIMIT_NOFILE, &before), 0);
    none_left = (struct rlimit){.rlim_cur = 0, .rlim_max = before.rlim_max};
    cr_assert_eq(setrlimit(RLIMIT_NOFILE, &none_left), 0);
    cr_assert(notify_receive(box.fd, &message));
    cr_assert_eq(setrlimit(RLIMIT_NOFILE, &before), 0);
    cr_assert(message.store && message.lost && message.fd == -1);
    cr_assert_str_eq(message.name, "d.1");
    cr_assert(notify_receive(box.fd, &message));
    cr_assert(message.store && !message.lost && message.fd >= 0);
    close(message.fd);
    close(fd);
    mailbox_free(&box);
}

Test(supervisor_notify, does_not_listen_to_other_users)
{
    struct mailbox box = mailbox_new();
    struct notify_message message;
    int status;
    if (getuid() != 0) {
        cr_skip("only root can be another user");
    }
    cr_assert_eq(chmod(box.dir, 0711), 0);
    cr_assert_eq(chmod(box.path, 0666), 0); /* as if the permissions had been relaxed */

    pid_t pid = fork();
    if (pid == 0) {
        _exit(setuid(65534) == 0 && sd_notify_send(box.path, PARK_WAIT_MS, "STOPPING=1", NULL) == TCK_OK ? 0 : 1);
    }
    cr_assert_eq(waitpid(pid, &status, 0), pid);
    cr_assert_eq(status, 0);
    cr_assert_not(notify_receive(box.fd, &message));
    mailbox_free(&box);
}

/* ---- child --------------------------------------------------------------------------------------------------- */

static enum child_end run_to_end(struct child *child)
{
    struct store store = {0};
    struct error err = {0};
    cr_assert_eq(child_start(child, &store, &err), TCK_OK, "%s", err.text);
    struct pollfd end = {.fd = child->pidfd, .events = POLLIN};
    cr_assert_eq(poll(&end, 1, 60000), 1);
    return child_ended(child);
}

static struct child child_of(const char *const *argv)
{
    return (struct child){.argv = (char *const *)(uintptr_t)argv, .notify_path = "/nowhere", .pidfd = -1};
}

static const char *const fails[] = {"false", NULL};

Test(supervisor_child, is_done_after_a_clean_exit)
{
    struct child child = child_of((const char *const[]){"true", NULL});

    cr_assert_eq(run_to_end(&child), CHILD_DONE);
    cr_assert_eq(child.pid, 0);
    cr_assert_eq(child.pidfd, -1);
}

Test(supervisor_child, waits_longer_after_each_quick_death)
{
    struct child child = child_of(fails);
    uint64_t before = clock_ms();

    cr_assert_eq(run_to_end(&child), CHILD_RESTARTS);
    cr_assert_leq(child.restart_ms, clock_ms() + 10);
    child.quick_deaths = 5;
    cr_assert_eq(run_to_end(&child), CHILD_RESTARTS);
    cr_assert_geq(child.restart_ms, before + 320);
    child.quick_deaths = 18;
    cr_assert_eq(run_to_end(&child), CHILD_RESTARTS);
    cr_assert_leq(child.restart_ms, clock_ms() + 5000);
}

Test(supervisor_child, is_given_up_after_twenty_quick_deaths)
{
    struct child child = child_of(fails);

    child.quick_deaths = 19;
    cr_assert_eq(run_to_end(&child), CHILD_GIVEN_UP);
}

Test(supervisor_child, is_not_given_up_while_its_memory_is_to_be_kept)
{
    struct child child = child_of(fails);

    child.linger_ms = 600000;
    child.quick_deaths = 100;
    child.failing_ms = clock_ms() - 590000;
    cr_assert_eq(run_to_end(&child), CHILD_RESTARTS);
    child.failing_ms = clock_ms() - 600000;
    cr_assert_eq(run_to_end(&child), CHILD_GIVEN_UP);
}

Test(supervisor_child, counts_the_time_from_the_first_death_of_the_row)
{
    struct child child = child_of(fails);
    uint64_t before = clock_ms();

    child.linger_ms = 600000;
    cr_assert_eq(run_to_end(&child), CHILD_RESTARTS);
    uint64_t first = child.failing_ms;
    cr_assert_geq(first, before);
    cr_assert_eq(run_to_end(&child), CHILD_RESTARTS);
    cr_assert_eq(child.failing_ms, first);
    cr_assert_eq(child_given_up_ms(&child), first + 600000);
}

Test(supervisor_child, does_not_start_counting_again_after_a_long_life_without_service)
{
    struct child child = child_of(fails);
    struct store store = {0};
    struct error err = {0};

    child.linger_ms = 600000;
    child.quick_deaths = 7;
    cr_assert_eq(child_start(&child, &store, &err), TCK_OK, "%s", err.text);
    child.started_ms -= 11000;
    struct pollfd end = {.fd = child.pidfd, .events = POLLIN};
    cr_assert_eq(poll(&end, 1, 60000), 1);
    cr_assert_eq(child_ended(&child), CHILD_RESTARTS);
    cr_assert_eq(child.quick_deaths, 8);
}

Test(supervisor_child, starts_counting_again_after_a_long_life)
{
    struct child child = child_of(fails);
    struct store store = {0};
    struct error err = {0};

    child.quick_deaths = 19;
    cr_assert_eq(child_start(&child, &store, &err), TCK_OK, "%s", err.text);
    child.started_ms -= 11000;
    struct pollfd end = {.fd = child.pidfd, .events = POLLIN};
    cr_assert_eq(poll(&end, 1, 60000), 1);
    cr_assert_eq(child_ended(&child), CHILD_RESTARTS);
    cr_assert_eq(child.quick_deaths, 1);
}

Test(supervisor_child, tries_again_a_program_that_cannot_be_executed)
{
    struct child child = child_of((const char *const[]){"/nonexistent/agent", NULL});

    cr_assert_eq(run_to_end(&child), CHILD_RESTARTS);
}

Test(supervisor_child, cannot_adopt_the_dead)
{
    struct child child = child_of(fails);
    pid_t pid = fork();
    if (pid == 0) {
        _exit(0);
    }
    cr_assert_eq(waitpid(pid, NULL, 0), pid);

    cr_assert_eq(child_adopt(&child, pid, NULL), TCK_ERR_NOENT);
}

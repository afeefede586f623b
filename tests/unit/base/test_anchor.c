/* SPDX-License-Identifier: Apache-2.0 */
#include "base/anchor.h"

#include "base/ipc.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char dir[] = "/tmp/tck-anchor-XXXXXX";
static int dir_fd = -1;
static struct error err;

static void open_dir(void)
{
    dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    cr_assert_geq(dir_fd, 0);
}

static void setup(void)
{
    cr_assert_not_null(mkdtemp(dir));
    open_dir();
}

static void teardown(void)
{
    close(dir_fd);
    rmdir(dir);
}

TestSuite(anchor, .init = setup, .fini = teardown);

static int take(void)
{
    int fd = -1;
    cr_assert_eq(anchor_take(dir_fd, ANCHOR_AGENT, &fd, &err), TCK_OK, "%s", err.text);
    cr_assert_eq(anchor_show(fd, &err), TCK_OK, "%s", err.text);
    return fd;
}

static void make_dir_again(void)
{
    close(dir_fd);
    cr_assert_eq(rmdir(dir), 0);
    cr_assert_eq(mkdir(dir, 0700), 0);
    open_dir();
}

Test(anchor, is_held_from_its_taking_to_its_closing)
{
    cr_assert_not(anchor_is_held(dir_fd, ANCHOR_AGENT));
    int fd = take();
    cr_assert(anchor_is_held(dir_fd, ANCHOR_AGENT));
    close(fd);
    cr_assert_not(anchor_is_held(dir_fd, ANCHOR_AGENT));
}

Test(anchor, is_refused_to_a_second_process_which_learns_of_the_first)
{
    char text[64];
    int fd = take(), other = -1;
    snprintf(text, sizeof(text), "process %d is the agent", (int)getpid());
    pid_t child = fork();
    if (child == 0) {
        bool refused = anchor_take(dir_fd, ANCHOR_AGENT, &other, &err) == TCK_ERR_EXIST;
        _exit(refused && strstr(err.text, text) != NULL ? 0 : 1);
    }
    int status = -1;
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_assert_eq(status, 0);
    close(fd);
}

Test(anchor, is_the_same_after_the_directory_was_deleted)
{
    int fd = take(), connection = -1, accepted = -1;
    pid_t pid = 0;
    make_dir_again();
    cr_assert_eq(anchor_connect(dir_fd, ANCHOR_AGENT, &connection, &pid, &err), TCK_OK, "%s", err.text);
    cr_assert_eq(pid, getpid());
    cr_assert_eq(ipc_accept(fd, &accepted, &pid, &err), TCK_OK, "%s", err.text);
    close(accepted);
    close(connection);
    close(fd);
}

Test(anchor, is_the_same_through_a_descriptor_of_the_deleted_directory)
{
    cr_assert_eq(rmdir(dir), 0);
    int fd = take(), old_fd = dir_fd;
    cr_assert_eq(mkdir(dir, 0700), 0);
    open_dir();
    cr_assert(anchor_is_held(dir_fd, ANCHOR_AGENT));
    close(old_fd);
    close(fd);
}

Test(anchor, differs_between_roles_and_directories)
{
    char other[] = "/tmp/tck-anchor-other-XXXXXX";
    int fd = take();
    cr_assert_not(anchor_is_held(dir_fd, ANCHOR_SUPERVISOR));
    cr_assert_not_null(mkdtemp(other));
    int other_fd = open(other, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    cr_assert_not(anchor_is_held(other_fd, ANCHOR_AGENT));
    close(other_fd);
    rmdir(other);
    close(fd);
}

Test(anchor, taken_but_never_shown_is_no_proof_of_a_process)
{
    int fd = -1, other = -1;
    cr_assert_eq(anchor_take(dir_fd, ANCHOR_AGENT, &fd, &err), TCK_OK, "%s", err.text);
    tck_status_t status = anchor_take(dir_fd, ANCHOR_AGENT, &other, &err);
    cr_assert_neq(status, TCK_OK);
    cr_assert_neq(status, TCK_ERR_EXIST); /* anyone may bind a name; only a connection identifies the process */
    close(fd);
}

Test(anchor, is_each_users_own)
{
    if (geteuid() != 0) {
        cr_skip_test("needs root");
    }
    int fd = take(), other = -1, status = -1;
    pid_t child = fork();
    if (child == 0) {
        bool own =
            setegid(65534) == 0 && seteuid(65534) == 0 && anchor_take(dir_fd, ANCHOR_AGENT, &other, &err) == TCK_OK;
        _exit(own ? 0 : 1);
    }
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_assert_eq(status, 0);
    close(fd);
}

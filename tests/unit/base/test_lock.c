/* SPDX-License-Identifier: Apache-2.0 */
#include "base/lock.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#define NAME "some.lock"

static char dir[] = "/tmp/tck-lock-XXXXXX";
static int dir_fd = -1;

static void setup(void)
{
    cr_assert_not_null(mkdtemp(dir));
    dir_fd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    cr_assert_geq(dir_fd, 0);
}

static void teardown(void)
{
    unlinkat(dir_fd, NAME, 0);
    close(dir_fd);
    rmdir(dir);
}

TestSuite(lock, .init = setup, .fini = teardown);

static int take(void)
{
    struct error err = {0};
    int fd = -1;
    cr_assert_eq(lock_take(dir_fd, NAME, &fd, &err), TCK_OK, "%s", err.text);
    return fd;
}

Test(lock, is_held_from_its_taking_to_its_closing)
{
    cr_assert_not(lock_is_held(dir_fd, NAME));
    int fd = take();
    cr_assert(lock_is_held(dir_fd, NAME));
    close(fd);
    cr_assert_not(lock_is_held(dir_fd, NAME));
}

Test(lock, is_refused_while_another_holds_it)
{
    struct error err = {0};
    int fd = take(), other = -1;
    cr_assert_eq(lock_take(dir_fd, NAME, &other, &err), TCK_ERR_EXIST);
    close(fd);
    close(take());
}

Test(lock, stays_with_a_forked_child)
{
    int fd = take(), gate[2];
    char byte;
    cr_assert_eq(pipe(gate), 0);
    pid_t child = fork();
    if (child == 0) {
        close(gate[1]);
        _exit((int)read(gate[0], &byte, 1));
    }
    close(fd);
    cr_assert(lock_is_held(dir_fd, NAME));
    close(gate[1]);
    cr_assert_eq(waitpid(child, NULL, 0), child);
    cr_assert_not(lock_is_held(dir_fd, NAME));
}

Test(lock, does_not_follow_a_link)
{
    struct error err = {0};
    int fd = -1;
    cr_assert_eq(symlinkat("/dev/null", dir_fd, NAME), 0);
    cr_assert_neq(lock_take(dir_fd, NAME, &fd, &err), TCK_OK);
    cr_assert(lock_is_held(dir_fd, NAME));
}

/* SPDX-License-Identifier: Apache-2.0
 * No component of the path of a directory may be under another user's control. */
#include "base/log.h"
#include "base/safe_dir.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define OTHER_USER 65533

static char base[64];
static struct error err;

static void make_base(void)
{
    strcpy(base, "/tmp/tck-safe-XXXXXX");
    cr_assert_not_null(mkdtemp(base));
}

static void remove_base(void)
{
    char command[128];
    snprintf(command, sizeof(command), "rm -rf '%s'", base);
    cr_assert_eq(system(command), 0);
}

TestSuite(safe_dir, .init = make_base, .fini = remove_base);

static const char *below(const char *rest)
{
    static char path[2][256];
    static int turn;
    turn = 1 - turn;
    snprintf(path[turn], sizeof(path[turn]), "%s/%s", base, rest);
    return path[turn];
}

static void make_dir(const char *rest, mode_t mode)
{
    cr_assert_eq(mkdir(below(rest), 0700), 0);
    cr_assert_eq(chmod(below(rest), mode), 0);
}

static tck_status_t open_dir(const char *rest, bool make)
{
    int fd = -1;
    tck_status_t status = safe_dir_open(below(rest), make, &fd, &err);
    cr_assert_eq(status == TCK_OK, fd >= 0);
    if (fd >= 0) {
        close(fd);
    }
    return status;
}

static void assert_denied(const char *rest, const char *component, const char *why)
{
    char quoted[64];
    snprintf(quoted, sizeof(quoted), "\"%s\"", component);
    cr_assert_eq(open_dir(rest, true), TCK_ERR_DENIED, "%s", rest);
    cr_assert_not_null(strstr(err.text, quoted), "%s", err.text);
    cr_assert_not_null(strstr(err.text, why), "%s", err.text);
    cr_assert_not_null(strstr(err.text, "set runtime_dir"), "%s", err.text);
}

Test(safe_dir, makes_what_is_missing_for_this_user_alone)
{
    struct stat st;
    umask(0);
    cr_assert_eq(open_dir("a/b", false), TCK_ERR_NOENT);
    cr_assert_eq(open_dir("a//b/", true), TCK_OK, "%s", err.text);
    cr_assert_eq(stat(below("a/b"), &st), 0);
    cr_assert_eq(st.st_mode & 0777, 0700);
    cr_assert_eq(open_dir("a/b", false), TCK_OK, "%s", err.text);
}

Test(safe_dir, refuses_a_component_that_others_can_write_to)
{
    make_dir("open", 0777);
    assert_denied("open/job", "open", "can be written to by others (mode 0777)");
    cr_assert_eq(access(below("open/job"), F_OK), -1, "nothing is made there");
    cr_assert_eq(chmod(below("open"), 0755), 0);
    cr_assert_eq(open_dir("open/job", true), TCK_OK, "%s", err.text);
}

Test(safe_dir, accepts_a_sticky_component_as_tmp_is)
{
    make_dir("sticky", 01777);
    cr_assert_eq(open_dir("sticky/job", true), TCK_OK, "%s", err.text);
}

Test(safe_dir, accepts_the_group_of_this_user_and_no_other)
{
    make_dir("group", 0775);
    cr_assert_eq(open_dir("group/job", true), TCK_OK, "%s", err.text);
    if (geteuid() != 0) {
        cr_skip_test("only root can give a directory to another group");
    }
    cr_assert_eq(chown(below("group"), geteuid(), OTHER_USER), 0);
    cr_assert_eq(chmod(below("group"), 0775), 0);
    assert_denied("group/job", "group", "can be written to by others");
}

Test(safe_dir, refuses_a_component_of_another_user)
{
    if (geteuid() != 0) {
        cr_skip_test("only root can give a directory away");
    }
    make_dir("sticky", 01777);
    make_dir("sticky/theirs", 0700);
    cr_assert_eq(chown(below("sticky/theirs"), OTHER_USER, OTHER_USER), 0);
    assert_denied("sticky/theirs/job", "theirs", "belongs to user 65533");
}

Test(safe_dir, follows_links_where_nobody_else_can_make_one)
{
    make_dir("there", 0700);
    cr_assert_eq(symlink("there", below("relative")), 0);
    cr_assert_eq(symlink(below("there"), below("absolute")), 0);
    cr_assert_eq(open_dir("relative/job", true), TCK_OK, "%s", err.text);
    cr_assert_eq(open_dir("absolute/job", false), TCK_OK, "%s", err.text);
    assert_denied("relative", "relative", "is a symbolic link");
}

Test(safe_dir, refuses_links_where_others_can_make_them)
{
    make_dir("sticky", 01777);
    make_dir("there", 0700);
    cr_assert_eq(symlink("../there", below("sticky/link")), 0);
    assert_denied("sticky/link/job", "link", "is a symbolic link");
}

Test(safe_dir, looks_at_what_a_link_leads_through)
{
    make_dir("open", 0777);
    make_dir("open/there", 0700);
    cr_assert_eq(symlink("open/there", below("link")), 0);
    assert_denied("link/job", "open", "can be written to by others");
}

Test(safe_dir, ends_where_links_lead_in_a_circle)
{
    cr_assert_eq(symlink("two", below("one")), 0);
    cr_assert_eq(symlink("one", below("two")), 0);
    cr_assert_eq(open_dir("one/job", true), TCK_ERR_DENIED);
}

Test(safe_dir, refuses_a_file_in_its_way)
{
    close(open(below("file"), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
    assert_denied("file/job", "file", "is not a directory");
}

Test(safe_dir, a_log_is_no_link)
{
    cr_assert_eq(symlink("elsewhere", below("agent.log")), 0);
    cr_assert_eq(log_open(below("agent.log"), LOG_INFO, "test", &err), TCK_ERR_DENIED);
    cr_assert_not_null(strstr(err.text, "is a symbolic link"), "%s", err.text);
    cr_assert_eq(access(below("elsewhere"), F_OK), -1);
}

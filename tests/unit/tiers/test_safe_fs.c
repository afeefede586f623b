/* SPDX-License-Identifier: Apache-2.0
 * Nothing outside the directory or behind a link is reached; small files are written completely or not at all. */
#include "tiers/safe_fs.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char root[32];
static int dir_fd;
static int stale_calls; /* the number of calls of fstat that fail from now on */

int __real_fstat(int fd, struct stat *st);
int __wrap_fstat(int fd, struct stat *st);
int __wrap_fstat(int fd, struct stat *st)
{
    if (stale_calls > 0) {
        stale_calls--;
        errno = ESTALE;
        return -1;
    }
    return __real_fstat(fd, st);
}

static void make_dir(void)
{
    snprintf(root, sizeof(root), "beneath-XXXXXX");
    cr_assert_not_null(mkdtemp(root));
    dir_fd = open(root, O_RDONLY | O_DIRECTORY);
    cr_assert(dir_fd >= 0);
}

static void remove_dir(void)
{
    struct names names;
    cr_assert_eq(safe_fs_list(dir_fd, &names, NULL), TCK_OK);
    for (size_t i = 0; i < names.count; i++) {
        if (unlinkat(dir_fd, names.names[i], 0) < 0) {
            unlinkat(dir_fd, names.names[i], AT_REMOVEDIR);
        }
    }
    names_free(&names);
    close(dir_fd);
    rmdir(root);
}

TestSuite(beneath, .init = make_dir, .fini = remove_dir);

static tck_status_t open_status(const char *name)
{
    int fd;
    tck_status_t status = safe_fs_open(dir_fd, name, O_RDONLY, &fd, NULL);
    if (status == TCK_OK) {
        close(fd);
    }
    return status;
}

Test(beneath, accepts_nothing_but_one_component)
{
    const char *names[] = {"", ".", "..", "/etc/passwd", "a/b", "../x", "a/"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        uint64_t bytes;
        int fd;
        cr_assert_eq(open_status(names[i]), TCK_ERR_DENIED, "open \"%s\"", names[i]);
        cr_assert_eq(safe_fs_open_dir(dir_fd, names[i], &fd, NULL), TCK_ERR_DENIED, "\"%s\"", names[i]);
        cr_assert_eq(safe_fs_make_dir(dir_fd, names[i], &fd, NULL), TCK_ERR_DENIED, "\"%s\"", names[i]);
        cr_assert_eq(safe_fs_size(dir_fd, names[i], &bytes, NULL), TCK_ERR_DENIED, "\"%s\"", names[i]);
        cr_assert_eq(safe_fs_unlink(dir_fd, names[i], NULL), TCK_ERR_DENIED, "\"%s\"", names[i]);
        cr_assert_eq(safe_fs_rename(dir_fd, "a", names[i], NULL), TCK_ERR_DENIED, "\"%s\"", names[i]);
        cr_assert_eq(safe_fs_write(dir_fd, names[i], "x", 1, NULL), TCK_ERR_DENIED, "\"%s\"", names[i]);
    }
}

Test(beneath, follows_no_link)
{
    uint64_t bytes;
    int fd;
    cr_assert_eq(symlinkat("/etc/passwd", dir_fd, "file"), 0);
    cr_assert_eq(symlinkat("/etc", dir_fd, "dir"), 0);
    cr_assert_eq(open_status("file"), TCK_ERR_DENIED);
    cr_assert_eq(safe_fs_size(dir_fd, "file", &bytes, NULL), TCK_ERR_DENIED);
    cr_assert_eq(safe_fs_open_dir(dir_fd, "dir", &fd, NULL), TCK_ERR_DENIED);
    cr_assert_eq(safe_fs_make_dir(dir_fd, "dir", &fd, NULL), TCK_ERR_DENIED);
}

Test(beneath, does_not_wait_for_a_fifo_in_the_place_of_a_file)
{
    cr_assert_eq(mkfifoat(dir_fd, "fifo", 0600), 0);
    cr_assert_eq(open_status("fifo"), TCK_ERR_DENIED);
}

Test(beneath, reads_back_what_it_wrote_over_an_older_file)
{
    char *text;
    size_t len;
    struct names names;
    cr_assert_eq(safe_fs_write(dir_fd, "a", "older and longer", 16, NULL), TCK_OK);
    cr_assert_eq(safe_fs_write(dir_fd, "a", "newer", 5, NULL), TCK_OK);
    cr_assert_eq(safe_fs_read(dir_fd, "a", 5, &text, &len, NULL), TCK_OK);
    cr_assert_eq(len, 5);
    cr_assert_str_eq(text, "newer");
    cr_assert_eq(safe_fs_list(dir_fd, &names, NULL), TCK_OK);
    cr_assert_eq(names.count, 1, "a part file was left");
    names_free(&names);
    free(text);
}

Test(beneath, refuses_to_read_more_than_the_limit)
{
    char *text;
    size_t len;
    cr_assert_eq(safe_fs_write(dir_fd, "a", "123456", 6, NULL), TCK_OK);
    cr_assert_eq(safe_fs_read(dir_fd, "a", 5, &text, &len, NULL), TCK_ERR_CORRUPT);
}

Test(beneath, recognises_its_part_names)
{
    char part[BENEATH_NAME_MAX + 1], whole[BENEATH_NAME_MAX + 1];
    cr_assert_eq(safe_fs_part_name("shard", part, NULL), TCK_OK);
    cr_assert(safe_fs_is_part(part, whole));
    cr_assert_str_eq(whole, "shard");
    const char *others[] = {"shard",           ".0123abcd.part",   "a.0123abc.part",
                            "a.0123ABCD.part", "a.0123abcd.parts", "a.part"};
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        cr_assert_not(safe_fs_is_part(others[i], whole), "%s", others[i]);
    }
}

Test(beneath, moves_no_directory_over_another)
{
    int fd;
    cr_assert_eq(safe_fs_make_dir(dir_fd, "a", &fd, NULL), TCK_OK);
    close(fd);
    cr_assert_eq(safe_fs_make_dir(dir_fd, "b", &fd, NULL), TCK_OK);
    close(fd);
    cr_assert_eq(safe_fs_move_dir(dir_fd, "a", dir_fd, "b", NULL), TCK_ERR_EXIST);
    cr_assert_eq(safe_fs_move_dir(dir_fd, "a", dir_fd, "c", NULL), TCK_OK);
    cr_assert_eq(safe_fs_move_dir(dir_fd, "a", dir_fd, "d", NULL), TCK_ERR_NOENT);
}

Test(beneath, lists_sorted)
{
    struct names names;
    const char *made[] = {"c", "a", "e", "b", "d"};
    for (int i = 0; i < 5; i++) {
        cr_assert_eq(safe_fs_write(dir_fd, made[i], "", 0, NULL), TCK_OK);
    }
    cr_assert_eq(safe_fs_list(dir_fd, &names, NULL), TCK_OK);
    cr_assert_eq(names.count, 5);
    for (int i = 0; i < 5; i++) {
        cr_assert_eq(names.names[i][0], 'a' + i);
    }
    names_free(&names);
}

Test(beneath, a_file_that_was_replaced_while_it_was_read_is_read_again)
{
    char *text;
    size_t len;
    cr_assert_eq(safe_fs_write(dir_fd, "a", "new", 3, NULL), TCK_OK);
    stale_calls = 2;
    cr_assert_eq(safe_fs_read(dir_fd, "a", 16, &text, &len, NULL), TCK_OK);
    cr_assert_str_eq(text, "new");
    free(text);
}

Test(beneath, storage_that_stays_stale_is_an_error)
{
    char *text;
    size_t len;
    struct error err;
    cr_assert_eq(safe_fs_write(dir_fd, "a", "x", 1, NULL), TCK_OK);
    stale_calls = INT_MAX;
    cr_assert_eq(safe_fs_read(dir_fd, "a", 16, &text, &len, &err), TCK_ERR_IO);
    cr_assert_str_eq(err.text, "stat a: Stale file handle");
    stale_calls = 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "base/failpoint.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void arm(const char *text)
{
    struct error err = {0};
    cr_assert_eq(setenv("TIERCKPT_FAILPOINTS", text, 1), 0);
    cr_assert_eq(failpoints_read(&err), TCK_OK, "%s", err.text);
}

static void refused(const char *text, const char *why)
{
    struct error err = {0};
    cr_assert_eq(setenv("TIERCKPT_FAILPOINTS", text, 1), 0);
    cr_expect_eq(failpoints_read(&err), TCK_ERR_CONFIG, "%s is taken", text);
    cr_expect_not_null(strstr(err.text, why), "%s: the text is: %s", text, err.text);
}

Test(failpoint, without_the_variable_nothing_comes)
{
    struct error err = {0};
    char data[2] = "x";
    unsetenv("TIERCKPT_FAILPOINTS");
    cr_assert_eq(failpoints_read(&err), TCK_OK);
    failpoint(save, told);
    failpoint_bytes(shard, read, data, 1);
    cr_expect_not(failpoint_fails(uring, write));
    cr_expect_str_eq(data, "x");
}

Test(failpoint, a_call_fails_at_the_hit_that_was_named_and_only_then)
{
    arm("uring.write=ENOSPC@2;uring.read=EIO");
    cr_expect_not(failpoint_fails(uring, write));
    cr_expect(failpoint_fails(uring, write));
    cr_expect_eq(errno, ENOSPC);
    cr_expect_not(failpoint_fails(uring, write));
    cr_expect(failpoint_fails(uring, read));
    cr_expect_eq(errno, EIO);
}

Test(failpoint, kill_ends_the_process, .signal = SIGKILL)
{
    arm("save.told=kill@3;");
    failpoint(save, told);
    failpoint(save, told);
    failpoint(save, told);
}

Test(failpoint, corrupt_changes_one_byte)
{
    uint8_t data[5] = {1, 2, 3, 4, 5}, as_it_was[5] = {1, 2, 3, 4, 5};
    unsigned differ = 0;
    arm("shard.read=corrupt");
    failpoint_bytes(shard, read, data, sizeof(data));
    for (size_t i = 0; i < sizeof(data); i++) {
        differ += data[i] != as_it_was[i];
    }
    cr_expect_eq(differ, 1);
}

Test(failpoint, in_a_directory_that_says_that_it_has_come_it_does_not_come)
{
    char dir[] = "/tmp/failpoint.XXXXXX", path[64];
    cr_assert_not_null(mkdtemp(dir));
    cr_assert_eq(setenv("TIERCKPT_FAILPOINT_DIR", dir, 1), 0);
    arm("uring.write=EIO;uring.read=EIO");
    cr_expect(failpoint_fails(uring, write));
    arm("uring.write=EIO@2;uring.read=EIO"); /* as in a restarted process: hits are counted from 0 again */
    cr_expect_not(failpoint_fails(uring, write));
    cr_expect(failpoint_fails(uring, read));
    snprintf(path, sizeof(path), "%s/uring.write", dir);
    cr_expect_eq(unlink(path), 0);
    snprintf(path, sizeof(path), "%s/uring.read", dir);
    cr_expect_eq(unlink(path), 0);
    cr_expect_eq(rmdir(dir), 0);
}

Test(failpoint, what_is_not_known_is_refused_by_name)
{
    refused("uring.wriet=EIO", "no failpoint 'uring.wriet'");
    refused("uring.write", "'uring.write' is not");
    refused("uring.write=EIEIO", "uring.write=EIEIO");
    refused("uring.write=EIO@0", "EIO@0");
    refused("uring.write=EIO@", "EIO@");
    refused("uring.write=EIO@1x", "EIO@1x");
    refused("uring.write=sleep", "uring.write=sleep");
    refused("uring.write=sleep:-1", "sleep:-1");
    refused("save.told=EIO", "not possible");
    refused("save.told=corrupt", "not possible");
    refused("=kill", "no failpoint ''");
}

/* SPDX-License-Identifier: Apache-2.0
 * A directory with files as the kernel writes them below /proc and /sys. */
#ifndef TCK_TEST_FAKE_ROOT_H
#define TCK_TEST_FAKE_ROOT_H

#include <criterion/criterion.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static char fake_root[64];

static void fake_root_make(void)
{
    snprintf(fake_root, sizeof(fake_root), "/tmp/tck_root.XXXXXX");
    cr_assert_neq(mkdtemp(fake_root), NULL);
}

static int fake_root_remove(const char *path, const struct stat *st, int kind, struct FTW *where)
{
    (void)st;
    (void)kind;
    (void)where;
    return remove(path);
}

static void fake_root_drop(void)
{
    (void)nftw(fake_root, fake_root_remove, 8, FTW_DEPTH | FTW_PHYS);
}

/* A file, with the directories that it is in. */
static void fake_root_put(const char *name, const char *text)
{
    char path[512];
    snprintf(path, sizeof(path), "%s%s", fake_root, name);
    for (char *at = strchr(path + strlen(fake_root) + 1, '/'); at != NULL; at = strchr(at + 1, '/')) {
        *at = '\0';
        (void)mkdir(path, 0700);
        *at = '/';
    }
    FILE *file = fopen(path, "w");
    cr_assert_neq(file, NULL, "%s", path);
    fputs(text, file);
    fclose(file);
}

#endif

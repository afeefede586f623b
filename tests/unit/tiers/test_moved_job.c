/* SPDX-License-Identifier: Apache-2.0
 * A job that was moved is found next to the one that was requested; jobs with given names are ignored. */
#include "base/config_names.h"
#include "tiers/moved_job.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MOVED "save-0123abcd"

static struct config config;

static void make_dir(void)
{
    char root[] = "/tmp/moved-XXXXXX";
    cr_assert_not_null(mkdtemp(root));
    config = (struct config){0};
    snprintf(config.save_dir, sizeof(config.save_dir), "%s", root);
    config_job_of(config.save_dir, config.job);
}

static void remove_dir(void)
{
    char command[sizeof(config.save_dir) + 16];
    snprintf(command, sizeof(command), "rm -rf %s", config.save_dir);
    cr_assert_eq(system(command), 0); /* NOLINT(cert-env33-c): a path that mkdtemp made */
}

TestSuite(moved_job, .init = make_dir, .fini = remove_dir);

static void make(const char *name)
{
    char path[2 * sizeof(config.save_dir)];
    snprintf(path, sizeof(path), "%s/%s", config.save_dir, name);
    cr_assert_eq(mkdir(path, 0755), 0);
}

static void make_job(const char *name)
{
    char version[2 * CONFIG_NAME];
    make(name);
    snprintf(version, sizeof(version), "%s/v000000000005.t1", name);
    make(version);
}

Test(moved_job, is_found_by_its_derived_name)
{
    struct error err = {0};
    make_job(MOVED);
    cr_assert_eq(moved_job_check(&config, &err), TCK_ERR_EXIST);
    cr_assert_not_null(strstr(err.text, "set job to \"" MOVED "\""), "%s", err.text);
}

Test(moved_job, is_found_under_the_former_default_name)
{
    make_job("default");
    cr_assert_eq(moved_job_check(&config, NULL), TCK_ERR_EXIST);
}

static void note(const char *file, const char *text)
{
    char path[2 * sizeof(config.save_dir)];
    snprintf(path, sizeof(path), "%s/" MOVED "/%s", config.save_dir, file);
    FILE *out = fopen(path, "w");
    cr_assert(out != NULL && fputs(text, out) >= 0 && fclose(out) == 0);
}

/* An agent may still have in memory what it says. */
Test(moved_job, is_found_by_the_note_of_a_commit)
{
    struct error err = {0};
    make(MOVED);
    note("term.1", "{\"term\":1,\"wall_ms\":5,\"committed\":true}");
    note("term.2", "{\"term\":2,\"wall_ms\":6}");
    cr_assert_eq(moved_job_check(&config, &err), TCK_ERR_EXIST);
    cr_assert_not_null(strstr(err.text, "notes of commits of job " MOVED), "%s", err.text);
}

Test(moved_job, is_not_one_that_committed_nothing)
{
    make(MOVED);
    note("term.1", "{\"term\":1,\"wall_ms\":5}");
    cr_assert_eq(moved_job_check(&config, NULL), TCK_OK);
}

/* It may be the only one that has noted a commit. */
Test(moved_job, is_not_excluded_if_a_note_is_damaged)
{
    make(MOVED);
    note("term.1", "{\"term\":1,\"comm#tted\"");
    cr_assert_neq(moved_job_check(&config, NULL), TCK_OK);
}

Test(moved_job, is_not_one_that_was_named_or_has_no_version)
{
    make_job("my-training");
    make_job("my-training-v2");
    make("save-89abcdef");
    make_job(config.job);
    cr_assert_eq(moved_job_check(&config, NULL), TCK_OK);
}

Test(moved_job, does_not_concern_a_job_that_was_named)
{
    make_job(MOVED);
    snprintf(config.job, sizeof(config.job), "mine");
    cr_assert_eq(moved_job_check(&config, NULL), TCK_OK);
}

Test(moved_job, cannot_be_found_where_the_directory_is_gone)
{
    char path[sizeof(config.save_dir)];
    memcpy(path, config.save_dir, sizeof(path));
    snprintf(config.save_dir, sizeof(config.save_dir), "%.64s/gone", path);
    config_job_of(config.save_dir, config.job);
    cr_assert_eq(moved_job_check(&config, NULL), TCK_ERR_NOENT);
    memcpy(config.save_dir, path, sizeof(path));
}

/* SPDX-License-Identifier: Apache-2.0
 * Derived names: of a job from its directory, and of a run from the launcher's environment variables. */
#include "base/config_names.h"
#include <criterion/criterion.h>
#include <string.h>

static const char *job_of(const char *save_dir)
{
    static char out[2][CONFIG_NAME];
    static int turn;
    turn = !turn;
    config_job_of(save_dir, out[turn]);
    return out[turn];
}

Test(config_names, a_job_is_named_after_its_directory)
{
    cr_assert_eq(strncmp(job_of("/scratch/me/gpt2"), "gpt2-", 5), 0, "%s", job_of("/scratch/me/gpt2"));
    cr_assert(name_is_safe(job_of("/scratch/me/gpt2")));
}

Test(config_names, directories_with_equal_last_components_give_two_jobs)
{
    cr_assert_str_neq(job_of("/scratch/a/run"), job_of("/scratch/b/run"));
}

Test(config_names, other_spellings_of_a_path_give_the_same_job)
{
    const char *spellings[] = {"/a/b/run/", "/a//b/run", "/a/./b/run", "/a/c/../b/run", "/a/b/run/."};
    for (size_t i = 0; i < sizeof(spellings) / sizeof(spellings[0]); i++) {
        cr_assert_str_eq(job_of(spellings[i]), job_of("/a/b/run"), "%s", spellings[i]);
    }
}

Test(config_names, odd_directories_give_safe_names)
{
    char longest[CONFIG_PATH];
    memset(longest, 'x', sizeof(longest) - 1);
    longest[0] = '/';
    longest[sizeof(longest) - 1] = '\0';
    const char *odd[] = {"/", "/..", "/.hidden", "/mit leer zeichen", "/\xc3\xa4\xff", longest};
    for (size_t i = 0; i < sizeof(odd) / sizeof(odd[0]); i++) {
        cr_assert(name_is_safe(job_of(odd[i])), "%s: %s", odd[i], job_of(odd[i]));
    }
}

static const char *run_of(const char *torchelastic, const char *job, const char *step)
{
    static char out[2][CONFIG_RUN];
    static int turn;
    turn = !turn;
    config_run_id_of(&(struct run_environment){torchelastic, job, step}, out[turn]);
    return out[turn];
}

Test(config_names, a_run_is_identified_by_torchrun_or_by_a_step_of_slurm)
{
    cr_assert_str_eq(run_of("abc", "17", "0"), "torchelastic:abc");
    cr_assert_str_eq(run_of("none", "17", "0"), "slurm:17.0");
    cr_assert_str_eq(run_of(NULL, "17", "0"), "slurm:17.0");
}

Test(config_names, without_an_id_there_is_no_run)
{
    cr_assert_str_eq(run_of(NULL, NULL, NULL), "");
    cr_assert_str_eq(run_of("none", NULL, NULL), "");
    cr_assert_str_eq(run_of(NULL, "17", NULL), "", "two programs of one allocation would be taken for one run");
}

Test(config_names, long_ids_stay_apart)
{
    char a[400], b[400];
    memset(a, 'r', sizeof(a) - 1);
    memset(b, 'r', sizeof(b) - 1);
    a[sizeof(a) - 1] = b[sizeof(b) - 1] = '\0';
    b[sizeof(b) - 2] = 's';
    cr_assert_str_neq(run_of(a, NULL, NULL), run_of(b, NULL, NULL));
    cr_assert_str_eq(run_of(a, NULL, NULL), run_of(a, NULL, NULL));
}

/* SPDX-License-Identifier: Apache-2.0
 * tierckpt forget: what was saved so far no longer counts. It stays on storage until its directories are deleted by
 * hand. */
#include "base/lock.h"
#include "base/message.h"
#include "base/path.h"
#include "cli/storage.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

/* An agent that has died may be back at once, and its trainers are alive. */
static tck_status_t refuse_if_starting(const struct cli *cli, struct error *err)
{
    char path[3 * CONFIG_PATH];
    snprintf(path, sizeof(path), "%s/%s/%s", cli->config.runtime_dir, cli->config.job, cli->config.node);
    int dir_fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir_fd < 0) {
        return errno == ENOENT ? TCK_OK : path_unopened("runtime directory", path, errno, err);
    }
    bool held = lock_is_held(dir_fd, SUPERVISOR_LOCK_FILE);
    close(dir_fd);
    return held
               ? error_set(err, TCK_ERR_BUSY,
                           "the agent of job %s on node %s does not answer, but its supervisor runs, and trainers may "
                           "be alive: try again when `tierckpt status` shows the agent, or end them and the supervisor",
                           cli->config.job, cli->config.node)
               : TCK_OK;
}

/* A running job would continue from its memory. Without an agent on this node this cannot be checked; in that case
 * the newly claimed term keeps a job elsewhere from publishing. */
static tck_status_t refuse_if_trained(const struct cli *cli, struct error *err)
{
    json_t *answer = NULL;
    tck_status_t asked = control_ask(&cli->config, "status", NULL, CONTROL_MS, &answer, err);
    if (asked != TCK_OK) {
        bool absent = asked == TCK_ERR_NOENT || asked == TCK_ERR_UNREACHABLE;
        return absent ? refuse_if_starting(cli, err) : asked;
    }
    if (flag_of(answer, "awaits_trainers")) {
        json_free(answer);
        return error_set(err, TCK_ERR_BUSY,
                         "the agent of node %s has just been started again, and does not know yet whether trainers of "
                         "job %s are alive: try again in a few seconds",
                         cli->config.node, cli->config.job);
    }
    const json_t *first = json_first(json_get(answer, "trainers"));
    tck_status_t status = TCK_OK;
    if (first != NULL) {
        status =
            error_set(err, TCK_ERR_BUSY,
                      "job %s is running: rank %" PRIu64 " is process %" PRIu64 " on node %s. End its trainers first",
                      cli->config.job, number_of(first, "rank"), number_of(first, "pid"), cli->config.node);
    }
    json_free(answer);
    return status;
}

/* Runs in the process that works on storage: adds the versions as "forgotten", and the last forgotten term as "term".
 */
static tck_status_t forget_versions(const struct cli *cli, struct persistent *persistent, const void *ctx,
                                    json_t *answer, struct error *err)
{
    struct survey survey = {0};
    uint64_t term = 0;
    (void)ctx;
    tck_status_t status = persistent_survey(persistent, &survey, err);
    if (status == TCK_OK && !cli->dry_run) {
        status = persistent_forget(persistent, cli->force, &term, err);
    }
    json_t *list = json_array();
    for (size_t i = 0; i < survey.count; i++) {
        struct version v = survey.candidates[i].which.version;
        char text[48];
        snprintf(text, sizeof(text), "%" PRIu64 ".%" PRIu64, v.term, v.step);
        json_add_str(list, NULL, text);
    }
    survey_free(&survey);
    json_add(answer, "forgotten", list);
    json_add_u64(answer, "term", term);
    return status;
}

static void tell(const struct cli *cli, json_t *answer)
{
    const json_t *forgotten = json_get(answer, "forgotten");
    for (const json_t *version = json_first(forgotten); version != NULL && !cli->json; version = json_next(version)) {
        printf("%s version %s\n", cli->dry_run ? "would forget" : "forgotten:", json_str(version));
    }
    if (!cli->json && !cli->dry_run) {
        const char *archive_dir = cli->config.archive_dir;
        printf("what was saved up to term %" PRIu64
               " no longer counts. It stays in %s/%s%s%s until you delete it; to undo this, "
               "remove the file \"forgotten\" there\n",
               number_of(answer, "term"), cli->config.save_dir, cli->config.job,
               archive_dir[0] != '\0' ? ", and in the archive " : "", archive_dir);
    }
    json_add_bool(answer, "ok", true);
    json_add_bool(answer, "dry_run", cli->dry_run);
    (void)cli_json(cli, answer);
}

int cli_forget(const struct cli *cli)
{
    struct storage_job job = {.work = forget_versions, .use = cli->dry_run ? STORAGE_READ : STORAGE_WRITE};
    json_t *answer = NULL;
    struct error err;
    tck_status_t status = refuse_if_trained(cli, &err);
    if (status == TCK_OK) {
        status = storage_do(cli, &job, &answer, &err);
    }
    if (status != TCK_OK) {
        return cli_fail(cli, &err);
    }
    tell(cli, answer);
    json_free(answer);
    return 0;
}

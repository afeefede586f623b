/* SPDX-License-Identifier: Apache-2.0
 * tierckpt prune: deletes old published versions. */
#include "cli/storage.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

struct pruning {
    uint32_t keep;
    struct version pinned;
};

/* Runs in the process that works on storage: adds the deleted versions as "removed", and the reason why others could
 * not be deleted as "error". */
static tck_status_t prune_versions(const struct cli *cli, struct persistent *persistent, const void *ctx,
                                   json_t *answer, struct error *err)
{
    const struct pruning *pruning = ctx;
    struct published *removed = NULL;
    size_t count = 0;
    tck_status_t status =
        persistent_prune(persistent, pruning->keep, pruning->pinned, cli->dry_run, &removed, &count, err);
    if (status != TCK_OK && removed == NULL) {
        return status;
    }
    json_t *list = json_array();
    for (size_t i = 0; i < count; i++) {
        char text[48];
        snprintf(text, sizeof(text), "%" PRIu64 ".%" PRIu64, removed[i].version.term, removed[i].version.step);
        json_add_str(list, NULL, text);
    }
    free(removed);
    json_add(answer, "removed", list);
    if (status != TCK_OK) {
        json_add_str(answer, "status", status_text(status));
        json_add_str(answer, "error", err->text);
    }
    return TCK_OK;
}

static int tell(const struct cli *cli, json_t *answer)
{
    const char *error = json_str(json_get(answer, "error"));
    const json_t *removed = json_get(answer, "removed");
    for (const json_t *version = json_first(removed); version != NULL && !cli->json; version = json_next(version)) {
        printf("%s version %s\n", cli->dry_run ? "would delete" : "deleted", json_str(version));
    }
    if (!cli->json && json_len(removed) == 0 && error == NULL) {
        printf("nothing to delete\n");
    }
    json_add_bool(answer, "ok", error == NULL);
    json_add_bool(answer, "dry_run", cli->dry_run);
    if (!cli_json(cli, answer) && error != NULL) {
        fprintf(stderr, "tierckpt: %s\n", error);
    }
    return error != NULL ? 1 : 0;
}

/* Asks the agent which version is being drained or restored. Without an agent, nothing is pinned; but an agent that
 * does not answer may be restoring the very version that would be deleted. */
static tck_status_t find_pinned(const struct cli *cli, struct version *out, struct error *err)
{
    json_t *answer = NULL;
    tck_status_t status = control_ask(&cli->config, "status", NULL, CONTROL_MS, &answer, err);
    *out = VERSION_NONE;
    if (status == TCK_ERR_NOENT || status == TCK_ERR_UNREACHABLE) {
        return TCK_OK;
    }
    if (status != TCK_OK) {
        return error_prefix(err, "nothing is deleted, since the agent does not answer which version it needs");
    }
    const json_t *committed = json_get(answer, "committed");
    *out = (struct version){number_of(committed, "term"), number_of(committed, "step")};
    json_free(answer);
    return TCK_OK;
}

int cli_prune(const struct cli *cli)
{
    struct pruning pruning = {.keep = cli->keep_given ? cli->keep : cli->config.max_ckpt_num};
    struct storage_job job = {
        .work = prune_versions, .ctx = &pruning, .use = cli->dry_run ? STORAGE_READ : STORAGE_WRITE};
    json_t *answer = NULL;
    struct error err;
    if (pruning.keep == 0) {
        (void)error_set(&err, TCK_ERR_CONFIG, "max_ckpt_num is 0, which keeps all versions: give --keep N");
        return cli_fail(cli, &err);
    }
    tck_status_t status = find_pinned(cli, &pruning.pinned, &err);
    if (status == TCK_OK) {
        status = storage_do(cli, &job, &answer, &err);
    }
    if (status == TCK_ERR_NOENT) {
        answer = json_object();
        json_add(answer, "removed", json_array());
    } else if (status != TCK_OK) {
        return cli_fail(cli, &err);
    }
    int result = tell(cli, answer);
    json_free(answer);
    return result;
}

/* SPDX-License-Identifier: Apache-2.0
 * tierckpt ls, show, plan: the versions, their holders, and what a recovery would do. */
#include "cli/cli.h"
#include "cli/storage.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- ls ------------------------------------------------------------------------------------------------------ */

static void add_place(const struct cli *cli, json_t *item, const struct published *which)
{
    bool archive = cli->config.archive_dir[0] != '\0';
    json_add_bool(item, "from_load_dir", which->from_second && !archive);
    if (archive) {
        json_add_bool(item, "from_archive_dir", which->from_second);
    }
}

static json_t *row_json(const struct cli *cli, struct persistent *persistent, const struct published *of)
{
    json_t *item = json_object();
    json_t *version = json_object();
    struct manifest manifest;
    struct error err;
    uint64_t bytes;
    json_add_u64(version, "term", of->version.term);
    json_add_u64(version, "step", of->version.step);
    json_add(item, "version", version);
    add_place(cli, item, of);
    if (persistent_manifest(persistent, of, &manifest, &err) == TCK_OK) {
        bytes = manifest.metadata.bytes + manifest.index.bytes;
        for (size_t i = 0; i < manifest.file_count; i++) {
            bytes += manifest.files[i].bytes;
        }
        json_add_u64(item, "wall_ms", manifest.wall_ms);
        json_add_u64(item, "bytes", bytes);
        json_add_u64(item, "files", manifest.file_count);
        manifest_free(&manifest);
    } else {
        json_add_str(item, "error", err.text);
    }
    return item;
}

static json_t *unfit_json(const struct cli *cli, const struct candidate *candidate)
{
    static const char *const standings[] = {[STANDING_GOOD] = "good",
                                            [STANDING_UNREADABLE] = "unreadable",
                                            [STANDING_FOREIGN] = "of another format",
                                            [STANDING_DAMAGED] = "damaged"};
    json_t *item = json_object();
    json_t *version = json_object();
    json_add_u64(version, "term", candidate->which.version.term);
    json_add_u64(version, "step", candidate->which.version.step);
    json_add(item, "version", version);
    add_place(cli, item, &candidate->which);
    json_add_str(item, "standing", standings[candidate->standing]);
    json_add_str(item, "why", candidate->why);
    return item;
}

/* Runs in the process that reads storage. */
static tck_status_t survey_versions(const struct cli *cli, struct persistent *persistent, const void *ctx,
                                    json_t *answer, struct error *err)
{
    struct survey survey = {0};
    (void)ctx;
    tck_status_t status = persistent_survey(persistent, &survey, err);
    if (status != TCK_OK) {
        return status;
    }
    json_t *published = json_array(), *unfit = json_array();
    for (size_t i = 0; i < survey.count; i++) {
        const struct candidate *candidate = &survey.candidates[i];
        bool good = candidate->standing == STANDING_GOOD;
        json_add(good ? published : unfit, NULL,
                 good ? row_json(cli, persistent, &candidate->which) : unfit_json(cli, candidate));
    }
    json_add_bool(answer, "ok", json_len(unfit) == 0 && survey.unread.code == TCK_OK);
    if (survey.unread.code != TCK_OK) {
        json_add_str(answer, "archive_error", survey.unread.text);
    }
    json_add(answer, "published", published);
    json_add(answer, "unfit", unfit);
    survey_free(&survey);
    return TCK_OK;
}

/* Answers the arrays "published" and "unfit", both empty for a job that has published nothing, and "ok". */
static tck_status_t find_published(const struct cli *cli, json_t **answer_out, struct error *err)
{
    static const struct storage_job job = {.work = survey_versions, .use = STORAGE_READ};
    tck_status_t status = storage_do(cli, &job, answer_out, err);
    if (status != TCK_ERR_NOENT) {
        return status;
    }
    *answer_out = json_object();
    json_add(*answer_out, "published", json_array());
    json_add(*answer_out, "unfit", json_array());
    json_add_bool(*answer_out, "ok", true);
    return TCK_OK;
}

static void print_rows(const json_t *versions)
{
    for (const json_t *row = json_first(versions); row != NULL; row = json_next(row)) {
        char version[48], bytes[32], when[32];
        text_version(json_get(row, "version"), version, sizeof(version));
        text_bytes(number_of(row, "bytes"), bytes, sizeof(bytes));
        text_time(number_of(row, "wall_ms"), when, sizeof(when));
        printf("  %-14s %-10s %-20s %" PRIu64 " shards, %s on this node\n", version, text_of(row, "state"), when,
               number_of(row, "shards"), bytes);
    }
}

static void print_published(const json_t *published)
{
    for (const json_t *item = json_first(published); item != NULL; item = json_next(item)) {
        char version[48], bytes[32], when[32];
        text_version(json_get(item, "version"), version, sizeof(version));
        text_bytes(number_of(item, "bytes"), bytes, sizeof(bytes));
        text_time(number_of(item, "wall_ms"), when, sizeof(when));
        if (json_get(item, "error") != NULL) {
            printf("  %-14s UNREADABLE: %s\n", version, text_of(item, "error"));
        } else {
            printf("  %-14s %-20s %s in %" PRIu64 " files%s\n", version, when, bytes, number_of(item, "files"),
                   flag_of(item, "from_load_dir")      ? " (load_dir)"
                   : flag_of(item, "from_archive_dir") ? " (archive_dir)"
                                                       : "");
        }
    }
}

static void print_unfit(const json_t *unfit)
{
    for (const json_t *item = json_first(unfit); item != NULL; item = json_next(item)) {
        char version[48];
        text_version(json_get(item, "version"), version, sizeof(version));
        printf("  %-14s %s: %s\n", version, text_of(item, "standing"), text_of(item, "why"));
    }
}

static void print_versions(const struct cli *cli, const json_t *answer)
{
    const json_t *memory = json_get(answer, "memory"), *published = json_get(answer, "published");
    if (json_len(memory) + json_len(published) + json_len(json_get(answer, "unfit")) == 0) {
        printf("no versions of job %s\n", cli->config.job);
    }
    if (memory == NULL) {
        printf("memory: no agent answers on this node\n");
    } else if (json_len(memory) > 0) {
        printf("memory (as node %s knows it):\n", cli->config.node);
        print_rows(memory);
    }
    printf("published below %s/%s:%s\n", cli->config.save_dir, cli->config.job,
           json_len(published) == 0 ? " none" : "");
    print_published(published);
    if (json_len(json_get(answer, "unfit")) > 0) {
        printf("present, but not restorable now:\n");
        print_unfit(json_get(answer, "unfit"));
    }
    if (json_get(answer, "archive_error") != NULL) {
        printf("WARNING: the archive may have others, and cannot be read: %s\n", text_of(answer, "archive_error"));
    }
}

/* A deep copy. */
static json_t *copy_of(const json_t *json)
{
    char *text = json != NULL ? json_print(json, false) : NULL;
    json_t *copy = NULL;
    struct error err;
    if (text == NULL || json_parse(text, strlen(text), &copy, &err) != TCK_OK) {
        copy = json_array();
    }
    free(text);
    return copy;
}

int cli_ls(const struct cli *cli)
{
    struct error err;
    json_t *agent = NULL;
    json_t *answer = NULL;
    if (find_published(cli, &answer, &err) != TCK_OK) {
        return cli_fail(cli, &err);
    }
    bool all_good = flag_of(answer, "ok");
    if (control_ask(&cli->config, "catalog", NULL, CONTROL_MS, &agent, &err) == TCK_OK && flag_of(agent, "ok")) {
        json_add(answer, "memory", copy_of(json_get(agent, "versions")));
    }
    if (!cli_json(cli, answer)) {
        print_versions(cli, answer);
    }
    json_free(agent);
    json_free(answer);
    return all_good ? 0 : 1;
}

/* ---- show ---------------------------------------------------------------------------------------------------- */

static bool parse_number(const char *text, char end, uint64_t *out, const char **rest)
{
    char *stop;
    *out = strtoull(text, &stop, 10);
    *rest = *stop == '\0' ? stop : stop + 1;
    return *text >= '0' && *text <= '9' && *stop == end;
}

/* "TERM.STEP" or "STEP" (term 0: the newest term that has it). */
static bool parse_version(const char *text, struct version *out)
{
    const char *rest;
    if (parse_number(text, '.', &out->term, &rest)) {
        return parse_number(rest, '\0', &out->step, &rest);
    }
    out->term = 0;
    return parse_number(text, '\0', &out->step, &rest);
}

static uint64_t term_of_step(const struct cli *cli, uint64_t step)
{
    json_t *answer = NULL;
    struct error err;
    uint64_t term = 0;
    if (control_ask(&cli->config, "catalog", NULL, CONTROL_MS, &answer, &err) != TCK_OK) {
        return 0;
    }
    for (const json_t *row = json_first(json_get(answer, "versions")); row != NULL; row = json_next(row)) {
        const json_t *version = json_get(row, "version");
        if (number_of(version, "step") == step && number_of(version, "term") > term) {
            term = number_of(version, "term");
        }
    }
    json_free(answer);
    return term;
}

static void print_shards(const json_t *answer)
{
    for (const json_t *s = json_first(json_get(answer, "shards")); s != NULL; s = json_next(s)) {
        char bytes[32];
        text_bytes(number_of(s, "bytes"), bytes, sizeof(bytes));
        printf("  %s  %-10s root %s  held by", text_of(s, "shard"), bytes, text_of(s, "root"));
        for (const json_t *h = json_first(json_get(s, "holders")); h != NULL; h = json_next(h)) {
            printf(" %s", json_str(h));
        }
        printf("\n");
    }
}

static void print_slots(const json_t *segment)
{
    for (const json_t *slot = json_first(json_get(segment, "slots")); slot != NULL; slot = json_next(slot)) {
        char version[48];
        text_version(json_get(slot, "version"), version, sizeof(version));
        if (strcmp(text_of(slot, "state"), "free") != 0) {
            printf("  %s %s", version, flag_of(slot, "committed") ? "committed" : text_of(slot, "state"));
        }
    }
}

/* Shows what this node's memory holds, from its headers. */
static int show_memory(const struct cli *cli)
{
    json_t *answer = cli_ask(cli, "ls", NULL);
    if (answer == NULL) {
        return 1;
    }
    if (!cli_json(cli, answer)) {
        for (const json_t *s = json_first(json_get(answer, "segments")); s != NULL; s = json_next(s)) {
            char bytes[32];
            text_bytes(number_of(s, "bytes"), bytes, sizeof(bytes));
            printf("%s  %-10s", text_of(s, "shard"), bytes);
            print_slots(s);
            printf("\n");
        }
    }
    json_free(answer);
    return 0;
}

int cli_show(const struct cli *cli)
{
    struct version v;
    if (cli->argc == 0) {
        return show_memory(cli);
    }
    if (cli->argc != 1 || !parse_version(cli->argv[0], &v)) {
        fprintf(stderr, "usage: tierckpt show [STEP | TERM.STEP]\n");
        return 2;
    }
    v.term = v.term ? v.term : term_of_step(cli, v.step);
    json_t *request = json_object();
    json_add_u64(request, "term", v.term);
    json_add_u64(request, "step", v.step);
    json_t *answer = NULL;
    struct error err;
    if (control_ask(&cli->config, "show", request, CONTROL_MS, &answer, &err) != TCK_OK) {
        return cli_fail(cli, &err);
    }
    if (!flag_of(answer, "ok") || json_len(json_get(answer, "shards")) == 0) {
        (void)error_set(&err, TCK_ERR_NOENT, "node %s knows no version %s: %s", cli->config.node, cli->argv[0],
                        text_of(answer, "error"));
        json_free(answer);
        return cli_fail(cli, &err);
    }
    if (!cli_json(cli, answer)) {
        printf("version %" PRIu64 ".%" PRIu64 " on node %s:\n", v.term, v.step, cli->config.node);
        print_shards(answer);
    }
    json_free(answer);
    return 0;
}

/* ---- plan ---------------------------------------------------------------------------------------------------- */

static void print_actions(const json_t *plan)
{
    for (const json_t *a = json_first(json_get(plan, "actions")); a != NULL; a = json_next(a)) {
        char bytes[32];
        text_bytes(number_of(a, "bytes"), bytes, sizeof(bytes));
        printf("  shard %s  for %-16s from %-8s %-16s %10s  %s\n", text_of(a, "shard"), text_of(a, "node"),
               text_of(a, "source"), text_of(a, "from"), bytes, text_of(a, "for"));
    }
}

static void print_passed(const json_t *plan)
{
    for (const json_t *p = json_first(json_get(plan, "passed_over")); p != NULL; p = json_next(p)) {
        char version[48];
        text_version(json_get(p, "version"), version, sizeof(version));
        if (flag_of(p, "given_up")) {
            printf("  passed over %s: restored too often without a commit after it\n", version);
        } else if (flag_of(p, "other_layout")) {
            printf("  passed over %s: it has another layout\n", version);
        } else {
            printf("  passed over %s: %" PRIu64 " shards have no copy\n", version, number_of(p, "missing_shards"));
        }
    }
}

int cli_plan(const struct cli *cli)
{
    json_t *request = json_object();
    if (cli->step != TCK_NEWEST) {
        json_add_u64(request, "step", cli->step);
    }
    json_t *answer = NULL;
    struct error err;
    if (control_ask(&cli->config, "plan", request, CONTROL_MS, &answer, &err) != TCK_OK) {
        return cli_fail(cli, &err);
    }
    if (!flag_of(answer, "ok")) {
        (void)error_set(&err, TCK_ERR_INVAL, "%s", text_of(answer, "error"));
        json_free(answer);
        return cli_fail(cli, &err);
    }
    const json_t *plan = json_get(answer, "plan");
    const json_t *resharded = json_get(plan, "resharded"); /* published with another layout, which needs no actions */
    const json_t *taken = resharded != NULL ? resharded : json_get(plan, "version");
    bool restorable = number_of(taken, "term") > 0;
    if (!cli_json(cli, answer)) {
        char version[48];
        text_version(taken, version, sizeof(version));
        printf(restorable ? "a recovery would restore version %s. %s\n" : "nothing can be restored (%s): %s\n", version,
               text_of(plan, "reason"));
        print_passed(plan);
        print_actions(plan);
    }
    json_free(answer);
    return restorable ? 0 : 1;
}

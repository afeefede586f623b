/* SPDX-License-Identifier: Apache-2.0
 * tierckpt verify: checks the digests of published versions, and asks the agent to check those of memory. */
#include "cli/storage.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct verdict {
    json_t *bad; /* texts */
    uint64_t versions, slots;
    bool memory_wanted, memory_asked;
};

/* ---- in the process that reads storage ------------------------------------------------------------------------- */

/* Retention may delete a version while it is being read, which is no damage. */
static bool still_listed(struct persistent *persistent, const struct published *which)
{
    struct published *list = NULL;
    size_t count = 0;
    struct error err;
    bool found = persistent_list_without_archive(persistent, &list, &count, &err) != TCK_OK;
    for (size_t i = 0; !found && i < count; i++) {
        found = version_is(list[i].version, which->version);
    }
    free(list);
    return found;
}

static void add_bad(void *ctx, const char *why)
{
    json_add_str(ctx, NULL, why);
}

/* Whether it is still there, or that cannot be seen. */
static bool is_still_there(struct persistent *persistent, const struct published *which)
{
    struct manifest manifest;
    struct error ignored;
    tck_status_t status = persistent_manifest(persistent, which, &manifest, &ignored);
    if (status == TCK_OK) {
        manifest_free(&manifest);
    }
    return status != TCK_ERR_NOENT;
}

static void add_bad_of_archive(const struct cli *cli, json_t *bad, const char *version, const char *why)
{
    char text[CONFIG_PATH + ERROR_TEXT_BYTES + 64];
    snprintf(text, sizeof(text), "archive_dir %s: %s%s%s", cli->config.archive_dir, version,
             version[0] != '\0' ? ": " : "", why);
    json_add_str(bad, NULL, text);
}

/* Reads the copies in archive_dir, too, those of versions that save_dir has as well; adds their number. */
static void verify_archive(const struct cli *cli, struct persistent *persistent, json_t *bad, uint64_t *versions)
{
    struct survey survey = {0};
    struct error why;
    if (persistent_survey_archive(persistent, &survey, &why) != TCK_OK) {
        json_add_str(bad, NULL, why.text);
        return;
    }
    for (size_t i = 0; i < survey.count; i++) {
        const struct candidate *c = &survey.candidates[i];
        char name[48];
        snprintf(name, sizeof(name), "version %" PRIu64 ".%" PRIu64, c->which.version.term, c->which.version.step);
        if (c->standing != STANDING_GOOD) {
            add_bad_of_archive(cli, bad, name, c->why);
        } else if (persistent_verify(persistent, &c->which, &why) != TCK_OK && is_still_there(persistent, &c->which)) {
            add_bad_of_archive(cli, bad, "", why.text);
        }
    }
    *versions += survey.count;
    survey_free(&survey);
}

/* Adds the texts of all damage as "bad", and the number of versions read as "versions". */
static tck_status_t verify_versions(const struct cli *cli, struct persistent *persistent, const void *ctx,
                                    json_t *answer, struct error *err)
{
    struct published *list = NULL;
    size_t count = 0;
    struct error why;
    (void)ctx;
    tck_status_t status = persistent_list_without_archive(persistent, &list, &count, err);
    if (status != TCK_OK) {
        return status;
    }
    json_t *bad = json_array();
    uint64_t versions = count;
    for (size_t i = 0; i < count; i++) {
        if (persistent_verify(persistent, &list[i], &why) != TCK_OK && still_listed(persistent, &list[i])) {
            json_add_str(bad, NULL, why.text);
        }
    }
    if (persistent_list_invalid(persistent, add_bad, bad, &why) != TCK_OK) {
        json_add_str(bad, NULL, why.text);
    }
    free(list);
    if (cli->config.archive_dir[0] != '\0') {
        verify_archive(cli, persistent, bad, &versions);
    }
    json_add(answer, "bad", bad);
    json_add_u64(answer, "versions", versions);
    return TCK_OK;
}

/* ---- in the command -------------------------------------------------------------------------------------------- */

static void add_all_bad(struct verdict *verdict, const json_t *texts)
{
    for (const json_t *b = json_first(texts); b != NULL; b = json_next(b)) {
        json_add_str(verdict->bad, NULL, json_str(b));
    }
}

static void verify_published(const struct cli *cli, struct verdict *verdict)
{
    static const struct storage_job job = {.work = verify_versions, .use = STORAGE_READ};
    json_t *answer = NULL;
    struct error err;
    tck_status_t status = storage_do(cli, &job, &answer, &err);
    if (status == TCK_OK) {
        verdict->versions = number_of(answer, "versions");
        add_all_bad(verdict, json_get(answer, "bad"));
    } else if (status != TCK_ERR_NOENT) {
        json_add_str(verdict->bad, NULL, err.text);
    }
    json_free(answer);
}

/* must: it is an error if there is no agent. */
static void verify_memory(const struct cli *cli, bool must, struct verdict *verdict)
{
    json_t *answer = NULL;
    struct error err;
    tck_status_t status = control_ask(&cli->config, "verify", NULL, CONTROL_MS, &answer, &err);
    if (status != TCK_OK) {
        bool absent = status == TCK_ERR_NOENT || status == TCK_ERR_UNREACHABLE;
        if (!absent || must) {
            json_add_str(verdict->bad, NULL, err.text);
        }
        return; /* no agent: no memory tier here to verify */
    }
    verdict->memory_asked = true;
    verdict->slots = number_of(answer, "slots_checked");
    add_all_bad(verdict, json_get(answer, "bad"));
    if (json_str(json_get(answer, "error")) != NULL) {
        json_add_str(verdict->bad, NULL, json_str(json_get(answer, "error")));
    }
    json_free(answer);
}

static void print_verdict(const struct verdict *v)
{
    if (v->memory_asked) {
        printf("memory: %" PRIu64 " slots checked\n", v->slots);
    } else if (v->memory_wanted && json_len(v->bad) == 0) {
        printf("memory: no agent answers on this node\n");
    }
    printf("published: %" PRIu64 " versions checked\n", v->versions);
    for (const json_t *b = json_first(v->bad); b != NULL; b = json_next(b)) {
        printf("BAD: %s\n", json_str(b));
    }
    printf(json_len(v->bad) == 0 ? "all digests match\n" : "damage was found: each line above is one lost copy\n");
}

int cli_verify(const struct cli *cli)
{
    const char *what = cli->argc > 0 ? cli->argv[0] : "all";
    struct verdict v = {.bad = json_array()};
    if (strcmp(what, "all") != 0 && strcmp(what, "memory") != 0 && strcmp(what, "published") != 0) {
        fprintf(stderr, "usage: tierckpt verify [memory | published]\n");
        json_free(v.bad);
        return 2;
    }
    v.memory_wanted = strcmp(what, "published") != 0;
    if (v.memory_wanted) {
        verify_memory(cli, strcmp(what, "memory") == 0, &v);
    }
    if (strcmp(what, "memory") != 0) {
        verify_published(cli, &v);
    }
    int status = json_len(v.bad) == 0 ? 0 : 1;
    json_t *answer = json_object();
    json_add_bool(answer, "ok", status == 0);
    json_add_u64(answer, "slots_checked", v.slots);
    json_add_u64(answer, "versions_checked", v.versions);
    if (!cli->json) {
        print_verdict(&v);
    }
    json_add(answer, "bad", v.bad);
    (void)cli_json(cli, answer);
    json_free(answer);
    return status;
}

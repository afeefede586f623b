/* SPDX-License-Identifier: Apache-2.0
 * tierckpt verify: checks the digests of published versions, and asks the agent to check those of memory. What is
 * damaged and what could not be read are kept apart: only the first proves that a copy is lost. */
#include "cli/storage.h"

#include "tiers/names.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct findings {
    json_t *bad;       /* texts: proven damage */
    json_t *unchecked; /* texts: what could not be read, or was not found */
};

struct verdict {
    struct findings found;
    uint64_t versions, slots;
    bool memory_asked, memory_absent, published_wanted;
};

static bool is_good(const struct verdict *v)
{
    return json_len(v->found.bad) + json_len(v->found.unchecked) == 0;
}

static struct findings findings_new(void)
{
    return (struct findings){.bad = json_array(), .unchecked = json_array()};
}

/* ---- in the process that reads storage ------------------------------------------------------------------------- */

/* The versions of one place. */
struct place {
    struct persistent *persistent;
    char prefix[CONFIG_PATH + 16]; /* of what is found there */
    bool second;
    struct findings found;
    uint64_t versions; /* whose bytes were read, or which are damaged */
};

static void note(struct place *place, bool damage, const char *why)
{
    char text[sizeof(place->prefix) + ERROR_TEXT_BYTES + DIR_NAME_MAX];
    snprintf(text, sizeof(text), "%s%s", place->prefix, why);
    json_add_str(damage ? place->found.bad : place->found.unchecked, NULL, text);
    place->versions += damage;
}

/* TCK_ERR_NOENT: it was deleted. Another error: that cannot be seen. */
static tck_status_t look_for(struct persistent *persistent, const struct published *which)
{
    struct manifest manifest;
    struct error ignored;
    tck_status_t status = persistent_manifest(persistent, which, &manifest, &ignored);
    if (status == TCK_OK) {
        manifest_free(&manifest);
    }
    return status;
}

/* Retention may delete a version while it is being read, which is no damage. */
static void verify_good(struct place *place, const struct published *which)
{
    struct error why;
    tck_status_t status = persistent_verify(place->persistent, which, &why);
    if (status == TCK_OK) {
        place->versions++;
        return;
    }
    tck_status_t left = look_for(place->persistent, which);
    if (left != TCK_ERR_NOENT) {
        note(place, status == TCK_ERR_CORRUPT || (status == TCK_ERR_NOENT && left == TCK_OK), why.text);
    }
}

static void note_unfit(struct place *place, const struct candidate *candidate)
{
    char name[DIR_NAME_MAX], text[ERROR_TEXT_BYTES + DIR_NAME_MAX];
    version_dir_name(candidate->which.version, name);
    snprintf(text, sizeof(text), "%s: %s", name, candidate->why);
    note(place, candidate->standing == STANDING_DAMAGED, text);
}

static void verify_place(struct place *place, const struct survey *survey)
{
    for (size_t i = 0; i < survey->count; i++) {
        const struct candidate *c = &survey->candidates[i];
        if (c->which.from_second != place->second) {
            continue;
        }
        if (c->standing == STANDING_GOOD) {
            verify_good(place, &c->which);
        } else {
            note_unfit(place, c);
        }
    }
}

/* Reads all copies in archive_dir, also those of versions that save_dir has; of load_dir only what save_dir lacks. */
static void verify_second(const struct cli *cli, struct place *place)
{
    bool archive = cli->config.archive_dir[0] != '\0';
    struct survey survey = {0};
    struct error why;
    tck_status_t status = archive ? persistent_survey_archive(place->persistent, &survey, &why)
                                  : persistent_survey(place->persistent, &survey, &why);
    if (status != TCK_OK) {
        json_add_str(place->found.unchecked, NULL, why.text);
        return;
    }
    snprintf(place->prefix, sizeof(place->prefix), "%s %s: ", archive ? "archive_dir" : "load_dir",
             config_second_dir(&cli->config));
    place->second = true;
    verify_place(place, &survey);
    survey_free(&survey);
}

/* An archive only has what was published in save_dir. A load_dir may be all that a new job has. */
static void check_save_dir_has_job(const struct cli *cli, struct place *place)
{
    if (cli->config.archive_dir[0] != '\0' && !persistent_is_in_save_dir(place->persistent)) {
        char text[2 * CONFIG_PATH + 256];
        snprintf(text, sizeof(text),
                 "no version was found in save_dir %s, which has nothing of job %s, though archive_dir has: correct "
                 "the path, or mount the file system that belongs there",
                 cli->config.save_dir, cli->config.job);
        json_add_str(place->found.unchecked, NULL, text);
    }
}

static tck_status_t verify_versions(const struct cli *cli, struct persistent *persistent, const void *ctx,
                                    json_t *answer, struct error *err)
{
    struct place place = {.persistent = persistent};
    struct survey survey = {0};
    (void)ctx;
    tck_status_t status = persistent_survey_save_dir(persistent, &survey, err);
    if (status != TCK_OK) {
        return status;
    }
    place.found = findings_new();
    verify_place(&place, &survey);
    survey_free(&survey);
    check_save_dir_has_job(cli, &place);
    if (config_second_dir(&cli->config)[0] != '\0') {
        verify_second(cli, &place);
    }
    json_add(answer, "bad", place.found.bad);
    json_add(answer, "unchecked", place.found.unchecked);
    json_add_u64(answer, "versions", place.versions);
    return TCK_OK;
}

/* ---- in the command -------------------------------------------------------------------------------------------- */

static void add_all(json_t *to, const json_t *texts)
{
    for (const json_t *text = json_first(texts); text != NULL; text = json_next(text)) {
        json_add_str(to, NULL, json_str(text));
    }
}

static void verify_published(const struct cli *cli, struct operation_metrics *metrics, struct verdict *verdict)
{
    const struct storage_job job = {.work = verify_versions, .use = STORAGE_READ, .metrics = metrics};
    json_t *answer = NULL;
    struct error err;
    verdict->published_wanted = true;
    tck_status_t status = storage_do(cli, &job, &answer, &err);
    if (status == TCK_OK) {
        verdict->versions = number_of(answer, "versions");
        add_all(verdict->found.bad, json_get(answer, "bad"));
        add_all(verdict->found.unchecked, json_get(answer, "unchecked"));
    } else {
        char text[sizeof(err.text) + 160];
        snprintf(text, sizeof(text),
                 status == TCK_ERR_NOENT ? "no version was found: %s: correct job or save_dir, or "
                                           "mount the file system that belongs there"
                                         : "%s",
                 err.text);
        json_add_str(verdict->found.unchecked, NULL, text);
    }
    json_free(answer);
}

/* must: a missing agent is an error. */
static void verify_memory(const struct cli *cli, bool must, struct verdict *verdict)
{
    json_t *answer = NULL;
    struct error err;
    tck_status_t status = control_ask(&cli->config, "verify", NULL, CONTROL_MS, &answer, &err);
    if ((status == TCK_ERR_NOENT || status == TCK_ERR_UNREACHABLE) && !must) {
        verdict->memory_absent = true; /* there is no memory here to verify */
        return;
    }
    if (status != TCK_OK) {
        json_add_str(verdict->found.unchecked, NULL, err.text);
        return;
    }
    verdict->memory_asked = true;
    verdict->slots = number_of(answer, "slots_checked");
    add_all(verdict->found.bad, json_get(answer, "bad"));
    if (json_str(json_get(answer, "error")) != NULL) {
        json_add_str(verdict->found.unchecked, NULL, json_str(json_get(answer, "error")));
    }
    json_free(answer);
}

static const char *conclusion(const struct verdict *v)
{
    bool bad = json_len(v->found.bad) > 0, unchecked = json_len(v->found.unchecked) > 0;
    if (bad && unchecked) {
        return "damage was found: each line with BAD is one lost copy. Lines with UNCHECKED name what could not be "
               "checked";
    }
    if (unchecked) {
        return "not everything could be checked: each line above says what, and why";
    }
    if (bad) {
        return "damage was found: each line above is one lost copy";
    }
    return v->versions + v->slots == 0 ? "there was nothing to check" : "all digests match";
}

static void print_verdict(const struct cli *cli, const struct verdict *v)
{
    if (v->memory_asked) {
        printf("memory: %" PRIu64 " slots checked\n", v->slots);
    } else if (v->memory_absent) {
        printf("memory: no agent answers on this node\n");
    }
    bool none = v->versions == 0 && json_len(v->found.unchecked) == 0;
    if (v->published_wanted && none) {
        printf("published: no version is published yet below %s/%s\n", cli->config.save_dir, cli->config.job);
    } else if (v->published_wanted) {
        printf("published: %" PRIu64 " versions checked\n", v->versions);
    }
    for (const json_t *b = json_first(v->found.bad); b != NULL; b = json_next(b)) {
        printf("BAD: %s\n", json_str(b));
    }
    for (const json_t *u = json_first(v->found.unchecked); u != NULL; u = json_next(u)) {
        printf("UNCHECKED: %s\n", json_str(u));
    }
    printf("%s\n", conclusion(v));
}

/* Takes over what was found. */
static void answer_verdict(const struct cli *cli, const struct verdict *v)
{
    json_t *answer = json_object();
    json_add_bool(answer, "ok", is_good(v));
    json_add_u64(answer, "slots_checked", v->slots);
    json_add_u64(answer, "versions_checked", v->versions);
    if (!cli->json) {
        print_verdict(cli, v);
    }
    json_add(answer, "bad", v->found.bad);
    json_add(answer, "unchecked", v->found.unchecked);
    (void)cli_json(cli, answer);
    json_free(answer);
}

static void end_metrics(struct operation_metrics *metrics, const struct verdict *v)
{
    const struct operation_outcome outcome = {.values = {[OUTCOME_GOOD] = is_good(v),
                                                         [OUTCOME_BAD] = json_len(v->found.bad),
                                                         [OUTCOME_UNCHECKED] = json_len(v->found.unchecked),
                                                         [OUTCOME_VERSIONS] = v->versions,
                                                         [OUTCOME_SLOTS] = v->slots}};
    operation_metrics_end(metrics, &outcome);
}

int cli_verify(const struct cli *cli)
{
    const char *what = cli->argc > 0 ? cli->argv[0] : "all";
    if (strcmp(what, "all") != 0 && strcmp(what, "memory") != 0 && strcmp(what, "published") != 0) {
        fprintf(stderr, "usage: tierckpt verify [memory | published]\n");
        return 2;
    }
    struct operation_metrics metrics;
    struct error err;
    if (operation_metrics_begin(cli, &metrics, &err) != TCK_OK) {
        return cli_fail(cli, &err);
    }
    struct verdict v = {.found = findings_new()};
    if (strcmp(what, "published") != 0) {
        verify_memory(cli, strcmp(what, "memory") == 0, &v);
    }
    if (strcmp(what, "memory") != 0) {
        verify_published(cli, &metrics, &v);
    }
    bool good = is_good(&v);
    end_metrics(&metrics, &v);
    answer_verdict(cli, &v);
    return good ? 0 : 1;
}

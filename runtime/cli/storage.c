/* SPDX-License-Identifier: Apache-2.0
 * tierckpt verify and prune: published versions, and what the agent says of memory. */
#include "cli/storage.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

tck_status_t storage_open(const struct cli *cli, struct storage *out, struct error *err)
{
    char dir[2 * CONFIG_PATH];
    memset(out, 0, sizeof *out);
    snprintf(dir, sizeof dir, "%s/%s", cli->config.save_dir, cli->config.job);
    if (access(dir, F_OK) != 0) {
        return error_set(err, TCK_ERR_NOENT, "job %s has nothing below %s", cli->config.job, cli->config.save_dir);
    }
    tck_status_t status = loop_new(&out->loop, err);
    if (status == TCK_OK) {
        status = pool_new(out->loop, 2, &out->pool, err);
    }
    struct persistent_setup setup = {.loop = out->loop, .pool = out->pool, .config = &cli->config};
    return status == TCK_OK ? persistent_new(&setup, &out->persistent, err) : status;
}

tck_status_t storage_list(struct storage *storage, struct published **out, size_t *count_out, struct error *err)
{
    return persistent_list(storage->persistent, out, count_out, err);
}

void storage_close(struct storage *storage)
{
    if (storage->persistent) {
        persistent_free(storage->persistent);
    }
    if (storage->pool) {
        pool_free(storage->pool);
    }
    if (storage->loop) {
        loop_free(storage->loop);
    }
    memset(storage, 0, sizeof *storage);
}

/* ---- verify -------------------------------------------------------------------------------------------------- */

struct verdict {
    json_t *bad; /* texts */
    uint64_t versions, slots;
    bool memory_asked;
};

/* Retention may take a version away while it is being read: that is no damage. */
static bool still_listed(struct storage *storage, const struct published *which)
{
    struct published *list = NULL;
    size_t count = 0;
    struct error err;
    bool found = storage_list(storage, &list, &count, &err) != TCK_OK;
    for (size_t i = 0; !found && i < count; i++) {
        found = version_is(list[i].version, which->version);
    }
    free(list);
    return found;
}

static void add_bad(void *ctx, const char *why)
{
    struct verdict *verdict = ctx;
    json_add_str(verdict->bad, NULL, why);
}

static void verify_published(const struct cli *cli, struct verdict *verdict)
{
    struct storage storage;
    struct published *list = NULL;
    size_t count = 0;
    struct error err;
    tck_status_t status = storage_open(cli, &storage, &err);
    if (status == TCK_OK) {
        status = storage_list(&storage, &list, &count, &err);
    }
    if (status != TCK_OK && status != TCK_ERR_NOENT) {
        json_add_str(verdict->bad, NULL, err.text);
    }
    for (size_t i = 0; i < count; i++) {
        verdict->versions++;
        if (persistent_verify(storage.persistent, &list[i], &err) != TCK_OK && still_listed(&storage, &list[i])) {
            json_add_str(verdict->bad, NULL, err.text);
        }
    }
    if (status == TCK_OK && persistent_list_invalid(storage.persistent, add_bad, verdict, &err) != TCK_OK) {
        json_add_str(verdict->bad, NULL, err.text);
    }
    free(list);
    storage_close(&storage);
}

/* must: not only if there is an agent. */
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
    for (const json_t *b = json_first(json_get(answer, "bad")); b; b = json_next(b)) {
        json_add_str(verdict->bad, NULL, json_str(b));
    }
    if (json_str(json_get(answer, "error"))) {
        json_add_str(verdict->bad, NULL, json_str(json_get(answer, "error")));
    }
    json_free(answer);
}

static void print_verdict(const struct verdict *v)
{
    if (v->memory_asked) {
        printf("memory: %llu slots checked\n", (unsigned long long)v->slots);
    } else if (json_len(v->bad) == 0) {
        printf("memory: no agent answers on this node\n");
    }
    printf("published: %llu versions checked\n", (unsigned long long)v->versions);
    for (const json_t *b = json_first(v->bad); b; b = json_next(b)) {
        printf("BAD: %s\n", json_str(b));
    }
    printf(json_len(v->bad) == 0 ? "all digests match\n"
                                 : "damage was found: each line above is the loss of one copy\n");
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
    if (strcmp(what, "published") != 0) {
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

/* ---- prune --------------------------------------------------------------------------------------------------- */

static void tell_pruned(const struct cli *cli, const struct published *removed, size_t count)
{
    json_t *answer = json_object();
    json_t *list = json_array();
    for (size_t i = 0; i < count; i++) {
        char text[48];
        snprintf(text, sizeof text, "%llu.%llu", (unsigned long long)removed[i].version.term,
                 (unsigned long long)removed[i].version.step);
        json_add_str(list, NULL, text);
        if (!cli->json) {
            printf("%s version %s\n", cli->dry_run ? "would delete" : "deleted", text);
        }
    }
    if (!cli->json && count == 0) {
        printf("nothing to delete\n");
    }
    json_add_bool(answer, "ok", true);
    json_add_bool(answer, "dry_run", cli->dry_run);
    json_add(answer, "removed", list);
    (void)cli_json(cli, answer);
    json_free(answer);
}

/* The version being drained or restored from is the agent's to name; without one nothing is pinned. */
static struct version pinned(const struct cli *cli)
{
    json_t *answer = NULL;
    struct error err;
    struct version v = VERSION_NONE;
    if (control_ask(&cli->config, "status", NULL, CONTROL_MS, &answer, &err) == TCK_OK) {
        const json_t *committed = json_get(answer, "committed");
        v = (struct version){number_of(committed, "term"), number_of(committed, "step")};
        json_free(answer);
    }
    return v;
}

int cli_prune(const struct cli *cli)
{
    struct storage storage;
    struct published *removed = NULL;
    size_t count = 0;
    struct error err;
    uint32_t keep = cli->keep_given ? cli->keep : cli->config.max_ckpt_num;
    if (keep == 0) {
        (void)error_set(&err, TCK_ERR_CONFIG, "max_ckpt_num is 0, which keeps all versions: say --keep N");
        return cli_fail(cli, &err);
    }
    tck_status_t status = storage_open(cli, &storage, &err);
    if (status == TCK_OK) {
        status = persistent_prune(storage.persistent, keep, pinned(cli), cli->dry_run, &removed, &count, &err);
    }
    storage_close(&storage);
    if (status != TCK_OK) {
        return cli_fail(cli, &err);
    }
    tell_pruned(cli, removed, count);
    free(removed);
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0
 * tierckpt status, drain, config: what the agent says and can be told. */
#include "cli/cli.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

/* ---- status -------------------------------------------------------------------------------------------------- */

static void print_nodes(const json_t *answer)
{
    for (const json_t *n = json_first(json_get(answer, "nodes")); n; n = json_next(n)) {
        if (strcmp(text_of(n, "state"), "lost") == 0) {
            printf("WARNING: node %s is lost: nothing commits before it is back or the job is started again\n",
                   text_of(n, "name"));
        }
    }
    for (const json_t *n = json_first(json_get(answer, "nodes")); n; n = json_next(n)) {
        printf("  node %-20s %-14s %-22s domain %s%s\n", text_of(n, "name"), text_of(n, "state"), text_of(n, "address"),
               text_of(n, "domain"), flag_of(n, "coordinator") ? ", coordinator" : "");
    }
}

static void print_trainers(const json_t *answer)
{
    for (const json_t *t = json_first(json_get(answer, "trainers")); t; t = json_next(t)) {
        printf("  rank %-5llu pid %-8llu at step %llu\n", (unsigned long long)number_of(t, "rank"),
               (unsigned long long)number_of(t, "pid"), (unsigned long long)number_of(t, "step"));
    }
}

static void print_scrub(const json_t *scrub)
{
    if (number_of(scrub, "slots_bad") > 0) {
        printf(
            "WARNING: %llu copies in memory were damaged and given up, %llu were fetched again (see the agent's log)\n",
            (unsigned long long)number_of(scrub, "slots_bad"), (unsigned long long)number_of(scrub, "copies_mended"));
    }
    if (number_of(scrub, "copies_missing") > 0) {
        printf("WARNING: %llu copies of the committed version are missing here\n",
               (unsigned long long)number_of(scrub, "copies_missing"));
    }
    if (number_of(scrub, "files_bad") > 0) {
        printf(
            "WARNING: %llu published files were found damaged, %llu were made anew (see the agent's log, or tierckpt "
            "verify)\n",
            (unsigned long long)number_of(scrub, "files_bad"), (unsigned long long)number_of(scrub, "files_mended"));
    }
}

static void print_held_back(const json_t *answer)
{
    if (number_of(answer, "not_before") > 0) {
        printf("WARNING: saves come faster than their copies can follow: most are let by, the next is that of step "
               "%llu or later. Raise save_mem_interval, or have slots = 3\n",
               (unsigned long long)number_of(answer, "not_before"));
    }
}

static void print_status(const json_t *answer)
{
    const json_t *memory = json_get(answer, "memory");
    char used[32], cap[32], committed[48], published[48], draining[48];
    text_bytes(number_of(memory, "used_bytes"), used, sizeof used);
    text_bytes(number_of(memory, "cap_bytes"), cap, sizeof cap);
    text_version(json_get(answer, "committed"), committed, sizeof committed);
    text_version(json_get(answer, "published"), published, sizeof published);
    text_version(json_get(answer, "draining"), draining, sizeof draining);
    printf("job %s, node %s, agent pid %llu, term %llu%s\n", text_of(answer, "job"), text_of(answer, "node"),
           (unsigned long long)number_of(answer, "pid"), (unsigned long long)number_of(answer, "term"),
           flag_of(answer, "closed") ? " (this node's world is of an older term)" : "");
    printf("committed %s, published %s, draining %s, undecided %llu\n", committed, published, draining,
           (unsigned long long)number_of(answer, "undecided"));
    printf("memory %s of %s in %llu segments, pages of %llu KiB\n", used, cap,
           (unsigned long long)number_of(memory, "segments"),
           (unsigned long long)number_of(memory, "page_bytes") >> 10);
    print_held_back(answer);
    if (number_of(answer, "shards_short_of_domains") > 0) {
        printf("WARNING: %llu of %llu shards have fewer copies in distinct domains than configured\n",
               (unsigned long long)number_of(answer, "shards_short_of_domains"),
               (unsigned long long)number_of(answer, "shards"));
    }
    if (number_of(answer, "twin_divergences") > 0) {
        printf("WARNING: twins differed %llu times: data-parallel ranks no longer agree (see the agent's log)\n",
               (unsigned long long)number_of(answer, "twin_divergences"));
    }
    print_scrub(json_get(answer, "scrub"));
    print_nodes(answer);
    print_trainers(answer);
}

/* Asks, prints errors, and hands out an answer that is "ok"; NULL otherwise. */
static json_t *ask_good(const struct cli *cli, const char *op, json_t *request)
{
    json_t *answer = NULL;
    struct error err;
    if (control_ask(&cli->config, op, request, CONTROL_MS, &answer, &err) != TCK_OK) {
        (void)cli_fail(cli, &err);
        return NULL;
    }
    if (!flag_of(answer, "ok")) {
        (void)error_set(&err, TCK_ERR_INVAL, "%s", text_of(answer, "error"));
        (void)cli_fail(cli, &err);
        json_free(answer);
        return NULL;
    }
    return answer;
}

static bool node_lost(const json_t *answer)
{
    for (const json_t *n = json_first(json_get(answer, "nodes")); n; n = json_next(n)) {
        if (strcmp(text_of(n, "state"), "lost") == 0) {
            return true;
        }
    }
    return false;
}

int cli_status(const struct cli *cli)
{
    json_t *answer = ask_good(cli, "status", NULL);
    if (!answer) {
        return 1;
    }
    if (!cli_json(cli, answer)) {
        print_status(answer);
    }
    bool good = !flag_of(answer, "closed") && number_of(answer, "twin_divergences") == 0 && !node_lost(answer) &&
                number_of(json_get(answer, "scrub"), "copies_missing") == 0;
    json_free(answer);
    return good ? 0 : 1;
}

/* ---- drain --------------------------------------------------------------------------------------------------- */

static bool same_or_newer(const json_t *have, const json_t *wanted)
{
    struct version a = {number_of(have, "term"), number_of(have, "step")};
    struct version b = {number_of(wanted, "term"), number_of(wanted, "step")};
    return version_cmp(a, b) >= 0;
}

static int wait_published(const struct cli *cli, const json_t *wanted)
{
    for (int tries = 0; tries < 600; tries++) {
        json_t *answer = ask_good(cli, "status", NULL);
        if (!answer) {
            return 1;
        }
        bool there = same_or_newer(json_get(answer, "published"), wanted);
        bool idle = number_of(json_get(answer, "draining"), "step") == 0;
        json_free(answer);
        if (there) {
            return 0;
        }
        if (idle && tries > 10) {
            break; /* it ended without being published */
        }
        nanosleep(&(struct timespec){.tv_nsec = 200000000}, NULL);
    }
    struct error err;
    (void)error_set(&err, TCK_ERR_IO, "the version was not published: see the agents' logs");
    return cli_fail(cli, &err);
}

int cli_drain(const struct cli *cli)
{
    json_t *answer = ask_good(cli, "drain", NULL);
    if (!answer) {
        return 1;
    }
    int status = cli->wait ? wait_published(cli, json_get(answer, "draining")) : 0;
    if (status == 0 && !cli_json(cli, answer)) {
        char version[48];
        text_version(json_get(answer, "draining"), version, sizeof version);
        printf("version %s %s\n", version, cli->wait ? "is published" : "is being drained");
    }
    json_free(answer);
    return status;
}

/* ---- config -------------------------------------------------------------------------------------------------- */

static int change(const struct cli *cli)
{
    char key[CONFIG_NAME];
    const char *equals = strchr(cli->set, '=');
    if (!equals || (size_t)(equals - cli->set) >= sizeof key) {
        fprintf(stderr, "tierckpt: --set needs KEY=VALUE\n");
        return 2;
    }
    snprintf(key, sizeof key, "%.*s", (int)(equals - cli->set), cli->set);
    json_t *request = json_object();
    json_add_str(request, "key", key);
    json_add_str(request, "value", equals + 1);
    json_t *answer = ask_good(cli, "set", request);
    if (!answer) {
        return 1;
    }
    if (!cli_json(cli, answer)) {
        printf("%s is set to %s for the running job; change its configuration file too to keep it\n", key, equals + 1);
    }
    json_free(answer);
    return 0;
}

static void print_field(const json_t *config, const struct config_help *field)
{
    const json_t *value = json_get(config, field->name);
    const char *text = json_str(value);
    double number;
    bool flag;
    printf("%s = ", field->name);
    if (text) {
        printf("\"%s\"", text);
    } else if (json_f64(value, &number)) {
        printf("%.15g", number);
    } else if (json_bool(value, &flag)) {
        printf("%s", flag ? "true" : "false");
    }
    printf("\n    %s%s\n", field->help, field->changeable ? " [can be changed while the job runs]" : "");
}

int cli_config(const struct cli *cli)
{
    if (cli->set) {
        return change(cli);
    }
    json_t *config = config_json(&cli->config);
    struct error err;
    if (!config) {
        (void)error_set(&err, TCK_ERR_NOMEM, "out of memory");
        return cli_fail(cli, &err);
    }
    struct config_help field;
    for (size_t i = 0; !cli->json && config_field(i, &field); i++) {
        print_field(config, &field);
    }
    (void)cli_json(cli, config);
    json_free(config);
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0
 * Handles a start whose configuration differs from the one that this agent was started with. Keys that may change while
 * a job runs are applied when the start has joined its term; for other keys, the agent restarts with the new
 * configuration and keeps its memory. If it cannot, the start is refused: no key is ignored. */
#include "agent/membership/start_config.h"

#include "agent/ipc/client.h"
#include "agent/lifecycle/fdstore.h"
#include "agent/membership/job_holders.h"
#include "agent/trainers/trainer_control.h"
#include "base/ipc.h"
#include "base/json.h"
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CONFIG_FILE  "config.json"
#define EXIT_CHANGED 1 /* the supervisor starts it again */

struct start_config {
    struct start_config_setup needs;
    struct config given; /* as given at start, without later changes */
    char *given_text;    /* text of a start with the same configuration; NULL: none since it changed */
    bool spawned;        /* by a trainer, with the file in the runtime directory */
};

/* Keys that only trainers read, or by which a trainer finds this agent. */
static const char *const trainer_keys[] = {"job",           "node",         "runtime_dir", "run_id",       "takeover",
                                           "block_time_ms", "copy_threads", "digest",      "show_progress"};
/* Keys that are compared if the agent has a configuration file of its own; all others are taken from that file. */
static const char *const storage_keys[] = {"save_dir", "load_dir", "archive_dir"};

static bool is_among(const char *key, const char *const *keys, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (strcmp(key, keys[i]) == 0) {
            return true;
        }
    }
    return false;
}
#define AMONG(key, keys) is_among(key, keys, sizeof(keys) / sizeof *(keys))

/* Called for each key that differs and that matters to this agent. */
typedef void differs_fn(void *ctx, const char *key, const char *old, const char *new);

static bool matters(const struct start_config *sc, const char *key)
{
    return !AMONG(key, trainer_keys) && (sc->spawned || config_is_changeable(key) || AMONG(key, storage_keys));
}

/* True if no such key differs. */
static bool compare(const struct start_config *sc, const struct config *wanted, differs_fn *fn, void *ctx)
{
    bool same = true;
    json_t *old = config_json(&sc->given), *new = config_json(wanted);
    for (const json_t *member = old != NULL && new != NULL ? json_first(new) : NULL; member != NULL;
         member = json_next(member)) {
        const char *key = json_key(member);
        char *was = json_plain(json_get(old, key)), *is = json_plain(member);
        if (was != NULL && is != NULL && strcmp(was, is) != 0 && matters(sc, key)) {
            same = false;
            fn(ctx, key, was, is);
        }
        same = same && was != NULL && is != NULL;
        free(was);
        free(is);
    }
    same = same && old != NULL && new != NULL;
    json_free(old);
    json_free(new);
    return same;
}

/* All ranks of a node send the same text: only the first one's is read and compared. */
static bool is_same_text(const struct start_config *sc, const char *text)
{
    return sc->given_text != NULL && strcmp(sc->given_text, text) == 0;
}

/* ---- keys that need another agent ------------------------------------------------------------------------------ */

struct fixed_keys {
    uint32_t count;
    char text[ERROR_TEXT_BYTES / 2]; /* for the first key */
};

static void record_fixed_key(void *ctx, const char *key, const char *old, const char *new)
{
    struct fixed_keys *fixed = ctx;
    if (!config_is_changeable(key) && fixed->count++ == 0) {
        snprintf(fixed->text, sizeof(fixed->text),
                 "%s: the agent of this node was started with \"%s\", this start has \"%s\"", key, old, new);
    }
}

static const struct client *other_trainer(const struct client *clients, const struct client *self)
{
    for (const struct client *c = clients; c != NULL; c = c->next) {
        if (c != self && c->trainer && !c->done && c->process.pid != self->process.pid && holders_alive(c)) {
            return c;
        }
    }
    return NULL;
}

static tck_status_t write_config(const struct config *config, struct error *err)
{
    static const char temporary[] = CONFIG_FILE ".agent";
    char dir[2 * CONFIG_PATH];
    int dir_fd = -1;
    json_t *json = config_json(config);
    char *text = json != NULL ? json_print(json, true) : NULL;
    json_free(json);
    if (text == NULL) {
        return error_set(err, TCK_ERR_NOMEM, "out of memory: cannot print the configuration");
    }
    snprintf(dir, sizeof(dir), "%s/%s/%s", config->runtime_dir, config->job, config->node);
    tck_status_t status = ipc_open_dir(dir, &dir_fd, err);
    int fd =
        status == TCK_OK ? openat(dir_fd, temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600) : -1;
    bool written = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
    if (status == TCK_OK && (!written || renameat(dir_fd, temporary, dir_fd, CONFIG_FILE) != 0)) {
        status = error_set(err, status_of_errno(errno), "%s/" CONFIG_FILE ": %m", dir);
    }
    if (fd >= 0) {
        close(fd);
    }
    if (dir_fd >= 0) {
        close(dir_fd);
    }
    free(text);
    return status;
}

/* Exits, so that the supervisor restarts the agent; or fails. */
static tck_status_t restart_agent(const struct start_config *sc, const struct client *client,
                                  const struct config *wanted, const struct fixed_keys *fixed, struct error *err)
{
    const struct client *other = other_trainer(*sc->needs.clients, client);
    if (!sc->spawned) {
        return error_set(err, TCK_ERR_CONFIG, "%s. Start the agent with that configuration, or use the same one here",
                         fixed->text);
    }
    if (other != NULL) {
        return error_set(err, TCK_ERR_BUSY,
                         "%s, and the trainer of rank %u (pid %d) is using that agent: end it first, or use the same "
                         "configuration here",
                         fixed->text, other->rank, (int)other->process.pid);
    }
    if (!fdstore_has_all(sc->needs.fdstore)) {
        return error_set(err, TCK_ERR_BUSY, "%s, and it cannot restart now because no supervisor holds its memory",
                         fixed->text);
    }
    tck_status_t status = write_config(wanted, err);
    if (status == TCK_OK) {
        log_info("%s: the agent restarts with the new value and keeps its memory", fixed->text);
        _exit(EXIT_CHANGED);
    }
    return status;
}

/* ---- the start's configuration ---------------------------------------------------------------------------- */

static tck_status_t read_wanted(const char *text, struct config *out, struct error *err)
{
    tck_status_t status = config_load(NULL, text, out, err);
    return status == TCK_OK ? status : error_prefix(err, "the trainer's configuration");
}

tck_status_t start_config_compare(struct start_config *sc, struct client *client, const struct msg_hello *m,
                                  struct error *err)
{
    struct config wanted;
    struct fixed_keys fixed = {0};
    if (m->settings_len == 0 || m->returning) {
        return TCK_OK;
    }
    free(client->settings); /* from a HELLO that was refused */
    client->settings = strndup(m->settings, m->settings_len);
    if (client->settings == NULL) {
        return error_set(err, TCK_ERR_NOMEM, "out of memory for the trainer's configuration");
    }
    if (is_same_text(sc, client->settings)) {
        return TCK_OK;
    }
    tck_status_t status = read_wanted(client->settings, &wanted, err);
    if (status != TCK_OK) {
        return status;
    }
    if (compare(sc, &wanted, record_fixed_key, &fixed)) {
        free(sc->given_text);
        sc->given_text = strdup(client->settings);
    }
    return fixed.count > 0 ? restart_agent(sc, client, &wanted, &fixed, err) : TCK_OK;
}

/* ---- keys that may change --------------------------------------------------------------------------------------- */

struct applied {
    struct config *config;
    struct trainers *trainers;
    uint32_t count;
};

static void apply(void *ctx, const char *key, const char *old, const char *new)
{
    struct applied *applied = ctx;
    struct error err;
    if (!config_is_changeable(key)) {
        return;
    }
    if (config_change(applied->config, key, new, &err) != TCK_OK) {
        log_warn("%s", err.text);
        return;
    }
    trainers_note_change(applied->trainers, key, new);
    log_info("this start changed %s from %s to %s", key, old, new);
    applied->count++;
}

void start_config_apply(struct start_config *sc, struct client *client)
{
    struct config wanted;
    struct error err;
    struct applied applied = {.config = sc->needs.config, .trainers = sc->needs.trainers};
    if (client->settings == NULL || is_same_text(sc, client->settings) ||
        read_wanted(client->settings, &wanted, &err) != TCK_OK) {
        return;
    }
    (void)compare(sc, &wanted, apply, &applied);
    free(client->settings);
    client->settings = NULL;
    if (applied.count == 0) {
        return;
    }
    sc->given = wanted;
    free(sc->given_text);
    sc->given_text = NULL;
    if (sc->spawned && write_config(&wanted, &err) != TCK_OK) {
        /* The agent's state has the change, and the value in the file that it replaces. */
        log_warn("this change also holds for an agent that is started again, but the agent's configuration file could "
                 "not be written: %s",
                 err.text);
    } else if (sc->spawned) {
        trainers_file_written(sc->needs.trainers, &wanted);
    }
    trainers_config_changed(sc->needs.trainers);
}

/* ---- life ---------------------------------------------------------------------------------------------------- */

tck_status_t start_config_new(const struct start_config_setup *setup, struct start_config **out, struct error *err)
{
    struct start_config *sc = calloc(1, sizeof(*sc));
    if (sc == NULL) {
        return error_set(err, TCK_ERR_NOMEM, "agent: out of memory");
    }
    sc->needs = *setup;
    sc->given = *setup->config;
    *out = sc;
    return TCK_OK;
}

void start_config_free(struct start_config *sc)
{
    if (sc != NULL) {
        free(sc->given_text);
        free(sc);
    }
}

void start_config_set_spawned(struct start_config *sc)
{
    sc->spawned = true;
}

void start_config_write_again(const struct start_config *sc)
{
    struct error err;
    if (sc->spawned && write_config(&sc->given, &err) != TCK_OK) {
        log_warn("the configuration file of the agent was deleted and cannot be written, so a restarted agent will "
                 "wait for the next trainer to write it: %s",
                 err.text);
    }
}

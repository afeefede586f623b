/* SPDX-License-Identifier: Apache-2.0
 * Asking the agent of this node for a drain, and waiting until its version, or a newer one, is published. */
#include "published/drain_request.h"
#include "base/clock.h"
#include "base/control.h"
#include "base/progress.h"
#include "base/version.h"

#include <inttypes.h>
#include <time.h>

#define PAUSE_NS    100000000
#define IDLE_MAX_MS 10000 /* nothing is being drained, and the version is not there: it will not come */

static struct version version_in(const json_t *answer, const char *key)
{
    const json_t *json = json_get(answer, key);
    struct version version = VERSION_NONE;
    if (!json_u64(json_get(json, "term"), &version.term) || !json_u64(json_get(json, "step"), &version.step)) {
        return VERSION_NONE;
    }
    return version;
}

/* Returns the answer if it is a success. */
static tck_status_t ask(const struct config *config, const char *op, json_t **out, struct error *err)
{
    json_t *answer = NULL;
    bool good = false;
    tck_status_t status = control_ask(config, op, NULL, CONTROL_MS, &answer, err);
    if (status != TCK_OK) {
        return status;
    }
    if (!json_bool(json_get(answer, "ok"), &good) || !good) {
        const char *why = json_str(json_get(answer, "error"));
        status = error_set(err, TCK_ERR_UNREACHABLE, "the agent of node %s refuses to %s: %s", config->node, op,
                           why == NULL ? "no reason" : why);
        json_free(answer);
        return status;
    }
    *out = answer;
    return TCK_OK;
}

struct memory_state {
    struct version published, draining; /* the newest version, and the one that is being drained */
};

static tck_status_t ask_state(const struct config *config, struct memory_state *out, struct error *err)
{
    json_t *answer = NULL;
    tck_status_t status = ask(config, "status", &answer, err);
    if (status != TCK_OK) {
        return status;
    }
    *out =
        (struct memory_state){.published = version_in(answer, "published"), .draining = version_in(answer, "draining")};
    json_free(answer);
    return TCK_OK;
}

static tck_status_t wait_published(const struct config *config, struct version wanted, uint64_t *step_out,
                                   struct error *err)
{
    uint64_t busy_ms = clock_ms();
    while (clock_ms() - busy_ms < IDLE_MAX_MS) {
        struct memory_state state;
        tck_status_t status = ask_state(config, &state, err);
        if (status != TCK_OK) {
            return status;
        }
        if (version_cmp(state.published, wanted) >= 0) {
            *step_out = state.published.step;
            return TCK_OK;
        }
        busy_ms = version_none(state.draining) ? busy_ms : clock_ms();
        progress_moved(); /* the agents have a time bound of their own */
        nanosleep(&(struct timespec){.tv_nsec = PAUSE_NS}, NULL);
    }
    return error_set(err, TCK_ERR_IO, "version %" PRIu64 ".%" PRIu64 " was not published: the agents' logs say why",
                     wanted.term, wanted.step);
}

static tck_status_t ask_for_drain(const struct config *config, struct version *wanted_out, struct error *err)
{
    json_t *answer = NULL;
    tck_status_t status = ask(config, "drain", &answer, err);
    if (status == TCK_OK) {
        *wanted_out = version_in(answer, "draining");
        json_free(answer);
    }
    return status;
}

tck_status_t drain_request_publish(const tck_published_open_params_t *source, uint64_t *step_out, struct error *err)
{
    struct config config;
    struct version wanted = VERSION_NONE;
    tck_status_t status =
        source->path == NULL
            ? config_load(source->config_file, source->config_json, &config, err)
            : error_set(err, TCK_ERR_INVAL,
                        "a version given by its directory cannot be exported from memory: give only one of the two");
    if (status == TCK_OK && source->step != TCK_NEWEST) {
        status =
            error_set(err, TCK_ERR_INVAL, "only the newest version can be exported from memory: leave out the step");
    }
    if (status == TCK_OK) {
        status = ask_for_drain(&config, &wanted, err);
    }
    return status == TCK_OK ? wait_published(&config, wanted, step_out, err) : status;
}

/* SPDX-License-Identifier: Apache-2.0
 * tierckpt doctor --network: how fast this node's agent sends to the others, and by which route. The agent measures one
 * node per request; those that it exchanges no copies with are only counted. */
#include "cli/doctor_network.h"
#include "cli/peer_rates.h"

#include "base/clock.h"
#include "tiers/ucx_choice.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define ALL_MS       60000 /* for all nodes */
#define BUSY_MS      5000  /* for one, while agents are copying or measuring */
#define ANSWER_MS    10000
#define PAUSE_NS     100000000
#define MORE_NS      200000000u /* at most, by chance: two nodes that measure each other must not meet again and again */
#define RATE_BYTES   32
#define DETAIL_BYTES 1024

/* ---- asking the agent ---------------------------------------------------------------------------------------- */

static void pause_a_moment(void)
{
    const struct timespec pause = {.tv_nsec = PAUSE_NS + (long)((clock_ns() / 1000 * (uint64_t)getpid()) % MORE_NS)};
    nanosleep(&pause, NULL);
}

static bool is_status(const json_t *answer, tck_status_t status)
{
    return !flag_of(answer, "ok") && strcmp(text_of(answer, "status"), status_text(status)) == 0;
}

static void take_answer(const json_t *answer, struct peer_rate *out)
{
    uint64_t bytes = number_of(answer, "bytes"), ns = number_of(answer, "ns");
    bool unreachable = is_status(answer, TCK_ERR_UNREACHABLE) || is_status(answer, TCK_ERR_TIMEDOUT);
    out->state = bytes > 0 && ns > 0 ? RATE_MEASURED : unreachable ? RATE_UNREACHABLE : RATE_UNKNOWN;
    out->rate = out->state == RATE_MEASURED ? (double)bytes * 1e9 / (double)ns : 0;
    snprintf(out->transports, sizeof(out->transports), "%s", text_of(answer, "transports"));
    snprintf(out->from, sizeof(out->from), "%s", text_of(answer, "from"));
    snprintf(out->to, sizeof(out->to), "%s", text_of(answer, "to"));
    snprintf(out->why, sizeof(out->why), "%s", text_of(answer, "error"));
}

/* NULL: there is no answer. */
static json_t *ask_once(const struct cli *cli, const char *node, struct error *err)
{
    json_t *request = json_object(), *answer = NULL;
    json_add_str(request, "node", node);
    return control_ask(&cli->config, "measure", request, ANSWER_MS, &answer, err) == TCK_OK ? answer : NULL;
}

/* False: the node needs no copies, and is not shown. */
static bool measure(const struct cli *cli, const char *node, uint64_t until_ms, struct peer_rate *out)
{
    uint64_t busy_until_ms = clock_ms() + BUSY_MS;
    struct error err;
    *out = (struct peer_rate){.state = RATE_UNKNOWN, .why = "the minute that all nodes share was used up"};
    snprintf(out->node, sizeof(out->node), "%s", node);
    while (clock_ms() < until_ms) {
        json_t *answer = ask_once(cli, node, &err);
        bool busy = answer != NULL && is_status(answer, TCK_ERR_BUSY) && clock_ms() < busy_until_ms;
        bool needless = answer != NULL && is_status(answer, TCK_ERR_NOENT);
        if (answer == NULL) {
            snprintf(out->why, sizeof(out->why), "%s", err.text);
        } else {
            take_answer(answer, out);
        }
        json_free(answer);
        if (!busy) {
            return !needless;
        }
        pause_a_moment();
    }
    return true;
}

/* ---- what is shown ------------------------------------------------------------------------------------------- */

static void rate_text(double rate, char out[RATE_BYTES])
{
    bool large = rate >= 0.1e9;
    snprintf(out, RATE_BYTES, large ? "%.2f GB/s" : "%.2f MB/s", rate / (large ? 1e9 : 1e6));
}

static enum verdict verdict_of_rate(const struct peer_rate *r)
{
    return r->state == RATE_UNKNOWN ? NOTE : r->state == RATE_UNREACHABLE || r->slow ? BAD : GOOD;
}

static void tell_rate(struct report *report, const struct peer_rate *r, double median, size_t measured)
{
    char detail[DETAIL_BYTES], rate[RATE_BYTES], usual[RATE_BYTES], compared[96] = "";
    rate_text(r->rate, rate);
    rate_text(median, usual);
    if (measured > 1) {
        snprintf(compared, sizeof(compared), ", %.0f %% of the median%s%s%s", 100 * r->rate / median,
                 r->slow ? " (" : "", r->slow ? usual : "", r->slow ? "): SLOW" : "");
    }
    if (r->state == RATE_MEASURED) {
        snprintf(detail, sizeof(detail), "node %s: %s%s, over %s from %s to %s", r->node, rate, compared,
                 r->transports[0] ? r->transports : "an unknown transport", r->from[0] ? r->from : "?",
                 r->to[0] ? r->to : "?");
    } else {
        snprintf(detail, sizeof(detail), "node %s %s: %s", r->node,
                 r->state == RATE_UNREACHABLE ? "cannot be reached" : "was not measured", r->why);
    }
    tell(report, verdict_of_rate(r), "network rate", detail);
}

static void add_json(struct report *report, const struct peer_rate *r, double median)
{
    json_t *json = json_object();
    json_add_str(json, "node", r->node);
    json_add_str(json, "verdict", verdict_word(verdict_of_rate(r)));
    if (r->state == RATE_MEASURED) {
        json_add_f64(json, "bytes_per_second", r->rate);
        json_add_f64(json, "of_median", r->rate / median);
        json_add_bool(json, "slow", r->slow);
        json_add_str(json, "transports", r->transports);
        json_add_str(json, "from", r->from);
        json_add_str(json, "to", r->to);
    } else {
        json_add_bool(json, "reachable", r->state != RATE_UNREACHABLE);
        json_add_str(json, "error", r->why);
    }
    json_add(report->peers, NULL, json);
}

/* The name of one of this machine's RDMA devices; "": there is none. */
static void rdma_device(char *out, size_t cap)
{
    DIR *dir = opendir(UCX_RDMA_DEVICES);
    out[0] = '\0';
    /* NOLINTNEXTLINE(concurrency-mt-unsafe): there is one thread */
    for (const struct dirent *e = dir != NULL ? readdir(dir) : NULL; e != NULL && out[0] == '\0'; e = readdir(dir)) {
        if (e->d_name[0] != '.') {
            snprintf(out, cap, "%s", e->d_name);
        }
    }
    if (dir != NULL) {
        closedir(dir);
    }
}

static void tell_rdma(struct report *report, const struct peer_rate *rates, size_t count)
{
    char device[256], detail[DETAIL_BYTES];
    rdma_device(device, sizeof(device));
    if (device[0] != '\0' && peer_rates_are_tcp(rates, count)) {
        snprintf(detail, sizeof(detail),
                 "copies go over TCP, though this machine has RDMA devices, such as %s: UCX_TLS selects the transport "
                 "and defaults to tcp; set it before the job starts",
                 device);
        tell(report, NOTE, "RDMA", detail);
    }
}

static void tell_all(struct report *report, struct peer_rate *rates, size_t count, size_t needless)
{
    double median = peer_rates_judge(rates, count);
    char detail[DETAIL_BYTES];
    size_t measured = 0;
    report->peers = json_array();
    for (size_t i = 0; i < count; i++) {
        measured += rates[i].state == RATE_MEASURED;
    }
    for (size_t i = 0; i < count; i++) {
        tell_rate(report, &rates[i], median, measured);
        add_json(report, &rates[i], median);
    }
    tell_rdma(report, rates, count);
    if (needless > 0) {
        snprintf(detail, sizeof(detail),
                 "this node exchanges no copies with %zu other nodes, and is not connected with them or only through "
                 "others: they were not measured",
                 needless);
        tell(report, NOTE, "network rate", detail);
    } else if (count == 0) {
        tell(report, NOTE, "network rate", "no other node is known here: the job has one node, or has not begun");
    }
}

/* ---- all nodes ----------------------------------------------------------------------------------------------- */

static size_t other_nodes(const json_t *status)
{
    size_t count = 0;
    for (const json_t *n = json_first(json_get(status, "nodes")); n != NULL; n = json_next(n)) {
        count += strcmp(text_of(n, "state"), "self") != 0;
    }
    return count;
}

void doctor_network(const struct cli *cli, struct report *report)
{
    uint64_t until_ms = clock_ms() + ALL_MS;
    json_t *status = NULL;
    struct error err;
    size_t count = 0, needless = 0;
    if (control_ask(&cli->config, "status", NULL, CONTROL_MS, &status, &err) != TCK_OK) {
        tell(report, BAD, "network rate", err.text);
        return;
    }
    size_t others = other_nodes(status);
    struct peer_rate *rates = calloc(others + 1, sizeof(*rates));
    if (rates == NULL) {
        tell(report, BAD, "network rate", "out of memory");
        json_free(status);
        return;
    }
    for (const json_t *n = json_first(json_get(status, "nodes")); n != NULL; n = json_next(n)) {
        if (strcmp(text_of(n, "state"), "self") != 0) {
            bool shown = measure(cli, text_of(n, "name"), until_ms, &rates[count]);
            count += shown;
            needless += !shown;
        }
    }
    tell_all(report, rates, count, needless);
    free(rates);
    json_free(status);
}

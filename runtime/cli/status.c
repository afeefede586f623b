/* SPDX-License-Identifier: Apache-2.0
 * tierckpt status, drain and stop: the agent's state, and requests to it. */
#include "cli/cli.h"

#include "base/clock.h"
#include "base/message.h"
#include "cli/progress_line.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define PAUSE_NS    200000000
#define IDLE_MAX_MS 3000 /* nothing is being drained, and the version is not there: it will not come */
#define STILL_MS    5000
#define SPREAD_MOST 0.899 /* PACE_SPREAD_MAX, printed and read back */

/* ---- status -------------------------------------------------------------------------------------------------- */

/* A node that is lost answers at none of them. */
static void write_silent_addresses(FILE *to, const json_t *node)
{
    for (const json_t *a = json_first(json_get(node, "addresses")); a != NULL; a = json_next(a)) {
        if (strcmp(text_of(node, "state"), "up") == 0 && !flag_of(a, "answers")) {
            fprintf(to, "WARNING: node %s does not answer at its address %s; if the others fail, too, it is lost\n",
                    text_of(node, "name"), text_of(a, "address"));
        }
    }
}

static void write_nodes(FILE *to, const json_t *answer)
{
    for (const json_t *n = json_first(json_get(answer, "nodes")); n != NULL; n = json_next(n)) {
        if (strcmp(text_of(n, "state"), "lost") == 0) {
            fprintf(to, "WARNING: node %s is lost: nothing commits until it is back or the job is restarted\n",
                    text_of(n, "name"));
        } else if (strcmp(text_of(n, "state"), "no copies") == 0) {
            fprintf(to,
                    "WARNING: node %s is reached only through node %s, and copies need a direct session with it: "
                    "nothing commits until there is one. Check net_device and net_address on both\n",
                    text_of(n, "name"), text_of(n, "through")[0] != '\0' ? text_of(n, "through") : "(unknown)");
        }
        write_silent_addresses(to, n);
    }
    for (const json_t *n = json_first(json_get(answer, "nodes")); n != NULL; n = json_next(n)) {
        const char *through = text_of(n, "through");
        fprintf(to, "  node %-20s %-14s %-22s domain %s%s%s%s\n", text_of(n, "name"), text_of(n, "state"),
                text_of(n, "address"), text_of(n, "domain"), flag_of(n, "coordinator") ? ", coordinator" : "",
                through[0] != '\0' ? ", through node " : "", through);
    }
}

static void write_trainers(FILE *to, const json_t *answer)
{
    for (const json_t *t = json_first(json_get(answer, "trainers")); t != NULL; t = json_next(t)) {
        fprintf(to, "  rank %-5" PRIu64 " pid %-8" PRIu64 " at step %" PRIu64 "\n", number_of(t, "rank"),
                number_of(t, "pid"), number_of(t, "step"));
    }
}

static void write_scrub(FILE *to, const json_t *scrub)
{
    if (number_of(scrub, "slots_bad") > 0) {
        fprintf(to,
                "WARNING: %" PRIu64 " copies in memory were damaged and dropped, %" PRIu64
                " were fetched again (see the agent's log)\n",
                number_of(scrub, "slots_bad"), number_of(scrub, "copies_repaired"));
    }
    if (number_of(scrub, "copies_missing") > 0) {
        fprintf(to, "WARNING: %" PRIu64 " copies of the committed version are missing here\n",
                number_of(scrub, "copies_missing"));
    }
    if (number_of(scrub, "files_bad") > 0) {
        fprintf(to,
                "WARNING: %" PRIu64 " published files were found damaged, %" PRIu64
                " were rewritten (see the agent's log, or tierckpt verify)\n",
                number_of(scrub, "files_bad"), number_of(scrub, "files_repaired"));
    }
}

#define TIME_TEXT 32

static void since_text(const json_t *object, char out[TIME_TEXT])
{
    time_t seconds = (time_t)(number_of(object, "since_ms") / 1000);
    struct tm tm;
    localtime_r(&seconds, &tm);
    strftime(out, TIME_TEXT, "%Y-%m-%d %H:%M:%S", &tm);
}

static void write_storage(FILE *to, const json_t *storage)
{
    if (storage == NULL || flag_of(storage, "good")) {
        return;
    }
    char since[TIME_TEXT];
    since_text(storage, since);
    fprintf(to, "WARNING: storage has been failing since %s: %s\n", since, text_of(storage, "error"));
    if (number_of(storage, "steps") > 0) {
        fprintf(to, "         %" PRIu64 " steps, %" PRIu64 " to %" PRIu64 ", did not reach storage\n",
                number_of(storage, "steps"), number_of(storage, "first_step"), number_of(storage, "newest_step"));
    }
}

/* One copy of the committed version that was given up, and what the version depends on now. */
static void write_given_up(FILE *to, const char *node, const json_t *copy)
{
    char version[48], where[128] = "";
    const char *other = text_of(copy, "in_memory_of");
    bool stored = flag_of(copy, "in_storage");
    text_version(json_get(copy, "version"), version, sizeof(version));
    if (stored && other[0] == '\0') {
        snprintf(where, sizeof(where), "only in storage");
    } else if (stored) {
        snprintf(where, sizeof(where), "in storage, and in the memory of node %.64s while that has room", other);
    } else if (other[0] == '\0') {
        snprintf(where, sizeof(where), "neither in storage nor in any memory that this node knows of");
    } else {
        snprintf(where, sizeof(where), "only in the memory of node %.64s, whose loss loses it", other);
    }
    fprintf(to, "WARNING: rank %" PRIu64 "'s copy on node %s of version %s was given up; it is now %s\n",
            number_of(copy, "rank"), node, version, where);
}

static void write_pressure(FILE *to, const json_t *answer)
{
    const json_t *pressure = json_get(answer, "memory_pressure");
    bool enough = strcmp(text_of(pressure, "level"), "enough") == 0;
    char since[TIME_TEXT], left[32], reserve[32], given[32];
    text_bytes(number_of(pressure, "available_bytes"), left, sizeof(left));
    text_bytes(number_of(pressure, "reserve_bytes"), reserve, sizeof(reserve));
    text_bytes(number_of(pressure, "bytes_given_back"), given, sizeof(given));
    if (flag_of(pressure, "watched") && !enough) {
        since_text(pressure, since);
        fprintf(to, "WARNING: memory has been %s since %s: %s has %s left, and %s should be (memory_reserve_bytes)\n",
                text_of(pressure, "level"), since, text_of(pressure, "of"), left, reserve);
    }
    if (number_of(pressure, "slots_given_back") > 0) {
        fprintf(to, "%s%" PRIu64 " slots, %s, were given back because memory was short%s\n", enough ? "" : "         ",
                number_of(pressure, "slots_given_back"), given,
                enough ? "; they are used again when there is room for them" : "");
    }
    if (flag_of(pressure, "saving_suspended")) {
        fprintf(to, "WARNING: saving is suspended, on all nodes, until this node has memory for its slots again\n");
    }
    for (const json_t *c = json_first(json_get(pressure, "given_up")); c != NULL; c = json_next(c)) {
        write_given_up(to, text_of(answer, "node"), c);
    }
}

static bool memory_enough(const json_t *answer)
{
    const json_t *pressure = json_get(answer, "memory_pressure");
    return pressure == NULL ||
           (strcmp(text_of(pressure, "level"), "enough") == 0 && !flag_of(pressure, "saving_suspended") &&
            json_len(json_get(pressure, "given_up")) == 0);
}

static bool storage_good(const json_t *answer)
{
    const json_t *storage = json_get(answer, "storage");
    return storage == NULL || flag_of(storage, "good");
}

static void write_archive(FILE *to, const json_t *archive)
{
    char archived[48], copying[48];
    if (archive == NULL) {
        return;
    }
    text_version(json_get(archive, "archived"), archived, sizeof(archived));
    text_version(json_get(archive, "copying"), copying, sizeof(copying));
    fprintf(to, "archive_dir: newest version %s, copying %s\n",
            flag_of(archive, "known") ? archived : "is known to the coordinator's node", copying);
    if (!flag_of(archive, "good")) {
        fprintf(to, "WARNING: archive_dir is not up to date, while save_dir goes on: %s\n", text_of(archive, "error"));
    }
}

/* Not a warning: the versions are as good, they only take more room and time. */
static void write_clones(FILE *to, const json_t *clones)
{
    bool never = strcmp(text_of(clones, "state"), "refused") == 0;
    if (text_of(clones, "why")[0] != '\0') {
        fprintf(to, "save_dir: %s written as a whole%s: %s\n", never ? "every version is" : "the last version was",
                never ? "" : ", at least in part", text_of(clones, "why"));
    }
}

static void write_held_back(FILE *to, const json_t *answer)
{
    if (number_of(answer, "not_before") > 0) {
        fprintf(to,
                "WARNING: saves come faster than they can be copied: most are skipped, the next one is at step "
                "%" PRIu64 " or later. Raise save_mem_interval, or set slots to 3\n",
                number_of(answer, "not_before"));
    }
}

static void write_quarantined(FILE *to, const json_t *slots)
{
    for (const json_t *s = json_first(slots); s != NULL; s = json_next(s)) {
        fprintf(to, "WARNING: slot %" PRIu64 " of shard %s is in quarantine, so saves have one slot fewer: %s\n",
                number_of(s, "slot"), text_of(s, "shard"), text_of(s, "writer"));
    }
}

/* With one node, no other node could hold a copy, so there is nothing to warn about. */
static bool copies_short(const json_t *answer)
{
    return json_len(json_get(answer, "nodes")) > 1 && number_of(answer, "shards_short_of_domains") > 0;
}

static void write_copies(FILE *to, const json_t *answer)
{
    if (copies_short(answer)) {
        fprintf(to,
                "WARNING: %" PRIu64 " of %" PRIu64
                " shards have fewer copies in distinct domains than configured (copies): add nodes "
                "or domains, or lower copies\n",
                number_of(answer, "shards_short_of_domains"), number_of(answer, "shards"));
    } else if (number_of(answer, "shards_short_of_domains") > 0) {
        fprintf(to, "one node: versions in its memory survive the trainers and the agent, but not the node\n");
    }
}

static void write_parked(FILE *to, const json_t *stored)
{
    if (number_of(stored, "not_parked") > 0) {
        fprintf(to,
                "WARNING: %" PRIu64 " of the %" PRIu64
                " files of this node's memory are held by the agent alone (%s): they are lost if it dies\n",
                number_of(stored, "not_parked"), number_of(stored, "files"),
                strcmp(text_of(stored, "supervisor"), "none") == 0
                    ? "it was started without a supervisor"
                    : "the supervisor has not taken them: see the agent's log");
    }
}

/* Since when nothing has moved is said once that is long enough to be a sign of trouble. */
static void write_operations(FILE *to, const json_t *operations)
{
    for (const json_t *o = json_first(operations); o != NULL; o = json_next(o)) {
        char done[32], total[32];
        uint64_t still_ms = number_of(o, "still_ms");
        fprintf(to, "under way: %s for %.1f s", text_of(o, "operation"), (double)number_of(o, "age_ms") / 1000);
        if (number_of(o, "total_bytes") > 0) {
            text_bytes(number_of(o, "done_bytes"), done, sizeof(done));
            text_bytes(number_of(o, "total_bytes"), total, sizeof(total));
            fprintf(to, ", %s of %s", done, total);
        }
        if (still_ms >= STILL_MS) {
            fprintf(to, ", without progress for %.0f s", (double)still_ms / 1000);
        }
        fputc('\n', to);
    }
}

static void write_metrics(FILE *to, const json_t *metrics)
{
    if (text_of(metrics, "trouble")[0] != '\0') {
        fprintf(to, "WARNING: metrics are not exported as configured: %s\n", text_of(metrics, "trouble"));
    }
}

static void write_rate(FILE *to, const char *what, double bytes_per_second)
{
    char rate[32] = "unlimited";
    if (bytes_per_second >= 1) {
        text_bytes((uint64_t)bytes_per_second, rate, sizeof(rate));
    }
    fprintf(to, ", %s %s%s", what, rate, bytes_per_second >= 1 ? "/s" : "");
}

/* Why a version that is not committed or published yet is not, as far as pacing is the reason. */
static void write_left(FILE *to, uint64_t left_bytes, const char *wait_for)
{
    char left[32];
    if (left_bytes == 0) {
        return;
    }
    text_bytes(left_bytes, left, sizeof(left));
    fprintf(to, " (%s left%s%s)", left, wait_for[0] != '\0' ? ", waiting for " : "", wait_for);
}

/* How fast copies and drains go, and what they cost. */
static void write_pacing(FILE *to, const json_t *pacing)
{
    double target = real_of(pacing, "target_inflation");
    if (pacing == NULL || target <= 0) {
        return;
    }
    fprintf(to, "pacing");
    write_rate(to, "copies", real_of(pacing, "copies_bytes_per_second"));
    write_left(to, number_of(pacing, "copies_left_bytes"), text_of(pacing, "copies_wait_for"));
    write_rate(to, "drain", real_of(pacing, "drain_bytes_per_second"));
    write_left(to, number_of(pacing, "drain_left_bytes"), text_of(pacing, "drain_waits_for"));
    if (number_of(pacing, "pairs") == 0) {
        fprintf(to, "; step inflation is not known yet (target %.3g %%)\n", 100 * target);
        return;
    }
    double low = real_of(pacing, "inflation_low");
    fprintf(to, "; step inflation %.2f %% (95 %%: %.2f to %.2f; target %.3g %%)\n", 100 * real_of(pacing, "inflation"),
            100 * low, 100 * real_of(pacing, "inflation_high"), 100 * target);
    if (low > target && real_of(pacing, "spread") >= SPREAD_MOST) {
        fprintf(to,
                "WARNING: copies and drains make steps longer than target_inflation allows although they go as slowly "
                "as the time between versions permits: save less often (save_mem_interval, "
                "save_storage_interval)\n");
    }
}

void cli_write_status(FILE *to, const json_t *answer)
{
    const json_t *memory = json_get(answer, "memory");
    char used[32], cap[32], committed[48], published[48], draining[48];
    text_bytes(number_of(memory, "used_bytes"), used, sizeof(used));
    text_bytes(number_of(memory, "cap_bytes"), cap, sizeof(cap));
    text_version(json_get(answer, "committed"), committed, sizeof(committed));
    text_version(json_get(answer, "published"), published, sizeof(published));
    text_version(json_get(answer, "draining"), draining, sizeof(draining));
    fprintf(to, "job %s, node %s, agent pid %" PRIu64 ", term %" PRIu64 "%s\n", text_of(answer, "job"),
            text_of(answer, "node"), number_of(answer, "pid"), number_of(answer, "term"),
            flag_of(answer, "closed") ? " (this node's world is of an older term)" : "");
    fprintf(to, "committed %s, published %s, draining %s, undecided %" PRIu64 "\n", committed, published, draining,
            number_of(answer, "undecided"));
    fprintf(to, "memory %s of %s in %" PRIu64 " segments, pages of %" PRIu64 " KiB\n", used, cap,
            number_of(memory, "segments"), number_of(memory, "page_bytes") >> 10);
    write_pressure(to, answer);
    write_operations(to, json_get(answer, "operations"));
    write_pacing(to, json_get(answer, "pacing"));
    write_held_back(to, answer);
    write_copies(to, answer);
    if (text_of(answer, "passed_over")[0] != '\0') {
        fprintf(to, "WARNING: an older version was restored: %s\n", text_of(answer, "passed_over"));
    }
    if (number_of(answer, "twin_divergences") > 0) {
        fprintf(to,
                "WARNING: twins differed %" PRIu64
                " times: data-parallel ranks no longer agree (see the agent's log)\n",
                number_of(answer, "twin_divergences"));
    }
    write_storage(to, json_get(answer, "storage"));
    write_clones(to, json_get(answer, "clones"));
    write_archive(to, json_get(answer, "archive"));
    write_scrub(to, json_get(answer, "scrub"));
    write_quarantined(to, json_get(answer, "quarantined"));
    write_parked(to, json_get(answer, "parked"));
    write_metrics(to, json_get(answer, "metrics"));
    write_nodes(to, answer);
    write_trainers(to, answer);
}

static bool node_unusable(const json_t *answer)
{
    for (const json_t *n = json_first(json_get(answer, "nodes")); n != NULL; n = json_next(n)) {
        if (strcmp(text_of(n, "state"), "lost") == 0 || strcmp(text_of(n, "state"), "no copies") == 0) {
            return true;
        }
    }
    return false;
}

/* Reads the first line of a file beside the agent's socket. */
static bool read_beside(const struct cli *cli, const char *name, char *out, size_t cap)
{
    char path[3 * CONFIG_PATH];
    snprintf(path, sizeof(path), "%s/%s/%s/%s", cli->config.runtime_dir, cli->config.job, cli->config.node, name);
    return text_first_line(path, out, cap);
}

/* If no agent answers: prints why it cannot start, and how long its supervisor still holds its memory. */
static void print_waiting(const struct cli *cli)
{
    char why[1024], waits[256];
    json_t *json = NULL;
    struct error ignored;
    if (cli->json || !read_beside(cli, SUPERVISOR_WAITS_FILE, waits, sizeof(waits)) ||
        json_parse(waits, strlen(waits), &json, &ignored) != TCK_OK) {
        return;
    }
    uint64_t until = number_of(json, "kept_until_ms"), now = clock_wall_ms();
    if (read_beside(cli, AGENT_ERROR_FILE, why, sizeof(why))) {
        printf("the agent cannot start (%" PRIu64 " times so far): %s\n", number_of(json, "deaths"), why);
    } else { /* it was killed, or ended by a signal */
        printf("the agent has ended %" PRIu64 " times soon after its start, see its log, %s\n",
               number_of(json, "deaths"), cli->config.log_file_path);
    }
    printf("its supervisor keeps the memory of %" PRIu64 " segments for %" PRIu64
           " s more (linger_s), and tries again every few seconds\n",
           number_of(json, "segments"), (until > now ? until - now : 0) / 1000);
    json_free(json);
}

/* An agent that is not there yet; other errors do not go away by themselves. */
static bool may_come(tck_status_t status)
{
    return status == TCK_ERR_NOENT || status == TCK_ERR_UNREACHABLE || status == TCK_ERR_TIMEDOUT;
}

/* Without a deadline: it is for the caller to decide how long that may take. */
static json_t *ask_until_answered(const struct cli *cli)
{
    struct progress_line line = progress_line_begin("waiting for the agent", 0);
    json_t *answer = NULL;
    struct error err;
    tck_status_t status;
    while (may_come(status = control_ask(&cli->config, "status", NULL, CONTROL_MS, &answer, &err))) {
        progress_line_show(&line, true);
        nanosleep(&(struct timespec){.tv_nsec = PAUSE_NS}, NULL);
    }
    progress_line_end(&line);
    if (status != TCK_OK) {
        (void)cli_fail(cli, &err);
    }
    return answer;
}

int cli_status(const struct cli *cli)
{
    json_t *answer = cli->wait ? ask_until_answered(cli) : cli_ask(cli, "status", NULL);
    if (answer == NULL) {
        print_waiting(cli);
        return 1;
    }
    if (!cli_json(cli, answer)) {
        cli_write_status(stdout, answer);
    }
    /* An archive that cannot be reached is only a warning: probes of a node's readiness use this exit status, and the
     * job goes on. */
    bool good = !flag_of(answer, "closed") && number_of(answer, "twin_divergences") == 0 && !node_unusable(answer) &&
                !copies_short(answer) && storage_good(answer) && memory_enough(answer) &&
                number_of(json_get(answer, "scrub"), "copies_missing") == 0;
    json_free(answer);
    return good || cli->wait ? 0 : 1;
}

/* ---- drain --------------------------------------------------------------------------------------------------- */

static bool same_or_newer(const json_t *have, const json_t *wanted)
{
    struct version a = {number_of(have, "term"), number_of(have, "step")};
    struct version b = {number_of(wanted, "term"), number_of(wanted, "step")};
    return version_cmp(a, b) >= 0;
}

/* For as long as it, or anything, is being drained: the agents have time limits of their own. */
static bool is_published(const struct cli *cli, const json_t *wanted, struct error *err)
{
    struct progress_line line = progress_line_begin("drain", 0);
    uint64_t busy_ms = clock_ms();
    tck_status_t status = TCK_OK;
    bool there = false;
    (void)error_set(err, TCK_ERR_IO, "the version was not published: see the agents' logs");
    while (status == TCK_OK && !there && clock_ms() - busy_ms < IDLE_MAX_MS) {
        json_t *answer = NULL;
        struct error why;
        status = control_ask(&cli->config, "status", NULL, CONTROL_MS, &answer, &why);
        *err = status == TCK_OK ? *err : why;
        there = same_or_newer(json_get(answer, "published"), wanted);
        bool idle = number_of(json_get(answer, "draining"), "step") == 0;
        json_free(answer);
        busy_ms = idle ? busy_ms : clock_ms();
        progress_line_show(&line, !idle);
        if (!there) {
            nanosleep(&(struct timespec){.tv_nsec = PAUSE_NS}, NULL);
        }
    }
    progress_line_end(&line);
    return there;
}

static int wait_published(const struct cli *cli, const json_t *wanted)
{
    struct error err;
    return is_published(cli, wanted, &err) ? 0 : cli_fail(cli, &err);
}

int cli_drain(const struct cli *cli)
{
    json_t *answer = cli_ask(cli, "drain", NULL);
    if (answer == NULL) {
        return 1;
    }
    int status = cli->wait ? wait_published(cli, json_get(answer, "draining")) : 0;
    if (status == 0 && !cli_json(cli, answer)) {
        char version[48];
        text_version(json_get(answer, "draining"), version, sizeof(version));
        printf("version %s %s\n", version, cli->wait ? "is published" : "is being drained");
    }
    json_free(answer);
    return status;
}

/* ---- stop ---------------------------------------------------------------------------------------------------- */

int cli_stop(const struct cli *cli)
{
    json_t *request = json_object();
    json_add_bool(request, "force", cli->force);
    json_t *answer = cli_ask(cli, "stop", request);
    if (answer == NULL) {
        return 1;
    }
    if (!cli_json(cli, answer)) {
        const char *despite = text_of(answer, "despite");
        char discarded[48];
        text_version(json_get(answer, "discarded"), discarded, sizeof(discarded));
        printf("the agents of job %s end within seconds (nodes: %" PRIu64 "), and their memory is freed\n",
               cli->config.job, number_of(answer, "nodes"));
        if (despite[0]) {
            printf("though %s\n", despite);
        }
        if (strcmp(discarded, "-") != 0) {
            printf("version %s, which is only in memory, is discarded\n", discarded);
        }
    }
    json_free(answer);
    return 0;
}

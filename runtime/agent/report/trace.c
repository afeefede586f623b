/* SPDX-License-Identifier: Apache-2.0
 * Writes the trace. The file is opened, and replaced when it is full, by a thread of its own pool. */
#include "agent/report/trace.h"

#include "agent/driver/term.h"
#include "agent/report/report.h"
#include "agent/report/version_mark.h"
#include "base/clock.h"
#include "base/config.h"
#include "base/digest.h"
#include "base/json.h"
#include "base/log.h"
#include "base/log_queue.h"
#include "base/pool.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PATH_BYTES  (CONFIG_PATH + 2 * CONFIG_NAME + 32)
#define FULL_BYTES  ((uint64_t)64 << 20)
#define AGAIN_MS    10000
#define TAIL_BYTES  4096 /* more than a line has */
#define ID_BYTES    96
#define START_BYTES (CONFIG_NAME + 128)

/* What the thread does and finds. */
struct opening {
    bool replace; /* the file is full: it gets the name <file>.old first */
    struct log_queue *queue;
    uint64_t bytes; /* of the file */
    struct error outcome;
};

enum figure {
    FIGURE_STEP,    /* of the fastest trainer of this node */
    FIGURE_STEP_US, /* smoothed time of a step, of the slowest one */
    FIGURE_STALLS,  /* saves that kept trainers waiting, and for how long altogether */
    FIGURE_STALL_US,
    FIGURE_MEMORY,
    FIGURE_COPIED,
    FIGURE_MISSING,
    FIGURE_REFUSED,
    FIGURES
};

struct figures {
    uint64_t values[FIGURES];
};

struct trace {
    const struct config *config;
    struct pool *pool;
    char path[PATH_BYTES];
    uint32_t process;        /* number of this node in the trace */
    struct log_queue *queue; /* NULL: there is no file yet */
    uint64_t bytes;
    bool busy; /* opening is with the pool */
    struct opening opening;
    uint64_t open_after_ms;
    struct error trouble;     /* as logged last */
    struct decision decision; /* of which the trace knows */
    struct figures figures;
    struct inflation inflation;
    bool begins; /* the file, or this agent's part of it: it has no counter yet */
};

/* ---- the file, in the pool's thread -------------------------------------------------------------------------------
 */

/* Cuts off a line that a process which was killed has left unfinished. */
static bool cut_torn_line(int fd, uint64_t *size)
{
    char tail[TAIL_BYTES];
    size_t len = *size < sizeof(tail) ? (size_t)*size : sizeof(tail);
    ssize_t got = pread(fd, tail, len, (off_t)(*size - len));
    if (got != (ssize_t)len) {
        return false;
    }
    while (len > 0 && tail[len - 1] != '\n') {
        len--;
        (*size)--;
    }
    return ftruncate(fd, (off_t)*size) == 0;
}

/* The array's bracket, and the name that viewers show for this node. */
static bool write_start(const struct trace *trace, int fd, uint64_t *size)
{
    char text[START_BYTES];
    int len = snprintf(text, sizeof(text),
                       "[\n{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":%" PRIu32
                       ",\"tid\":0,\"args\":{\"name\":\"%s\"}},\n",
                       trace->process, trace->config->node);
    *size = (uint64_t)len;
    return write(fd, text, (size_t)len) == len;
}

/* A mark of its own, since the file must stay an array of events. */
static void note_dropped(uint64_t dropped, char *text)
{
    snprintf(text, LOG_QUEUE_NOTE,
             "{\"name\":\"%" PRIu64 " events were dropped: the file took too long\",\"ph\":\"i\",\"s\":\"g\","
             "\"ts\":%" PRIu64 ",\"pid\":0,\"tid\":0},\n",
             dropped, clock_wall_us());
}

static void open_work(void *ctx)
{
    struct trace *trace = ctx;
    struct opening *o = &trace->opening;
    char full[PATH_BYTES + 8];
    struct stat st;
    snprintf(full, sizeof(full), "%s.old", trace->path);
    (void)mkdir(trace->config->trace_dir, 0755); /* if that fails, opening the file says why */
    if (o->replace && rename(trace->path, full) != 0 && errno != ENOENT) {
        (void)error_set(&o->outcome, status_of_errno(errno), "trace_dir: rename %s: %m", trace->path);
        return;
    }
    int fd = open(trace->path, O_RDWR | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0644);
    if (fd < 0) {
        (void)error_set(&o->outcome, status_of_errno(errno), "trace_dir: create %s: %m", trace->path);
        return;
    }
    bool good = fstat(fd, &st) == 0;
    o->bytes = good ? (uint64_t)st.st_size : 0;
    good = good && (o->bytes == 0 || cut_torn_line(fd, &o->bytes));
    good = good && (o->bytes > 0 || write_start(trace, fd, &o->bytes));
    if (!good) {
        (void)error_set(&o->outcome, status_of_errno(errno), "trace_dir: write %s: %m", trace->path);
        close(fd);
    } else if (log_queue_new(fd, note_dropped, &o->queue, &o->outcome) != TCK_OK) {
        (void)error_prefix(&o->outcome, "trace_dir");
    }
}

static void end_work(void *ctx)
{
    log_queue_end(ctx);
}

static void end_done(void *ctx, bool canceled)
{
    if (canceled) {
        log_queue_end(ctx);
    }
}

/* Waits, which the loop's thread must not do before the agent ends. */
static void end_soon(struct trace *trace, struct log_queue *queue)
{
    if (queue != NULL && pool_submit(trace->pool, end_work, end_done, queue) != TCK_OK) {
        log_queue_end(queue);
    }
}

static void open_done(void *ctx, bool canceled)
{
    struct trace *trace = ctx;
    struct opening *o = &trace->opening;
    trace->busy = false;
    if (o->queue != NULL) {
        end_soon(trace, trace->queue);
        trace->queue = o->queue;
        trace->bytes = o->bytes;
        trace->begins = true;
        log_info("the trace of versions is written to %s", trace->path);
    }
    if (!canceled && o->outcome.code != TCK_OK && strcmp(o->outcome.text, trace->trouble.text) != 0) {
        log_warn("there is no trace: %s", o->outcome.text);
    }
    trace->open_after_ms = o->queue != NULL ? 0 : clock_ms() + AGAIN_MS;
    trace->trouble = o->outcome;
}

/* Lines that are noted until it is open go to the old file, or nowhere. */
static void open_soon(struct trace *trace, bool replace)
{
    if (trace->busy || clock_ms() < trace->open_after_ms) {
        return;
    }
    trace->opening = (struct opening){.replace = replace};
    trace->busy = pool_submit(trace->pool, open_work, open_done, trace) == TCK_OK;
}

/* ---- lines ---------------------------------------------------------------------------------------------------------
 */

static void id_of(const struct version_mark *mark, char id[ID_BYTES])
{
    int len = snprintf(id, ID_BYTES, "%s %" PRIu64 ".%" PRIu64, mark->name, mark->version.term, mark->version.step);
    const struct {
        uint32_t number;
        const char *what;
    } numbers[] = {{mark->rank, "rank"}, {mark->slot, "slot"}, {mark->shard, "shard"}, {mark->node, "node"}};
    for (size_t i = 0; i < sizeof(numbers) / sizeof(*numbers); i++) {
        if (numbers[i].number != NONE32) {
            len += snprintf(id + len, ID_BYTES - (size_t)len, " %s %" PRIu32, numbers[i].what, numbers[i].number);
        }
    }
    if (mark->attempt != 0) {
        snprintf(id + len, ID_BYTES - (size_t)len, " attempt %" PRIu64, mark->attempt);
    }
}

static json_t *args_of(const struct term_context *tc, const struct version_mark *mark)
{
    json_t *args = json_object();
    (void)json_add_u64(args, "term", mark->version.term);
    (void)json_add_u64(args, "step", mark->version.step);
    if (mark->rank < tc->rank_count) {
        (void)json_add_u64(args, "rank", tc->ranks[mark->rank]);
    }
    if (mark->shard != NONE32) {
        (void)json_add_u64(args, "shard", mark->shard);
    }
    if (mark->node < tc->world.node_count) {
        (void)json_add_str(args, "node", tc->world.nodes[mark->node].name);
    }
    if (mark->phase == MARK_END) {
        (void)json_add_bool(args, "ok", mark->ok);
    }
    return args;
}

static json_t *new_event(const struct trace *trace, const char *name, const char *phase)
{
    json_t *event = json_object();
    (void)json_add_str(event, "name", name);
    (void)json_add_str(event, "cat", "version");
    (void)json_add_str(event, "ph", phase);
    (void)json_add_u64(event, "ts", clock_wall_us());
    (void)json_add_u64(event, "pid", trace->process);
    (void)json_add_u64(event, "tid", 0);
    return event;
}

/* Takes over args. */
static json_t *event_of_mark(const struct trace *trace, const struct version_mark *mark, json_t *args)
{
    static const char *const phases[] = {[MARK_BEGIN] = "b", [MARK_END] = "e", [MARK_INSTANT] = "i"};
    char id[ID_BYTES];
    json_t *event = new_event(trace, mark->name, phases[mark->phase]);
    if (mark->phase == MARK_INSTANT) {
        (void)json_add_str(event, "s", "p");
    } else {
        id_of(mark, id);
        (void)json_add_str(event, "id", id);
    }
    (void)json_add(event, "args", args);
    return event;
}

/* Frees the event. */
static void put(struct trace *trace, json_t *event)
{
    char line[TAIL_BYTES];
    char *text = json_print(event, false);
    int len = text != NULL ? snprintf(line, sizeof(line), "%s,\n", text) : 0;
    if (len > 0 && (size_t)len < sizeof(line)) {
        log_queue_put(trace->queue, line, (size_t)len);
        trace->bytes += (uint64_t)len;
    }
    free(text);
    json_free(event);
}

/* False: there is no file to write to, now or at all. */
static bool is_open(struct trace *trace)
{
    if (trace != NULL && (trace->queue == NULL || trace->bytes >= FULL_BYTES)) {
        open_soon(trace, trace->queue != NULL);
    }
    return trace != NULL && trace->queue != NULL;
}

void trace_note(struct trace *trace, const struct term_context *tc, const struct event *event,
                const struct action *action)
{
    struct version_mark mark;
    if (trace == NULL) {
        return; /* before anything else: this is called for each event and action */
    }
    bool marked =
        action != NULL
            ? version_mark_of_action(action, &mark)
            : version_mark_of_event(event, tc->world.term,
                                    event->type == EVENT_VERIFIED ? node_slot(tc->node, event->slot) : NULL, &mark);
    if (marked && is_open(trace)) {
        put(trace, event_of_mark(trace, &mark, args_of(tc, &mark)));
    }
}

void trace_arrived(struct trace *trace, const struct term_context *tc, const struct arrival *what)
{
    if (!is_open(trace)) {
        return;
    }
    struct version_mark mark = version_mark_of_arrival(what->shard, what->version, what->repairs);
    json_t *args = args_of(tc, &mark);
    (void)json_add_str(args, "source", source_kind_name(what->source));
    if (what->from[0] != '\0') {
        (void)json_add_str(args, "node", what->from);
    }
    (void)json_add_u64(args, "bytes", what->bytes);
    (void)json_add_u64(args, "in_term", tc->world.term);
    put(trace, event_of_mark(trace, &mark, args));
}

void trace_decided(struct trace *trace, const struct term_context *tc)
{
    struct version_mark marks[DECISION_MARKS];
    if (!is_open(trace)) {
        return; /* it is said later */
    }
    uint32_t count = version_marks_of_decision(&trace->decision, node_decision(tc->node), marks);
    for (uint32_t i = 0; i < count; i++) {
        put(trace, event_of_mark(trace, &marks[i], args_of(tc, &marks[i])));
    }
    trace->decision = *node_decision(tc->node);
}

/* ---- counters ------------------------------------------------------------------------------------------------------
 */

static struct figures figures_of(const struct report *report)
{
    const struct report_trainers *trainers = &report->trainers;
    struct figures figures = {.values = {[FIGURE_STEP] = trainers->step,
                                         [FIGURE_STEP_US] = trainers->step_ns / 1000,
                                         [FIGURE_STALL_US] = trainers->stalls.total_ns / 1000,
                                         [FIGURE_MEMORY] = report->memory.used_bytes,
                                         [FIGURE_COPIED] = report->tally.copied_bytes,
                                         [FIGURE_MISSING] = report->scrub.copies_missing}};
    for (unsigned i = 0; i < STALL_BUCKETS; i++) {
        figures.values[FIGURE_STALLS] += trainers->stalls.buckets[i];
    }
    for (unsigned i = 0; i < REFUSAL_KINDS; i++) {
        figures.values[FIGURE_REFUSED] += report->tally.saves_refused[i];
    }
    return figures;
}

static bool differs(double a, double b)
{
    return a < b || a > b;
}

/* What copies and drains cost a step, and the time of a step without them. */
static void put_inflation(struct trace *trace, const struct pacing_figures *pacing)
{
    const struct inflation *now = &pacing->inflation, *before = &trace->inflation;
    bool same = !differs(now->mean, before->mean) && !differs(now->quiet_ns, before->quiet_ns);
    if (now->pairs == 0 || (same && !trace->begins)) {
        return;
    }
    json_t *event = new_event(trace, "step inflation", "C"), *args = json_object();
    (void)json_add_f64(args, "low", now->low);
    (void)json_add_f64(args, "mean", now->mean);
    (void)json_add_f64(args, "high", now->high);
    (void)json_add_f64(args, "target", pacing->target);
    (void)json_add_u64(args, "quiet us", (uint64_t)(now->quiet_ns / 1000));
    (void)json_add(event, "args", args);
    put(trace, event);
    trace->inflation = *now;
}

static void put_counters(struct trace *trace, const struct report *report)
{
    static const char *const names[FIGURES] = {[FIGURE_STEP] = "step",
                                               [FIGURE_STEP_US] = "step us",
                                               [FIGURE_STALLS] = "stalls",
                                               [FIGURE_STALL_US] = "stall us",
                                               [FIGURE_MEMORY] = "memory bytes",
                                               [FIGURE_COPIED] = "copied bytes",
                                               [FIGURE_MISSING] = "copies missing",
                                               [FIGURE_REFUSED] = "saves refused"};
    struct figures now = figures_of(report);
    for (unsigned i = 0; i < FIGURES; i++) {
        if (now.values[i] == trace->figures.values[i] && !trace->begins) {
            continue;
        }
        json_t *event = new_event(trace, names[i], "C"), *args = json_object();
        (void)json_add_u64(args, "value", now.values[i]);
        (void)json_add(event, "args", args);
        put(trace, event);
        trace->figures.values[i] = now.values[i];
    }
}

void trace_figures(struct trace *trace, const struct report *report)
{
    if (!is_open(trace)) {
        return;
    }
    put_counters(trace, report);
    put_inflation(trace, &report->pacing);
    trace->begins = false;
}

/* ---- life
 * ------------------------------------------------------------------------------------------------------------ */

tck_status_t trace_new(struct loop *loop, const struct config *config, struct trace **out, struct error *err)
{
    *out = NULL;
    if (config->trace_dir[0] == '\0') {
        return TCK_OK;
    }
    struct trace *trace = calloc(1, sizeof(*trace));
    if (trace == NULL) {
        return error_set(err, TCK_ERR_NOMEM, "agent: out of memory");
    }
    trace->config = config;
    trace->process = crc32c(0, config->node, strlen(config->node)) & INT32_MAX;
    snprintf(trace->path, sizeof(trace->path), "%s/%s.%s.trace.json", config->trace_dir, config->job, config->node);
    tck_status_t status = pool_new(loop, 1, &trace->pool, err);
    if (status != TCK_OK) {
        free(trace);
        return status;
    }
    open_soon(trace, false);
    *out = trace;
    return TCK_OK;
}

void trace_free(struct trace *trace)
{
    if (trace == NULL) {
        return;
    }
    pool_free(trace->pool);
    if (trace->queue != NULL) {
        log_queue_end(trace->queue);
    }
    free(trace);
}

/* SPDX-License-Identifier: Apache-2.0
 * tierckpt tune: the intervals and the number of copies that cost the running training least, and with --why the
 * reasons. */
#include "core/tune.h"
#include "cli/cli.h"

#include <inttypes.h>
#include <stdio.h>

#define HOUR_S 3600.0

struct tuning {
    struct tune_costs costs;
    struct tune_failures failures;
    struct tune_counts counts;
    struct tune_advice now, advice; /* now: 0 steps if an interval is a time, or if nothing is saved there */
    uint64_t saves;
    uint32_t copies; /* advised */
    double now_overhead;
};

static double ns(const json_t *object, const char *key)
{
    return (double)number_of(object, key) / 1e9;
}

static void give(double *mean, uint64_t hours)
{
    *mean = hours != 0 ? (double)hours * HOUR_S : *mean;
}

/* What is counted has its share in what is assumed, but not in what the user knows. */
static struct tune_failures failures_of(const struct cli *cli, const struct tune_counts *counts, uint64_t nodes)
{
    struct tune_failures assumed = tune_assumed((uint32_t)nodes, cli->config.copies);
    struct tune_failures out = tune_counted(&assumed, counts);
    give(&out.process, cli->tune.process_hours);
    give(&out.node, cli->tune.node_hours);
    give(&out.several, cli->tune.several_hours);
    give(&out.all, cli->tune.all_hours);
    return out;
}

static tck_status_t measure(const struct cli *cli, const json_t *status, struct tuning *t, struct error *err)
{
    const json_t *training = json_get(status, "training");
    uint64_t nodes = (uint64_t)json_len(json_get(status, "nodes"));
    t->saves = number_of(training, "saves");
    t->costs.step = ns(training, "step_ns");
    t->costs.drain = (double)number_of(status, "drain_ms") / 1e3;
    t->now = (struct tune_advice){.mem_steps = number_of(training, "save_mem_steps"),
                                  .storage_steps = number_of(training, "save_storage_steps")};
    if (t->saves == 0 || t->costs.step <= 0 || nodes == 0) {
        return error_set(err, TCK_ERR_BUSY,
                         "nothing has been measured yet: run tune while the job trains, after its first saves");
    }
    t->costs.stall = ns(training, "stall_ns") / (double)t->saves;
    t->costs.commit = (double)number_of(training, "commit_ms") / 1e3;
    t->counts = (struct tune_counts){.restarts = number_of(training, "restarts"),
                                     .nodes = number_of(training, "node_losses"),
                                     .several = number_of(training, "several_losses"),
                                     .node_seconds = (double)number_of(training, "node_ms") / 1e3};
    t->failures = failures_of(cli, &t->counts, nodes);
    return TCK_OK;
}

static void advise(struct tuning *t)
{
    t->advice = tune_advise(&t->costs, &t->failures);
    t->copies = tune_copies(&t->costs, &t->failures);
    t->now.survived = t->advice.survived;
    t->now.lost = t->advice.lost;
    t->now_overhead = t->now.mem_steps != 0 && t->now.storage_steps != 0 ? tune_overhead(&t->costs, &t->now) : 0;
}

static json_t *answer_of(const struct tuning *t)
{
    json_t *json = json_object();
    json_add_bool(json, "ok", true);
    json_add_u64(json, "save_mem_interval", t->advice.mem_steps);
    json_add_u64(json, "save_storage_interval", t->advice.storage_steps);
    json_add_u64(json, "copies", t->copies);
    json_add_u64(json, "overhead_ppm", (uint64_t)(1e6 * tune_overhead(&t->costs, &t->advice)));
    json_add_u64(json, "overhead_now_ppm", (uint64_t)(1e6 * t->now_overhead));
    return json;
}

static void print_measured(const struct tuning *t)
{
    const struct tune_costs *c = &t->costs;
    printf("\nMeasured on this node: a step takes %.3g s, and each of %" PRIu64 " saves stalled it for %.3g ms.\n",
           c->step, t->saves, 1e3 * c->stall);
    printf("The fastest save had its copies and was committed after %.3g s.\n", c->commit);
    if (c->drain > 0) {
        printf("The fastest drain to storage took %.3g s.\n", c->drain);
    } else {
        printf("No drain to storage has been measured yet, so the second value is too small: ask again later.\n");
    }
}

static void print_failures(const struct tuning *t)
{
    const struct tune_failures *f = &t->failures;
    printf("Counted in %.3g hours of %u nodes: starts with the same nodes %" PRIu64 ", with one node replaced %" PRIu64
           ", with several replaced %" PRIu64 ".\n",
           t->counts.node_seconds / HOUR_S / f->nodes, f->nodes, t->counts.restarts, t->counts.nodes,
           t->counts.several);
    printf("What is not given is that of large clusters, corrected by what was counted. The software of a node fails "
           "every\n%.0f hours (--process-mtbf), the node every %.0f (--node-mtbf), and it together with another one "
           "every\n%.0f (--several-mtbf). All nodes fail at once every %.0f (--all-mtbf), which cannot be counted.\n",
           f->process / HOUR_S, f->node / HOUR_S, f->several / HOUR_S, f->all / HOUR_S);
}

static void print_alternative(const struct tuning *t, const char *what, const struct tune_advice *at)
{
    printf("  %-28s every %-8" PRIu64 " and %-8" PRIu64 " %8.3g %%\n", what, at->mem_steps, at->storage_steps,
           100 * tune_overhead(&t->costs, at));
}

/* What the training would lose otherwise, in the same failures. */
static void print_alternatives(const struct tuning *t)
{
    struct tune_advice often = t->advice, seldom = t->advice;
    often.mem_steps = (often.mem_steps + 3) / 4;
    seldom.mem_steps *= 4;
    seldom.storage_steps *= 4;
    printf("\nStalls and lost work, by the intervals of saves to memory and to storage:\n");
    print_alternative(t, "advised", &t->advice);
    print_alternative(t, "memory four times as often", &often);
    print_alternative(t, "both four times as seldom", &seldom);
    for (uint32_t copies = 1; copies <= TUNE_COPIES_MAX && copies <= t->failures.nodes; copies++) {
        struct tune_advice best = tune_advise_copies(&t->costs, &t->failures, copies);
        char what[64];
        snprintf(what, sizeof(what), "copies %u, its best intervals", copies);
        print_alternative(t, what, &best);
    }
}

static void print_why(const struct tuning *t)
{
    double mem = (double)t->advice.mem_steps * t->costs.step, storage = (double)t->advice.storage_steps * t->costs.step;
    print_measured(t);
    print_failures(t);
    printf(
        "A failure that memory survives comes every %.3g hours and costs %.3g s of work on average, another one every "
        "%.3g hours and %.3g s.\n",
        1 / t->advice.survived / HOUR_S, mem / 2, 1 / t->advice.lost / HOUR_S, storage / 2 + t->costs.drain);
    printf("Saving more often would stall the training for more than it would save, or copies would not be made before "
           "the next save,\nand storage would be busy for more than half of the time.\n");
    print_alternatives(t);
}

static void print_copies(const struct tuning *t)
{
    struct tune_advice best = tune_advise_copies(&t->costs, &t->failures, t->copies);
    if (t->failures.nodes == 1) {
        return;
    }
    if (t->copies == t->failures.copies) {
        printf("copies = %u is right: one more would take its memory for less than 0.1 %% of the time.\n", t->copies);
        return;
    }
    printf("With copies = %u instead of %u, from the next start on, that would be %.3g %%%s.\n", t->copies,
           t->failures.copies, 100 * tune_overhead(&t->costs, &best),
           t->failures.copies == 1 ? ", if copies are made before the next save" : "");
}

static void print_advice(const struct tuning *t)
{
    printf("save_mem_interval     %-8" PRIu64 " every %.3g s\n", t->advice.mem_steps,
           (double)t->advice.mem_steps * t->costs.step);
    printf("save_storage_interval %-8" PRIu64 " every %.3g s\n", t->advice.storage_steps,
           (double)t->advice.storage_steps * t->costs.step);
    printf("Stalls and lost work then take %.3g %% of the time", 100 * tune_overhead(&t->costs, &t->advice));
    if (t->now_overhead > 0) {
        printf("; at the present intervals, %" PRIu64 " and %" PRIu64 ", they take %.3g %%", t->now.mem_steps,
               t->now.storage_steps, 100 * t->now_overhead);
    }
    printf(".\n");
    print_copies(t);
    printf("`tierckpt config --set save_mem_interval=%" PRIu64 "` changes it while the job runs; \"auto\" in place of "
           "the number follows\nwhat is measured. --why explains this.\n",
           t->advice.mem_steps);
}

int cli_tune(const struct cli *cli)
{
    struct tuning tuning = {0};
    struct error err;
    json_t *status = cli_ask(cli, "status", NULL);
    if (status == NULL) {
        return 1;
    }
    tck_status_t measured = measure(cli, status, &tuning, &err);
    json_free(status);
    if (measured != TCK_OK) {
        return cli_fail(cli, &err);
    }
    advise(&tuning);
    json_t *answer = answer_of(&tuning);
    if (!cli_json(cli, answer)) {
        print_advice(&tuning);
        if (cli->tune.why) {
            print_why(&tuning);
        }
    }
    json_free(answer);
    return 0;
}

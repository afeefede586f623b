/* SPDX-License-Identifier: Apache-2.0
 * One version of a large job: what the agents say to each other, and what it costs the coordinator and the others. */
#include "sim.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static struct counts *before; /* of each host, when the phase began */

static struct counts difference(uint32_t host)
{
    const struct counts *now = &sim.hosts[host].counts, *then = &before[host];
    return (struct counts){.messages = now->messages - then->messages,
                           .bytes = now->bytes - then->bytes,
                           .transferred = now->transferred - then->transferred,
                           .frames = now->frames - then->frames,
                           .calls = now->calls - then->calls,
                           .ns = now->ns - then->ns};
}

static void add(struct counts *sum, struct counts x)
{
    sum->messages += x.messages;
    sum->bytes += x.bytes;
    sum->transferred += x.transferred;
    sum->frames += x.frames;
    sum->calls += x.calls;
    sum->ns += x.ns;
}

void scale_phase(const char *name, uint64_t began_us)
{
    struct counts all = {0}, coordinator = difference(0);
    for (uint32_t i = 0; i < sim.host_count; i++) {
        add(&all, difference(i));
        before[i] = sim.hosts[i].counts;
    }
    double others = sim.host_count > 1 ? (double)(all.ns - coordinator.ns) / (sim.host_count - 1) : 0;
    printf("%-10s %9.1f %10" PRIu64 " %12" PRIu64 " %12" PRIu64 " %9" PRIu64 " %9" PRIu64 " %12.2f %12.3f\n", name,
           (double)(sim.us - began_us) / (double)MS, all.messages, all.bytes, all.transferred, all.frames,
           coordinator.messages, (double)coordinator.ns / 1e6, others / 1e6);
    fflush(stdout);
}

void scale_run(uint32_t hosts, uint32_t ranks_per_host)
{
    struct shape shape = {
        .ranks_per_host = ranks_per_host, .ranks = hosts * ranks_per_host, .twins = 1, .hosts = hosts};
    job = (struct job){.shapes = {shape, shape},
                       .newest = shape,
                       .shards = 1,
                       .image_bytes = 128,
                       .step_us = S,
                       .steps = 1,
                       .save_every = 1,
                       .store_every = 1000,
                       .copies = hosts > 1 ? 2 : 1,
                       .kept = 3};
    sim.measure = true;
    before = calloc(hosts, sizeof(*before));
    printf("%-10s %9s %10s %12s %12s %9s %9s %12s %12s\n", "phase", "world ms", "messages", "bytes", "images", "frames",
           "its sends", "coordin. ms", "others ms");
    make_hosts(hosts, 2, false);
    scale_phase("start", 0);
    sim_after(10 * MS, NULL, launch_begin, NULL);
    while (!job.done && sim_step()) {
    }
}

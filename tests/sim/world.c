/* SPDX-License-Identifier: Apache-2.0
 * Time, random choices, and the event queue. */
#include "bucket.h"

#include "base/clock.h"
#include "base/digest.h"
#include "base/secret.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define LINES_MAX 10000 /* in one event */
#define WALL_MS   UINT64_C(1767225600000)

struct sim sim;

/* ---- random choices ---------------------------------------------------------------------------------------------- */

/* splitmix64 */
uint64_t sim_random(void)
{
    uint64_t x = sim.random += 0x9E3779B97F4A7C15u;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
}

uint64_t sim_between(uint64_t low, uint64_t high)
{
    return low + sim_random() % (high - low + 1);
}

bool sim_chance(uint32_t percent)
{
    return sim_random() % 100 < percent;
}

bool sim_trait(enum trait trait)
{
    static const uint32_t percent[] = {
        [TRAIT_FREEZES] = 25,       [TRAIT_SAME_RUN] = 60,     [TRAIT_SLOW] = 25,
        [TRAIT_ISOLATES] = 20,      [TRAIT_SECOND] = 20,       [TRAIT_DAMAGE] = 25,
        [TRAIT_DOUBTS] = 25,        [TRAIT_DOMAINS] = 30,      [TRAIT_KEEPS_FEW] = 40,
        [TRAIT_BASE_GOES_BAD] = 20, [TRAIT_SLOW_DRAINS] = 15,  [TRAIT_OVERLOADED] = 5,
        [TRAIT_RESHARDS] = 20,      [TRAIT_MOVES] = 20,        [TRAIT_CATALOG] = 30,
        [TRAIT_LAST_STEP] = 40,     [TRAIT_ASKS_STEP] = 20,    [TRAIT_SPREADS] = 20,
        [TRAIT_NAMESAKES] = 10,     [TRAIT_TWINS_DIFFER] = 15, [TRAIT_LAST_DRAIN_FAILS] = 40,
        [TRAIT_LATE_REPORTS] = 15,  [TRAIT_TIMERS_FIRST] = 50, [TRAIT_STANDS_STILL] = 15,
        [TRAIT_FULL] = 4,           [TRAIT_POWER] = 8,         [TRAIT_CLOCK_JUMPS] = 8,
        [TRAIT_NETWORKS] = 6,       [TRAIT_PRESSURE] = 8,      [TRAIT_BUCKET] = 6,
        [TRAIT_LONG_COPIES] = 4,    [TRAIT_ARCHIVE] = 12,      [TRAIT_TREE] = 15,
        [TRAIT_UNCHANGED] = 8};
    static enum {
        UNKNOWN,
        ABSENT,
        PRESENT
    } known[sizeof(percent) / sizeof(percent[0])]; /* because it is needed often */
    uint64_t of[2] = {sim.seed, trait};
    if (sim.measure) {
        return trait == TRAIT_CATALOG; /* as in a real job without faults */
    }
    if ((trait == TRAIT_ARCHIVE && sim.archives) || (trait == TRAIT_TREE && sim.leaders)) {
        return true;
    }
    if (trait == TRAIT_BUCKET && (sim.buckets || !bucket_is_built)) {
        return bucket_is_built;
    }
    if ((trait == TRAIT_DOUBTS || trait == TRAIT_FULL || trait == TRAIT_POWER) && sim_trait(TRAIT_BUCKET)) {
        return false; /* of directories alone */
    }
    if (trait == TRAIT_LONG_COPIES && sim_trait(TRAIT_OVERLOADED)) {
        return false;
    }
    if (known[trait] == UNKNOWN) {
        known[trait] = hash128_of(of, sizeof(of)).lo % 100 < percent[trait] ? PRESENT : ABSENT;
    }
    return known[trait] == PRESENT;
}

tck_status_t __wrap_random_bytes(void *out, size_t len);
ssize_t __wrap_getrandom(void *out, size_t len, unsigned flags);

tck_status_t __wrap_random_bytes(void *out, size_t len)
{
    uint8_t *to = out;
    for (size_t i = 0; i < len; i++) {
        to[i] = (uint8_t)sim_random();
    }
    return TCK_OK;
}

ssize_t __wrap_getrandom(void *out, size_t len, unsigned flags)
{
    (void)flags;
    return __wrap_random_bytes(out, len) == TCK_OK ? (ssize_t)len : -1;
}

/* ---- digests ----------------------------------------------------------------------------------------------------- */

/* Nothing is forged in the simulation, so a fast digest is sufficient. */
void __wrap_sha256(const void *data, size_t len, uint8_t out[MAC_BYTES]);
void __wrap_secret_mac(const struct secret *secret, const char *label, const void *data, size_t len,
                       uint8_t out[MAC_BYTES]);

void __wrap_sha256(const void *data, size_t len, uint8_t out[MAC_BYTES])
{
    struct hash128 hash[2] = {hash128_of(data, len)};
    hash[1] = hash128_of(&hash[0], sizeof(hash[0]));
    memcpy(out, hash, MAC_BYTES);
}

void __wrap_secret_mac(const struct secret *secret, const char *label, const void *data, size_t len,
                       uint8_t out[MAC_BYTES])
{
    struct hash128 of_label = hash128_of(label, strlen(label)), of_data = hash128_of(data, len);
    uint8_t all[SECRET_BYTES + sizeof(of_label) + sizeof(of_data)];
    memcpy(all, secret->bytes, SECRET_BYTES);
    memcpy(all + SECRET_BYTES, &of_label, sizeof(of_label));
    memcpy(all + SECRET_BYTES + sizeof(of_label), &of_data, sizeof(of_data));
    __wrap_sha256(all, sizeof(all), out);
}

/* ---- time ------------------------------------------------------------------------------------------------------- */

uint64_t clock_ns(void)
{
    uint64_t ahead_us = sim.current != NULL ? sim.current->clock_ahead_us : 0;
    return (sim.us + ahead_us) * 1000 + S * 1000; /* because 0 means "never" in some places */
}

uint64_t clock_ms(void)
{
    return clock_ns() / 1000 / MS;
}

uint64_t clock_wall_ms(void)
{
    int64_t ahead_ms = sim.current != NULL ? sim.current->wall_ahead_ms : 0;
    return WALL_MS + sim.us / MS + (uint64_t)ahead_ms;
}

uint64_t clock_wall_us(void)
{
    return clock_wall_ms() * 1000;
}

uint64_t clock_thread_ns(void)
{
    return clock_ns();
}

static bool is_before(const struct scheduled *a, const struct scheduled *b)
{
    return a->us < b->us || (a->us == b->us && a->sequence < b->sequence);
}

/* Events of the same time run in the order in which they were queued. */
static void put(struct scheduled event, uint64_t us)
{
    if (sim.count == sim.cap) {
        sim.cap = sim.cap ? 2 * sim.cap : 1024;
        sim.heap = realloc(sim.heap, sim.cap * sizeof(*sim.heap));
        if (sim.heap == NULL) {
            abort();
        }
    }
    event.us = us;
    event.sequence = ++sim.sequence;
    size_t at = sim.count++;
    while (at > 0 && is_before(&event, &sim.heap[(at - 1) / 2])) {
        sim.heap[at] = sim.heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    sim.heap[at] = event;
}

void sim_after(uint64_t delay_us, struct host *host, sim_fn *fn, void *ctx)
{
    put((struct scheduled){.fn = fn, .ctx = ctx, .host = host, .life = host != NULL ? host->life : 0},
        sim.us + delay_us);
}

static struct scheduled take_first(void)
{
    struct scheduled first = sim.heap[0], last = sim.heap[--sim.count];
    size_t at = 0;
    for (size_t child = 1; child < sim.count; child = 2 * at + 1) {
        child += child + 1 < sim.count && is_before(&sim.heap[child + 1], &sim.heap[child]);
        if (!is_before(&sim.heap[child], &last)) {
            break;
        }
        sim.heap[at] = sim.heap[child];
        at = child;
    }
    sim.heap[at] = last;
    return first;
}

bool sim_step(void)
{
    if (sim.count == 0 || sim.ended) {
        return false;
    }
    struct scheduled event = take_first();
    sim.us = event.us;
    if (event.host == NULL) {
        event.fn(event.ctx);
    } else if (event.host->life == event.life && event.host->stopped_until_us > sim.us) {
        put(event, event.host->stopped_until_us);
        return true;
    } else if (event.host->life == event.life && event.host->loop != NULL) {
        host_run(event.host, event.fn, event.ctx);
    } else {
        return true;
    }
    sim.events++;
    judge_event();
    return true;
}

/* ---- log ------------------------------------------------------------------------------------------------ */

static void write_line(const char *who, const char *fmt, va_list args)
{
    printf("%9.3f %-8s ", (double)sim.us / (double)S, who);
    vprintf(fmt, args);
    putchar('\n');
}

void sim_log(const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    if (sim.verbose) {
        write_line("*", fmt, args);
    }
    va_end(args);
}

void sim_violation(const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    if (sim.violation[0] == '\0') {
        vsnprintf(sim.violation, sizeof(sim.violation), fmt, args);
        sim_log("VIOLATION: %s", sim.violation);
    }
    va_end(args);
    sim.ended = true;
}

/* Detects an agent that loops forever in one event, in which case nothing else would ever happen. */
static void check_talk(const char *fmt)
{
    static uint64_t event, lines;
    lines = event == sim.events ? lines + 1 : 0;
    event = sim.events;
    if (lines > LINES_MAX && sim.current != NULL) {
        sim_violation("%s loops forever, and logs: %s", sim.current->name, fmt);
        longjmp(sim.current->death, 1);
    }
}

void log_write(enum log_level level, const char *fmt, ...)
{
    va_list args;
    check_talk(fmt);
    va_start(args, fmt);
    if (sim.verbose && level <= LOG_INFO) {
        write_line(sim.current != NULL ? sim.current->name : "?", fmt, args);
    }
    va_end(args);
}

tck_status_t log_open(const char *path, enum log_level max, const char *name, struct error *err)
{
    (void)path;
    (void)max;
    (void)name;
    (void)err;
    return TCK_OK;
}

bool log_limit_pass(struct log_limit *limit)
{
    limit->count++;
    bool pass = (limit->count & (limit->count - 1)) == 0 || clock_ms() - limit->said_ms >= 10000;
    limit->said_ms = pass ? clock_ms() : limit->said_ms;
    return pass;
}

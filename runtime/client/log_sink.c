/* SPDX-License-Identifier: Apache-2.0
 * The functions of tierckpt.h about log lines. The snapshot worker's thread writes lines, too, and must not wait for
 * an interpreter's lock. So lines are kept until the program takes them in a call of its own; only the newest are
 * kept. */
#include "client/log_sink.h"
#include "base/log.h"
#include "tierckpt.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define KEPT       64
#define TEXT_BYTES 1024

struct kept {
    enum log_level level;
    char text[TEXT_BYTES];
};

static struct {
    atomic_bool chosen; /* the program has chosen where lines go */
    tck_log_fn *fn;     /* these two only change while no line is being handed over */
    void *ctx;
    pthread_mutex_t lock; /* of all below */
    struct kept kept[KEPT];
    uint32_t first, count;
    uint64_t lost;
} lines = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void keep(void *ctx, enum log_level level, const char *text)
{
    struct kept *line;

    (void)ctx;
    pthread_mutex_lock(&lines.lock);
    if (lines.count == KEPT) {
        lines.first = (lines.first + 1) % KEPT;
        lines.count--;
        lines.lost++;
    }
    line = &lines.kept[(lines.first + lines.count++) % KEPT];
    line->level = level;
    snprintf(line->text, sizeof(line->text), "%s", text);
    pthread_mutex_unlock(&lines.lock);
}

static void hand_over(void *ctx, enum log_level level, const char *text)
{
    (void)ctx;
    lines.fn(lines.ctx, (tck_log_level_t)level, text);
}

void log_sink_open(const struct config *config, uint32_t rank)
{
    char name[CONFIG_NAME + 32];
    struct error err;

    snprintf(name, sizeof(name), "%s/rank%u[%d]", config->node, rank, (int)getpid());
    if (config->log_file_path[0] != '\0' && strcmp(config->log_file_path, "-") != 0 && /* the terminal: the trainer's */
        log_open_queued(config->log_file_path, (enum log_level)config->log_level, name, &err) != TCK_OK) {
        log_warn("rank %u: lines of this process are not in the log of the node: %s", rank, err.text);
    }
}

void log_sink_close(void)
{
    log_close();
}

void log_sink_after_fork(void)
{
    pthread_mutex_init(&lines.lock, NULL);
    lines.count = 0;
    lines.lost = 0;
}

void log_sink_begin(void)
{
    if (!atomic_load(&lines.chosen)) {
        log_hand(keep, NULL, LOG_INFO);
    }
}

void tck_set_log(tck_log_fn *fn, void *ctx, tck_log_level_t most)
{
    enum log_level level = most > TCK_LOG_DEBUG ? LOG_DEBUG : (enum log_level)most;

    atomic_store(&lines.chosen, true);
    log_hand(NULL, NULL, LOG_ERROR);
    lines.fn = fn;
    lines.ctx = ctx;
    if (fn != NULL) {
        log_hand(hand_over, NULL, level);
    }
}

/* With the lock held. */
static void take(struct kept *out)
{
    if (lines.lost > 0) {
        out->level = LOG_WARN;
        snprintf(out->text, sizeof(out->text), "%" PRIu64 " lines before this one were not taken in time", lines.lost);
        lines.lost = 0;
        return;
    }
    *out = lines.kept[lines.first];
    lines.first = (lines.first + 1) % KEPT;
    lines.count--;
}

int tck_next_log(tck_log_level_t *level_out, char *text_out, size_t cap)
{
    struct kept line;
    bool there;

    if (level_out == NULL || text_out == NULL) { /* there is no place for a line, so none is taken */
        return 0;
    }
    pthread_mutex_lock(&lines.lock);
    there = lines.count > 0;
    if (there) {
        take(&line);
    }
    pthread_mutex_unlock(&lines.lock);
    if (there) {
        *level_out = (tck_log_level_t)line.level;
        snprintf(text_out, cap, "%s", line.text);
    }
    return there;
}

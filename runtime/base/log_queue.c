/* SPDX-License-Identifier: Apache-2.0
 * Two buffers: one is filled while the thread writes the other one. */
#include "base/log_queue.h"

#include "base/thread.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define BUFFER_BYTES ((size_t)64 << 10)
#define END_MS       1000

struct log_queue {
    int fd;
    log_queue_note_fn *note;
    pthread_mutex_t lock; /* of all below */
    pthread_cond_t changed;
    char *fill, *write;
    size_t used;
    uint64_t dropped; /* lines dropped since the last one that was queued */
    bool ending, ended, left_behind;
};

static void queue_free(struct log_queue *queue)
{
    close(queue->fd);
    pthread_cond_destroy(&queue->changed);
    pthread_mutex_destroy(&queue->lock);
    free(queue->fill);
    free(queue->write);
    free(queue);
}

/* Failing writes are ignored: there is nowhere left to report them. */
static void write_all(int fd, const char *data, size_t len)
{
    while (len > 0) {
        ssize_t written = write(fd, data, len);

        if (written > 0) {
            data += written;
            len -= (size_t)written;
        } else if (written == 0 || errno != EINTR) {
            return;
        }
    }
}

/* With the lock held. False: there is nothing more to write. */
static bool take(struct log_queue *queue, size_t *len_out, uint64_t *dropped_out)
{
    while (queue->used == 0 && !queue->ending) {
        pthread_cond_wait(&queue->changed, &queue->lock);
    }
    char *taken = queue->fill;

    *len_out = queue->used;
    *dropped_out = queue->dropped;
    queue->fill = queue->write;
    queue->write = taken;
    queue->used = 0;
    queue->dropped = 0;
    return *len_out > 0;
}

static void *run(void *ctx)
{
    struct log_queue *queue = ctx;
    size_t len;
    uint64_t dropped;

    pthread_mutex_lock(&queue->lock);
    while (take(queue, &len, &dropped)) {
        pthread_mutex_unlock(&queue->lock);
        write_all(queue->fd, queue->write, len);
        if (dropped > 0) {
            char note[LOG_QUEUE_NOTE];

            queue->note(dropped, note);
            write_all(queue->fd, note, strlen(note));
        }
        pthread_mutex_lock(&queue->lock);
    }
    queue->ended = true;
    bool free_it = queue->left_behind;

    pthread_cond_broadcast(&queue->changed);
    pthread_mutex_unlock(&queue->lock);
    if (free_it) {
        queue_free(queue);
    }
    return NULL;
}

tck_status_t log_queue_new(int fd, log_queue_note_fn *note, struct log_queue **out, struct error *err)
{
    struct log_queue *queue = calloc(1, sizeof(*queue));

    if (queue == NULL) {
        close(fd);
        return error_set(err, TCK_ERR_NOMEM, "no memory for the log");
    }
    queue->fd = fd;
    queue->note = note;
    queue->fill = malloc(BUFFER_BYTES);
    queue->write = malloc(BUFFER_BYTES);
    pthread_mutex_init(&queue->lock, NULL);
    pthread_cond_init(&queue->changed, NULL);
    int rc = queue->fill == NULL || queue->write == NULL ? ENOMEM : thread_start_detached(run, queue);

    if (rc != 0) {
        queue_free(queue);
        errno = rc;
        return error_set(err, status_of_errno(rc), "start the thread of the log: %m");
    }
    *out = queue;
    return TCK_OK;
}

void log_queue_put(struct log_queue *queue, const char *line, size_t len)
{
    pthread_mutex_lock(&queue->lock);
    if (queue->used + len <= BUFFER_BYTES) {
        memcpy(queue->fill + queue->used, line, len);
        queue->used += len;
        pthread_cond_broadcast(&queue->changed);
    } else {
        queue->dropped++;
    }
    pthread_mutex_unlock(&queue->lock);
}

void log_queue_end(struct log_queue *queue)
{
    struct timespec until;
    int rc = 0;

    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += END_MS / 1000;
    pthread_mutex_lock(&queue->lock);
    queue->ending = true;
    pthread_cond_broadcast(&queue->changed);
    while (!queue->ended && rc == 0) {
        rc = pthread_cond_clockwait(&queue->changed, &queue->lock, CLOCK_MONOTONIC, &until);
    }
    bool ended = queue->ended;

    queue->left_behind = !ended;
    pthread_mutex_unlock(&queue->lock);
    if (ended) {
        queue_free(queue);
    }
}

void log_queue_after_fork(struct log_queue *queue)
{
    close(queue->fd);
}

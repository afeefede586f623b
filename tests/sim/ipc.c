/* SPDX-License-Identifier: Apache-2.0
 * The socket between trainers and their agent (base/ipc.h). Frames are delayed but never overtake each other. */
#include "sim.h"

#include "base/anchor.h"
#include "base/control.h"
#include "base/lock.h"
#include "base/place.h"
#include "heap.h"

#include <stdlib.h>
#include <string.h>

static void append(struct object *to, struct frame *frame)
{
    frame->next = NULL;
    *to->end = frame;
    to->end = &frame->next;
}

static struct frame *take(struct object *from)
{
    struct frame *frame = from->first;
    if (frame != NULL) {
        from->first = frame->next;
        from->end = from->first != NULL ? from->end : &from->first;
    }
    return frame;
}

/* ---- the end of a connection ------------------------------------------------------------------------------------- */

static void deliver_cut(void *ctx)
{
    struct object *socket = ctx;
    if (socket->got != NULL) {
        socket->got(socket->ctx, NULL);
    }
}

/* Delivered after all frames in flight. */
static void hang_up_other(void *ctx)
{
    struct object *socket = ctx;
    if (socket->hung_up) {
        return;
    }
    socket->hung_up = true;
    if (socket->host != NULL) {
        object_wake(socket);
    } else {
        deliver_cut(socket);
    }
}

void ipc_hang_up(struct object *socket)
{
    struct object *other = socket->other;
    bool was = socket->hung_up;
    socket->hung_up = true;
    object_wake(socket);
    if (!was && other != NULL && !other->hung_up) {
        uint64_t at = other->arrives_us > sim.us ? other->arrives_us : sim.us;
        sim_after(at - sim.us + sim_between(5, 200), NULL, hang_up_other, other);
    }
}

/* ---- frames ------------------------------------------------------------------------------------------------------ */

static void arrive(void *ctx)
{
    struct frame *frame = ctx;
    struct object *to = frame->to;
    if (to->hung_up) {
        ipc_frame_free(&frame->ipc);
        free(frame);
    } else if (to->host != NULL) {
        append(to, frame);
        object_wake(to);
    } else {
        to->got(to->ctx, &frame->ipc);
        ipc_frame_free(&frame->ipc);
        free(frame);
    }
}

tck_status_t ipc_send(int fd, uint32_t type, const void *payload, size_t len, const int *fds, uint32_t fd_count,
                      int timeout_ms, struct error *err)
{
    (void)timeout_ms;
    struct object *from = object_of(fd);
    host_does_something();
    if (from == NULL || from->hung_up || from->other == NULL) {
        return error_set(err, TCK_ERR_UNREACHABLE, "the other side is gone");
    }
    struct object *to = from->other;
    struct frame *frame = calloc(1, sizeof(*frame));
    frame->to = to;
    frame->ipc =
        (struct ipc_frame){.type = type, .payload = len ? malloc(len) : NULL, .len = len, .fd_count = fd_count};
    if (len) {
        memcpy(frame->ipc.payload, payload, len);
    }
    for (uint32_t i = 0; i < fd_count; i++) {
        frame->ipc.fds[i] = object_fd(object_of(fds[i]));
    }
    struct host *host = from->host != NULL ? from->host : to->host;
    host->counts.frames++;
    uint64_t at = sim.us + sim_between(5, 200);
    at = at > to->arrives_us ? at : to->arrives_us + 1;
    to->arrives_us = at;
    sim_after(at - sim.us, NULL, arrive, frame);
    return TCK_OK;
}

tck_status_t ipc_recv(int fd, int timeout_ms, struct ipc_frame *out, struct error *err)
{
    (void)timeout_ms;
    struct object *object = object_of(fd);
    struct frame *frame = object != NULL ? take(object) : NULL;
    if (frame == NULL) {
        return object != NULL && !object->hung_up ? error_set(err, TCK_ERR_TIMEDOUT, "no frame has arrived")
                                                  : error_set(err, TCK_ERR_UNREACHABLE, "the other side is gone");
    }
    *out = frame->ipc;
    heap_give(out->payload, object->host->heap_owner);
    free(frame);
    return TCK_OK;
}

void ipc_frame_free(struct ipc_frame *frame)
{
    for (uint32_t i = 0; i < frame->fd_count; i++) {
        if (frame->fds[i] >= 0) {
            fd_close(frame->fds[i]);
        }
    }
    free(frame->payload);
    *frame = (struct ipc_frame){0};
}

/* ---- connecting -------------------------------------------------------------------------------------------------- */

tck_status_t ipc_open_dir(const char *dir, int *fd_out, struct error *err)
{
    (void)dir;
    (void)err;
    *fd_out = object_fd(object_new(OBJECT_OTHER));
    return TCK_OK;
}

tck_status_t ipc_listen(const char *dir, const char *name, int *fd_out, struct error *err)
{
    (void)dir;
    (void)name;
    (void)err;
    sim.current->listener = object_new(OBJECT_LISTENER);
    sim.current->listener->host = sim.current;
    *fd_out = object_fd(sim.current->listener);
    return TCK_OK;
}

/* Takes a connection from the listener's queue: the agent's end, and the process at the other end. */
tck_status_t ipc_accept(int listen_fd, int *fd_out, pid_t *pid_out, struct error *err)
{
    struct object *listener = object_of(listen_fd);
    struct frame *waiting = listener != NULL ? take(listener) : NULL;
    if (waiting == NULL) {
        return error_set(err, TCK_ERR_BUSY, "no connection is pending");
    }
    *fd_out = object_fd(waiting->to);
    *pid_out = (pid_t)waiting->ipc.type;
    free(waiting);
    return TCK_OK;
}

struct object *ipc_join(struct host *host, pid_t pid, void (*got)(void *ctx, struct ipc_frame *frame), void *ctx)
{
    if (host->agent == NULL || host->listener == NULL) {
        return NULL;
    }
    struct object *mine = object_new(OBJECT_SOCKET), *its = object_new(OBJECT_SOCKET);
    struct frame *waiting = calloc(1, sizeof(*waiting));
    mine->other = its;
    its->other = mine;
    mine->got = got;
    mine->ctx = ctx;
    mine->refs = 1;
    its->host = host;
    its->next_socket = host->sockets;
    host->sockets = its;
    waiting->to = its;
    waiting->ipc.type = (uint32_t)pid;
    append(host->listener, waiting);
    object_wake(host->listener);
    return mine;
}

/* Agents use this to check whether another agent serves the node. */
tck_status_t ipc_connect(const char *path, int *fd_out, struct error *err)
{
    (void)fd_out;
    return error_set(err, TCK_ERR_UNREACHABLE, "no process listens on %s", path);
}

tck_status_t lock_take(int dir_fd, const char *name, int *fd_out, struct error *err)
{
    (void)dir_fd;
    (void)name;
    (void)err;
    *fd_out = object_fd(object_new(OBJECT_OTHER));
    return TCK_OK;
}

bool lock_is_held(int dir_fd, const char *name)
{
    (void)dir_fd;
    (void)name;
    return false;
}

/* The directories of the simulated nodes are never deleted. */
tck_status_t anchor_take(int dir_fd, const char *role, int *fd_out, struct error *err)
{
    return lock_take(dir_fd, role, fd_out, err);
}

tck_status_t anchor_show(int fd, struct error *err)
{
    (void)fd;
    (void)err;
    return TCK_OK;
}

bool anchor_is_held(int dir_fd, const char *role)
{
    (void)dir_fd;
    (void)role;
    return false;
}

struct place {
    int lock_fd;
};

tck_status_t place_take(const struct place_setup *setup, struct place **out, struct error *err)
{
    struct place *place = calloc(1, sizeof(*place));
    tck_status_t status = lock_take(-1, setup->lock, &place->lock_fd, err);
    *out = place;
    return status;
}

void place_free(struct place *place)
{
    if (place != NULL) {
        fd_close(place->lock_fd);
        free(place);
    }
}

tck_status_t place_note_socket(struct place *place, struct error *err)
{
    (void)place;
    (void)err;
    return TCK_OK;
}

void place_tick(struct place *place)
{
    (void)place;
}

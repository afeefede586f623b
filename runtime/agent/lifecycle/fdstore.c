/* SPDX-License-Identifier: Apache-2.0
 * The agent's side of the file descriptor store: descriptors go to the process behind NOTIFY_SOCKET (systemd or our
 * supervisor). If our supervisor dies, another one is started, which adopts this process and receives all descriptors
 * again.
 */
#include "agent/lifecycle/fdstore.h"

#include "agent/lifecycle/fd_list.h"
#include "base/anchor.h"
#include "base/clock.h"
#include "base/failpoint.h"
#include "base/ipc.h"
#include "base/log.h"
#include "tiers/sd_notify.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

#define SUPERVISOR_NAME       "tierckpt-supervisor"
#define PROBE_MS              200 /* short, because memory is lost if the agent dies before a new supervisor has everything */
#define SUPERVISOR_WAIT_TICKS 25
#define SEND_MS               50 /* of the event loop, at most, for sending what is pending */
#define ARGS_MAX              16 /* of this program: --config FILE --set JSON */
#define ARG_BYTES             (64u << 10)
/* Descriptors for connections, storage and the like: an eighth, within these bounds. A large world's coordinator has a
 * few thousand connections. */
#define OWN_LEAST 64u
#define OWN_MOST  8192u

/* Segments are stored by the thread that allocates them; the lock guards the list. The store may be gone, or hang: what
 * could not be sent stays pending until it answers again. The event loop never waits for it. */
struct fdstore {
    const struct config *config;
    pthread_mutex_t lock;
    atomic_bool hangs;   /* the store does not read: no caller waits for it any more */
    char *notify_socket; /* NULL: there is no store (started by hand) */
    bool supervisor_is_ours;
    bool ready_told;
    char ready_text[64], status_text[64]; /* with how long to keep the descriptors if this agent cannot start again */
    bool moves;                           /* a new supervisor does not have everything yet */
    uint32_t supervisor;                  /* sequence number of the current one */
    struct fd_list list;
    uint64_t descriptors; /* that this process may open */
    pid_t spawned;        /* supervisor being started; it detaches and this child ends */
    uint32_t wait_ticks;
    uint64_t probe_at_ms;
};

static uint64_t open_limit(void)
{
    struct rlimit limit;
    return getrlimit(RLIMIT_NOFILE, &limit) == 0 ? limit.rlim_cur : 0;
}

tck_status_t fdstore_new(const struct config *config, struct fdstore **out, struct error *err)
{
    struct fdstore *p = calloc(1, sizeof(*p));
    if (p == NULL) {
        return error_set(err, TCK_ERR_NOMEM, "descriptor store: out of memory");
    }
    const char *socket = getenv("NOTIFY_SOCKET");
    p->config = config;
    p->descriptors = open_limit();
    pthread_mutex_init(&p->lock, NULL);
    p->supervisor_is_ours = getenv("TIERCKPT_SUPERVISOR") != NULL;
    snprintf(p->ready_text, sizeof(p->ready_text), "READY=1\n" PARK_LINGER_KEY "%u", config->linger_s);
    snprintf(p->status_text, sizeof(p->status_text), "STATUS=running\n" PARK_LINGER_KEY "%u", config->linger_s);
    if (socket != NULL && socket[0] != '\0') {
        p->notify_socket = strdup(socket);
        if (p->notify_socket == NULL) {
            free(p);
            return error_set(err, TCK_ERR_NOMEM, "descriptor store: out of memory");
        }
    }
    *out = p;
    return TCK_OK;
}

void fdstore_free(struct fdstore *p)
{
    if (p == NULL) {
        return;
    }
    fd_list_free(&p->list);
    pthread_mutex_destroy(&p->lock);
    free(p->notify_socket);
    free(p);
}

/* ---- how many fit ------------------------------------------------------------------------------------------------ */

uint32_t fdstore_most(uint64_t descriptors)
{
    uint64_t own = descriptors / 8 < OWN_MOST ? descriptors / 8 : OWN_MOST;
    own = own > OWN_LEAST ? own : OWN_LEAST;
    uint64_t most = descriptors > own ? descriptors - own : 0;
    return most < PARK_FILES_MAX ? (uint32_t)most : PARK_FILES_MAX;
}

/* Refuses what a successor of this process could not be given. */
static tck_status_t check_room(const struct fdstore *p, const char *name, struct error *err)
{
    uint32_t most = fdstore_most(p->descriptors);
    bool by_manager = p->notify_socket != NULL && !p->supervisor_is_ours;
    if (fd_list_find(&p->list, name) != NULL) {
        return TCK_OK;
    }
    if (p->list.count >= PARK_FILES_MAX) {
        return error_set(err, TCK_ERR_NOSPC,
                         "storing %s: no more than %d files of memory can be kept, two for each segment; put fewer "
                         "shards on a node",
                         name, PARK_FILES_MAX);
    }
    if (p->list.count >= most) {
        return error_set(err, TCK_ERR_NOSPC,
                         "storing %s: RLIMIT_NOFILE is %" PRIu64
                         ", which is enough for %u files of memory, two for each segment; raise the hard limit of open "
                         "files (ulimit -Hn, LimitNOFILE=) for the process that starts the agent, or put fewer shards "
                         "on a node",
                         name, p->descriptors, most);
    }
    if (by_manager && p->list.name_bytes + strlen(name) + 1 > PARK_NAMES_BYTES) {
        return error_set(err, TCK_ERR_NOSPC,
                         "storing %s: the service manager passes the names of the kept files in one variable, in which "
                         "no more than these %u fit; start the agent with tierckpt-supervisor, which can keep %d, or "
                         "put fewer shards on a node",
                         name, p->list.count, PARK_FILES_MAX);
    }
    return TCK_OK;
}

/* ---- store and remove -------------------------------------------------------------------------------------------- */

static tck_status_t add_item(struct fdstore *p, const char *name, int fd, uint32_t *supervisor_out, struct error *err)
{
    pthread_mutex_lock(&p->lock);
    tck_status_t status = check_room(p, name, err);
    if (status == TCK_OK) {
        status = fd_list_put(&p->list, name, fd, err);
    }
    *supervisor_out = p->supervisor;
    pthread_mutex_unlock(&p->lock);
    return status;
}

/* Unless another supervisor has been started since, which does not have it. */
static void mark_sent(struct fdstore *p, const char *name, uint32_t supervisor)
{
    pthread_mutex_lock(&p->lock);
    struct fd_item *item = fd_list_find(&p->list, name);
    if (item != NULL && p->supervisor == supervisor) {
        fd_list_set_sent(&p->list, item, true);
    }
    pthread_mutex_unlock(&p->lock);
}

/* What the store does not take is not sent to another supervisor either: its descriptor is about to be closed. */
static void take_back(struct fdstore *p, const char *name)
{
    pthread_mutex_lock(&p->lock);
    struct fd_item *item = fd_list_find(&p->list, name);
    if (item != NULL) {
        fd_list_remove(&p->list, item);
    }
    pthread_mutex_unlock(&p->lock);
}

/* True if the store is gone or slow: the item stays pending. */
static bool stays_pending(struct fdstore *p, tck_status_t status)
{
    if (status == TCK_ERR_TIMEDOUT) {
        atomic_store(&p->hangs, true);
    }
    return status == TCK_ERR_UNREACHABLE || status == TCK_ERR_TIMEDOUT;
}

static tck_status_t put_within(struct fdstore *p, int wait_ms, const char *name, int fd, struct error *err)
{
    uint32_t supervisor = 0;
    tck_status_t status = add_item(p, name, fd, &supervisor, err);
    if (status != TCK_OK || p->notify_socket == NULL) {
        return status;
    }
    status = sd_notify_store(p->notify_socket, atomic_load(&p->hangs) ? 0 : wait_ms, name, fd, err);
    failpoint(fdstore, told);
    if (status == TCK_OK) {
        mark_sent(p, name, supervisor);
    } else if (stays_pending(p, status)) {
        log_warn("the supervisor does not answer: %s will be stored when it does", name);
        return TCK_OK;
    } else {
        take_back(p, name);
    }
    return status;
}

tck_status_t fdstore_put(void *ctx, const char *name, int fd, struct error *err)
{
    return put_within(ctx, PARK_WAIT_MS, name, fd, err);
}

tck_status_t fdstore_put_now(void *ctx, const char *name, int fd, struct error *err)
{
    return put_within(ctx, SEND_MS, name, fd, err);
}

void fdstore_remove(void *ctx, const char *name)
{
    struct fdstore *p = ctx;
    struct error err;
    tck_status_t status = p->notify_socket != NULL ? sd_notify_remove(p->notify_socket, 0, name, &err) : TCK_OK;
    bool later = stays_pending(p, status);
    if (status != TCK_OK) {
        log_debug("%s could not be removed from the descriptor store%s: %s", name, later ? " yet" : "", err.text);
    }
    pthread_mutex_lock(&p->lock);
    struct fd_item *item = fd_list_find(&p->list, name);
    if (item != NULL && !later) {
        fd_list_remove(&p->list, item);
    } else if (item != NULL && item->fd >= 0) {
        item->fd = -1;
        fd_list_set_sent(&p->list, item, false);
    }
    pthread_mutex_unlock(&p->lock);
}

bool fdstore_holds(struct fdstore *p, const char *name)
{
    pthread_mutex_lock(&p->lock);
    const struct fd_item *item = fd_list_find(&p->list, name);
    bool holds = item != NULL && item->fd >= 0;
    pthread_mutex_unlock(&p->lock);
    return holds;
}

tck_status_t fdstore_ready(struct fdstore *p, struct error *err)
{
    if (p->notify_socket == NULL) {
        log_warn("there is neither a service manager nor a supervisor: the memory tier is lost when this process ends");
        return TCK_OK;
    }
    tck_status_t status = sd_notify_send(p->notify_socket, PARK_WAIT_MS, p->ready_text, err);
    p->ready_told = status == TCK_OK;
    if (stays_pending(p, status) && p->supervisor_is_ours) {
        /* It has died or hangs since it started this process, so maybe only this process has the memory. */
        log_warn("could not notify the supervisor that this agent is ready: %s", err->text);
        return TCK_OK;
    }
    return status;
}

void fdstore_stopping(struct fdstore *p)
{
    struct error err;
    if (p->notify_socket != NULL && sd_notify_send(p->notify_socket, PARK_WAIT_MS, "STOPPING=1", &err) != TCK_OK) {
        log_debug("could not notify the supervisor: %s", err.text);
    }
}

/* ---- a new supervisor -------------------------------------------------------------------------------------------- */

static bool self_dir(char *out, size_t cap)
{
    ssize_t n = readlink("/proc/self/exe", out, cap - 1);
    if (n <= 0) {
        return false;
    }
    out[n] = '\0';
    char *slash = strrchr(out, '/');
    if (slash == NULL) {
        return false;
    }
    *slash = '\0';
    return true;
}

/* This program's arguments, with which a new supervisor restarts it. text holds them. */
static size_t copy_arguments(char *text, size_t cap, const char **out, size_t max)
{
    FILE *file = fopen("/proc/self/cmdline", "re");
    size_t len = file != NULL ? fread(text, 1, cap - 1, file) : 0;
    size_t count = 0;
    if (file != NULL) {
        fclose(file);
    }
    text[len] = '\0';
    for (size_t at = strlen(text) + 1; at < len && count < max; at += strlen(text + at) + 1) {
        out[count++] = text + at;
    }
    return count;
}

static void supervisor_dir(const struct fdstore *p, char out[2 * CONFIG_PATH])
{
    const struct config *c = p->config;
    snprintf(out, (size_t)2 * CONFIG_PATH, "%s/%s/%s", c->runtime_dir, c->job, c->node);
}

/* True if only its socket was deleted: it will create the socket again (supervisor_place.h). */
static bool supervisor_lives(const struct fdstore *p)
{
    char dir[2 * CONFIG_PATH];
    struct error ignored;
    int dir_fd = -1;
    supervisor_dir(p, dir);
    bool lives = ipc_open_dir(dir, &dir_fd, &ignored) == TCK_OK && anchor_is_held(dir_fd, ANCHOR_SUPERVISOR);
    if (dir_fd >= 0) {
        close(dir_fd);
    }
    return lives;
}

static void spawn_supervisor(struct fdstore *p)
{
    char args[ARG_BYTES];
    char bin[CONFIG_PATH];
    char supervisor[CONFIG_PATH + 32];
    char agent[CONFIG_PATH + 32];
    char dir[2 * CONFIG_PATH];
    char pid[24];
    if (!self_dir(bin, sizeof(bin))) {
        log_error("lost the supervisor and cannot start another: the directory of this program is unknown");
        return;
    }
    snprintf(supervisor, sizeof(supervisor), "%s/" SUPERVISOR_NAME, bin);
    if (access(supervisor, X_OK) != 0) {
        snprintf(supervisor, sizeof(supervisor), "%s/../agent/" SUPERVISOR_NAME, bin);
    }
    snprintf(agent, sizeof(agent), "%s/tierckptd", bin);
    supervisor_dir(p, dir);
    snprintf(pid, sizeof(pid), "%d", (int)getpid());
    const char *argv[8 + ARGS_MAX] = {supervisor, "--runtime-dir", dir, "--adopt", pid, "--", agent};
    (void)copy_arguments(args, sizeof(args), argv + 7, ARGS_MAX);
    /* posix_spawn does not write to argv; its type is older than const. */
    errno = posix_spawn(&p->spawned, supervisor, NULL, NULL, (char *const *)(uintptr_t)argv, environ);
    if (errno != 0) {
        log_error("lost the supervisor, and %s could not be started: %m", supervisor);
        p->spawned = 0;
        return;
    }
    log_warn("lost the supervisor: started another one (%s)", supervisor);
    p->wait_ticks = SUPERVISOR_WAIT_TICKS;
}

/* A new supervisor has nothing yet, so everything is pending. */
static void mark_all_unsent(struct fdstore *p)
{
    pthread_mutex_lock(&p->lock);
    for (struct fd_item *item = p->list.first, *next; item != NULL; item = next) {
        next = item->next;
        if (item->fd < 0) {
            fd_list_remove(&p->list, item);
        } else {
            fd_list_set_sent(&p->list, item, false);
        }
    }
    p->supervisor++;
    pthread_mutex_unlock(&p->lock);
    p->moves = true;
}

static tck_status_t send_one(struct fdstore *p, struct fd_item *item, struct error *err)
{
    tck_status_t status = item->fd >= 0 ? sd_notify_store(p->notify_socket, SEND_MS, item->name, item->fd, err)
                                        : sd_notify_remove(p->notify_socket, SEND_MS, item->name, err);
    if (status == TCK_OK && item->fd < 0) {
        fd_list_remove(&p->list, item);
    } else {
        fd_list_set_sent(&p->list, item, status == TCK_OK);
    }
    return status;
}

/* Sends as much as it can in SEND_MS; true if something is left. */
static bool send_pending(struct fdstore *p, tck_status_t *status_out, struct error *err)
{
    uint64_t end_ms = clock_ms() + SEND_MS;
    bool left = false;
    pthread_mutex_lock(&p->lock);
    for (struct fd_item *item = p->list.first, *next; item != NULL && !left; item = next) {
        next = item->next;
        if (!item->sent) {
            *status_out = send_one(p, item, err);
            left = *status_out != TCK_OK || clock_ms() > end_ms;
        }
    }
    pthread_mutex_unlock(&p->lock);
    return left;
}

/* The store has just answered; if it stops doing so, the rest stays pending. */
static void flush(struct fdstore *p)
{
    struct error err;
    tck_status_t status = TCK_OK;
    bool left = send_pending(p, &status, &err);
    if (status != TCK_OK && !stays_pending(p, status)) {
        log_error("not every descriptor could be stored again: %s", err.text);
    } else if (!left && p->moves) {
        p->moves = false;
        log_info("the new supervisor has every descriptor");
    }
}

static bool has_pending(struct fdstore *p)
{
    pthread_mutex_lock(&p->lock);
    bool pending = p->list.sent < p->list.count;
    pthread_mutex_unlock(&p->lock);
    return pending;
}

struct parked fdstore_parked(struct fdstore *p)
{
    struct parked parked = {0};
    pthread_mutex_lock(&p->lock);
    parked.files = p->list.count;
    parked.not_parked = p->list.count - p->list.sent;
    pthread_mutex_unlock(&p->lock);
    parked.with = p->notify_socket == NULL ? "none" : p->supervisor_is_ours ? "supervisor" : "service manager";
    return parked;
}

bool fdstore_has_all(struct fdstore *p)
{
    return p->notify_socket != NULL && p->ready_told && !p->moves && !atomic_load(&p->hangs) && !has_pending(p);
}

/* A child that exits with 0 leaves a supervisor that answers from then on. One that does not answer has died, and only
 * the agent has the memory: another one is started without the wait for a slow start. */
static void reap(struct fdstore *p)
{
    int status;
    if (p->spawned > 0 && waitpid(p->spawned, &status, WNOHANG) == p->spawned) {
        p->spawned = 0;
        if (WIFEXITED(status) && WEXITSTATUS(status) == 0 && p->wait_ticks > 1) {
            p->wait_ticks = 1;
        }
    }
}

static void handle_probe(struct fdstore *p, tck_status_t status)
{
    if (status == TCK_OK) {
        p->wait_ticks = 0;
        p->ready_told = true;
        atomic_store(&p->hangs, false);
        flush(p);
    } else if (status == TCK_ERR_TIMEDOUT) {
        if (!atomic_exchange(&p->hangs, true)) {
            log_warn("the supervisor hangs: it is alive but does not read its socket");
        }
    } else if (p->wait_ticks > 0) {
        p->wait_ticks--;
    } else if (p->supervisor_is_ours && !supervisor_lives(p)) {
        mark_all_unsent(p);
        spawn_supervisor(p);
    }
}

void fdstore_tick(struct fdstore *p)
{
    struct error err;
    uint64_t now = clock_ms();
    if (p->notify_socket == NULL || now < p->probe_at_ms) {
        return;
    }
    p->probe_at_ms = now + PROBE_MS;
    if (!p->supervisor_is_ours && !has_pending(p)) {
        return; /* a service manager is not watched */
    }
    reap(p);
    handle_probe(p, sd_notify_send(p->notify_socket, 0, p->ready_told ? p->status_text : p->ready_text, &err));
}

/* SPDX-License-Identifier: Apache-2.0
 * The agent's side of parking: files go to whoever NOTIFY_SOCKET names (systemd or our keeper). If that was our keeper
 * and it is gone, another one is started that adopts this process, and everything is parked again. */
#include "agent/agent.h"

#include "base/clock.h"
#include "tiers/park.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

#define KEEPER_NAME       "tierckpt-keeper"
#define PROBE_MS          200 /* until a keeper's death is noticed, and its successor, the agent's own is a second loss */
#define KEEPER_WAIT_TICKS 25
#define ARGS_MAX          16 /* of this program: --config FILE --set JSON */
#define ARG_BYTES         (64u << 10)

struct parked {
    struct parked *next;
    char name[PARK_NAME_MAX];
    int fd; /* a duplicate: ours */
};

/* Segments are parked by the thread that allocates them; the lock guards the list. */
struct parking {
    struct agent *agent;
    pthread_mutex_t lock;
    char *notify_socket; /* NULL: nobody to park with (started by hand) */
    bool keeper_is_ours;
    struct parked *parked;
    pid_t spawned; /* keeper being started; it detaches and this child ends */
    uint32_t wait_ticks;
    uint64_t probe_at_ms;
};

tck_status_t parking_new(struct agent *agent, struct parking **out, struct error *err)
{
    struct parking *p = calloc(1, sizeof *p);
    if (!p) {
        return error_set(err, TCK_ERR_NOMEM, "parking: out of memory");
    }
    const char *socket = getenv("NOTIFY_SOCKET");
    p->agent = agent;
    pthread_mutex_init(&p->lock, NULL);
    p->keeper_is_ours = getenv("TIERCKPT_KEEPER") != NULL;
    if (socket && socket[0] != '\0') {
        p->notify_socket = strdup(socket);
        if (!p->notify_socket) {
            free(p);
            return error_set(err, TCK_ERR_NOMEM, "parking: out of memory");
        }
    }
    *out = p;
    return TCK_OK;
}

void parking_free(struct parking *p)
{
    if (!p) {
        return;
    }
    while (p->parked) {
        struct parked *x = p->parked;
        p->parked = x->next;
        close(x->fd);
        free(x);
    }
    pthread_mutex_destroy(&p->lock);
    free(p->notify_socket);
    free(p);
}

static void forget(struct parking *p, const char *name)
{
    for (struct parked **at = &p->parked; *at; at = &(*at)->next) {
        if (strcmp((*at)->name, name) == 0) {
            struct parked *x = *at;
            *at = x->next;
            close(x->fd);
            free(x);
            return;
        }
    }
}

/* Remembered, so that a new keeper can be given everything again. */
static tck_status_t remember(struct parking *p, const char *name, int fd, struct error *err)
{
    struct parked *x = calloc(1, sizeof *x);
    int copy = x ? fcntl(fd, F_DUPFD_CLOEXEC, 3) : -1;
    if (copy < 0) {
        free(x);
        return error_set(err, TCK_ERR_NOMEM, "parking %s: out of memory or descriptors", name);
    }
    snprintf(x->name, sizeof x->name, "%s", name);
    x->fd = copy;
    pthread_mutex_lock(&p->lock);
    forget(p, name);
    x->next = p->parked;
    p->parked = x;
    pthread_mutex_unlock(&p->lock);
    return TCK_OK;
}

tck_status_t parking_park(void *ctx, const char *name, int fd, struct error *err)
{
    struct parking *p = ctx;
    tck_status_t status = remember(p, name, fd, err);
    if (status != TCK_OK || !p->notify_socket) {
        return status;
    }
    status = park_store(p->notify_socket, name, fd, err);
    if (status == TCK_ERR_UNREACHABLE) {
        log_warn("the keeper does not answer: %s is parked when it is back", name);
        return TCK_OK;
    }
    return status;
}

void parking_unpark(void *ctx, const char *name)
{
    struct parking *p = ctx;
    pthread_mutex_lock(&p->lock);
    forget(p, name);
    pthread_mutex_unlock(&p->lock);
    struct error err;
    if (p->notify_socket && park_remove(p->notify_socket, name, &err) != TCK_OK) {
        log_debug("%s could not be unparked: %s", name, err.text);
    }
}

tck_status_t parking_ready(struct parking *p, struct error *err)
{
    if (!p->notify_socket) {
        log_warn("no service manager and no keeper: the memory tier ends with this process");
        return TCK_OK;
    }
    tck_status_t status = park_notify(p->notify_socket, "READY=1", err);
    if (status == TCK_ERR_UNREACHABLE && p->keeper_is_ours) {
        /* It died between starting this process and now: all that it kept is here and nowhere else. */
        log_warn("the keeper is gone since it started this agent: %s", err->text);
        return TCK_OK;
    }
    return status;
}

void parking_stopping(struct parking *p)
{
    struct error err;
    if (p->notify_socket && park_notify(p->notify_socket, "STOPPING=1", &err) != TCK_OK) {
        log_debug("the keeper was not told: %s", err.text);
    }
}

/* ---- a new keeper -------------------------------------------------------------------------------------------- */

static bool self_dir(char *out, size_t cap)
{
    ssize_t n = readlink("/proc/self/exe", out, cap - 1);
    if (n <= 0) {
        return false;
    }
    out[n] = '\0';
    char *slash = strrchr(out, '/');
    if (!slash) {
        return false;
    }
    *slash = '\0';
    return true;
}

/* This program's arguments, so that a new keeper starts it again as it was started. text holds them. */
static size_t own_arguments(char *text, size_t cap, const char **out, size_t max)
{
    FILE *file = fopen("/proc/self/cmdline", "re");
    size_t len = file ? fread(text, 1, cap - 1, file) : 0;
    size_t count = 0;
    if (file) {
        fclose(file);
    }
    text[len] = '\0';
    for (size_t at = strlen(text) + 1; at < len && count < max; at += strlen(text + at) + 1) {
        out[count++] = text + at;
    }
    return count;
}

static void spawn_keeper(struct parking *p)
{
    const struct config *c = &p->agent->config;
    char args[ARG_BYTES];
    char bin[CONFIG_PATH];
    char keeper[CONFIG_PATH + 32];
    char agent[CONFIG_PATH + 32];
    char dir[2 * CONFIG_PATH];
    char pid[24];
    if (!self_dir(bin, sizeof bin)) {
        log_error("the keeper is gone and this program's directory is unknown");
        return;
    }
    snprintf(keeper, sizeof keeper, "%s/" KEEPER_NAME, bin);
    if (access(keeper, X_OK) != 0) {
        snprintf(keeper, sizeof keeper, "%s/../agent/" KEEPER_NAME, bin);
    }
    snprintf(agent, sizeof agent, "%s/tierckptd", bin);
    snprintf(dir, sizeof dir, "%s/%s/%s", c->runtime_dir, c->job, c->node);
    snprintf(pid, sizeof pid, "%d", (int)getpid());
    const char *argv[8 + ARGS_MAX] = {keeper, "--runtime-dir", dir, "--adopt", pid, "--", agent};
    (void)own_arguments(args, sizeof args, argv + 7, ARGS_MAX);
    /* posix_spawn does not write to argv; its type is older than const. */
    errno = posix_spawn(&p->spawned, keeper, NULL, NULL, (char *const *)(uintptr_t)argv, environ);
    if (errno != 0) {
        log_error("the keeper is gone and %s could not be started: %m", keeper);
        p->spawned = 0;
        return;
    }
    log_warn("the keeper is gone: started another (%s)", keeper);
    p->wait_ticks = KEEPER_WAIT_TICKS;
}

static void park_all(struct parking *p)
{
    struct error err;
    tck_status_t status = TCK_OK;
    pthread_mutex_lock(&p->lock);
    for (const struct parked *x = p->parked; status == TCK_OK && x; x = x->next) {
        status = park_store(p->notify_socket, x->name, x->fd, &err);
    }
    pthread_mutex_unlock(&p->lock);
    if (status == TCK_OK) {
        log_info("everything is parked with the new keeper");
    } else {
        log_error("not everything could be parked again: %s", err.text);
    }
}

/* A child that ended well leaves a keeper that answers from then on. One that does not answer has died since: the agent
 * alone has the memory, so its successor must not wait for as long as a slow start may take. */
static void reap(struct parking *p)
{
    int status;
    if (p->spawned > 0 && waitpid(p->spawned, &status, WNOHANG) == p->spawned) {
        p->spawned = 0;
        if (WIFEXITED(status) && WEXITSTATUS(status) == 0 && p->wait_ticks > 1) {
            p->wait_ticks = 1;
        }
    }
}

void parking_tick(struct parking *p)
{
    struct error err;
    uint64_t now = clock_ms();
    if (!p->notify_socket || !p->keeper_is_ours || now < p->probe_at_ms) {
        return;
    }
    p->probe_at_ms = now + PROBE_MS;
    reap(p);
    bool answers = park_notify(p->notify_socket, "STATUS=running", &err) == TCK_OK;
    if (answers && p->wait_ticks > 0) {
        p->wait_ticks = 0;
        park_all(p);
    } else if (!answers && p->wait_ticks == 0) {
        spawn_keeper(p);
    } else if (!answers) {
        p->wait_ticks--;
    }
}

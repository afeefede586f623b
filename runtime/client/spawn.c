/* SPDX-License-Identifier: Apache-2.0
 * Starting the agent of this node: under a lock, so that many ranks start one; in its own session and without the
 * trainer's descriptors and signal settings, so that it outlives the trainer. */
#include "client/spawn.h"
#include "base/anchor.h"
#include "base/clock.h"
#include "base/ipc.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/message.h"
#include "client/install_paths.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define START_MS         15000 /* an agent is up by then, unless its storage is slow */
#define AFTER_STORAGE_MS 5000  /* an agent gives up on storage after storage_timeout_ms, and reports that */
#define ERROR_AFTER_MS   3000  /* the supervisor retries meanwhile; an agent that still fails then cannot start */
#define RETRY_MS         20
#define CONFIG_FILE      "config.json"
#define LOCK_FILE        "spawn.lock"
#define OUTPUT_FILE      "spawn.log" /* what supervisor and agent print before they have a log */
#define LIVES_ALREADY    3 /* exit status of the supervisor: another one is running, and about to restart its agent */

static void sleep_ms(long ms)
{
    struct timespec pause = {.tv_nsec = ms * 1000000};

    nanosleep(&pause, NULL);
}

tck_status_t agent_dir(const struct config *config, char out[CONFIG_PATH], struct error *err)
{
    int len = snprintf(out, CONFIG_PATH, "%s/%s/%s", config->runtime_dir, config->job, config->node);

    return len < CONFIG_PATH ? TCK_OK : error_set(err, TCK_ERR_CONFIG, "runtime_dir: the path is too long");
}

tck_status_t agent_connect(const struct config *config, int *fd_out, struct error *err)
{
    char dir[CONFIG_PATH], path[CONFIG_PATH + sizeof(AGENT_SOCKET) + 1];
    tck_status_t status = agent_dir(config, dir, err);

    if (status != TCK_OK) {
        return status;
    }
    snprintf(path, sizeof(path), "%s/%s", dir, AGENT_SOCKET);
    return ipc_connect(path, fd_out, err);
}

/* ---- the configuration that the agent reads ------------------------------------------------------------------ */

static tck_status_t write_text(int fd, const char *text, struct error *err)
{
    size_t len = strlen(text);

    while (len > 0) {
        ssize_t done = write(fd, text, len);

        if (done < 0 && errno != EINTR) {
            return error_set(err, status_of_errno(errno), "write " CONFIG_FILE ": %m");
        }
        text += done > 0 ? done : 0;
        len -= done > 0 ? (size_t)done : 0;
    }
    return TCK_OK;
}

/* Replaced by rename, because a restarting agent may be reading the file. */
static tck_status_t replace_config(int dir_fd, const char *text, struct error *err)
{
    static const char temporary[] = CONFIG_FILE ".new";
    int fd = openat(dir_fd, temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    tck_status_t status;

    if (fd < 0) {
        return error_set(err, status_of_errno(errno), "create %s: %m", temporary);
    }
    status = write_text(fd, text, err);
    close(fd);
    if (status == TCK_OK && renameat(dir_fd, temporary, dir_fd, CONFIG_FILE) < 0) {
        status = error_set(err, status_of_errno(errno), "rename %s: %m", temporary);
    }
    return status;
}

static tck_status_t write_config(const struct config *config, int dir_fd, struct error *err)
{
    json_t *json = config_json(config);
    char *text = json == NULL ? NULL : json_print(json, true);
    tck_status_t status = text == NULL ? error_set(err, TCK_ERR_NOMEM, "no memory to print the configuration")
                                       : replace_config(dir_fd, text, err);

    free(text);
    json_free(json);
    return status;
}

/* ---- the supervisor's process ------------------------------------------------------------------------------------ */

struct command {
    struct programs programs;
    char config_file[CONFIG_PATH + sizeof(CONFIG_FILE) + 1];
    char output_file[CONFIG_PATH + sizeof(OUTPUT_FILE) + 1];
    char launcher[16];
    const char *argv[12];
};

static void build_command(struct command *c, const struct config *config, const char *dir)
{
    size_t n = 0;

    snprintf(c->config_file, sizeof(c->config_file), "%s/%s", dir, CONFIG_FILE);
    snprintf(c->output_file, sizeof(c->output_file), "%s/%s", dir, OUTPUT_FILE);
    c->argv[n++] = c->programs.supervisor;
    c->argv[n++] = "--runtime-dir";
    c->argv[n++] = dir;
    if (getppid() > 0) { /* 0: it is outside of this container */
        snprintf(c->launcher, sizeof(c->launcher), "%d", (int)getppid());
        c->argv[n++] = "--cpus-of";
        c->argv[n++] = c->launcher;
    }
    if (config->net_device[0] != '\0') {
        c->argv[n++] = "--device";
        c->argv[n++] = config->net_device;
    }
    c->argv[n++] = "--";
    c->argv[n++] = c->programs.agent;
    c->argv[n++] = "--config";
    c->argv[n++] = c->config_file;
    c->argv[n] = NULL;
}

static int set_attributes(posix_spawnattr_t *attributes)
{
    sigset_t all, none;
    int rc;

    sigfillset(&all);
    sigemptyset(&none);
    rc = posix_spawnattr_setsigdefault(attributes, &all);
    if (rc == 0) {
        rc = posix_spawnattr_setsigmask(attributes, &none);
    }
    if (rc == 0) {
        rc = posix_spawnattr_setflags(attributes, POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK);
    }
    return rc;
}

static int set_files(posix_spawn_file_actions_t *files, const char *output_file)
{
    int rc = posix_spawn_file_actions_addopen(files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);

    if (rc == 0) {
        rc = posix_spawn_file_actions_addopen(files, STDOUT_FILENO, output_file,
                                              O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW, 0600);
    }
    if (rc == 0) {
        rc = posix_spawn_file_actions_adddup2(files, STDOUT_FILENO, STDERR_FILENO);
    }
    if (rc == 0) {
        rc = posix_spawn_file_actions_addclosefrom_np(files, STDERR_FILENO + 1);
    }
    return rc;
}

static int spawn(const struct command *c, pid_t *pid_out)
{
    posix_spawnattr_t attributes;
    posix_spawn_file_actions_t files;
    int rc = posix_spawnattr_init(&attributes);

    if (rc != 0) {
        return rc;
    }
    rc = posix_spawn_file_actions_init(&files);
    if (rc != 0) {
        goto destroy_attributes;
    }
    rc = set_attributes(&attributes);
    if (rc == 0) {
        rc = set_files(&files, c->output_file);
    }
    if (rc == 0) {
        char *const *argv = (char *const *)(uintptr_t)c->argv; /* posix_spawn does not write to it */

        rc = posix_spawn(pid_out, c->argv[0], &files, &attributes, argv, environ);
    }
    posix_spawn_file_actions_destroy(&files);
destroy_attributes:
    posix_spawnattr_destroy(&attributes);
    return rc;
}

/* The supervisor daemonises: the process that we started exits with 0 once the daemon runs. *pid is 0 once it has
 * exited. */
static tck_status_t check_child(pid_t *pid, const struct command *c, struct error *err)
{
    int result = 0;

    if (*pid == 0 || waitpid(*pid, &result, WNOHANG) == 0) {
        return TCK_OK;
    }
    *pid = 0;
    if (WIFEXITED(result) && WEXITSTATUS(result) != 0 && WEXITSTATUS(result) != LIVES_ALREADY) {
        return error_set(err, TCK_ERR_UNREACHABLE, "%s ended with status %d, see %s", c->argv[0], WEXITSTATUS(result),
                         c->output_file);
    }
    if (WIFSIGNALED(result)) {
        return error_set(err, TCK_ERR_UNREACHABLE, "%s was killed by signal %d, see %s", c->argv[0], WTERMSIG(result),
                         c->output_file);
    }
    return TCK_OK;
}

/* Whether an agent's report about its start is current: the attempt began since begin_ms, or its process still waits.
 * An older failure may be repaired by now, and the supervisor will try again. */
static bool is_current(const char *attempt, uint64_t begin_ms)
{
    unsigned long long began_ms = 0;
    int pid = 0;

    if (sscanf(attempt, "%llu %d", &began_ms, &pid) != 2) {
        return false;
    }
    return began_ms >= begin_ms || (pid > 0 && (kill(pid, 0) == 0 || errno == EPERM));
}

/* Reads why the agent does not start, if it has reported that. */
static bool read_start_error(int dir_fd, const struct config *config, uint64_t begin_ms, struct error *err)
{
    char text[ERROR_TEXT_BYTES + 64];
    int fd = openat(dir_fd, AGENT_ERROR_FILE, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    ssize_t len = fd >= 0 ? read(fd, text, sizeof(text) - 1) : -1;

    if (fd >= 0) {
        close(fd);
    }
    if (len <= 0) {
        return false;
    }
    text[len] = '\0';
    size_t line = strcspn(text, "\n");
    if (text[line] == '\0' || !is_current(text + line + 1, begin_ms)) {
        return false;
    }
    text[line] = '\0';
    error_set(err, TCK_ERR_UNREACHABLE, "the agent cannot start: %s (see %s)", text, config->log_file_path);
    return true;
}

/* ---- waiting for an agent ------------------------------------------------------------------------------------ */

static bool is_no_listener(tck_status_t status)
{
    return status == TCK_ERR_NOENT || status == TCK_ERR_UNREACHABLE;
}

/* Errors worth a retry while an agent is starting. */
static bool not_yet(tck_status_t status)
{
    return is_no_listener(status) || status == TCK_ERR_BUSY;
}

/* Starts a supervisor, which starts the agent. */
static tck_status_t start_supervisor(const struct command *c, pid_t *pid_out, struct error *err)
{
    int rc = spawn(c, pid_out);

    if (rc != 0) {
        errno = rc;
        return error_set(err, status_of_errno(rc), "start %s: %m", c->argv[0]);
    }
    return TCK_OK;
}

/* No supervisor runs, and no agent that would start another one. */
static bool no_process_lives(int dir_fd)
{
    return !lock_is_held(dir_fd, SUPERVISOR_LOCK_FILE) && !lock_is_held(dir_fd, AGENT_LOCK_FILE) &&
           !anchor_is_held(dir_fd, ANCHOR_SUPERVISOR) && !anchor_is_held(dir_fd, ANCHOR_AGENT);
}

/* Also finds an agent whose files in the directory were deleted: it would otherwise be taken for none, and another one
 * be started beside it, without what it has in memory. One that holds its lock is still starting. */
static tck_status_t connect_or_find(const struct config *config, int dir_fd, int *fd_out, struct error *err)
{
    struct error ignored;
    pid_t pid = 0;
    tck_status_t status = agent_connect(config, fd_out, err);

    if (is_no_listener(status) && !lock_is_held(dir_fd, AGENT_LOCK_FILE) &&
        anchor_connect(dir_fd, ANCHOR_AGENT, fd_out, &pid, &ignored) == TCK_OK) {
        log_warn("the files by which this node's agent (process %d) is found were deleted while it runs; it was found "
                 "by other means",
                 (int)pid);
        return TCK_OK;
    }
    return status;
}

/* Checks the process that we started; once it has exited, whether a supervisor runs at all. */
static tck_status_t check_supervisor(const struct command *c, int dir_fd, pid_t *pid, struct error *err)
{
    tck_status_t status = check_child(pid, c, err);

    if (status == TCK_OK && *pid == 0 && no_process_lives(dir_fd)) {
        status = start_supervisor(c, pid, err);
    }
    return status;
}

/* An agent whose storage is slow may take storage_timeout_ms to start, so a trainer waits that long, too. */
static uint64_t start_timeout_ms(const struct config *config)
{
    uint64_t storage_ms = (uint64_t)config->storage_timeout_ms + AFTER_STORAGE_MS;

    return storage_ms > START_MS ? storage_ms : START_MS;
}

static tck_status_t wait_for_agent(const struct config *config, const struct command *c, int dir_fd, int *fd_out,
                                   struct error *err)
{
    uint64_t begin_ms = clock_ms();
    pid_t pid = 0;
    tck_status_t started = start_supervisor(c, &pid, err);

    if (started != TCK_OK) {
        return started;
    }
    for (;;) {
        tck_status_t status = connect_or_find(config, dir_fd, fd_out, err);

        if (!not_yet(status)) {
            return status;
        }
        if (clock_ms() >= begin_ms + ERROR_AFTER_MS && read_start_error(dir_fd, config, begin_ms, err)) {
            return TCK_ERR_UNREACHABLE;
        }
        if (clock_ms() >= begin_ms + start_timeout_ms(config)) {
            return error_prefix(err, "%s did not come up in %" PRIu64 " s, see %s and %s", c->programs.agent,
                                start_timeout_ms(config) / 1000, config->log_file_path, c->output_file);
        }
        status = check_supervisor(c, dir_fd, &pid, err);
        if (status != TCK_OK) {
            return status;
        }
        sleep_ms(RETRY_MS);
    }
}

static tck_status_t start_agent(const struct config *config, const char *dir, int dir_fd, int *fd_out,
                                struct error *err)
{
    struct command command;
    tck_status_t status = install_paths_find(&command.programs, err);

    if (status != TCK_OK) {
        return status;
    }
    build_command(&command, config, dir);
    status = write_config(config, dir_fd, err);
    if (status != TCK_OK) {
        return status;
    }
    return wait_for_agent(config, &command, dir_fd, fd_out, err);
}

/* The lock ends with its descriptor. Its holder starts an agent and keeps the lock until the agent answers. */
static tck_status_t take_lock(int dir_fd, uint64_t deadline_ms, int *lock_out, struct error *err)
{
    int fd = openat(dir_fd, LOCK_FILE, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);

    if (fd < 0) {
        return error_set(err, status_of_errno(errno), "open " LOCK_FILE ": %m");
    }
    while (flock(fd, LOCK_EX | LOCK_NB) < 0) {
        if ((errno != EWOULDBLOCK && errno != EINTR) || clock_ms() >= deadline_ms) {
            tck_status_t status = error_set(err, status_of_errno(errno), "lock " LOCK_FILE ": %m");

            close(fd);
            return status;
        }
        sleep_ms(RETRY_MS);
    }
    *lock_out = fd;
    return TCK_OK;
}

static tck_status_t connect_locked(const struct config *config, const char *dir, int dir_fd, int *fd_out,
                                   struct error *err)
{
    int lock_fd = -1;
    /* Longer than one start takes, since the holder may be starting one. */
    tck_status_t status = take_lock(dir_fd, clock_ms() + 2 * start_timeout_ms(config), &lock_fd, err);

    if (status != TCK_OK) {
        return status;
    }
    status = connect_or_find(config, dir_fd, fd_out, err);
    if (is_no_listener(status)) {
        status = start_agent(config, dir, dir_fd, fd_out, err);
    }
    close(lock_fd);
    return status;
}

tck_status_t agent_connect_or_start(const struct config *config, int *fd_out, struct error *err)
{
    char dir[CONFIG_PATH];
    int dir_fd = -1;
    tck_status_t status = agent_connect(config, fd_out, err);

    if (!not_yet(status)) {
        return status;
    }
    status = agent_dir(config, dir, err);
    if (status == TCK_OK) {
        status = ipc_open_dir(dir, &dir_fd, err);
    }
    if (status != TCK_OK) {
        return status;
    }
    status = connect_locked(config, dir, dir_fd, fd_out, err);
    close(dir_fd);
    return status == TCK_OK ? status : error_prefix(err, "agent in %s", dir);
}

bool agent_is_nowhere(const struct config *config)
{
    char dir[CONFIG_PATH];
    struct error err;
    int dir_fd = -1;
    bool nowhere;

    if (agent_dir(config, dir, &err) != TCK_OK || ipc_open_dir(dir, &dir_fd, &err) != TCK_OK) {
        return false;
    }
    nowhere = no_process_lives(dir_fd);
    close(dir_fd);
    return nowhere;
}

/* SPDX-License-Identifier: Apache-2.0
 * Starting, watching and restarting the agent. */
#include "supervisor/supervisor_child.h"

#include "base/clock.h"
#include "base/failpoint.h"
#include "base/log.h"
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define BACKOFF_FIRST_MS 10
#define BACKOFF_LAST_MS  5000
#define QUICK_DEATH_MS   10000 /* an agent that ran longer resets the count */
#define QUICK_DEATHS_MAX 20
#define EXIT_NOT_STARTED 127 /* as in shells */

/* In the forked child. Returns only on failure. Moving the descriptors may replace the log's by a segment's, so errors
 * then go to standard error only. */
static void run(const struct child *child, struct store *store)
{
    sigset_t none;
    struct error err = {0};
    sigemptyset(&none);
    pthread_sigmask(SIG_SETMASK, &none, NULL);
    /* The second tells the agent that it must start another supervisor when this one is gone. This process has one
     * thread.
     */
    /* NOLINTNEXTLINE(concurrency-mt-unsafe) */
    if (setenv("NOTIFY_SOCKET", child->notify_path, 1) != 0 || setenv("TIERCKPT_SUPERVISOR", "1", 1) != 0) {
        log_error("set NOTIFY_SOCKET: %m");
        return;
    }
    if (store_hand_on(store, &err) != TCK_OK) {
        dprintf(STDERR_FILENO, "tierckpt-supervisor: %s\n", err.text);
        return;
    }
    execvp(child->argv[0], child->argv);
    dprintf(STDERR_FILENO, "tierckpt-supervisor: execute %s: %m\n", child->argv[0]);
}

static tck_status_t watch(struct child *child, pid_t pid, struct error *err)
{
    int pidfd = (int)syscall(SYS_pidfd_open, pid, 0); /* glibc has wrappers since 2.36 */
    if (pidfd < 0) {
        return error_set(err, errno == ESRCH ? TCK_ERR_NOENT : status_of_errno(errno), "watch process %d: %m", pid);
    }
    child->pid = pid;
    child->pidfd = pidfd;
    child->stopping = false;
    child->ready = false;
    child->started_ms = clock_ms();
    child->restart_ms = 0;
    return TCK_OK;
}

tck_status_t child_start(struct child *child, struct store *store, struct error *err)
{
    pid_t pid = fork();
    if (pid < 0) {
        return error_set(err, status_of_errno(errno), "fork: %m");
    }
    if (pid == 0) {
        run(child, store);
        _exit(EXIT_NOT_STARTED);
    }
    tck_status_t status = watch(child, pid, err);
    if (status != TCK_OK) { /* it must not run without being watched */
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
        return status;
    }
    failpoint(supervisor, started);
    child->adopted = false;
    log_info("agent started: process %d, %d descriptors passed to it", pid, store->count);
    return TCK_OK;
}

tck_status_t child_adopt(struct child *child, pid_t pid, struct error *err)
{
    char path[32];
    struct stat st;
    tck_status_t status = watch(child, pid, err);
    if (status != TCK_OK) {
        return status;
    }
    snprintf(path, sizeof(path), "/proc/%d", pid);
    if (stat(path, &st) == 0 && st.st_uid != getuid()) {
        close(child->pidfd);
        child->pidfd = -1;
        child->pid = 0;
        return error_set(err, TCK_ERR_DENIED, "process %d belongs to user %u", pid, st.st_uid);
    }
    child->adopted = true;
    log_info("agent adopted: process %d", pid);
    return TCK_OK;
}

void child_terminate(const struct child *child)
{
    if (child->pidfd >= 0) {
        (void)syscall(SYS_pidfd_send_signal, child->pidfd, SIGTERM, NULL, 0); /* fails only if it has just ended */
    }
}

/* True if the agent has exited on purpose. */
static bool reap(const struct child *child)
{
    siginfo_t info = {0};
    if (child->adopted) {
        log_info("adopted agent, process %d, ended%s", child->pid, child->stopping ? " as announced" : "");
        return child->stopping;
    }
    if (waitid(P_PIDFD, (id_t)child->pidfd, &info, WEXITED) != 0) {
        log_error("wait for process %d: %m", child->pid);
        return false;
    }
    if (info.si_code == CLD_EXITED) {
        log_info("agent, process %d, exited with status %d", child->pid, info.si_status);
        return info.si_status == 0;
    }
    log_error("agent, process %d, died of signal %d", child->pid, info.si_status);
    return false;
}

static uint64_t backoff_ms(uint32_t quick_deaths)
{
    uint64_t delay = BACKOFF_FIRST_MS;
    for (uint32_t i = 1; i < quick_deaths && delay < BACKOFF_LAST_MS; i++) {
        delay *= 2;
    }
    return delay < BACKOFF_LAST_MS ? delay : BACKOFF_LAST_MS;
}

/* A failing start may take any time, so the count is reset only after an agent that was ready for a while. */
static void count_death(struct child *child)
{
    bool served = child->ready || child->linger_ms == 0;
    bool quick = !served || clock_ms() - child->started_ms < QUICK_DEATH_MS;
    child->quick_deaths = quick ? child->quick_deaths + 1 : 1;
    if (child->quick_deaths == 1) {
        child->failing_ms = clock_ms();
    }
}

uint64_t child_given_up_ms(const struct child *child)
{
    return child->failing_ms + child->linger_ms;
}

enum child_end child_ended(struct child *child)
{
    bool wanted = reap(child);
    close(child->pidfd);
    child->pidfd = -1;
    child->pid = 0;
    if (wanted) {
        return CHILD_DONE;
    }
    count_death(child);
    if (child->quick_deaths >= QUICK_DEATHS_MAX && clock_ms() >= child_given_up_ms(child)) {
        log_error("the agent died %u times in a row, within %" PRIu64
                  " s, and is not restarted: its memory is released. See the agent's log for the cause",
                  child->quick_deaths, (clock_ms() - child->failing_ms) / 1000);
        return CHILD_GIVEN_UP;
    }
    child->restart_ms = clock_ms() + backoff_ms(child->quick_deaths);
    return CHILD_RESTARTS;
}

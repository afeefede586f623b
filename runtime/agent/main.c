/* SPDX-License-Identifier: Apache-2.0
 * tierckptd: one agent for one job on one node. */
#include "agent/agent.h"

#include "agent/lifecycle/fdstore.h"
#include "agent/lifecycle/idle_exit.h"
#include "agent/lifecycle/loop_watchdog.h"
#include "agent/lifecycle/own_ucx.h"
#include "agent/membership/start_config.h"
#include "agent/metrics/metrics_text.h"
#include "base/clock.h"
#include "base/exposition.h"
#include "base/failpoint.h"
#include "base/ipc.h"
#include "tiers/link_address.h"

#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <unistd.h>

#define LEAVE_MS 15000 /* for pending storage calls when the agent exits */

static void usage(FILE *to)
{
    fputs("Usage: tierckptd --config FILE [--set JSON]\n"
          "\n"
          "The agent of one job on one node. The first trainer of the node starts it together with\n"
          "tierckpt-supervisor; a service manager that keeps file descriptors (systemd: FileDescriptorStoreMax=)\n"
          "can start it instead.\n"
          "\n"
          "  --config FILE  configuration (tierckpt config prints it with help)\n"
          "  --set JSON     keys that override the file's\n"
          "  --metrics      print the metrics that it exports (metrics_listen, metrics_textfile)\n"
          "  --ucx          print which UCX it uses here, and why\n"
          "  --help, --version\n",
          to);
}

/* As docs/metrics.md lists them. */
static void print_metrics(void)
{
    struct metrics_help h;
    for (size_t i = 0; metrics_family(i, &h); i++) {
        family_print(stdout, h.name, h.labels, h.kind, h.help);
    }
}

struct signals {
    int fd;
    struct agent *agent;
};

/* SIGTERM comes from a system that grants some time, SIGINT from someone at a terminal. */
static void on_signal(void *ctx, uint32_t events)
{
    (void)events;
    struct signals *signals = ctx;
    struct signalfd_siginfo info;
    if (read(signals->fd, &info, sizeof(info)) != sizeof(info)) {
        return;
    }
    if (info.ssi_signo == SIGTERM) {
        idle_exit_ask(signals->agent->idle_exit);
        return;
    }
    log_info("received SIGINT: exiting");
    fdstore_stopping(signals->agent->fdstore);
    loop_stop(signals->agent->loop);
}

/* SIGTERM and SIGINT end the loop cleanly. The caller owns the descriptor. */
static int signals_open(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    signal(SIGPIPE, SIG_IGN);
    return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

/* This process maps the trainers' state, so core dumps and ptrace by the user's other processes are disabled. */
static void disable_core_dumps(void)
{
    struct rlimit none = {0, 0};
    if (prctl(PR_SET_DUMPABLE, 0) != 0 || setrlimit(RLIMIT_CORE, &none) != 0) {
        log_warn("cannot disable core dumps: %m");
    }
}

/* UCX reads its environment when it is loaded, so this program executes itself again, once, with a safe one. UCX also
 * reads ucx.conf from the current directory, which the supervisor has made a safe one; without a supervisor, it is the
 * root.
 */
static void exec_with_ucx_environment(const struct config *config, const char *file, const char *set)
{
    char path[PATH_MAX];
    char self[PATH_MAX] = "", why[512];
    if (getenv(UCX_READY) != NULL || readlink("/proc/self/exe", self, sizeof(self) - 1) <= 0) {
        return;
    }
    if (own_ucx_choose(why, sizeof(why))) {
        log_info("the system's UCX is used: %s", why);
    }
    link_environment(config->net_device);
    link_environment_family(link_places_are_ipv6(config->net_device, config->net_address));
    link_environment_class(config_dscp(config), config->service_level);
    const char *argv[6] = {"tierckptd"};
    size_t n = 1;
    if (file != NULL && realpath(file, path) != NULL) {
        argv[n++] = "--config";
        argv[n++] = path;
    }
    if (set != NULL) {
        argv[n++] = "--set";
        argv[n++] = set;
    }
    /* NOLINTNEXTLINE(concurrency-mt-unsafe): no thread was started yet */
    if (setenv(UCX_READY, "1", 1) != 0 || (getenv("TIERCKPT_SUPERVISOR") == NULL && chdir("/") != 0)) {
        return;
    }
    execv(self, (char *const *)(uintptr_t)argv); /* does not write to argv */
}

/* One attempt to start, as reported in start errors. */
struct attempt {
    const struct config *config;
    uint64_t began_ms;
    uint32_t slow_ms; /* the start counts as slow after this */
};

/* Writes the file that trainers waiting for this agent report from. Its second line (the time of the attempt, and its
 * process if it is not over) lets them skip an attempt that failed before they began to wait. err NULL: the start
 * succeeded. */
static void write_start_error(const struct attempt *attempt, const struct error *err, bool is_over)
{
    const struct config *config = attempt->config;
    char dir[2 * CONFIG_PATH];
    int dir_fd = -1;
    struct error ignored; /* the log also has the error */
    snprintf(dir, sizeof(dir), "%s/%s/%s", config->runtime_dir, config->job, config->node);
    if (ipc_open_dir(dir, &dir_fd, &ignored) != TCK_OK) {
        return;
    }
    (void)unlinkat(dir_fd, AGENT_ERROR_FILE, 0);
    int fd = err != NULL ? openat(dir_fd, AGENT_ERROR_FILE, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600) : -1;
    if (fd >= 0) {
        dprintf(fd, "%s\n%" PRIu64 " %d\n", err->text, attempt->began_ms, is_over ? 0 : (int)getpid());
        close(fd);
    }
    close(dir_fd);
}

/* True if this is the file that a trainer writes when it starts the agent. */
static bool is_trainer_file(const struct config *config, const char *file)
{
    char own[3 * CONFIG_PATH];
    snprintf(own, sizeof(own), "%s/%s/%s/config.json", config->runtime_dir, config->job, config->node);
    return file != NULL && getenv("TIERCKPT_SUPERVISOR") != NULL && strcmp(own, file) == 0;
}

/* Reports the delay to waiting trainers and to `tierckpt status`; the agent keeps waiting. */
static void report_slow_start(void *ctx)
{
    const struct attempt *attempt = ctx;
    struct error err;
    (void)error_set(&err, TCK_ERR_TIMEDOUT, "save_dir %s does not answer: the agent has waited for it for %u ms",
                    attempt->config->save_dir, attempt->slow_ms);
    log_error("%s", err.text);
    write_start_error(attempt, &err, false);
}

/* No other process waits for this one any more, so it exits without waiting for threads that are stuck in storage
 * calls. */
static void exit_without_threads(void *ctx)
{
    (void)ctx;
    log_error("storage does not answer: the agent exits without waiting for the threads that are stuck in calls to it");
    _exit(0);
}

static int run(const struct config *config, bool spawned)
{
    struct agent *agent = NULL;
    struct loop_fd *source = NULL;
    struct error err;
    int fd = signals_open();
    disable_core_dumps();
    struct attempt attempt = {.config = config, .began_ms = clock_ms(), .slow_ms = config->storage_timeout_ms};
    struct watchdog *watchdog = watchdog_start(attempt.slow_ms, report_slow_start, &attempt);
    tck_status_t status = agent_new(config, &agent, &err);
    watchdog_stop(watchdog);
    if (status != TCK_OK) {
        log_error("cannot start: %s", err.text);
        fprintf(stderr, "tierckptd: %s\n", err.text);
        if (err.code == TCK_ERR_EXIST) {
            return 0; /* another agent serves this node: the supervisor need not restart this one */
        }
        write_start_error(&attempt, &err, true);
        return 1;
    }
    write_start_error(&attempt, NULL, true);
    if (spawned) {
        start_config_set_spawned(agent->start_config);
    }
    struct signals signals = {.fd = fd, .agent = agent};
    if (loop_fd_add(agent->loop, fd, EPOLLIN, on_signal, &signals, &source) != TCK_OK) {
        agent_free(agent);
        return 1;
    }
    log_info("agent of job %s on node %s is ready at %s (pid %d)", config->job, config->node,
             peers_self(agent->peers)->address, (int)getpid());
    failpoint(agent, ready);
    loop_run(agent->loop);
    loop_fd_remove(source);
    watchdog = watchdog_start(LEAVE_MS, exit_without_threads, NULL);
    agent_free(agent);
    watchdog_stop(watchdog);
    close(fd);
    log_info("agent exited");
    return 0;
}

int main(int argc, char **argv)
{
    static const struct option options[] = {{"config", required_argument, NULL, 'c'},
                                            {"set", required_argument, NULL, 's'},
                                            {"help", no_argument, NULL, 'h'},
                                            {"version", no_argument, NULL, 'v'},
                                            {"metrics", no_argument, NULL, 'm'},
                                            {"ucx", no_argument, NULL, 'u'},
#ifdef TCK_FAILPOINTS
                                            {"failpoints", no_argument, NULL, 'p'},
#endif
                                            {NULL, 0, NULL, 0}};
    const char *file = NULL;
    const char *set = NULL;
    /* NOLINTNEXTLINE(concurrency-mt-unsafe): no thread was started yet */
    for (int c; (c = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        if (c == 'c') {
            file = optarg;
        } else if (c == 's') {
            set = optarg;
        } else if (c == 'h') {
            usage(stdout);
            return 0;
        } else if (c == 'v') {
            puts("tierckptd " TCK_VERSION);
            return 0;
        } else if (c == 'm') {
            print_metrics();
            return 0;
        } else if (c == 'u') {
            own_ucx_print();
            return 0;
        } else if (c == 'p') {
            failpoints_print();
            return 0;
        } else {
            usage(stderr);
            return 2;
        }
    }
    struct config config;
    struct error err;
    if (failpoints_read(&err) != TCK_OK || config_load(file, set, &config, &err) != TCK_OK) {
        fprintf(stderr, "tierckptd: %s\n", err.text);
        return 1;
    }
    if (log_open(config.log_file_path, (enum log_level)config.log_level, config.node, &err) != TCK_OK) {
        fprintf(stderr, "tierckptd: %s\n", err.text);
        write_start_error(&(struct attempt){.config = &config, .began_ms = clock_ms()}, &err, true);
        return 1;
    }
    exec_with_ucx_environment(&config, file, set);
    return run(&config, is_trainer_file(&config, file) && set == NULL);
}

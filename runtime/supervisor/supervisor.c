/* SPDX-License-Identifier: Apache-2.0
 * tierckpt-supervisor: starts the agent, keeps the descriptors that it stores (tiers/sd_notify.h), and restarts it with
 * them when it dies, where there is no systemd to do so. It does nothing else, so that it has little reason to fail,
 * and it blocks only in poll. */
#include "base/clock.h"
#include "base/cpus.h"
#include "base/failpoint.h"
#include "base/log.h"
#include "base/message.h"
#include "base/place.h"
#include "supervisor/supervisor_child.h"
#include "supervisor/supervisor_notify.h"
#include "supervisor/supervisor_place.h"
#include "tiers/link.h"
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#define LOG_NAME "supervisor.log"

#define MESSAGES_PER_TURN 1000
#define START_RETRY_MS    1000 /* after a failed fork */

enum exit_status { EXIT_DONE = 0, EXIT_FAILED = 1, EXIT_USAGE = 2, EXIT_LIVES_ALREADY = 3 };

static const char usage[] =
    "Usage: tierckpt-supervisor --runtime-dir DIR [--device NAME] [--adopt PID] [--foreground] -- AGENT [ARGUMENT...]\n"
    "\n"
    "Starts the agent of a job on this node, restarts it when it dies, and keeps its memory meanwhile. The node's\n"
    "first trainer starts it; under systemd, which does the same, it is not needed.\n"
    "\n"
    "  --runtime-dir DIR  directory of its socket, lock and log; also the agent's working directory\n"
    "  --device NAME      network interface of the agent\n"
    "  --cpus-of PID      also use the processors that process PID may use\n"
    "  --adopt PID        supervise this running agent, whose supervisor has died\n"
    "  --foreground       do not detach; log to standard error\n"
    "  --help, --version\n"
    "\n"
    "Exit status: 0 started (or, in the foreground, the agent ended), 1 failed, 2 wrong usage, 3 another supervisor is "
    "running there\n";

struct options {
    char runtime_dir[PATH_MAX];
    char program[PATH_MAX];
    const char *device;
    pid_t adopt, cpus_of; /* 0: none */
    bool foreground;
    char **agent_argv;
};

struct supervisor {
    struct supervisor_place place;
    int signal_fd;
    char notify_path[PATH_MAX];
    struct store store;
    struct child child;
    bool ending; /* received a signal to end: the agent is not restarted */
};

/* ---- options ------------------------------------------------------------------------------------------------- */

static bool parse_pid(const char *text, pid_t *out)
{
    char *end;
    errno = 0;
    long number = strtol(text, &end, 10);
    if (errno != 0 || *end != '\0' || number < 1 || number > INT_MAX) {
        return false;
    }
    *out = (pid_t)number;
    return true;
}

static bool resolve(const char *path, char out[PATH_MAX])
{
    if (realpath(path, out) == NULL) {
        fprintf(stderr, "tierckpt-supervisor: %s: %m\n", path);
        return false;
    }
    return true;
}

/* Relative paths are resolved before the chdir. A program without a slash is looked up in PATH. */
static bool resolve_paths(const char *runtime_dir, struct options *options)
{
    char **program = &options->agent_argv[0];
    if (runtime_dir == NULL || *program == NULL || !resolve(runtime_dir, options->runtime_dir)) {
        return false;
    }
    if (strchr(*program, '/') == NULL) {
        return true;
    }
    if (!resolve(*program, options->program)) {
        return false;
    }
    *program = options->program;
    return true;
}

/* --help and --version count only as the sole argument. */
static bool print_help(int argc, char **argv)
{
    const char *asked = argc == 2 ? argv[1] : "";
    if (strcmp(asked, "--help") == 0) {
        fputs(usage, stdout);
        return true;
    }
    if (strcmp(asked, "--version") == 0) {
        puts("tierckpt-supervisor " TCK_VERSION);
        return true;
    }
    return false;
}

static bool parse_options(int argc, char **argv, struct options *out)
{
    static const struct option known[] = {
        {"runtime-dir", required_argument, NULL, 'r'}, {"device", required_argument, NULL, 'd'},
        {"cpus-of", required_argument, NULL, 'c'},     {"adopt", required_argument, NULL, 'a'},
        {"foreground", no_argument, NULL, 'f'},        {NULL, 0, NULL, 0}};
    bool ok = true;
    const char *runtime_dir = NULL;
    *out = (struct options){.device = ""};
    /* NOLINTNEXTLINE(concurrency-mt-unsafe): the supervisor has one thread */
    for (int c; (c = getopt_long(argc, argv, "+", known, NULL)) != -1;) {
        switch (c) {
        case 'r':
            runtime_dir = optarg;
            break;
        case 'd':
            out->device = optarg;
            break;
        case 'c':
            ok = ok && parse_pid(optarg, &out->cpus_of);
            break;
        case 'a':
            ok = ok && parse_pid(optarg, &out->adopt) && out->adopt > 1;
            break;
        case 'f':
            out->foreground = true;
            break;
        default:
            ok = false;
        }
    }
    out->agent_argv = &argv[optind];
    return ok && resolve_paths(runtime_dir, out);
}

/* ---- set-up -------------------------------------------------------------------------------------------------- */

/* Drops what the supervisor inherits from the trainer that starts it: open pipes that a launcher waits on, ignored
 * signals. */
static void drop_inherited(void)
{
    sigset_t none;
    while (fcntl(STDERR_FILENO, F_GETFD) < 0 && open("/dev/null", O_RDWR) >= 0) {
        /* otherwise one of our files would get a standard number and receive that output */
    }
    close_range(STDERR_FILENO + 1, UINT_MAX, 0);
    for (int i = 1; i < NSIG; i++) {
        signal(i, SIG_DFL); /* fails for SIGKILL and SIGSTOP, which cannot be ignored either */
    }
    sigemptyset(&none);
    pthread_sigmask(SIG_SETMASK, &none, NULL);
}

/* A launcher may bind each of its trainers to processors of its own, and to memory beside them. The agent works for all
 * of them, so it must not stay bound like the trainer that starts it. A control group's limits still apply. */
static void leave_binding(pid_t launcher)
{
    struct cpus own = cpus_of_process(0), all = cpus_of_process(launcher);
    all = cpus_of_both(&all, &own);
    cpus_run_on(&all);
    cpus_use_near_memory();
}

static enum exit_status take_place(struct supervisor *supervisor, const struct options *options)
{
    struct error err;
    tck_status_t status =
        supervisor_place_take(&supervisor->place, options->runtime_dir, options->foreground ? "-" : LOG_NAME, &err);
    if (status != TCK_OK) {
        fprintf(stderr, "tierckpt-supervisor: %s\n", err.text);
    }
    return status == TCK_OK ? EXIT_DONE : status == TCK_ERR_EXIST ? EXIT_LIVES_ALREADY : EXIT_FAILED;
}

static tck_status_t open_signals(struct supervisor *supervisor, struct error *err)
{
    sigset_t handled;
    sigemptyset(&handled);
    sigaddset(&handled, SIGTERM);
    sigaddset(&handled, SIGINT);
    pthread_sigmask(SIG_BLOCK, &handled, NULL);
    supervisor->signal_fd = signalfd(-1, &handled, SFD_CLOEXEC | SFD_NONBLOCK);
    return supervisor->signal_fd >= 0 ? TCK_OK : error_set(err, status_of_errno(errno), "signalfd: %m");
}

static enum exit_status prepare(struct supervisor *supervisor, const struct options *options)
{
    struct error err = {0};
    int len = snprintf(supervisor->notify_path, sizeof(supervisor->notify_path), "%s/" NOTIFY_SOCKET_NAME,
                       options->runtime_dir);
    if ((size_t)len >= sizeof(supervisor->notify_path) || chdir(options->runtime_dir) != 0) {
        fprintf(stderr, "tierckpt-supervisor: cannot change to %s: %m\n", options->runtime_dir);
        return EXIT_FAILED;
    }
    enum exit_status taken = take_place(supervisor, options);
    if (taken != EXIT_DONE) {
        return taken;
    }
    if (open_signals(supervisor, &err) != TCK_OK ||
        log_open(options->foreground ? "-" : LOG_NAME, LOG_INFO, "supervisor", &err) != TCK_OK) {
        fprintf(stderr, "tierckpt-supervisor: %s\n", err.text);
        return EXIT_FAILED;
    }
    return EXIT_DONE;
}

/* Standard error of the agent and its libraries goes to our log, since it may tell the cause of a crash. */
static void redirect_output(void)
{
    int null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    int log_fd = open(LOG_NAME, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    dup2(null_fd, STDIN_FILENO);
    dup2(log_fd >= 0 ? log_fd : null_fd, STDOUT_FILENO);
    dup2(log_fd >= 0 ? log_fd : null_fd, STDERR_FILENO);
    close(null_fd);
    close(log_fd);
}

/* Leaves the trainer's session and process group, so that a signal to these does not end the supervisor. Only the last
 * of the three processes returns; it is not a session leader, so it never gets a terminal. */
static tck_status_t detach(struct error *err)
{
    pid_t pid = fork();
    if (pid == 0) {
        setsid();
        pid = fork();
    }
    if (pid < 0) {
        return error_set(err, status_of_errno(errno), "fork: %m");
    }
    if (pid > 0) {
        _exit(EXIT_DONE);
    }
    redirect_output();
    return TCK_OK;
}

/* ---- run ----------------------------------------------------------------------------------------------------- */

static void take_message(struct supervisor *supervisor, struct notify_message *message)
{
    struct error err = {0};
    if (message->store && message->fd >= 0 && message->name[0] != '\0') {
        if (store_put(&supervisor->store, message->name, message->fd, &err) != TCK_OK) {
            log_error("descriptor %s cannot be kept: %s", message->name, err.text);
        }
        message->fd = -1; /* the store owns it */
    } else if (message->store && message->lost) {
        log_error("descriptor %s cannot be kept: this process may open no more files (RLIMIT_NOFILE)", message->name);
    } else if (message->store) {
        log_warn("ignoring FDSTORE without exactly one descriptor and a name");
    }
    if (message->fd >= 0) {
        close(message->fd);
    }
    failpoint(supervisor, took);
    if (message->remove && !store_remove(&supervisor->store, message->name)) {
        log_debug("there is no descriptor '%s' to remove", message->name);
    }
    supervisor->child.stopping |= message->stopping;
    if (message->linger_s > 0) {
        supervisor->child.linger_ms = (uint64_t)message->linger_s * 1000;
    }
    if (message->ready) {
        supervisor->child.ready = true;
        (void)unlinkat(supervisor->place.dir_fd, SUPERVISOR_WAITS_FILE, 0);
        log_info("agent ready, %d descriptors kept", supervisor->store.count);
    }
}

/* Bounded, so that a sender that never pauses cannot starve the rest of the loop. */
static void take_messages(struct supervisor *supervisor)
{
    struct notify_message message;
    for (int i = 0; i < MESSAGES_PER_TURN && notify_receive(supervisor->place.notify_fd, &message); i++) {
        take_message(supervisor, &message);
    }
}

static void take_signals(struct supervisor *supervisor)
{
    struct signalfd_siginfo info;
    while (read(supervisor->signal_fd, &info, sizeof(info)) == sizeof(info)) {
        log_info("signal %u of process %u: ending the agent", info.ssi_signo, info.ssi_pid);
        supervisor->ending = true;
        child_terminate(&supervisor->child);
    }
}

/* How long until the agent must be started; -1 if it runs. */
static int start_in_ms(const struct supervisor *supervisor)
{
    uint64_t now = clock_ms(), then = supervisor->child.restart_ms;
    if (then == 0) {
        return -1;
    }
    return then > now ? (int)(then - now) : 0;
}

/* The timeout of poll: its place in the directory is looked at meanwhile. */
static int wait_ms(const struct supervisor *supervisor)
{
    int start = start_in_ms(supervisor);
    return start >= 0 && start < PLACE_TICK_MS ? start : PLACE_TICK_MS;
}

static void start_if_due(struct supervisor *supervisor)
{
    struct error err = {0};
    if (start_in_ms(supervisor) != 0) {
        return;
    }
    failpoint(supervisor, starting);
    if (child_start(&supervisor->child, &supervisor->store, &err) != TCK_OK) {
        log_error("cannot start the agent: %s", err.text);
        supervisor->child.restart_ms = clock_ms() + START_RETRY_MS;
    }
}

/* Tells the command how long the memory is kept. Of a segment's two descriptors, "d." is the data's. */
static void write_waits_file(const struct supervisor *supervisor)
{
    uint64_t until = child_given_up_ms(&supervisor->child), now = clock_ms();
    int segments = 0;
    for (int i = 0; i < supervisor->store.count; i++) {
        segments += strncmp(supervisor->store.entries[i]->name, "d.", 2) == 0;
    }
    if (supervisor->child.quick_deaths < 2) { /* a single crash: the agent is restarted at once */
        return;
    }
    (void)unlinkat(supervisor->place.dir_fd, SUPERVISOR_WAITS_FILE, 0);
    int fd = openat(supervisor->place.dir_fd, SUPERVISOR_WAITS_FILE,
                    O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd >= 0) {
        dprintf(fd, "{\"segments\":%d,\"deaths\":%u,\"kept_until_ms\":%" PRIu64 "}\n", segments,
                supervisor->child.quick_deaths, (clock_wall_ms() + (until > now ? until - now : 0)));
        close(fd);
    }
}

/* Returns when the agent has ended for good. */
static enum exit_status run(struct supervisor *supervisor)
{
    for (;;) {
        struct pollfd fds[] = {{.fd = supervisor->place.notify_fd, .events = POLLIN},
                               {.fd = supervisor->signal_fd, .events = POLLIN},
                               {.fd = supervisor->child.pidfd, .events = POLLIN},
                               {.fd = supervisor->place.anchor_fd, .events = POLLIN}};
        (void)poll(fds, sizeof(fds) / sizeof(fds[0]), wait_ms(supervisor)); /* none is ready if it fails */
        take_messages(supervisor); /* before the agent's end: it may have stored something at the last moment */
        take_signals(supervisor);
        supervisor_place_answer(&supervisor->place);
        supervisor_place_tick(&supervisor->place);
        if (fds[2].revents != 0) {
            failpoint(supervisor, agent_died);
            enum child_end end = child_ended(&supervisor->child);
            if (end != CHILD_RESTARTS) {
                return end == CHILD_DONE ? EXIT_DONE : EXIT_FAILED;
            }
            write_waits_file(supervisor);
        }
        if (supervisor->ending && supervisor->child.pid == 0) {
            return EXIT_DONE;
        }
        start_if_due(supervisor);
    }
}

/* Adopts the running agent, or schedules a first start. */
static tck_status_t take_agent(struct supervisor *supervisor, pid_t adopt, struct error *err)
{
    tck_status_t status = adopt == 0 ? TCK_ERR_NOENT : child_adopt(&supervisor->child, adopt, err);
    if (status != TCK_ERR_NOENT) {
        return status;
    }
    supervisor->child.restart_ms = clock_ms();
    return TCK_OK;
}

static enum exit_status supervise(struct supervisor *supervisor, const struct options *options)
{
    struct error err = {0};
    supervisor->child.argv = options->agent_argv;
    supervisor->child.notify_path = supervisor->notify_path;
    link_environment(options->device); /* with the limit of open files, which the agent inherits */
    if ((!options->foreground && detach(&err) != TCK_OK) || take_agent(supervisor, options->adopt, &err) != TCK_OK) {
        log_error("%s", err.text);
        return EXIT_FAILED;
    }
    enum exit_status status = run(supervisor);
    (void)unlinkat(supervisor->place.dir_fd, NOTIFY_SOCKET_NAME, 0);
    (void)unlinkat(supervisor->place.dir_fd, SUPERVISOR_WAITS_FILE, 0);
    store_free(&supervisor->store);
    log_info("ended");
    return status;
}

int main(int argc, char **argv)
{
    struct options options;
    struct error err = {0};
    struct supervisor supervisor = {.child = {.pidfd = -1}};
    if (print_help(argc, argv)) {
        return EXIT_DONE;
    }
    drop_inherited();
    if (!parse_options(argc, argv, &options)) {
        fputs(usage, stderr);
        return EXIT_USAGE;
    }
    if (failpoints_read(&err) != TCK_OK) {
        fprintf(stderr, "tierckpt-supervisor: %s\n", err.text);
        return EXIT_USAGE;
    }
    if (options.cpus_of > 0) {
        leave_binding(options.cpus_of);
    }
    int exit_status = (int)prepare(&supervisor, &options); /* clang: enumerations are unsigned */
    if (exit_status != EXIT_DONE) {
        return exit_status;
    }
    exit_status = (int)supervise(&supervisor, &options);
    supervisor_place_free(&supervisor.place);
    return exit_status;
}

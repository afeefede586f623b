/* SPDX-License-Identifier: Apache-2.0
 * The real supervisor with a replacement for the agent (fake_agent.c): stored descriptors survive the death of any
 * process. */
#include "base/lock.h"
#include "base/message.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PATH_BYTES 512
#define WAIT_MS    60000 /* far more than anything takes */
#define TICK_MS    5

enum { NONE, HALF, ALL }; /* of the files */

struct scene {
    char dir[PATH_BYTES];
    pid_t supervisor; /* 0: ended */
};

static struct scene scene_new(void)
{
    struct scene scene = {.dir = "/tmp/tck-supervisor-XXXXXX"};
    cr_assert_not_null(mkdtemp(scene.dir));
    return scene;
}

static void scene_free(struct scene *scene)
{
    char path[PATH_BYTES + 300];
    DIR *dir = opendir(scene->dir);
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        snprintf(path, sizeof(path), "%s/%s", scene->dir, entry->d_name);
        unlink(path);
    }
    closedir(dir);
    rmdir(scene->dir);
}

static void wait_a_tick(void)
{
    nanosleep(&(struct timespec){.tv_nsec = TICK_MS * 1000000}, NULL);
}

/* Runs the supervisor in the foreground. option and value may be NULL. */
static void supervisor_start(struct scene *scene, const char *option, const char *value, const char *mode)
{
    scene->supervisor = fork();
    cr_assert_geq(scene->supervisor, 0);
    if (scene->supervisor == 0) {
        const char *argv[16] = {TEST_SUPERVISOR, "--foreground", "--runtime-dir", scene->dir};
        int count = 4;
        if (option != NULL) {
            argv[count++] = option;
            argv[count++] = value;
        }
        argv[count++] = "--";
        argv[count++] = TEST_FAKE_AGENT;
        argv[count++] = mode;
        int null_fd = open("/dev/null", O_WRONLY);
        dup2(null_fd, STDERR_FILENO);
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* a failed test must leave nothing running */
        execv(TEST_SUPERVISOR, (char *const *)(uintptr_t)argv);
        _exit(127);
    }
}

/* Its exit status, or 1000 + the signal. */
static int supervisor_end(struct scene *scene)
{
    int status;
    for (int waited = 0; waited < WAIT_MS; waited += TICK_MS) {
        if (waitpid(scene->supervisor, &status, WNOHANG) == scene->supervisor) {
            scene->supervisor = 0;
            return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
        }
        wait_a_tick();
    }
    kill(scene->supervisor, SIGKILL);
    waitpid(scene->supervisor, NULL, 0);
    cr_assert_fail("the supervisor does not end");
    return -1;
}

static bool read_file(const struct scene *scene, const char *name, char *text, size_t cap)
{
    char path[PATH_BYTES + 32];
    snprintf(path, sizeof(path), "%s/%s", scene->dir, name);
    FILE *file = fopen(path, "r");
    if (file == NULL) {
        return false;
    }
    text[fread(text, 1, cap - 1, file)] = '\0';
    fclose(file);
    return true;
}

static void wait_for_file(const struct scene *scene, const char *name, char *text, size_t cap)
{
    for (int waited = 0; !read_file(scene, name, text, cap); waited += TICK_MS) {
        cr_assert_lt(waited, WAIT_MS, "no file %s", name);
        wait_a_tick();
    }
}

/* Waits until an agent other than `before` has stored its descriptors; returns its pid. */
static pid_t wait_for_agent(const struct scene *scene, pid_t before)
{
    char text[64];
    for (int waited = 0; waited < WAIT_MS; waited += TICK_MS) {
        pid_t pid = read_file(scene, "parked", text, sizeof(text)) ? (pid_t)atoi(text) : 0;
        if (pid != 0 && pid != before) {
            return pid;
        }
        wait_a_tick();
    }
    cr_assert_fail("no agent comes");
    return -1;
}

static void assert_handed_on(const struct scene *scene)
{
    char text[256];
    wait_for_file(scene, "found", text, sizeof(text));
    cr_assert_str_eq(text, "d.0123\n");
    wait_for_file(scene, "content", text, sizeof(text));
    cr_assert_str_eq(text, "kept");
}

Test(supervisor, gives_a_killed_agent_its_descriptors_back)
{
    struct scene scene = scene_new();
    supervisor_start(&scene, NULL, NULL, "park");
    pid_t first = wait_for_agent(&scene, 0);

    kill(first, SIGKILL);
    pid_t second = wait_for_agent(&scene, first);
    assert_handed_on(&scene);
    cr_assert_neq(second, first);
    kill(scene.supervisor, SIGTERM);
    cr_assert_eq(supervisor_end(&scene), 0);
    scene_free(&scene);
}

Test(supervisor, ends_when_the_agent_exits_with_zero)
{
    struct scene scene = scene_new();
    char starts[256];
    supervisor_start(&scene, NULL, NULL, "exit");

    cr_assert_eq(supervisor_end(&scene), 0);
    wait_for_file(&scene, "starts", starts, sizeof(starts));
    cr_assert_str_eq(starts, "exit\n");
    scene_free(&scene);
}

Test(supervisor, starts_an_agent_again_that_failed)
{
    struct scene scene = scene_new();
    char starts[4096] = "";
    supervisor_start(&scene, NULL, NULL, "fail");

    for (int waited = 0; strlen(starts) < strlen("fail\nfail\nfail\n"); waited += TICK_MS) {
        cr_assert_lt(waited, WAIT_MS, "started: %s", starts);
        wait_a_tick();
        (void)read_file(&scene, "starts", starts, sizeof(starts));
    }
    kill(scene.supervisor, SIGTERM);
    cr_assert_eq(supervisor_end(&scene), 0);
    scene_free(&scene);
}

Test(supervisor, ends_the_agent_on_a_signal)
{
    struct scene scene = scene_new();
    supervisor_start(&scene, NULL, NULL, "park");
    pid_t agent = wait_for_agent(&scene, 0);

    kill(scene.supervisor, SIGTERM);
    cr_assert_eq(supervisor_end(&scene), 0);
    cr_assert_neq(kill(agent, 0), 0);
    scene_free(&scene);
}

Test(supervisor, gives_the_agent_a_safe_environment_in_its_own_directory)
{
    struct scene scene = scene_new();
    char got[1024], want[PATH_BYTES + 64];
    supervisor_start(&scene, "--device", "eth7", "environment");

    cr_assert_eq(supervisor_end(&scene), 0);
    wait_for_file(&scene, "environment", got, sizeof(got));
    snprintf(want, sizeof(want), "%s put=n device=eth7", scene.dir);
    cr_assert_str_eq(got, want);
    scene_free(&scene);
}

Test(supervisor, lives_only_once_in_a_directory)
{
    struct scene scene = scene_new();
    supervisor_start(&scene, NULL, NULL, "park");
    (void)wait_for_agent(&scene, 0);

    struct scene second = scene;
    supervisor_start(&second, NULL, NULL, "park");
    cr_assert_eq(supervisor_end(&second), 3);
    kill(scene.supervisor, SIGTERM);
    cr_assert_eq(supervisor_end(&scene), 0);
    scene_free(&scene);
}

Test(supervisor, takes_over_an_agent_whose_supervisor_died)
{
    struct scene scene = scene_new();
    char pid[32], text[64];
    supervisor_start(&scene, NULL, NULL, "park");
    pid_t agent = wait_for_agent(&scene, 0);
    kill(scene.supervisor, SIGKILL);
    cr_assert_eq(supervisor_end(&scene), 1000 + SIGKILL);
    while (read_file(&scene, "parked", text, sizeof(text))) {
        wait_a_tick(); /* until the agent has noticed */
    }

    snprintf(pid, sizeof(pid), "%d", (int)agent);
    supervisor_start(&scene, "--adopt", pid, "park");
    cr_assert_eq(wait_for_agent(&scene, 0), agent);
    kill(agent, SIGKILL);
    (void)wait_for_agent(&scene, agent);
    assert_handed_on(&scene);
    kill(scene.supervisor, SIGTERM);
    cr_assert_eq(supervisor_end(&scene), 0);
    scene_free(&scene);
}

/* The line of each life of an agent with many segments: how many files it was given. */
static void assert_lives(const struct scene *scene, const unsigned *found, int count)
{
    char text[1024];
    wait_for_file(scene, "found", text, sizeof(text));
    char *rest = text;
    for (int i = 0; i < count; i++) {
        unsigned got = 0, all = 0, wrong = 1;
        const char *line = strsep(&rest, "\n");
        cr_assert_not_null(line);
        cr_assert_eq(sscanf(line, "found %u of %u, wrong %u", &got, &all, &wrong), 3, "%s", line);
        cr_assert_eq(wrong, 0);
        cr_assert_eq(got, found[i] == HALF ? (all / 2 | 1) : found[i] == ALL ? all : 0, "life %d: %s", i, line);
    }
    cr_assert_str_eq(rest, "");
}

/* 16,384 segments, of two files each, or as many as this machine lets one process open. The agent is killed in the
 * middle of storing them, between the two files of one, and when all are stored. */
Test(supervisor, gives_back_all_of_many_segments, .timeout = 120)
{
    static const unsigned lives[] = {NONE, HALF, ALL};
    struct scene scene = scene_new();
    supervisor_start(&scene, NULL, NULL, "many");
    pid_t second = wait_for_agent(&scene, 0);
    assert_lives(&scene, lives, 2);

    kill(second, SIGKILL);
    cr_assert_neq(wait_for_agent(&scene, second), second);
    assert_lives(&scene, lives, 3);
    kill(scene.supervisor, SIGTERM);
    cr_assert_eq(supervisor_end(&scene), 0);
    scene_free(&scene);
}

static bool supervisor_lives(const struct scene *scene)
{
    int dir_fd = open(scene->dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    cr_assert_geq(dir_fd, 0);
    bool lives = lock_is_held(dir_fd, SUPERVISOR_LOCK_FILE);
    close(dir_fd);
    return lives;
}

static pid_t parent_of(pid_t pid)
{
    char path[64];
    int parent = -1;
    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    FILE *file = fopen(path, "r");
    cr_assert_not_null(file);
    cr_assert_eq(fscanf(file, "%*d (%*[^)]) %*c %d", &parent), 1);
    fclose(file);
    return parent;
}

Test(supervisor, leaves_its_starter_at_once_and_for_a_session_of_its_own)
{
    struct scene scene = scene_new();
    char command[2 * PATH_BYTES + 256];
    snprintf(command, sizeof(command), "%s --runtime-dir %s -- %s park", TEST_SUPERVISOR, scene.dir, TEST_FAKE_AGENT);

    cr_assert_eq(system(command), 0);
    pid_t first = wait_for_agent(&scene, 0);
    pid_t supervisor = parent_of(first);
    cr_assert_neq(supervisor, getpid());
    cr_assert_neq(getsid(supervisor), getsid(0));
    cr_assert_neq(getsid(supervisor), supervisor, "a session's leader could get a terminal");
    kill(first, SIGKILL);
    cr_assert_eq(parent_of(wait_for_agent(&scene, first)), supervisor);
    assert_handed_on(&scene);

    cr_assert(supervisor_lives(&scene));
    kill(supervisor, SIGTERM);
    for (int waited = 0; supervisor_lives(&scene); waited += TICK_MS) {
        cr_assert_lt(waited, WAIT_MS, "the supervisor does not end");
        wait_a_tick();
    }
    scene_free(&scene);
}

Test(supervisor, says_how_it_is_used)
{
    cr_assert_eq(WEXITSTATUS(system(TEST_SUPERVISOR " 2>/dev/null")), 2);
    cr_assert_eq(WEXITSTATUS(system(TEST_SUPERVISOR " --runtime-dir /nonexistent -- true 2>/dev/null")), 2);
    cr_assert_eq(WEXITSTATUS(system(TEST_SUPERVISOR " --runtime-dir /tmp 2>/dev/null")), 2);
    cr_assert_eq(WEXITSTATUS(system(TEST_SUPERVISOR " --runtime-dir /tmp --adopt x -- true 2>/dev/null")), 2);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "recovery/catalog_codec.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <fcntl.h>
#include <glob.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define V(t, s) ((struct version){(t), (s)})
#define SHARDS  3

/* A catalog in a directory of its own. */
struct place {
    char parent[64], dir[96];
    struct catalog *catalog;
};

static bool place_open(struct place *p)
{
    struct error err = {0};
    bool rebuilt = false;
    tck_status_t status = catalog_open(p->dir, &p->catalog, &rebuilt, &err);
    cr_assert(eq(int, status, TCK_OK), "%s", err.text);
    return rebuilt;
}

static void place_init(struct place *p)
{
    *p = (struct place){.parent = "/tmp/tck-catalog-XXXXXX"};
    cr_assert(mkdtemp(p->parent) != NULL);
    snprintf(p->dir, sizeof(p->dir), "%s/catalog", p->parent);
    cr_assert(not(place_open(p)));
}

static void place_close(struct place *p)
{
    catalog_close(p->catalog);
    p->catalog = NULL;
}

static void place_free(struct place *p)
{
    char command[128];
    place_close(p);
    snprintf(command, sizeof(command), "rm -rf %s", p->parent);
    cr_assert(eq(int, system(command), 0));
}

/* Files that match the pattern, relative to the parent directory; the newest by name in last_out. */
static size_t matching(const struct place *p, const char *pattern, char *last_out, size_t cap)
{
    char path[160];
    glob_t found;
    snprintf(path, sizeof(path), "%s/%s", p->parent, pattern);
    size_t count = glob(path, 0, NULL, &found) == 0 ? found.gl_pathc : 0;
    if (count > 0 && last_out != NULL) {
        snprintf(last_out, cap, "%s", found.gl_pathv[count - 1]);
    }
    globfree(&found);
    return count;
}

static void put(struct catalog *catalog, struct version version, enum catalog_state state)
{
    struct error err;
    struct catalog_version v = {
        .version = version, .state = state, .wall_ms = 1234, .shard_count = SHARDS, .bytes = 99};
    struct catalog_shard shards[SHARDS] = {0};
    for (uint32_t i = 0; i < SHARDS; i++) {
        shards[i] = (struct catalog_shard){.version = version, .shard = {i, 7}, .root = {8, 9}, .bytes = 4096};
        shards[i].holder_count = 2;
        strcpy(shards[i].holders[0], "node0");
        strcpy(shards[i].holders[1], "node1");
    }
    cr_assert(eq(int, catalog_put(catalog, &v, shards, SHARDS, true, &err), TCK_OK), "%s", err.text);
}

static void put_steps(struct catalog *catalog, uint64_t count)
{
    for (uint64_t step = 1; step <= count; step++) {
        put(catalog, V(1, step), CATALOG_COMMITTED);
    }
}

static struct version newest_commit(struct catalog *catalog, uint64_t before)
{
    struct error err;
    struct version newest = {9, 9};
    cr_assert(eq(int, catalog_newest_commit(catalog, before, &newest, &err), TCK_OK), "%s", err.text);
    return newest;
}

static size_t count_versions(struct catalog *catalog)
{
    struct error err;
    struct catalog_version *versions;
    size_t count;
    cr_assert(eq(int, catalog_versions(catalog, &versions, &count, &err), TCK_OK), "%s", err.text);
    free(versions);
    return count;
}

static size_t count_shards(struct catalog *catalog, struct version version)
{
    struct error err;
    struct catalog_shard *shards;
    size_t count;
    cr_assert(eq(int, catalog_shards(catalog, version, &shards, &count, &err), TCK_OK), "%s", err.text);
    free(shards);
    return count;
}

static void flip_byte(const char *path, double where)
{
    struct stat st;
    uint8_t byte;
    int fd = open(path, O_RDWR);
    cr_assert(fd >= 0 && fstat(fd, &st) == 0);
    off_t at = (off_t)((double)st.st_size * where);
    cr_assert(eq(int, pread(fd, &byte, 1, at), 1));
    byte ^= 0x40;
    cr_assert(eq(int, pwrite(fd, &byte, 1, at), 1));
    close(fd);
}

Test(catalog, lists_versions_newest_first)
{
    struct place p;
    struct error err;
    struct catalog_version *versions;
    size_t count;
    place_init(&p);
    put(p.catalog, V(1, 300), CATALOG_PUBLISHED);
    put(p.catalog, V(2, 256), CATALOG_OPEN);
    put(p.catalog, V(2, 5), CATALOG_COMMITTED);
    cr_assert(eq(int, catalog_versions(p.catalog, &versions, &count, &err), TCK_OK));
    cr_assert(eq(sz, count, 3));
    cr_assert(version_is(versions[0].version, V(2, 256)));
    cr_assert(version_is(versions[1].version, V(2, 5)));
    cr_assert(version_is(versions[2].version, V(1, 300)));
    cr_assert(eq(int, versions[2].state, CATALOG_PUBLISHED));
    cr_assert(eq(u64, versions[2].wall_ms, 1234));
    cr_assert(eq(u64, versions[2].bytes, 99));
    free(versions);
    place_free(&p);
}

Test(catalog, newest_commit_is_the_newest_that_was_committed_or_published_before_a_term)
{
    struct place p;
    place_init(&p);
    cr_assert(version_none(newest_commit(p.catalog, UINT64_MAX)));
    put(p.catalog, V(1, 300), CATALOG_PUBLISHED);
    put(p.catalog, V(2, 5), CATALOG_COMMITTED);
    put(p.catalog, V(2, 6), CATALOG_ABORTED);
    put(p.catalog, V(3, 9), CATALOG_PROTECTED);
    cr_assert(version_is(newest_commit(p.catalog, UINT64_MAX), V(2, 5)));
    cr_assert(version_is(newest_commit(p.catalog, 2), V(1, 300)));
    cr_assert(version_none(newest_commit(p.catalog, 1)));
    place_free(&p);
}

Test(catalog, keeps_its_rows_when_opened_again)
{
    struct place p;
    struct error err;
    struct catalog_shard *shards;
    size_t count;
    place_init(&p);
    put(p.catalog, V(1, 10), CATALOG_OPEN);
    put(p.catalog, V(1, 10), CATALOG_COMMITTED);
    place_close(&p);
    cr_assert(not(place_open(&p)));
    cr_assert(eq(sz, count_versions(p.catalog), 1));
    cr_assert(eq(int, catalog_shards(p.catalog, V(1, 10), &shards, &count, &err), TCK_OK));
    cr_assert(eq(sz, count, SHARDS));
    cr_assert(hash128_is(shards[2].shard, (struct hash128){2, 7}));
    cr_assert(hash128_is(shards[2].root, (struct hash128){8, 9}));
    cr_assert(eq(u32, shards[2].holder_count, 2));
    cr_assert_str_eq(shards[2].holders[1], "node1");
    free(shards);
    place_free(&p);
}

Test(catalog, drops_a_version_with_its_shards_and_no_other)
{
    struct place p;
    struct error err;
    place_init(&p);
    put_steps(p.catalog, 3);
    cr_assert(eq(int, catalog_drop(p.catalog, V(1, 2), &err), TCK_OK));
    cr_assert(eq(sz, count_versions(p.catalog), 2));
    cr_assert(eq(sz, count_shards(p.catalog, V(1, 1)), SHARDS));
    cr_assert(eq(sz, count_shards(p.catalog, V(1, 2)), 0));
    cr_assert(eq(sz, count_shards(p.catalog, V(1, 3)), SHARDS));
    place_free(&p);
}

Test(catalog, remembers_the_last_agent_of_each_node)
{
    struct place p;
    struct error err;
    struct node_info node = {.name = "node1", .domain = "rack", .address = "10.0.0.1:1", .agent_id = 1};
    struct known_node *nodes;
    size_t count;
    place_init(&p);
    cr_assert(eq(int, catalog_remember_node(p.catalog, &node, 1, &err), TCK_OK));
    node.agent_id = 2;
    cr_assert(eq(int, catalog_remember_node(p.catalog, &node, 2, &err), TCK_OK));
    strcpy(node.name, "node10");
    cr_assert(eq(int, catalog_remember_node(p.catalog, &node, 2, &err), TCK_OK));
    cr_assert(eq(int, catalog_nodes(p.catalog, &nodes, &count, &err), TCK_OK));
    cr_assert(eq(sz, count, 2));
    cr_assert_str_eq(nodes[0].node.name, "node1");
    cr_assert(eq(u64, nodes[0].node.agent_id, 2));
    cr_assert_str_eq(nodes[0].node.address, "10.0.0.1:1");
    cr_assert(eq(u64, nodes[0].term, 2));
    free(nodes);
    place_free(&p);
}

/* A node that returns after it was forgotten is a new one. */
Test(catalog, forgets_nodes_and_remembers_them_when_they_return)
{
    struct place p;
    struct error err;
    struct node_info node = {.domain = "rack", .address = "10.0.0.1:1"};
    struct known_node *nodes;
    size_t count;
    place_init(&p);
    for (uint64_t i = 1; i <= 4; i++) {
        snprintf(node.name, sizeof(node.name), "node%d", (int)i);
        node.agent_id = i;
        cr_assert(eq(int, catalog_remember_node(p.catalog, &node, i, &err), TCK_OK));
    }
    cr_assert(eq(int, catalog_nodes(p.catalog, &nodes, &count, &err), TCK_OK));
    cr_assert(eq(sz, count, 4));
    cr_assert(eq(int, catalog_forget_nodes(p.catalog, nodes + 1, 2, &err), TCK_OK));
    cr_assert(eq(int, catalog_forget_nodes(p.catalog, nodes, 0, &err), TCK_OK));
    free(nodes);
    node = (struct node_info){.name = "node3", .domain = "rack", .address = "10.0.0.3:1", .agent_id = 30};
    cr_assert(eq(int, catalog_remember_node(p.catalog, &node, 9, &err), TCK_OK));
    cr_assert(eq(int, catalog_nodes(p.catalog, &nodes, &count, &err), TCK_OK));
    cr_assert(eq(sz, count, 3));
    cr_assert_str_eq(nodes[0].node.name, "node1");
    cr_assert_str_eq(nodes[1].node.name, "node3");
    cr_assert(eq(u64, nodes[1].node.agent_id, 30));
    cr_assert(eq(u64, nodes[1].term, 9));
    cr_assert_str_eq(nodes[2].node.name, "node4");
    free(nodes);
    place_free(&p);
}

Test(catalog, passes_over_a_row_that_does_not_decode)
{
    struct place p;
    place_init(&p);
    put_steps(p.catalog, 2);
    put(p.catalog, V(1, 3), (enum catalog_state)77);
    cr_assert(eq(sz, count_versions(p.catalog), 2));
    place_free(&p);
}

/* Writes versions and reports each one through the pipe, until it is killed. */
static void write_until_killed(const char *dir, int pipe_fd)
{
    struct catalog *catalog;
    bool rebuilt;
    if (catalog_open(dir, &catalog, &rebuilt, NULL) != TCK_OK) {
        _exit(1);
    }
    for (uint64_t step = 1;; step++) {
        put(catalog, V(1, step), CATALOG_COMMITTED);
        if (write(pipe_fd, &step, sizeof(step)) != sizeof(step)) {
            _exit(1);
        }
    }
}

static pid_t start_writer(const struct place *p, int fds[2])
{
    cr_assert(eq(int, pipe(fds), 0));
    pid_t pid = fork();
    cr_assert(pid >= 0);
    if (pid == 0) {
        write_until_killed(p->dir, fds[1]);
    }
    close(fds[1]);
    return pid;
}

static void stop_writer(pid_t pid)
{
    int status;
    cr_assert(eq(int, kill(pid, SIGKILL), 0));
    cr_assert(eq(int, waitpid(pid, &status, 0), pid));
    bool killed = WIFSIGNALED(status);
    cr_assert(killed);
}

Test(catalog, keeps_whole_every_transition_before_a_kill)
{
    struct place p;
    int fds[2];
    uint64_t told = 0, step;
    place_init(&p);
    place_close(&p);
    pid_t pid = start_writer(&p, fds);
    while (told < 50) {
        cr_assert(eq(int, read(fds[0], &told, sizeof(told)), sizeof(told)));
    }
    stop_writer(pid);
    while (read(fds[0], &step, sizeof(step)) == sizeof(step)) {
        told = step;
    }
    cr_assert(not(place_open(&p)));
    size_t count = count_versions(p.catalog);
    cr_assert(ge(u64, count, told));
    for (uint64_t s = 1; s <= count; s++) {
        cr_assert(eq(sz, count_shards(p.catalog, V(1, s)), SHARDS));
    }
    place_free(&p);
}

Test(catalog, is_busy_and_stays_in_place_while_another_process_has_it)
{
    struct place p;
    int fds[2];
    uint64_t step;
    struct error err;
    bool rebuilt;
    place_init(&p);
    place_close(&p);
    pid_t pid = start_writer(&p, fds);
    cr_assert(eq(int, read(fds[0], &step, sizeof(step)), sizeof(step)));
    cr_assert(eq(int, catalog_open(p.dir, &p.catalog, &rebuilt, &err), TCK_ERR_BUSY));
    cr_assert(strstr(err.text, p.dir) != NULL, "%s", err.text);
    stop_writer(pid);
    cr_assert(eq(sz, matching(&p, "catalog.bad-*", NULL, 0), 0));
    cr_assert(not(place_open(&p)));
    cr_assert(ge(sz, count_versions(p.catalog), 1));
    place_free(&p);
}

Test(catalog, opens_with_a_torn_tail)
{
    struct place p;
    char log[256];
    struct stat st;
    place_init(&p);
    put_steps(p.catalog, 100);
    place_close(&p);
    cr_assert(ge(sz, matching(&p, "catalog/*.log", log, sizeof(log)), 1));
    cr_assert(eq(int, stat(log, &st), 0));
    cr_assert(eq(int, truncate(log, st.st_size - 5), 0));
    cr_assert(not(place_open(&p)));
    cr_assert(eq(sz, count_versions(p.catalog), 99));
    place_free(&p);
}

/* Damages the newest file that matches; the catalog must then open empty, with the damaged one kept next to it. */
static void check_rebuilt_after_damage(const char *pattern, double where)
{
    struct place p;
    char path[256];
    place_init(&p);
    put_steps(p.catalog, 100);
    place_close(&p);
    cr_assert(ge(sz, matching(&p, pattern, path, sizeof(path)), 1));
    flip_byte(path, where);
    cr_assert(place_open(&p), "%s flipped at %g: opened", pattern, where);
    cr_assert(eq(sz, count_versions(p.catalog), 0));
    cr_assert(eq(sz, matching(&p, "catalog.bad-*", NULL, 0), 1));
    put_steps(p.catalog, 1);
    place_close(&p);
    cr_assert(not(place_open(&p)), "the new one is sound");
    cr_assert(eq(sz, count_versions(p.catalog), 1));
    place_free(&p);
}

Test(catalog, is_rebuilt_after_damage_in_its_log)
{
    check_rebuilt_after_damage("catalog/*.log", 0.5);
}

Test(catalog, is_rebuilt_after_damage_in_its_manifest)
{
    check_rebuilt_after_damage("catalog/MANIFEST-*", 0.1);
}

Test(catalog, names_the_directory_that_cannot_be_created)
{
    struct catalog *catalog;
    struct error err;
    bool rebuilt;
    cr_assert(ne(int, catalog_open("/nonexistent/parent/catalog", &catalog, &rebuilt, &err), TCK_OK));
    cr_assert(strstr(err.text, "/nonexistent/parent/catalog") != NULL, "%s", err.text);
}

Test(catalog, refuses_every_shortened_value)
{
    struct catalog_shard shard = {.version = {1, 2}, .holder_count = 1, .holders = {"node0"}}, out;
    struct catalog_version version = {.version = {1, 2}}, version_out;
    struct writer w = writer_new(0);
    catalog_shard_encode(&shard, &w);
    cr_assert(eq(int, catalog_shard_decode(w.data, w.len, &out), TCK_OK));
    for (size_t len = 0; len < w.len; len++) {
        cr_assert(eq(int, catalog_shard_decode(w.data, len, &out), TCK_ERR_CORRUPT));
    }
    writer_free(&w);
    w = writer_new(0);
    catalog_version_encode(&version, &w);
    cr_assert(eq(int, catalog_version_decode(w.data, w.len, &version_out), TCK_OK));
    for (size_t len = 0; len < w.len; len++) {
        cr_assert(eq(int, catalog_version_decode(w.data, len, &version_out), TCK_ERR_CORRUPT));
    }
    writer_free(&w);
}

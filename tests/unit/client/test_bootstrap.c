/* SPDX-License-Identifier: Apache-2.0
 * Ranks that are threads, a store in memory, and the allgather between them over the loopback device. */
#include "base/clock.h"
#include "client/bootstrap.h"
#include "client/bootstrap_shape.h"
#include "client/bootstrap_socket.h"

#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

TestSuite(bootstrap, .timeout = 200);

/* ---- the tree ------------------------------------------------------------------------------------------------ */

Test(bootstrap, every_rank_but_the_first_is_the_child_of_one_other)
{
    for (uint32_t world = 1; world <= 700; world += world < 80 ? 1 : 31) {
        uint32_t *parents = calloc(world, sizeof(*parents));

        cr_assert_not_null(parents);
        for (uint32_t r = 0; r < world; r++) {
            struct bootstrap_shape shape = bootstrap_shape(r, world);
            uint32_t next = r + 1;

            cr_assert_eq(shape.subtree.first, r);
            cr_assert_leq(shape.child_count, BOOTSTRAP_FANOUT);
            for (uint32_t c = 0; c < shape.child_count; c++) { /* they follow each other and fill the subtree */
                cr_assert_eq(shape.children[c].first, next);
                cr_assert_gt(shape.children[c].end, next);
                next = shape.children[c].end;
                parents[shape.children[c].first]++;
                cr_assert_eq(bootstrap_shape(shape.children[c].first, world).parent, r);
                cr_assert_eq(bootstrap_shape(shape.children[c].first, world).subtree.end, next);
            }
            cr_assert_eq(next, shape.subtree.end);
        }
        for (uint32_t r = 0; r < world; r++) {
            cr_assert_eq(parents[r], r > 0 ? 1 : 0);
        }
        free(parents);
    }
}

Test(bootstrap, is_five_levels_deep_with_16384_ranks)
{
    uint32_t deepest = 0;

    for (uint32_t r = 0; r < 16384; r++) {
        uint32_t levels = 0;

        for (uint32_t at = r; at > 0; at = bootstrap_shape(at, 16384).parent) {
            levels++;
        }
        deepest = levels > deepest ? levels : deepest;
    }
    cr_assert_eq(deepest, 5);
}

/* ---- ranks that are threads ---------------------------------------------------------------------------------- */

#define RANKS_MAX 300

struct meeting {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    uint32_t world;
    bool given_up;
    struct {
        char key[64];
        uint8_t value[1024];
        size_t len; /* 0: not put yet */
    } of[RANKS_MAX];
    uint32_t count;
};

static struct meeting meeting;

static int put(void *ctx, const char *key, const void *value, size_t len)
{
    struct meeting *m = ctx;

    pthread_mutex_lock(&m->mutex);
    snprintf(m->of[m->count].key, sizeof(m->of[m->count].key), "%s", key);
    memcpy(m->of[m->count].value, value, len);
    m->of[m->count++].len = len;
    pthread_cond_broadcast(&m->changed);
    pthread_mutex_unlock(&m->mutex);
    return 0;
}

static int get(void *ctx, const char *key, void *value, size_t cap, size_t *len_out)
{
    struct meeting *m = ctx;
    int result = -1;

    pthread_mutex_lock(&m->mutex);
    while (result != 0 && !m->given_up) {
        for (uint32_t i = 0; i < m->count; i++) {
            if (strcmp(m->of[i].key, key) == 0 && m->of[i].len <= cap) {
                memcpy(value, m->of[i].value, m->of[i].len);
                *len_out = m->of[i].len;
                result = 0;
            }
        }
        if (result != 0 && !m->given_up) {
            pthread_cond_wait(&m->changed, &m->mutex);
        }
    }
    pthread_mutex_unlock(&m->mutex);
    return result;
}

struct member {
    uint32_t rank, leaves_at; /* the exchange before which it goes; UINT32_MAX: none */
    size_t lens[3];
    int timeout_ms;
    tck_status_t status;
    struct error err;
};

static void fill(uint8_t *block, uint32_t rank, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        block[i] = (uint8_t)(rank + i * 7);
    }
}

static tck_status_t exchange(const struct member *m, const tck_oob_t *oob, size_t len)
{
    uint8_t *mine = calloc(1, len), *all = calloc(meeting.world, len), *expected = calloc(1, len);
    tck_status_t status;

    cr_assert(mine != NULL && all != NULL && expected != NULL);
    fill(mine, m->rank, len);
    status = (tck_status_t)oob->allgather(oob->ctx, mine, all, len);
    for (uint32_t r = 0; status == TCK_OK && r < meeting.world; r++) {
        fill(expected, r, len);
        cr_assert_arr_eq(all + r * len, expected, len, "the block of rank %u at rank %u", r, m->rank);
    }
    free(mine);
    free(all);
    free(expected);
    return status;
}

static tck_status_t open_member(const struct member *m, tck_bootstrap_t **out)
{
    tck_bootstrap_params_t params = TCK_BOOTSTRAP_PARAMS_INIT;

    params.rank = (int)m->rank;
    params.world_size = (int)meeting.world;
    params.store = (tck_store_t){.put = put, .get = get, .ctx = &meeting};
    params.prefix = "first/";
    params.timeout_ms = m->timeout_ms;
    return tck_bootstrap_open(&params, out);
}

static void *run(void *ctx)
{
    struct member *m = ctx;
    tck_bootstrap_t *bootstrap = NULL;
    tck_oob_t oob;

    m->status = open_member(m, &bootstrap);
    if (m->status != TCK_OK) {
        snprintf(m->err.text, sizeof(m->err.text), "%s", tck_errmsg(NULL));
        return NULL;
    }
    oob = tck_bootstrap_oob(bootstrap);
    for (uint32_t i = 0; i < 3 && m->status == TCK_OK && i != m->leaves_at; i++) {
        m->status = exchange(m, &oob, m->lens[i]);
    }
    m->err = m->status == TCK_OK ? m->err : *bootstrap_failure(&oob);
    tck_bootstrap_close(bootstrap);
    return NULL;
}

static struct member members[RANKS_MAX];

static void begin(uint32_t world)
{
    meeting.world = world;
    pthread_mutex_init(&meeting.mutex, NULL);
    pthread_cond_init(&meeting.changed, NULL);
    for (uint32_t r = 0; r < world; r++) {
        members[r] = (struct member){.rank = r, .leaves_at = UINT32_MAX, .lens = {8, 1, 3000}, .timeout_ms = 20000};
    }
}

/* Those from `first` on. */
static void run_from(uint32_t first)
{
    pthread_t threads[RANKS_MAX];

    for (uint32_t r = first; r < meeting.world; r++) {
        cr_assert_eq(pthread_create(&threads[r], NULL, run, &members[r]), 0);
    }
    for (uint32_t r = first; r < meeting.world; r++) {
        pthread_join(threads[r], NULL);
    }
}

Test(bootstrap, gives_every_rank_the_bytes_of_all)
{
    const uint32_t worlds[] = {1, 2, 9, 10, 33, 300};

    for (size_t i = 0; i < sizeof(worlds) / sizeof(worlds[0]); i++) {
        memset(&meeting, 0, sizeof(meeting));
        begin(worlds[i]);
        run_from(0);
        for (uint32_t r = 0; r < worlds[i]; r++) {
            cr_assert_eq(members[r].status, TCK_OK, "rank %u of %u: %s", r, worlds[i], members[r].err.text);
        }
    }
}

Test(bootstrap, passes_on_more_than_sockets_hold)
{
    begin(20);
    for (uint32_t r = 0; r < 20; r++) {
        members[r].lens[1] = 1500001;
    }
    run_from(0);
    for (uint32_t r = 0; r < 20; r++) {
        cr_assert_eq(members[r].status, TCK_OK, "rank %u: %s", r, members[r].err.text);
    }
}

Test(bootstrap, fails_on_all_ranks_if_one_leaves)
{
    const uint32_t leavers[] = {0, 1, 39};

    for (size_t i = 0; i < 3; i++) {
        memset(&meeting, 0, sizeof(meeting));
        begin(40);
        members[leavers[i]].leaves_at = 1;
        run_from(0);
        for (uint32_t r = 0; r < 40; r++) {
            tck_status_t expected = r == leavers[i] ? TCK_OK : TCK_ERR_UNREACHABLE;
            cr_assert_eq(members[r].status, expected, "rank %u: %s", r, members[r].err.text);
        }
    }
}

/* Longer than a connection attempt takes. Rank 1 has children of its own. */
static void run_with_a_late(uint32_t late)
{
    pthread_t threads[80];

    begin(80);
    for (uint32_t r = 0; r < 80; r++) {
        if (r != late) {
            cr_assert_eq(pthread_create(&threads[r], NULL, run, &members[r]), 0);
        }
    }
    sleep(4);
    cr_assert_eq(pthread_create(&threads[late], NULL, run, &members[late]), 0);
    for (uint32_t r = 0; r < 80; r++) {
        pthread_join(threads[r], NULL);
        cr_assert_eq(members[r].status, TCK_OK, "rank %u: %s", r, members[r].err.text);
    }
}

Test(bootstrap, waits_for_a_late_root)
{
    run_with_a_late(0);
}

Test(bootstrap, waits_for_a_late_rank_that_others_connect_to)
{
    run_with_a_late(1);
}

Test(bootstrap, says_that_ranks_do_not_make_the_same_calls)
{
    begin(5);
    members[3].lens[1] = 2;
    run_from(0);
    cr_assert_eq(members[0].status, TCK_ERR_PROTO);
    cr_assert_str_eq(members[0].err.text,
                     "rank 3: its exchange 2 has 2 bytes, and this one's 2 has 1: the ranks do not "
                     "make the same calls");
    for (uint32_t r = 1; r < 5; r++) {
        cr_assert_neq(members[r].status, TCK_OK);
    }
}

Test(bootstrap, names_the_rank_that_does_not_come)
{
    begin(3);
    members[0].timeout_ms = 300;
    meeting.world = 3;
    meeting.given_up = true; /* so that the others, of which there are none, would not wait */
    run(&members[0]);
    cr_assert_eq(members[0].status, TCK_ERR_TIMEDOUT);
    cr_assert_str_eq(members[0].err.text, "rank 0 cannot connect to the other ranks: rank 1: it did not connect");
}

/* Rank 1 comes, goes, and comes again while rank 0 still waits for rank 2. */
Test(bootstrap, lets_a_rank_begin_again)
{
    tck_bootstrap_t *bootstrap = NULL;
    pthread_t threads[3];
    tck_oob_t oob;

    begin(3);
    cr_assert_eq(pthread_create(&threads[0], NULL, run, &members[0]), 0);
    cr_assert_eq(open_member(&members[1], &bootstrap), TCK_OK, "%s", tck_errmsg(NULL));
    tck_bootstrap_close(bootstrap);
    cr_assert_eq(open_member(&members[1], &bootstrap), TCK_OK, "%s", tck_errmsg(NULL));
    cr_assert_eq(pthread_create(&threads[2], NULL, run, &members[2]), 0);
    oob = tck_bootstrap_oob(bootstrap);
    for (uint32_t i = 0; i < 3; i++) {
        cr_assert_eq(exchange(&members[1], &oob, members[1].lens[i]), TCK_OK);
    }
    for (uint32_t r = 0; r < 3; r += 2) {
        pthread_join(threads[r], NULL);
        cr_assert_eq(members[r].status, TCK_OK, "rank %u: %s", r, members[r].err.text);
    }
    tck_bootstrap_close(bootstrap);
}

Test(bootstrap, refuses_bad_parameters)
{
    tck_bootstrap_params_t params = TCK_BOOTSTRAP_PARAMS_INIT;
    tck_bootstrap_t *bootstrap = NULL;

    cr_assert_eq(tck_bootstrap_open(NULL, &bootstrap), TCK_ERR_INVAL);
    params.world_size = 2;
    cr_assert_eq(tck_bootstrap_open(&params, NULL), TCK_ERR_INVAL);
    cr_assert_eq(tck_bootstrap_open(&params, &bootstrap), TCK_ERR_INVAL);
    cr_assert_str_eq(tck_errmsg(NULL), "no store in which the ranks find each other");
    params.rank = 2;
    cr_assert_eq(tck_bootstrap_open(&params, &bootstrap), TCK_ERR_INVAL);
    cr_assert_null(bootstrap);
}

/* ---- strangers ----------------------------------------------------------------------------------------------- */

static void *come_as_stranger_and_as_rank(void *ctx)
{
    const struct bootstrap_card *card = ctx;
    struct sockaddr_in at = {
        .sin_family = AF_INET, .sin_port = htons(card->port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    uint8_t bytes[64] = "GET / HTTP/1.1\r\nHost: somebody else\r\n\r\n";
    struct error err;
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    cr_assert_eq(connect(fd, (const struct sockaddr *)&at, sizeof(at)), 0);
    cr_assert_eq(send(fd, bytes, sizeof(bytes), MSG_NOSIGNAL), sizeof(bytes));
    cr_assert_leq(recv(fd, bytes, sizeof(bytes), 0), 0, "a stranger was answered");
    close(fd);
    cr_assert_eq(bootstrap_connect(card, 7, &fd, &err), TCK_OK, "%s", err.text);
    close(fd);
    return NULL;
}

Test(bootstrap, turns_strangers_away)
{
    struct bootstrap_card card;
    struct error err;
    uint32_t rank = 0;
    int listen_fd = -1, fd = -1;
    pthread_t thread;

    cr_assert_eq(bootstrap_listen("127.0.0.1", 8, &listen_fd, &card, &err), TCK_OK, "%s", err.text);
    cr_assert_eq(pthread_create(&thread, NULL, come_as_stranger_and_as_rank, &card), 0);
    cr_assert_eq(bootstrap_accept(listen_fd, &card, clock_ms() + 20000, &rank, &fd, &err), TCK_OK, "%s", err.text);
    cr_assert_eq(rank, 7);
    pthread_join(thread, NULL);
    close(fd);
    close(listen_fd);
}

Test(bootstrap, tries_every_address)
{
    struct bootstrap_card card;
    struct error err;
    uint32_t rank = 0;
    int listen_fd = -1, fd = -1;
    pthread_t thread;

    cr_assert_eq(bootstrap_listen("240.0.0.1,127.0.0.1", 8, &listen_fd, &card, &err), TCK_OK, "%s", err.text);
    cr_assert_eq(pthread_create(&thread, NULL, come_as_stranger_and_as_rank, &card), 0);
    cr_assert_eq(bootstrap_accept(listen_fd, &card, clock_ms() + 20000, &rank, &fd, &err), TCK_OK, "%s", err.text);
    pthread_join(thread, NULL);
    close(fd);
    close(listen_fd);
}

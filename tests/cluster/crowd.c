/* SPDX-License-Identifier: Apache-2.0
 * The ranks FIRST to END - 1 of a large world, which all are on one node, a process each. They connect by
 * tck_bootstrap, attach, and leave once all have attached. Each prints how many TCP connections it has. */
#include "meeting.h"
#include "tierckpt.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define FILES_MAX 256

struct crowd {
    const char *json, *oob;
    int first, end, world;
};

/* Sockets of this process that have another end. */
static int connections(void)
{
    int count = 0;

    for (int fd = 0; fd < FILES_MAX; fd++) {
        struct sockaddr_storage at = {.ss_family = AF_UNIX};
        socklen_t len = sizeof(at);

        if (getpeername(fd, (struct sockaddr *)&at, &len) == 0 && at.ss_family != AF_UNIX) {
            count++;
        }
    }
    return count;
}

static int fail(int rank, const char *what)
{
    printf("ERROR rank %d: %s: %s\n", rank, what, tck_errmsg(NULL));
    return 2;
}

static int attach(const struct crowd *crowd, int rank, tck_bootstrap_t *bootstrap)
{
    tck_attach_params_t params = TCK_ATTACH_PARAMS_INIT;
    tck_client_t *client = NULL;
    tck_oob_t oob = tck_bootstrap_oob(bootstrap);
    char *all;
    int failed;

    params.config_json = crowd->json;
    params.rank = rank;
    params.world_size = crowd->world;
    params.oob = oob;
    if (tck_attach(&params, &client) != TCK_OK) {
        return fail(rank, "attach");
    }
    printf("ATTACHED rank=%d connections=%d\n", rank, connections());
    all = malloc((size_t)crowd->world);
    failed = all == NULL || oob.allgather(oob.ctx, "", all, 1) != 0;
    free(all);
    tck_detach(client, 1);
    return failed ? 2 : 0;
}

static int run(const struct crowd *crowd, int rank)
{
    struct connectivity meeting = {.dir = crowd->oob, .rank = rank, .world = crowd->world};
    tck_bootstrap_params_t params = TCK_BOOTSTRAP_PARAMS_INIT;
    tck_bootstrap_t *bootstrap = NULL;
    int status;

    params.rank = rank;
    params.world_size = crowd->world;
    params.store = (tck_store_t){.put = meeting_put, .get = meeting_get, .ctx = &meeting};
    params.timeout_ms = 120000;
    if (tck_bootstrap_open(&params, &bootstrap) != TCK_OK) {
        return fail(rank, "bootstrap");
    }
    status = attach(crowd, rank, bootstrap);
    tck_bootstrap_close(bootstrap);
    return status;
}

static int parse(int argc, char **argv, struct crowd *crowd)
{
    const struct option options[] = {{"json", required_argument, NULL, 'j'},  {"oob", required_argument, NULL, 'o'},
                                     {"first", required_argument, NULL, 'f'}, {"end", required_argument, NULL, 'e'},
                                     {"world", required_argument, NULL, 'w'}, {NULL, 0, NULL, 0}};
    for (int c; (c = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        switch (c) {
        case 'j':
            crowd->json = optarg;
            break;
        case 'o':
            crowd->oob = optarg;
            break;
        case 'f':
            crowd->first = atoi(optarg);
            break;
        case 'e':
            crowd->end = atoi(optarg);
            break;
        case 'w':
            crowd->world = atoi(optarg);
            break;
        default:
            return 2;
        }
    }
    return crowd->json != NULL && crowd->oob != NULL && crowd->end <= crowd->world ? 0 : 2;
}

int main(int argc, char **argv)
{
    struct crowd crowd = {.first = 0};
    int bad = 0, status;

    setvbuf(stdout, NULL, _IOLBF, 0);
    if (parse(argc, argv, &crowd) != 0) {
        return 2;
    }
    for (int rank = crowd.first; rank < crowd.end; rank++) {
        pid_t pid = fork();

        if (pid == 0) {
            return run(&crowd, rank);
        }
        bad |= pid < 0;
    }
    while (wait(&status) > 0) {
        bad |= status != 0;
    }
    return bad;
}

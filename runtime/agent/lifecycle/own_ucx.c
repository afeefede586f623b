/* SPDX-License-Identifier: Apache-2.0
 * See own_ucx.h. */
#include "agent/lifecycle/own_ucx.h"

#include "base/program.h"
#include "tiers/link.h"
#include "tiers/ucx_choice.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define SELF       "/proc/self/exe"
#define ASK        "--ucx"
#define WHY        "TIERCKPT_UCX_WHY"
#define PATHS      "LD_LIBRARY_PATH"
#define TEXT_BYTES 512
#define LOAD_MS    10000 /* more than a library needs that can be used */

/* NOLINTBEGIN(concurrency-mt-unsafe): there is one thread */

/* Loading it in a process of its own is the only way to know that it can be loaded. */
static bool version_in(const char *directory, struct ucx_version *out)
{
    const char *const argv[] = {SELF, ASK, NULL};
    const struct program_variable variables[] = {{PATHS, directory}, {UCX_READY, "1"}, {NULL, NULL}};
    char line[TEXT_BYTES];
    return program_line(argv, variables, LOAD_MS, line, sizeof(line)) &&
           sscanf(line, "UCX %u.%u.%u", &out->major, &out->minor, &out->release) == 3;
}

static void look(struct ucx_facts *out)
{
    const struct ucx_places places = {
        .devices = UCX_RDMA_DEVICES, .ld_path = getenv(PATHS), .transports = getenv("UCX_TLS"), .version = version_in};
    ucx_look(&places, out);
}

bool own_ucx_choose(char *why_out, size_t cap)
{
    struct ucx_facts facts;
    const char *before = getenv(PATHS);
    char paths[2 * PATH_MAX];
    look(&facts);
    if (!ucx_prefers_system(&facts, why_out, cap)) {
        return false;
    }
    snprintf(paths, sizeof(paths), "%s%s%s", facts.system, before != NULL && before[0] != '\0' ? ":" : "",
             before != NULL ? before : "");
    return setenv(PATHS, paths, 1) == 0;
}

void own_ucx_print(void)
{
    struct ucx_facts facts;
    unsigned version[3];
    char why[TEXT_BYTES];
    char *const argv[] = {(char[]){"tierckptd"}, (char[]){ASK}, NULL};
    if (getenv(UCX_READY) == NULL && own_ucx_choose(why, sizeof(why)) && setenv(UCX_READY, "1", 1) == 0 &&
        setenv(WHY, why, 1) == 0) {
        execv(SELF, argv);
    }
    link_version(version);
    look(&facts);
    (void)ucx_prefers_system(&facts, why, sizeof(why));
    printf("UCX %u.%u.%u in %s: %s\n", version[0], version[1], version[2], facts.loaded,
           getenv(WHY) != NULL ? getenv(WHY) : why);
}

/* NOLINTEND(concurrency-mt-unsafe) */

/* SPDX-License-Identifier: Apache-2.0
 * The tests' agent as a program: agent RUNTIME_DIR JOB NODE, until its input ends. With it the client library can be
 * measured where no other agent can be built. It replicates nothing and checks nothing. */
#include "fake_agent.h"

#include <stdio.h>

int main(int argc, char **argv)
{
    static struct fake_agent agent;
    if (argc != 4) {
        fprintf(stderr, "usage: %s RUNTIME_DIR JOB NODE\n", argv[0]);
        return 2;
    }
    fake_agent_start(&agent, argv[1], argv[2], argv[3]);
    puts("ready");
    fflush(stdout);
    while (getchar() != EOF) {
    }
    fake_agent_free(&agent);
    return 0;
}

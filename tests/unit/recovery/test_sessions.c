/* SPDX-License-Identifier: Apache-2.0
 * The nodes with which a node needs sessions in its term. */
#include "recovery/sessions.h"

#include <criterion/criterion.h>
#include <string.h>

#define NODES 6

/* Shard 0 belongs to node 4, shard 1 to node 2. */
static struct shard_placement shards[] = {{.source = 4}, {.source = 2}};
static const struct placement placement = {.shard_count = 2, .shards = shards};

/* The numbers of the required nodes, one after the other, or m if messages alone are exchanged with one. */
static void expect(const struct node_shard *shard, bool coordinates, const char *numbers)
{
    struct node_setup setup = {.node_count = NODES, .shard_count = 1, .shards = shard};
    enum session_use wanted[NODES];
    char text[NODES + 1] = "";
    sessions_wanted(&setup, &placement, coordinates, wanted);
    for (uint32_t n = 0; n < NODES; n++) {
        char of_use[] = {[SESSION_NONE] = ' ', [SESSION_MESSAGES] = 'm', [SESSION_COPIES] = (char)('0' + n)};
        text[strlen(text)] = of_use[wanted[n]];
    }
    cr_assert_str_eq(text, numbers);
}

Test(sessions, the_coordinator_needs_all)
{
    struct node_shard held = {.held = true};
    expect(&held, true, "mmmm4m");
}

Test(sessions, an_owner_needs_the_coordinator_and_its_holders)
{
    struct node_shard owned = {.world_shard = 0, .holder_count = 2, .holders = {3, 5}};
    expect(&owned, false, "m  3 5");
}

Test(sessions, a_holder_needs_the_node_that_sends_the_copies)
{
    struct node_shard held = {.world_shard = 1, .held = true};
    expect(&held, false, "m 2   ");
}

Test(sessions, a_shard_left_over_from_an_older_term_needs_no_sessions)
{
    struct node_shard leftover = {.world_shard = NONE32, .held = true};
    expect(&leftover, false, "m     ");
}

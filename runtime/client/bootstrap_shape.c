/* SPDX-License-Identifier: Apache-2.0
 * Which ranks are connected: the root's range without itself is split evenly, again and again. */
#include "client/bootstrap_shape.h"

/* Splits the subtree without its root into the children's subtrees. */
static void split(struct bootstrap_shape *shape)
{
    uint32_t rest = shape->subtree.end - shape->subtree.first - 1, first = shape->subtree.first + 1;

    shape->child_count = rest < BOOTSTRAP_FANOUT ? rest : BOOTSTRAP_FANOUT;
    for (uint32_t c = 0; c < shape->child_count; c++) {
        uint32_t size = rest / shape->child_count + (c < rest % shape->child_count ? 1 : 0);

        shape->children[c] = (struct rank_range){first, first + size};
        first += size;
    }
}

struct bootstrap_shape bootstrap_shape(uint32_t rank, uint32_t world_size)
{
    struct bootstrap_shape shape = {.subtree = {0, world_size}};

    split(&shape);
    while (shape.subtree.first != rank) {
        uint32_t c = 0;

        while (rank >= shape.children[c].end) {
            c++;
        }
        shape.parent = shape.subtree.first;
        shape.subtree = shape.children[c];
        split(&shape);
    }
    return shape;
}

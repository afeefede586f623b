/* SPDX-License-Identifier: Apache-2.0
 * Chooses holders, sources and drainers.
 *
 * Nodes are arranged in one row, domain after domain (domains by their first node, nodes in world order). With n
 * nodes and m copies the row is cut into groups of nodes that stand n/m apart: {i, i + n/m, i + 2n/m, ...}. As long
 * as no domain has more than n/m nodes, a group's members are in distinct domains, and each node sends its shards to
 * the next members of its group. Groups of m lose fewer pairs of nodes than a ring or a scattered choice does, and
 * only positions decide, so replacing a node at the same place moves no other node's copies. If that node would
 * share a domain with another copy, or hold more than its share of bytes, the least loaded node of the remaining
 * domains is taken instead. */
#include "recovery/placement.h"

#include <stdlib.h>
#include <string.h>

#define COPIES_MAX (CORE_HOLDERS_MAX + 1)

/* Positions begin..end-1 of the row. */
struct span {
    uint32_t begin, end;
};

/* The positions of a shard's copies so far: disjoint, ascending. */
struct taken {
    uint32_t count;
    struct span spans[COPIES_MAX];
};

struct chooser {
    const struct world *world;
    uint32_t copies;
    uint32_t *domain_of;    /* by node */
    uint32_t *domain_begin; /* by domain, and one more: first position */
    uint32_t *row;          /* node at each position */
    uint32_t *position;     /* of each node */
    uint64_t *held;         /* by position: bytes of replicas */
    uint32_t *least;        /* tree over positions: at each inner place the one of its leaves that holds least */
    uint64_t *sent;         /* by node: bytes of replicas */
    uint64_t *drained;      /* by node: bytes to storage */
    uint64_t fair_share;    /* bytes of replicas that no node needs to exceed, if domains allow */
};

static void chooser_free(struct chooser *c)
{
    free(c->domain_of);
    free(c->domain_begin);
    free(c->row);
    free(c->position);
    free(c->held);
    free(c->least);
    free(c->sent);
    free(c->drained);
}

static bool chooser_alloc(struct chooser *c)
{
    size_t n = (size_t)c->world->node_count + 1;
    c->domain_of = calloc(n, sizeof(*c->domain_of));
    c->domain_begin = calloc(n + 1, sizeof(*c->domain_begin));
    c->row = calloc(n, sizeof(*c->row));
    c->position = calloc(n, sizeof(*c->position));
    c->held = calloc(n, sizeof(*c->held));
    c->least = calloc(2 * n, sizeof(*c->least));
    c->sent = calloc(n, sizeof(*c->sent));
    c->drained = calloc(n, sizeof(*c->drained));
    return c->domain_of != NULL && c->domain_begin != NULL && c->row != NULL && c->position != NULL &&
           c->held != NULL && c->least != NULL && c->sent != NULL && c->drained != NULL;
}

/* ---- the row ------------------------------------------------------------------------------------------------- */

static int by_domain_then_place(const void *a, const void *b)
{
    const struct node_info *x = *(const struct node_info *const *)a;
    const struct node_info *y = *(const struct node_info *const *)b;
    int order = strcmp(x->domain, y->domain);
    return order != 0 ? order : (x > y) - (x < y);
}

/* leader_out[node]: the first node of the same domain. */
static bool find_leaders(const struct world *world, uint32_t *leader_out)
{
    const struct node_info **sorted = calloc((size_t)world->node_count + 1, sizeof(const struct node_info *));
    if (sorted == NULL) {
        return false;
    }
    for (uint32_t i = 0; i < world->node_count; i++) {
        sorted[i] = &world->nodes[i];
    }
    qsort(sorted, world->node_count, sizeof(const struct node_info *), by_domain_then_place);
    const struct node_info *leader = NULL;
    for (uint32_t i = 0; i < world->node_count; i++) {
        if (leader == NULL || strcmp(leader->domain, sorted[i]->domain) != 0) {
            leader = sorted[i];
        }
        leader_out[sorted[i] - world->nodes] = (uint32_t)(leader - world->nodes);
    }
    free(sorted);
    return true;
}

/* Numbers domains by their first node and lines the nodes up. */
static bool line_up(struct chooser *c)
{
    uint32_t nodes = c->world->node_count;
    uint32_t *leader = c->position; /* free to use until the positions are known */
    if (!find_leaders(c->world, leader)) {
        return false;
    }
    uint32_t domains = 0;
    for (uint32_t i = 0; i < nodes; i++) {
        c->domain_of[i] = leader[i] == i ? domains++ : c->domain_of[leader[i]];
        c->domain_begin[c->domain_of[i] + 1]++;
    }
    for (uint32_t d = 0; d < domains; d++) {
        c->domain_begin[d + 1] += c->domain_begin[d];
    }
    for (uint32_t i = 0; i < nodes; i++) {
        c->position[i] = c->domain_begin[c->domain_of[i]]++;
        c->row[c->position[i]] = i;
    }
    memmove(c->domain_begin + 1, c->domain_begin, domains * sizeof(*c->domain_begin));
    c->domain_begin[0] = 0;
    return true;
}

static struct span domain_span(const struct chooser *c, uint32_t node)
{
    uint32_t d = c->domain_of[node];
    return (struct span){c->domain_begin[d], c->domain_begin[d + 1]};
}

static struct span node_span(const struct chooser *c, uint32_t node)
{
    return (struct span){c->position[node], c->position[node] + 1};
}

static bool is_taken(const struct taken *t, uint32_t position)
{
    for (uint32_t i = 0; i < t->count; i++) {
        if (position >= t->spans[i].begin && position < t->spans[i].end) {
            return true;
        }
    }
    return false;
}

static void take(struct taken *t, struct span span)
{
    uint32_t i = t->count++;
    for (; i > 0 && t->spans[i - 1].begin > span.begin; i--) {
        t->spans[i] = t->spans[i - 1];
    }
    t->spans[i] = span;
}

/* ---- who holds least ----------------------------------------------------------------------------------------- */

static uint32_t lesser(const struct chooser *c, uint32_t a, uint32_t b)
{
    if (a == NONE32 || b == NONE32) {
        return a == NONE32 ? b : a;
    }
    if (c->held[a] != c->held[b]) {
        return c->held[a] < c->held[b] ? a : b;
    }
    return a < b ? a : b;
}

static void least_init(struct chooser *c)
{
    uint32_t n = c->world->node_count;
    for (uint32_t i = 0; i < n; i++) {
        c->least[n + i] = i;
    }
    for (uint32_t i = n; i-- > 1;) {
        c->least[i] = lesser(c, c->least[(size_t)2 * i], c->least[(size_t)2 * i + 1]);
    }
}

static void hold(struct chooser *c, uint32_t position, uint64_t bytes)
{
    c->held[position] += bytes;
    for (uint32_t i = (c->world->node_count + position) / 2; i > 0; i /= 2) {
        c->least[i] = lesser(c, c->least[(size_t)2 * i], c->least[(size_t)2 * i + 1]);
    }
}

static uint32_t least_in(const struct chooser *c, struct span span)
{
    uint32_t best = NONE32;
    uint32_t l = span.begin + c->world->node_count, r = span.end + c->world->node_count;
    for (; l < r; l /= 2, r /= 2) {
        if (l & 1) {
            best = lesser(c, best, c->least[l++]);
        }
        if (r & 1) {
            best = lesser(c, best, c->least[--r]);
        }
    }
    return best;
}

static uint32_t least_outside(const struct chooser *c, const struct taken *t)
{
    uint32_t best = NONE32, begin = 0;
    for (uint32_t i = 0; i < t->count; i++) {
        best = lesser(c, best, least_in(c, (struct span){begin, t->spans[i].begin}));
        begin = t->spans[i].end;
    }
    return lesser(c, best, least_in(c, (struct span){begin, c->world->node_count}));
}

/* ---- one shard ----------------------------------------------------------------------------------------------- */

static uint32_t pick_holder(const struct chooser *c, const struct taken *t, uint32_t source, uint64_t bytes)
{
    uint32_t nodes = c->world->node_count;
    uint32_t apart = nodes / c->copies > 0 ? nodes / c->copies : 1;
    uint32_t group = c->position[source] % apart;
    uint32_t members = (nodes - group + apart - 1) / apart;
    for (uint32_t k = 1; k < members; k++) {
        uint32_t position = group + (c->position[source] / apart + k) % members * apart;
        if (!is_taken(t, position) && c->held[position] + bytes <= c->fair_share) {
            return position;
        }
    }
    return least_outside(c, t);
}

/* The domains of the owners, until there are enough of them. */
static struct taken owner_domains(const struct chooser *c, const uint32_t *owners, uint32_t count)
{
    struct taken t = {.count = 0};
    for (uint32_t i = 0; i < count && t.count < c->copies; i++) {
        if (!is_taken(&t, c->position[owners[i]])) {
            take(&t, domain_span(c, owners[i]));
        }
    }
    return t;
}

/* Adds holders until enough spans are taken; a new holder takes its domain, or (whole_domains false) only itself. */
static void add_holders(struct chooser *c, struct shard_placement *s, struct taken *t, uint64_t bytes,
                        bool whole_domains)
{
    while (t->count < c->copies) {
        uint32_t position = pick_holder(c, t, s->source, bytes);
        if (position == NONE32) {
            return;
        }
        uint32_t node = c->row[position];
        s->holders[s->holder_count++] = node;
        hold(c, position, bytes);
        c->sent[s->source] += bytes;
        take(t, whole_domains ? domain_span(c, node) : node_span(c, node));
    }
}

/* There are too few domains. Copies on further nodes of the same domains still survive the loss of single nodes. */
static void add_holders_anywhere(struct chooser *c, struct shard_placement *s, const uint32_t *owners, uint64_t bytes)
{
    struct taken t = {.count = 0};
    for (uint32_t i = 0; i < s->owner_count && t.count < c->copies; i++) {
        take(&t, node_span(c, owners[i]));
    }
    for (uint32_t i = 0; i < s->holder_count && t.count < c->copies; i++) {
        take(&t, node_span(c, s->holders[i]));
    }
    add_holders(c, s, &t, bytes, false);
}

static uint32_t least_loaded(const uint64_t *load, const uint32_t *nodes, uint32_t count)
{
    uint32_t best = nodes[0];
    for (uint32_t i = 1; i < count; i++) {
        if (load[nodes[i]] < load[best]) {
            best = nodes[i];
        }
    }
    return best;
}

static void place_shard(struct chooser *c, struct placement *p, uint32_t shard)
{
    struct shard_placement *s = &p->shards[shard];
    const uint32_t *owners = p->owners + s->first_owner;
    uint64_t bytes = c->world->shards[shard].image_bytes;
    s->source = least_loaded(c->sent, owners, s->owner_count);
    s->drainer = least_loaded(c->drained, owners, s->owner_count);
    c->drained[s->drainer] += bytes;

    struct taken t = owner_domains(c, owners, s->owner_count);
    add_holders(c, s, &t, bytes, true);
    if (t.count < c->copies) {
        p->domains_short++;
        add_holders_anywhere(c, s, owners, bytes);
    }
}

/* ---- all shards ---------------------------------------------------------------------------------------------- */

static int by_number(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

/* Writes the distinct nodes of the shard's ranks, ascending; returns their number. */
static uint32_t collect_owners(const struct world *world, const struct world_shard *shard, uint32_t *out)
{
    for (uint32_t i = 0; i < shard->rank_count; i++) {
        out[i] = world->node_of_rank[world->shard_ranks[shard->first_rank + i]];
    }
    qsort(out, shard->rank_count, sizeof(*out), by_number);
    uint32_t count = 0;
    for (uint32_t i = 0; i < shard->rank_count; i++) {
        if (count == 0 || out[count - 1] != out[i]) {
            out[count++] = out[i];
        }
    }
    return count;
}

static void collect_all_owners(const struct world *world, struct placement *p)
{
    uint32_t used = 0;
    for (uint32_t i = 0; i < world->shard_count; i++) {
        p->shards[i].first_owner = used;
        p->shards[i].owner_count = collect_owners(world, &world->shards[i], p->owners + used);
        used += p->shards[i].owner_count;
    }
}

/* The mean of what nodes must hold, plus one shard, since shards are not split: the least loaded node never needs more.
 */
static uint64_t fair_share(const struct chooser *c, const struct placement *p)
{
    uint64_t total = 0, biggest = 0;
    for (uint32_t i = 0; i < p->shard_count; i++) {
        struct taken t = owner_domains(c, p->owners + p->shards[i].first_owner, p->shards[i].owner_count);
        uint64_t bytes = c->world->shards[i].image_bytes;
        total += bytes * (c->copies - t.count);
        biggest = bytes > biggest ? bytes : biggest;
    }
    return total / c->world->node_count + biggest;
}

static bool placement_alloc(const struct world *world, struct placement *p)
{
    size_t owners = 0;
    for (uint32_t i = 0; i < world->shard_count; i++) {
        owners += world->shards[i].rank_count;
    }
    p->shard_count = world->shard_count;
    p->shards = calloc((size_t)world->shard_count + 1, sizeof(*p->shards));
    p->owners = calloc(owners + 1, sizeof(*p->owners));
    return p->shards != NULL && p->owners != NULL;
}

tck_status_t placement_build(const struct world *world, uint32_t copies, struct placement *out, struct error *err)
{
    if (copies == 0 || copies > COPIES_MAX || world->node_count == 0) {
        return error_set(err, TCK_ERR_INVAL, "placement of %u copies on %u nodes: 1 to %d copies, at least one node",
                         copies, world->node_count, COPIES_MAX);
    }
    struct placement p = {0};
    struct chooser c = {.world = world, .copies = copies};
    tck_status_t status = TCK_OK;
    if (!placement_alloc(world, &p) || !chooser_alloc(&c) || !line_up(&c)) {
        status =
            error_set(err, TCK_ERR_NOMEM, "placement of %u shards on %u nodes", world->shard_count, world->node_count);
        placement_free(&p);
        goto free_chooser;
    }
    least_init(&c);
    collect_all_owners(world, &p);
    c.fair_share = fair_share(&c, &p);
    for (uint32_t i = 0; i < p.shard_count; i++) {
        place_shard(&c, &p, i);
    }
    *out = p;
free_chooser:
    chooser_free(&c);
    return status;
}

void placement_free(struct placement *placement)
{
    free(placement->shards);
    free(placement->owners);
    *placement = (struct placement){0};
}

bool placement_is_owner(const struct placement *p, uint32_t shard, uint32_t node)
{
    const struct shard_placement *s = &p->shards[shard];
    return bsearch(&node, p->owners + s->first_owner, s->owner_count, sizeof(node), by_number) != NULL;
}

bool placement_is_holder(const struct placement *p, uint32_t shard, uint32_t node)
{
    const struct shard_placement *s = &p->shards[shard];
    for (uint32_t i = 0; i < s->holder_count; i++) {
        if (s->holders[i] == node) {
            return true;
        }
    }
    return false;
}

uint32_t placement_parent(uint32_t place)
{
    return (place - 1) / 2;
}

uint32_t placement_turn(const struct placement *p, uint32_t shard, uint32_t node)
{
    const struct shard_placement *s = &p->shards[shard];
    uint32_t place = 0, turn = 0;
    while (place < s->owner_count && p->owners[s->first_owner + place] != node) {
        place++;
    }
    for (; place > 0 && place < s->owner_count; place = placement_parent(place)) {
        turn++;
    }
    return turn;
}

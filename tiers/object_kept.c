/* SPDX-License-Identifier: Apache-2.0
 * See object_kept.h. */
#include "tiers/object_kept.h"

#include <stdlib.h>
#include <string.h>

static void disown(struct kept_put *put)
{
    put->upload.id = NULL;
    put->parts = NULL;
}

void kept_add(struct kept_put **list, struct kept_put *put)
{
    struct kept_put *kept = malloc(sizeof(*kept));
    if (kept == NULL) {
        free(put->upload.id);
        free(put->parts);
    } else {
        *kept = *put;
        kept->next = *list;
        *list = kept;
    }
    disown(put);
}

static bool is_like(const struct kept_put *a, const struct kept_put *b)
{
    return strcmp(a->key, b->key) == 0 && hash128_is(a->root, b->root) && a->bytes == b->bytes &&
           a->part_count == b->part_count;
}

bool kept_take(struct kept_put **list, struct kept_put *like)
{
    for (struct kept_put **at = list; *at != NULL; at = &(*at)->next) {
        struct kept_put *found = *at;
        if (is_like(found, like)) {
            *at = found->next;
            *like = *found;
            like->next = NULL;
            free(found);
            return true;
        }
    }
    return false;
}

struct kept_put *kept_take_obsolete(struct kept_put **list, const struct kept_put *done)
{
    struct kept_put *obsolete = NULL, **at = list;
    while (*at != NULL) {
        struct kept_put *one = *at;
        if (version_is(one->version, done->version) && strcmp(one->key, done->key) != 0) {
            at = &one->next;
        } else {
            *at = one->next;
            one->next = obsolete;
            obsolete = one;
        }
    }
    return obsolete;
}

void kept_free(struct kept_put *list)
{
    while (list != NULL) {
        struct kept_put *next = list->next;
        free(list->upload.id);
        free(list->parts);
        free(list);
        list = next;
    }
}

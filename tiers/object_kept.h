/* SPDX-License-Identifier: Apache-2.0
 * What is already in a store of objects of puts that have ended: the finished parts of uploads that failed, and whole
 * objects. The next put of the same content does not send them again. All in the loop's thread. */
#ifndef TCK_TIERS_OBJECT_KEPT_H
#define TCK_TIERS_OBJECT_KEPT_H

#include "tiers/object/object_store.h"
#include "tiers/tier.h"

struct kept_put {
    char key[OBJECT_KEY_MAX];
    struct version version;
    struct hash128 root; /* of the content */
    uint64_t bytes;
    uint32_t part_count;
    struct object_upload upload; /* id NULL: the object is complete */
    struct object_part *parts;   /* owned; 0 bytes: not sent */
    uint32_t finishes;           /* how often finishing the upload was left undecided */
    struct kept_put *next;
};

/* Takes over what `put` owns, and empties it. Without memory for that, forgets it: then it is sent again. */
void kept_add(struct kept_put **list, struct kept_put *put);
/* Moves the one with the content of `like` there, with all that it owns. False: there is none. */
bool kept_take(struct kept_put **list, struct kept_put *like);
/* Takes out, for the caller, those that no put will need any more once this one has succeeded: of other versions, and
 * of the same key. */
struct kept_put *kept_take_obsolete(struct kept_put **list, const struct kept_put *done);
/* Frees them all, and forgets their uploads. */
void kept_free(struct kept_put *list);

#endif

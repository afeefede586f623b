/* SPDX-License-Identifier: Apache-2.0
 * A process's place in its private directory: the locked file that shows that it lives, and the socket by which others
 * reach it. A cleaner of temporary files may delete them, or the whole directory. The process then makes them again,
 * unless another one has taken the place meanwhile. */
#ifndef TCK_BASE_PLACE_H
#define TCK_BASE_PLACE_H

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

#define PLACE_TICK_MS 1000 /* how often to call place_tick */

/* What a look at the directory has shown. */
struct place_facts {
    bool seen;         /* false: the directory could not be looked at */
    bool lock_is_ours; /* the file of that name is the one that this process has locked */
    bool lock_is_held; /* otherwise: another process holds the file of that name, or this is unknown */
    bool socket_is_ours;
};

enum place_verdict { PLACE_STANDS, PLACE_UNCLEAR, PLACE_YIELDS, PLACE_LACKS_ALL, PLACE_LACKS_SOCKET };

enum place_verdict place_judge(const struct place_facts *facts);

/* What is needed here. */
struct place_setup {
    const char *dir, *lock, *socket; /* valid as long as the place; the last two are names in it */
    const char *role;                /* for the log */
    /* Makes the socket, and whatever else should be there, in the directory, which may be a new one. */
    tck_status_t (*make)(void *ctx, int dir_fd, struct error *err);
    void *ctx;
};

struct place;

/* Takes the lock, but makes no socket yet. The directory exists. TCK_ERR_EXIST if another process has it. */
must_check tck_status_t place_take(const struct place_setup *setup, struct place **out, struct error *err);
void place_free(struct place *place);
/* Remembers which file the socket is, after it was made for the first time. */
must_check tck_status_t place_note_socket(struct place *place, struct error *err);
/* Looks, and makes again what was deleted. */
void place_tick(struct place *place);

#endif

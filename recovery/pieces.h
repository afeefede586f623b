/* SPDX-License-Identifier: Apache-2.0
 * The pieces of a recovery's plan: each is one shard that one node has to fetch. */
#ifndef TCK_RECOVERY_PIECES_H
#define TCK_RECOVERY_PIECES_H

#include "recovery/recovery_state.h"

/* Whether this inventory, of another node than the piece's, lists the piece's shard and version. */
bool piece_was_at(const struct recovery *r, const struct plan_action *piece, const struct inventory *inventory);
/* Whether storage has this shard of the planned version. */
bool shard_is_stored(const struct recovery *r, uint32_t shard);
/* The holders of this shard wait: all sources have failed, and the base-loss check is due or runs. */
bool pieces_are_in_vain(const struct recovery *r, uint32_t shard);
/* Index of the requested piece of this node and shard, NONE32 if there is none. */
uint32_t pieces_find_asked(const struct recovery *r, uint32_t node, uint32_t shard);
/* Pieces of this phase that are not done. */
uint32_t pieces_left(const struct recovery *r);

/* Whether a fetch with this outcome did not get that copy, as opposed to a problem of the node that fetched. */
bool piece_lacks_copy(tck_status_t outcome);
/* A requested piece has failed with this outcome only because the owner that was to pass it on did not get it itself,
 * or not in time: that is no failed try, and it is requested again. False: it counts. */
must_check bool piece_failed_early(struct recovery *r, uint32_t i, tck_status_t outcome);
/* Asks the piece's node to fetch it. If there is no memory for that, the piece stays as it is, for a later tick. */
void piece_emit(struct recovery *r, uint32_t i);
/* The same for each piece from begin up to end that may be requested now; */
void pieces_emit_open(struct recovery *r, uint32_t begin, uint32_t end);
/* for the owners that waited for this one. */
void pieces_emit_after(struct recovery *r, uint32_t i);
/* Enters the next phase when no piece of this one is left. */
void pieces_finish_if_none_left(struct recovery *r);

#endif

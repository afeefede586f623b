/* SPDX-License-Identifier: Apache-2.0
 * The background thread of a client: carries one snapshot at a time from the trainer's memory into the slots, and
 * reconnects the session after the agent restarted. It never keeps the trainer waiting longer than the configured
 * block time and the copying itself. */
#ifndef TCK_CLIENT_SNAPSHOT_WORKER_H
#define TCK_CLIENT_SNAPSHOT_WORKER_H

#include "client/snapshot_state.h"

void worker_init(struct snapshot_worker *worker);
/* After worker_stop. */
void worker_free(struct snapshot_worker *worker);

/* The arguments belong to the caller and must outlive the snapshot worker. */
must_check tck_status_t worker_start(struct snapshot_worker *worker, struct session *session,
                                     const struct layout *layout, struct slots *slots, const struct devices *devices,
                                     struct error *err);
/* Waits for the copy under way and ends the thread. May be called for one that was never started (zeroed). */
void worker_stop(struct snapshot_worker *worker);

/* Copies the eager records, if they are many once the agent has granted slots, and leaves the rest to the thread.
 * Without an agent, or if a device fails, the snapshot is skipped at once, *started_out is false, and *why has the
 * reason. TCK_ERR_BUSY if one is under way,
 * TCK_ERR_INVAL if a device's stream is being captured. */
must_check tck_status_t worker_begin(struct snapshot_worker *worker, uint64_t step, enum save_to to, bool *started_out,
                                     struct error *why);
/* Whether this step, the training's last one, is not saved and may be begun again: its agent has no room yet, hangs, or
 * is being restarted. */
bool worker_may_begin_again(struct snapshot_worker *worker, uint64_t step);
/* Makes the thread report that this rank cannot save the step, which counts as skipped for that reason. Must not be
 * called while a snapshot is under way. */
void worker_give_up(struct snapshot_worker *worker, uint64_t step, const struct error *why);
/* A step that was not begun counts as skipped; one before the newest does not become the newest. */
void worker_note_skipped(struct snapshot_worker *worker, uint64_t step, const struct error *why);
/* How a step compares with earlier ones. */
enum save_order { ORDER_NEWER, ORDER_SAVED /* this very step is saved */, ORDER_OLDER };
enum save_order worker_order(struct snapshot_worker *worker, uint64_t step, uint64_t *newest_out);
/* Waits until no snapshot is being copied. One that is not confirmed by then is given up. */
void worker_wait(struct snapshot_worker *worker);
/* The trainer confirms the snapshot of this step, or, with why_not, has it given up for that reason. The first call
 * counts. If everything is copied already, returns after the seal. */
void worker_confirm(struct snapshot_worker *worker, uint64_t step, const char *why_not);
/* TCK_OK once the snapshot under way awaits confirmation, TCK_ERR_NOENT if there is none, TCK_ERR_TIMEDOUT. */
must_check tck_status_t worker_await_copied(struct snapshot_worker *worker, int timeout_ms, uint64_t *step_out);
/* As worker_wait, but for at most timeout_ms. */
must_check bool worker_wait_for(struct snapshot_worker *worker, uint32_t timeout_ms);
/* Waits until records in host memory may change, and records on devices may be changed by later work of their
 * streams. */
must_check tck_status_t worker_fence(struct snapshot_worker *worker, struct error *err);
bool worker_idle(struct snapshot_worker *worker);

#endif

/* SPDX-License-Identifier: Apache-2.0
 * The only entry from the agent into the recovery machine: adds the time that the machine counts with. */
#include "agent/recovery/recover_internal.h"
#include "base/clock.h"

void recover_step(struct recover *r, struct recovery_event event)
{
    event.now_ms = recovery_clock_at(&r->clock, clock_ms());
    recovery_step(r->machine, &event, &r->actions);
}

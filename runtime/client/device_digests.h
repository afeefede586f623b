/* SPDX-License-Identifier: Apache-2.0
 * Sends the devices' digests of a snapshot to the agent while its bytes are still being copied, so that twins can be
 * compared before the bytes have left the devices. The seal has the same roots, and the agent compares them with the
 * bytes that have arrived. Called by the snapshot worker's thread, with the session's lock held. */
#ifndef TCK_CLIENT_ROOTS_H
#define TCK_CLIENT_ROOTS_H

#include "base/message.h"
#include "client/devices.h"

/* Waits for the digests, not for the copies. Everything that comes from host memory must be in the images already.
 * Sets the shards' roots. */
must_check tck_status_t device_digests_make(const struct devices *devices, struct slots *slots,
                                            const struct layout *layout, const struct device_image *images,
                                            uint32_t count, struct error *err);
void device_digests_send(struct session *session, const struct slots *slots, uint64_t step);

#endif

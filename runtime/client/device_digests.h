/* SPDX-License-Identifier: Apache-2.0
 * What the devices' digests say of a snapshot, while its bytes are still on their way: the agent is told, so that twins
 * can be compared before those have left the devices. The seal names the same roots, and the agent compares them with
 * what has arrived. By the snapshot worker's thread, with the session's lock. */
#ifndef TCK_CLIENT_ROOTS_H
#define TCK_CLIENT_ROOTS_H

#include "base/message.h"
#include "client/devices.h"

/* Waits for the digests, not for the copies; in the images is what comes from host memory. Sets the shards' roots. */
must_check tck_status_t device_digests_make(const struct devices *devices, struct slots *slots,
                                            const struct layout *layout, const struct device_image *images,
                                            uint32_t count, struct error *err);
void device_digests_send(struct session *session, const struct slots *slots, uint64_t step);

#endif

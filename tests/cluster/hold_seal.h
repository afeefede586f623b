/* SPDX-License-Identifier: Apache-2.0
 * Stops this process between the sealing of a snapshot and the message that says so. */
#ifndef TCK_TESTS_HOLD_SEAL_H
#define TCK_TESTS_HOLD_SEAL_H

#include <stdint.h>

/* From now on, at each step that is a multiple of `every`, the trainer has copied and sealed its slots, prints HELD,
 * and goes on to tell the agent only when <file>.<step> exists. Every other frame is sent as ever. */
void hold_seal(uint64_t every, const char *file);

#endif

/* SPDX-License-Identifier: Apache-2.0
 * Between the sealing of a snapshot and the message that reports it: stops this process, or damages the seal. Also
 * freezes the process while it copies. */
#ifndef TCK_TESTS_HOLD_SEAL_H
#define TCK_TESTS_HOLD_SEAL_H

#include <stdint.h>

/* From now on, at each step that is a multiple of `every`, the trainer has copied and sealed its slots, prints HELD,
 * and goes on to tell the agent only when <file>.<step> exists. Every other frame is sent as ever. */
void hold_seal(uint64_t every, const char *file);
/* From now on the seals of each step that is a multiple of `every` name a root, as that of a snapshot that came from a
 * device does, but one that its image does not have. */
void spoil_seal(uint64_t every);
/* From now on, each time it is granted slots and this file is there, the file is removed and the whole process stopped
 * (SIGSTOP) shortly after: most often in the middle of its copy. NULL: never. */
void freeze_in_copy(const char *file);

#endif

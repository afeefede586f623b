/* SPDX-License-Identifier: Apache-2.0
 * Chooses the UCX that this program runs with (tiers/ucx_choice.h), and says which one it is. */
#ifndef TCK_AGENT_OWN_UCX_H
#define TCK_AGENT_OWN_UCX_H

#include <stdbool.h>
#include <stddef.h>

/* What the program sets before it executes itself again. */
#define UCX_READY "TIERCKPT_UCX_READY"

/* If another UCX than the loaded one is to be used, sets LD_LIBRARY_PATH for the next exec; true: it did. The reason
 * for either goes to why_out. Call it while there is one thread. */
bool own_ucx_choose(char *why_out, size_t cap);
/* Prints the loaded one, and why it is used: the answer to --ucx. Executes this program again first if need be. */
void own_ucx_print(void);

#endif

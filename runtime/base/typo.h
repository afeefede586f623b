/* SPDX-License-Identifier: Apache-2.0
 * Finds the known word that was meant by an unknown one. */
#ifndef TCK_BASE_TYPO_H
#define TCK_BASE_TYPO_H

#include <stddef.h>

/* The known word nearest to this one: a few letters differ, or one contains the other. known(i) gives the words from
 * i = 0 until NULL, each shorter than 64 bytes. NULL if none is near. */
const char *typo_nearest(const char *word, const char *(*known)(size_t i));

#endif

/* SPDX-License-Identifier: Apache-2.0
 * Numbers as lower-case hex digits. A manifest has one for each chunk of a version, millions in a large one: the
 * functions of stdio and stdlib take most of the time that it takes to read it. */
#ifndef TCK_BASE_HEX_H
#define TCK_BASE_HEX_H

#include <stdbool.h>
#include <stdint.h>

/* Writes so many digits, at most 16, and no NUL. */
void hex_write(uint64_t value, uint32_t digits, char *out);
/* Reads exactly so many digits, at most 16; false if one of them is none. Reads no further than that one. */
bool hex_read(const char *text, uint32_t digits, uint64_t *out);

#endif

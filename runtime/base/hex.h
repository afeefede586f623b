/* SPDX-License-Identifier: Apache-2.0
 * Numbers as lower-case hex digits. A manifest has one for each chunk of a version, which makes millions in a large
 * one; with the functions of stdio and stdlib they would take most of the time of reading it. */
#ifndef TCK_BASE_HEX_H
#define TCK_BASE_HEX_H

#include <stdbool.h>
#include <stdint.h>

/* Writes this number of digits, at most 16, and no NUL. */
void hex_write(uint64_t value, uint32_t digits, char *out);
/* Reads exactly this number of digits, at most 16; false at the first character that is not a digit, after which it
 * reads nothing. */
bool hex_read(const char *text, uint32_t digits, uint64_t *out);

#endif

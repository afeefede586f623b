/* SPDX-License-Identifier: Apache-2.0
 * Whether bytes are well-formed UTF-8 (RFC 3629): no overlong forms, no surrogates, nothing above U+10FFFF. By hand,
 * because the decoders of libc depend on the process's locale, which belongs to the trainer. */
#ifndef TCK_BASE_UTF8_H
#define TCK_BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>

bool utf8_valid(const char *text, size_t len);

#endif

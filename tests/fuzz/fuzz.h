/* SPDX-License-Identifier: Apache-2.0
 * The one function that libFuzzer calls, and how a target reports that a property does not hold. */
#ifndef TCK_TESTS_FUZZ_H
#define TCK_TESTS_FUZZ_H

#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define MUST_HOLD(condition) ((condition) ? (void)0 : __builtin_trap())

#endif

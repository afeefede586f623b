/* SPDX-License-Identifier: Apache-2.0
 * Converts one floating-point kind into another, rounding once, to nearest, ties to even. Pure. */
#ifndef TCK_READER_CONVERT_H
#define TCK_READER_CONVERT_H

#include "base/status.h"
#include <stdbool.h>

/* True for F64, F32, F16 and BF16. 8-bit kinds cannot be converted, since they mean nothing without their scales. */
bool convert_can(tck_dtype_t dtype);
/* count elements; to and from do not overlap. Both dtypes are ones that convert_can knows. */
void convert(void *to, tck_dtype_t to_dtype, const void *from, tck_dtype_t from_dtype, uint64_t count);

#endif

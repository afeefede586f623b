/* SPDX-License-Identifier: Apache-2.0
 * One floating-point kind into another, rounded once, to the nearest, ties to even. Pure. */
#ifndef TCK_READER_CONVERT_H
#define TCK_READER_CONVERT_H

#include "base/status.h"
#include <stdbool.h>

/* F64, F32, F16, BF16. The kinds of 8 bits are not: they mean nothing without their scales. */
bool convert_can(tck_dtype_t dtype);
/* count elements; to and from do not overlap. Both dtypes are ones that convert_can knows. */
void convert(void *to, tck_dtype_t to_dtype, const void *from, tck_dtype_t from_dtype, uint64_t count);

#endif

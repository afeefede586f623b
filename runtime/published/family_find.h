/* SPDX-License-Identifier: Apache-2.0
 * Mapping files, by their path or by the name of one that was installed. */
#ifndef TCK_READER_FAMILY_FIND_H
#define TCK_READER_FAMILY_FIND_H

#include "published/family.h"

/* With what it extends. A name without a slash, such as "megatron-llama", is one of those beside the library. */
must_check tck_status_t family_load(const char *name, struct family_rules **out, struct error *err);

#endif

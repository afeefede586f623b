/* SPDX-License-Identifier: Apache-2.0
 * Storage as a bucket of S3. */
#ifndef TCK_SIM_BUCKET_H
#define TCK_SIM_BUCKET_H

#include "sim.h"

/* False: this build has no S3, and TRAIT_BUCKET is in no schedule. */
extern const bool bucket_is_built;
/* As published_next. */
bool bucket_published_next(struct published_version *at);

#endif

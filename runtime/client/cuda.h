/* SPDX-License-Identifier: Apache-2.0
 * The records that lie on CUDA devices: the module, a cuda_device for each device, and the pinning of the slots. */
#ifndef TCK_CLIENT_CUDA_H
#define TCK_CLIENT_CUDA_H

#include "client/device.h"
#include "cuda/calls.h"

/* Loads the module from this path or, with NULL, from the directory of the library. The error names the file. It
 * stays loaded. */
must_check tck_status_t cuda_new(const char *module, struct device **out, struct error *err);
/* The same with the given table of calls. */
must_check tck_status_t cuda_new_with(const struct cuda_calls *calls, struct device **out, struct error *err);

#endif

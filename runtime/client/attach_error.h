/* SPDX-License-Identifier: Apache-2.0
 * The error of this thread's calls that have no client to keep it in. */
#ifndef TCK_CLIENT_ATTACH_ERROR_H
#define TCK_CLIENT_ATTACH_ERROR_H

#include "base/status.h"

extern _Thread_local struct error attach_error;

#endif

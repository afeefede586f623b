/* SPDX-License-Identifier: Apache-2.0
 * See attach_error.h. */
#include "client/attach_error.h"

_Thread_local struct error attach_error;

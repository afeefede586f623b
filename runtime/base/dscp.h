/* SPDX-License-Identifier: Apache-2.0
 * Classes of traffic as network administrators name them: the code points of differentiated services (RFC 2474). */
#ifndef TCK_BASE_DSCP_H
#define TCK_BASE_DSCP_H

#include <stdbool.h>
#include <stdint.h>

/* Its number, 0 to 63, from its name, in upper or lower case, or from the number itself; false if it is neither. */
bool dscp_read(const char *text, uint32_t *out);

#endif

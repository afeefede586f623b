/* SPDX-License-Identifier: Apache-2.0
 * The transports of a connection, from what UCX prints about it: 1.13 has no other function that names them, 1.15 does,
 * and a program that was compiled with the former may run with the latter. Pure. */
#ifndef TCK_TIERS_LINK_LANES_H
#define TCK_TIERS_LINK_LANES_H

#include <stddef.h>

/* Each transport and device once, in the order of the lanes, as many as fit, with blanks between: "tcp/eth0",
 * "rc_mlx5/mlx5_0:1 tcp/ib0". "" if the text names none. info: ucp_ep_print_info's. */
void link_lanes(const char *info, char *out, size_t cap);

#endif

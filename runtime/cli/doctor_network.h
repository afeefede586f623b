/* SPDX-License-Identifier: Apache-2.0
 * tierckpt doctor --network: how fast this node's agent sends to the others, and by which way. */
#ifndef TCK_CLI_DOCTOR_NETWORK_H
#define TCK_CLI_DOCTOR_NETWORK_H

#include "cli/cli.h"
#include "cli/doctor_report.h"

/* Measures one node after the other, which takes a minute at most, and adds a line for each. */
void doctor_network(const struct cli *cli, struct report *report);

#endif

/* SPDX-License-Identifier: Apache-2.0
 * What tierckpt doctor has found, line by line. */
#ifndef TCK_CLI_DOCTOR_REPORT_H
#define TCK_CLI_DOCTOR_REPORT_H

#include "base/json.h"

enum verdict { GOOD, NOTE, BAD };

struct report {
    bool silent;   /* nothing is printed */
    json_t *list;  /* of all lines */
    json_t *peers; /* what was measured of other nodes; NULL: nothing was */
    uint32_t bad;
};

const char *verdict_word(enum verdict verdict);
/* Prints a line, unless the report is silent, and adds it to the list. */
void tell(struct report *report, enum verdict verdict, const char *what, const char *detail);

#endif

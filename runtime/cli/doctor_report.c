/* SPDX-License-Identifier: Apache-2.0
 * What tierckpt doctor has found, line by line. */
#include "cli/doctor_report.h"

#include <stdio.h>

const char *verdict_word(enum verdict verdict)
{
    static const char *const words[] = {[GOOD] = "good", [NOTE] = "note", [BAD] = "BAD"};
    return words[verdict];
}

void tell(struct report *report, enum verdict verdict, const char *what, const char *detail)
{
    report->bad += verdict == BAD;
    if (!report->silent) {
        printf("%-5s %-18s %s\n", verdict_word(verdict), what, detail);
    }
    json_t *item = json_object();
    json_add_str(item, "verdict", verdict_word(verdict));
    json_add_str(item, "what", what);
    json_add_str(item, "detail", detail);
    json_add(report->list, NULL, item);
}

/* SPDX-License-Identifier: Apache-2.0
 * Names of classes: RFC 2474 (cs), 2597 (af), 3246 (ef), 5865 (va), 8622 (le). */
#include "base/dscp.h"

#include <stddef.h>
#include <stdlib.h>
#include <strings.h>

#define DSCP_MAX 63

static const struct {
    const char *name;
    uint32_t value;
} names[] = {{"cs0", 0},   {"cs1", 8},   {"cs2", 16},  {"cs3", 24},  {"cs4", 32},  {"cs5", 40},
             {"cs6", 48},  {"cs7", 56},  {"af11", 10}, {"af12", 12}, {"af13", 14}, {"af21", 18},
             {"af22", 20}, {"af23", 22}, {"af31", 26}, {"af32", 28}, {"af33", 30}, {"af41", 34},
             {"af42", 36}, {"af43", 38}, {"ef", 46},   {"va", 44},   {"le", 1}};

bool dscp_read(const char *text, uint32_t *out)
{
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (strcasecmp(text, names[i].name) == 0) {
            *out = names[i].value;
            return true;
        }
    }
    char *end;
    unsigned long number = strtoul(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || *end != '\0' || number > DSCP_MAX) {
        return false;
    }
    *out = (uint32_t)number;
    return true;
}

/* SPDX-License-Identifier: Apache-2.0
 * Any text as a shared file of AWS's tools: names and values are of one line, without white space around them. */
#include "fuzz.h"
#include "tiers/object/aws_profile.h"

#include <stdlib.h>

static void check_bare(const char *text)
{
    size_t len = strlen(text);
    MUST_HOLD(strchr(text, '\n') == NULL);
    MUST_HOLD(len == 0 || (strchr(" \t\r", text[0]) == NULL && strchr(" \t\r", text[len - 1]) == NULL));
}

static void take(void *ctx, const char *name, const char *value)
{
    (void)ctx;
    check_bare(name);
    check_bare(value);
    MUST_HOLD(strchr(name, '=') == NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const sections[] = {"default", "profile dev", "d"};
    for (size_t i = 0; i < sizeof(sections) / sizeof(*sections); i++) {
        char *text = malloc(size + 1);
        if (text == NULL) {
            return 0;
        }
        memcpy(text, data, size);
        text[size] = '\0';
        aws_profile_read(text, sections[i], take, NULL);
        free(text);
    }
    return 0;
}

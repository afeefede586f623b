/* SPDX-License-Identifier: Apache-2.0
 * Lines of a shared file of AWS's tools. */
#include "tiers/object/aws_profile.h"

#include <string.h>

#define SPACE " \t\r"

/* Without the white space around it; ends it in place. */
static char *trimmed(char *text)
{
    text += strspn(text, SPACE);
    size_t len = strlen(text);
    while (len > 0 && strchr(SPACE, text[len - 1]) != NULL) {
        len--;
    }
    text[len] = '\0';
    return text;
}

/* A comment begins with white space and a # or ; after a value. */
static void cut_comment(char *value)
{
    for (char *at = value; *at != '\0'; at++) {
        if ((*at == '#' || *at == ';') && at > value && strchr(SPACE, at[-1]) != NULL) {
            *at = '\0';
            return;
        }
    }
}

/* Whether the line "[ name ]" names this section; white space between words counts as one space. */
static bool names_section(char *line, const char *section)
{
    char *end = strchr(line, ']');
    if (end == NULL) {
        return false;
    }
    *end = '\0';
    for (char *word = trimmed(line + 1);;) {
        size_t len = strcspn(word, SPACE);
        if (strncmp(word, section, len) != 0) {
            return false;
        }
        word += len;
        section += len;
        word += strspn(word, SPACE);
        if (*word == '\0') {
            return *section == '\0';
        }
        if (*section++ != ' ') {
            return false;
        }
    }
}

static void take_line(char *line, aws_profile_fn *take, void *ctx)
{
    char *equals = strchr(line, '=');
    if (equals == NULL || strchr(SPACE, line[0]) != NULL || line[0] == '#' || line[0] == ';') {
        return;
    }
    *equals = '\0';
    cut_comment(equals + 1);
    take(ctx, trimmed(line), trimmed(equals + 1));
}

bool aws_profile_read(char *text, const char *section, aws_profile_fn *take, void *ctx)
{
    bool inside = false, found = false;
    for (char *line = strsep(&text, "\n"); line != NULL; line = strsep(&text, "\n")) {
        if (line[0] == '[') {
            inside = names_section(line, section);
            found |= inside;
        } else if (inside && line[0] != '\0') {
            take_line(line, take, ctx);
        }
    }
    return found;
}

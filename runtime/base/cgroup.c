/* SPDX-License-Identifier: Apache-2.0
 * The control groups that this process is in. */
#include "base/cgroup.h"

#include <stdio.h>
#include <string.h>

#define LINE_BYTES 4096 /* enough for a group's path */

static bool has_controller(char *controllers, const char *wanted)
{
    if (*wanted == '\0') {
        return *controllers == '\0';
    }
    for (const char *one = strsep(&controllers, ","); one != NULL; one = strsep(&controllers, ",")) {
        if (strcmp(one, wanted) == 0) {
            return true;
        }
    }
    return false;
}

/* line is "<number>:<controllers>:<path of the group>". The path, or NULL if the line is of another hierarchy. */
static const char *parse_line(char *line, const char *controller)
{
    line[strcspn(line, "\n")] = '\0';
    (void)strsep(&line, ":");
    char *controllers = strsep(&line, ":");
    return line != NULL && has_controller(controllers, controller) ? line : NULL;
}

bool cgroup_own(const struct cgroup_tree *tree, char dir[PATH_MAX])
{
    char path[PATH_MAX], line[LINE_BYTES];
    const char *group = NULL;
    int len = snprintf(path, sizeof(path), "%s/proc/self/cgroup", tree->root);
    FILE *file = len > 0 && (size_t)len < sizeof(path) ? fopen(path, "re") : NULL;
    while (file != NULL && group == NULL && fgets(line, sizeof(line), file) != NULL) {
        group = parse_line(line, tree->controller);
    }
    if (file != NULL) {
        fclose(file);
    }
    len =
        group != NULL ? snprintf(dir, PATH_MAX, "%s%s%s", tree->root, tree->mount, strcmp(group, "/") ? group : "") : 0;
    return len > 0 && len < PATH_MAX;
}

bool cgroup_around(const struct cgroup_tree *tree, char dir[PATH_MAX])
{
    char *slash = strrchr(dir + strlen(tree->root) + strlen(tree->mount), '/');
    if (slash == NULL) {
        return false;
    }
    *slash = '\0';
    return true;
}

bool cgroup_line(const char *dir, const char *name, char *line, size_t size)
{
    char path[PATH_MAX];
    int len = snprintf(path, sizeof(path), "%s/%s", dir, name);
    FILE *file = len > 0 && (size_t)len < sizeof(path) ? fopen(path, "re") : NULL;
    bool read = file != NULL && fgets(line, (int)size, file) != NULL;
    if (file != NULL) {
        fclose(file);
    }
    return read;
}

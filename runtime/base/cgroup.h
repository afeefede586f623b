/* SPDX-License-Identifier: Apache-2.0
 * The control groups that this process is in, whose limits hold for it. root is put before all paths: "" but in tests.
 */
#ifndef TCK_BASE_CGROUP_H
#define TCK_BASE_CGROUP_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

#define CGROUP_MOUNT "/sys/fs/cgroup" /* of version 2; controllers of version 1 are mounted below it */

/* One hierarchy of groups. */
struct cgroup_tree {
    const char *root;
    const char *controller; /* "": version 2 */
    const char *mount;
};

/* The directory of this process's own group; false if it has none there. */
bool cgroup_own(const struct cgroup_tree *tree, char dir[PATH_MAX]);
/* Shortens dir to the group around it, whose limits hold, too; false if it is the outermost one. */
bool cgroup_around(const struct cgroup_tree *tree, char dir[PATH_MAX]);
/* The first line of a file of this group; false if it cannot be read. */
bool cgroup_line(const char *dir, const char *name, char *line, size_t size);

#endif

/* SPDX-License-Identifier: Apache-2.0
 * The transports of a connection, from what UCX prints about it. A lane is a line such as
 *
 *     #   lane[2]:  5:rc_mlx5/mlx5_0:1.0 md[4]    -> addr[3].md[4]/ib/sysdev[255]  rma_bw#0
 *
 * with the number of the resource, the transport, its device, and the number of the path. One that only makes
 * connections has "cm" there, and no slash. */
#include "tiers/link_lanes.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* The transport and the device in a line of this length: sets their length. NULL: it has none. */
static const char *find(const char *line, size_t line_len, size_t *len_out)
{
    const char *end = line + line_len, *lane = memmem(line, line_len, "lane[", 5), *at, *path;

    lane = lane == NULL ? NULL : memchr(lane, ']', (size_t)(end - lane));
    if (lane == NULL || end - lane < 2 || lane[1] != ':') {
        return NULL;
    }
    for (at = lane + 2; at < end && *at == ' '; at++) {
    }
    while (at < end && *at >= '0' && *at <= '9') {
        at++;
    }
    if (at == end || *at != ':') {
        return NULL;
    }
    at++;
    *len_out = strcspn(at, " \n");
    path = memrchr(at, '.', *len_out);
    if (memchr(at, '/', *len_out) == NULL) {
        return NULL;
    }
    *len_out = path == NULL ? *len_out : (size_t)(path - at);
    return at;
}

/* Whether the list has this item. */
static bool has(const char *list, const char *item, size_t len)
{
    while (*list != '\0') {
        size_t next = strcspn(list, " ");

        if (next == len && memcmp(list, item, len) == 0) {
            return true;
        }
        list += next + (list[next] == ' ');
    }
    return false;
}

void link_lanes(const char *info, char *out, size_t cap)
{
    size_t used = 0;

    out[0] = '\0';
    while (*info != '\0') {
        size_t line = strcspn(info, "\n"), len;
        const char *found = find(info, line, &len);

        if (found != NULL && !has(out, found, len) && used + len + 2 <= cap) {
            used += (size_t)snprintf(out + used, cap - used, "%s%.*s", used > 0 ? " " : "", (int)len, found);
        }
        info += line + (info[line] == '\n');
    }
}

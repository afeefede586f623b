/* SPDX-License-Identifier: Apache-2.0
 * See link_mark.h. */
#include "tiers/link_mark.h"

#include "base/log.h"
#include "tiers/sockets.h"

#include <string.h>
#include <sys/socket.h>

#define SOON_MS   100  /* UCX makes most sockets of a connection within this or little more */
#define SOON      20   /* times; then more rarely, for those that wait for the other side */
#define RARELY_MS 1000 /* as long as there are connections */

static bool is_peer(const struct link *link, const struct ip *address)
{
    for (const struct link_conn *conn = link->conns; conn != NULL; conn = conn->next) {
        if (!ip_is_none(&conn->peer) && ip_is(&conn->peer, address)) {
            return true;
        }
    }
    return false;
}

static bool belongs_to_link(const void *ctx, int fd)
{
    const struct link *link = ctx;
    struct sockaddr_storage remote = {.ss_family = AF_UNSPEC};
    socklen_t len = sizeof(remote);
    struct ip address;

    if (listeners_have(&link->listeners, fd)) {
        return true;
    }
    if (getpeername(fd, (struct sockaddr *)&remote, &len) != 0) {
        return false;
    }
    address = ip_of((const struct sockaddr *)&remote);
    return is_peer(link, &address);
}

static void mark(void *ctx)
{
    struct link *link = ctx;

    if (!sockets_mark(link->setup.tos, belongs_to_link, link) && !link->mark_failed) {
        link->mark_failed = true;
        log_warn("traffic_class: sockets cannot be marked: %m");
    }
    if (link->marks_left > 0 && --link->marks_left == 0) {
        loop_timer_set(link->marker, RARELY_MS, true);
    } else if (link->marks_left == 0 && link->conns == NULL) {
        loop_timer_stop(link->marker);
    }
}

void link_mark_soon(struct link *link)
{
    if (link->marker != NULL) {
        link->marks_left = SOON;
        loop_timer_set(link->marker, SOON_MS, true);
    }
}

/* UCX listens already: what its sockets accept is marked from the first packet on. */
tck_status_t link_mark_begin(struct link *link, struct error *err)
{
    if (link->setup.tos == 0) {
        return TCK_OK;
    }
    if (loop_timer_add(link->setup.loop, mark, link, &link->marker) != TCK_OK) {
        return error_set(err, TCK_ERR_NOMEM, "no memory for a link");
    }
    mark(link);
    return TCK_OK;
}

void link_mark_end(struct link *link)
{
    if (link->marker != NULL) {
        loop_timer_remove(link->marker);
        link->marker = NULL;
    }
}

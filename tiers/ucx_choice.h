/* SPDX-License-Identifier: Apache-2.0
 * Which UCX the agent runs with. The UCX that is installed with the wheel has no transports for RDMA, and the system's
 * usually has. A file apart from link_ucx.c, since all this happens before UCX is used. */
#ifndef TCK_TIERS_UCX_CHOICE_H
#define TCK_TIERS_UCX_CHOICE_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

#define UCX_RDMA_DEVICES "/sys/class/infiniband"

struct ucx_version {
    unsigned major, minor, release;
};

struct ucx_facts {
    char loaded[PATH_MAX];      /* directory of the UCX that is loaded; "": not known */
    bool loaded_has_rdma;       /* transports for it are installed with it */
    bool named;                 /* LD_LIBRARY_PATH names that directory */
    bool devices;               /* this machine has RDMA devices */
    bool wanted;                /* UCX_TLS asks for more than TCP */
    char system[PATH_MAX];      /* directory of one with RDMA transports; "": none */
    struct ucx_version version; /* of the system's; zeros: it cannot be loaded */
};

/* Where to look. */
struct ucx_places {
    const char *loaded;               /* directory of the loaded one; NULL: that of this process */
    const char *devices;              /* UCX_RDMA_DEVICES */
    const char *const *directories;   /* of the system's libraries, ended by NULL; or NULL: the usual ones */
    const char *ld_path, *transports; /* LD_LIBRARY_PATH and UCX_TLS; NULL: not set */
    /* The version of the UCX in this directory, found by loading it; false: it cannot be used. */
    bool (*version)(const char *directory, struct ucx_version *out);
};

/* Which UCX this process has loaded, and what it could have instead. */
void ucx_look(const struct ucx_places *places, struct ucx_facts *out);
/* True: the system's is to be used in place of the loaded one. why_out: the reason in words, of the caller's size. */
bool ucx_prefers_system(const struct ucx_facts *facts, char *why_out, size_t cap);

#endif

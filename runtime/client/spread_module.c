/* SPDX-License-Identifier: Apache-2.0
 * Loads libtierckpt_nccl.so from the directory of this library. */
#include "client/install_paths.h"
#include "client/spread_ops.h"

#include <dlfcn.h>
#include <stdio.h>

#define MODULE "libtierckpt_nccl.so"

tck_status_t spread_nccl(const struct spread_ops **out, struct error *err)
{
    char dir[PATH_MAX], path[PATH_MAX + sizeof(MODULE) + 1];
    const struct spread_module *module;
    void *library;

    if (!library_dir(dir)) {
        return error_set(err, TCK_ERR_UNSUPPORTED,
                         "cannot find the directory of this library, in which it looks for " MODULE);
    }
    snprintf(path, sizeof(path), "%s/" MODULE, dir);
    library = dlopen(path, RTLD_NOW | RTLD_LOCAL); /* never unloaded: NCCL has threads */
    if (library == NULL) {
        return error_set(err, TCK_ERR_UNSUPPORTED, "%s", dlerror());
    }
    module = dlsym(library, SPREAD_MODULE_SYMBOL);
    if (module == NULL || module->abi != SPREAD_MODULE_ABI) {
        return error_set(err, TCK_ERR_UNSUPPORTED, "%s is of another build", path);
    }
    *out = module->ops;
    return TCK_OK;
}

/* SPDX-License-Identifier: Apache-2.0
 * Sizes only: the bytes are checked where they are read. */
#include "tiers/version_files.h"
#include "base/progress.h"
#include "tiers/safe_fs.h"

#include <inttypes.h>

tck_status_t version_check_files(int dir_fd, const struct manifest *manifest, struct error *err)
{
    for (uint32_t i = 0; i < manifest->file_count; i++) {
        const struct manifest_file *file = &manifest->files[i];
        uint64_t bytes;
        tck_status_t status = safe_fs_size(dir_fd, file->name, &bytes, err);
        if (status != TCK_OK) {
            return status;
        }
        progress_moved();
        if (bytes != file->bytes) {
            return error_set(err, TCK_ERR_CORRUPT, "%s has %" PRIu64 " bytes, its manifest says %" PRIu64, file->name,
                             bytes, file->bytes);
        }
    }
    return TCK_OK;
}

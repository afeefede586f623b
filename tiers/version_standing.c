/* SPDX-License-Identifier: Apache-2.0
 * TCK_ERR_DENIED has two meanings where a file is opened: the rights are missing, which may be repaired, or something
 * else has taken the file's place, such as a link or a pipe, which is never published. Only the second proves damage.
 */
#include "tiers/version_standing.h"

#include "tiers/manifest.h"
#include "tiers/safe_fs.h"
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool is_other_than(int dir_fd, const char *name, mode_t kind)
{
    struct stat st;
    return fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && (st.st_mode & S_IFMT) != kind;
}

/* Whether a link, a directory or the like has taken the place of one of the version's files. */
static bool has_impostor(int parent_fd, const char *name)
{
    struct names names = {0};
    struct error ignored;
    int dir_fd = -1;
    if (is_other_than(parent_fd, name, S_IFDIR)) {
        return true;
    }
    if (safe_fs_open_dir(parent_fd, name, &dir_fd, &ignored) != TCK_OK) {
        return false;
    }
    bool found = is_other_than(dir_fd, MANIFEST_NAME, S_IFREG);
    if (!found && safe_fs_list(dir_fd, &names, &ignored) == TCK_OK) {
        for (size_t i = 0; i < names.count && !found; i++) {
            found = manifest_is_file_name(names.names[i]) && is_other_than(dir_fd, names.names[i], S_IFREG);
        }
        names_free(&names);
    }
    close(dir_fd);
    return found;
}

enum standing standing_of(tck_status_t outcome, int parent_fd, const char *name)
{
    if (outcome == TCK_OK) {
        return STANDING_GOOD;
    }
    if (outcome == TCK_ERR_NOENT || outcome == TCK_ERR_CORRUPT) {
        return STANDING_DAMAGED;
    }
    if (outcome == TCK_ERR_PROTO) {
        return STANDING_FOREIGN;
    }
    bool may_be_impostor = outcome == TCK_ERR_DENIED || outcome == TCK_ERR_IO; /* opening a socket says ENXIO */
    return may_be_impostor && has_impostor(parent_fd, name) ? STANDING_DAMAGED : STANDING_UNREADABLE;
}

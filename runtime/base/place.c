/* SPDX-License-Identifier: Apache-2.0
 * Files are compared by device and inode: another process may have made others of the same names. */
#include "base/place.h"

#include "base/ipc.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/safe_dir.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

struct place {
    struct place_setup needs;
    int lock_fd;
    dev_t socket_dev;
    ino_t socket_ino; /* 0: none was made yet */
    enum place_verdict told;
    struct log_limit failures;
};

enum place_verdict place_judge(const struct place_facts *facts)
{
    if (!facts->seen) {
        return PLACE_UNCLEAR;
    }
    if (!facts->lock_is_ours) {
        return facts->lock_is_held ? PLACE_YIELDS : PLACE_LACKS_ALL;
    }
    return facts->socket_is_ours ? PLACE_STANDS : PLACE_LACKS_SOCKET;
}

/* ---- look ---------------------------------------------------------------------------------------------------- */

static bool look_at_lock(const struct place *place, int dir_fd, struct place_facts *facts)
{
    struct stat named, ours;
    if (fstat(place->lock_fd, &ours) != 0) {
        return false;
    }
    if (fstatat(dir_fd, place->needs.lock, &named, AT_SYMLINK_NOFOLLOW) != 0) {
        return errno == ENOENT;
    }
    facts->lock_is_ours = named.st_dev == ours.st_dev && named.st_ino == ours.st_ino;
    facts->lock_is_held = !facts->lock_is_ours && lock_is_held(dir_fd, place->needs.lock);
    return true;
}

static bool look_at_socket(const struct place *place, int dir_fd, struct place_facts *facts)
{
    struct stat named;
    if (fstatat(dir_fd, place->needs.socket, &named, AT_SYMLINK_NOFOLLOW) != 0) {
        return errno == ENOENT;
    }
    facts->socket_is_ours = named.st_dev == place->socket_dev && named.st_ino == place->socket_ino;
    return true;
}

static struct place_facts look(const struct place *place, struct error *err)
{
    struct place_facts facts = {0};
    int dir_fd = -1;
    tck_status_t status = safe_dir_open(place->needs.dir, false, &dir_fd, err);
    if (status != TCK_OK) {
        facts.seen = status == TCK_ERR_NOENT;
        return facts;
    }
    facts.seen = look_at_lock(place, dir_fd, &facts) && look_at_socket(place, dir_fd, &facts);
    if (!facts.seen) {
        (void)error_set(err, status_of_errno(errno), "%s: %m", place->needs.dir);
    }
    close(dir_fd);
    return facts;
}

/* ---- make again ---------------------------------------------------------------------------------------------- */

static tck_status_t note_socket_in(struct place *place, int dir_fd, struct error *err)
{
    struct stat st;
    if (fstatat(dir_fd, place->needs.socket, &st, AT_SYMLINK_NOFOLLOW) != 0) {
        return error_set(err, status_of_errno(errno), "%s: %m", place->needs.socket);
    }
    place->socket_dev = st.st_dev;
    place->socket_ino = st.st_ino;
    return TCK_OK;
}

static tck_status_t lock_again(struct place *place, int dir_fd, struct error *err)
{
    int fd = -1;
    tck_status_t status = lock_take(dir_fd, place->needs.lock, &fd, err);
    if (status == TCK_OK) {
        close(place->lock_fd);
        place->lock_fd = fd;
    }
    return status;
}

static tck_status_t make_again(struct place *place, bool lock, struct error *err)
{
    int dir_fd = -1;
    tck_status_t status = ipc_open_dir(place->needs.dir, &dir_fd, err);
    if (status != TCK_OK) {
        return status;
    }
    if (lock) {
        status = lock_again(place, dir_fd, err);
    }
    if (status == TCK_OK) {
        status = place->needs.make(place->needs.ctx, dir_fd, err);
    }
    if (status == TCK_OK) {
        status = note_socket_in(place, dir_fd, err);
    }
    close(dir_fd);
    return status;
}

static void mend(struct place *place, enum place_verdict lacks)
{
    const struct place_setup *needs = &place->needs;
    struct error err;
    if (make_again(place, lacks == PLACE_LACKS_ALL, &err) == TCK_OK) {
        log_warn("the files of this %s in %s were deleted, probably by something that cleans up temporary files: it "
                 "has made them again. Keep that from touching this directory, or set runtime_dir to another one",
                 needs->role, needs->dir);
        place->failures = (struct log_limit){0};
    } else if (log_limit_pass(&place->failures)) {
        log_error("the files of this %s in %s were deleted and cannot be made again, so no start will find it: %s",
                  needs->role, needs->dir, err.text);
    }
}

static void tell_yields(const struct place *place)
{
    log_error("the files of this %s in %s were deleted, and another %s has been started there: it cannot be reached "
              "any more, and what it has in memory will not be restored. It takes its place back when the other one "
              "ends; otherwise end it, too (process %d)",
              place->needs.role, place->needs.dir, place->needs.role, (int)getpid());
}

void place_tick(struct place *place)
{
    struct error err;
    const struct place_facts facts = look(place, &err);
    enum place_verdict verdict = place_judge(&facts);
    if (verdict == PLACE_LACKS_ALL || verdict == PLACE_LACKS_SOCKET) {
        mend(place, verdict);
    } else if (verdict == PLACE_YIELDS && place->told != verdict) {
        tell_yields(place);
    } else if (verdict == PLACE_UNCLEAR && place->told != verdict) {
        log_warn("it is unknown whether the files of this %s are still there: %s", place->needs.role, err.text);
    }
    place->told = verdict;
}

/* ---- life ---------------------------------------------------------------------------------------------------- */

tck_status_t place_take(const struct place_setup *setup, struct place **out, struct error *err)
{
    int dir_fd = -1;
    struct place *place = calloc(1, sizeof(*place));
    if (place == NULL) {
        return error_set(err, TCK_ERR_NOMEM, "out of memory");
    }
    *place = (struct place){.needs = *setup, .lock_fd = -1};
    tck_status_t status = ipc_open_dir(setup->dir, &dir_fd, err);
    if (status == TCK_OK) {
        status = lock_take(dir_fd, setup->lock, &place->lock_fd, err);
        close(dir_fd);
    }
    if (status != TCK_OK) {
        place_free(place);
        return status;
    }
    *out = place;
    return TCK_OK;
}

void place_free(struct place *place)
{
    if (place == NULL) {
        return;
    }
    if (place->lock_fd >= 0) {
        close(place->lock_fd);
    }
    free(place);
}

tck_status_t place_note_socket(struct place *place, struct error *err)
{
    int dir_fd = -1;
    tck_status_t status = safe_dir_open(place->needs.dir, false, &dir_fd, err);
    if (status == TCK_OK) {
        status = note_socket_in(place, dir_fd, err);
        close(dir_fd);
    }
    return status;
}

/* SPDX-License-Identifier: Apache-2.0
 * Retention: which versions are deleted. */
#include "tiers/persistent_impl.h"

#include "base/log.h"
#include "core/retention.h"
#include <stdlib.h>
#include <string.h>

/* Only good versions count: one that is damaged or unreadable is neither kept in place of another nor deleted. The
 * caller frees them. */
static tck_status_t good_versions(struct persistent *p, struct published **out, size_t *count_out, struct error *err)
{
    struct survey survey;
    tck_status_t status = persistent_survey_save_dir(p, &survey, err);
    return status == TCK_OK ? survey_take_good(&survey, out, count_out, err) : status;
}

/* Reduces versions (newest first) to those that must be removed; returns their number. */
static size_t select_surplus(struct published *versions, size_t count, uint32_t keep, struct version pinned)
{
    size_t surplus = 0;
    if (keep == 0 || count == 0) {
        return 0;
    }
    for (size_t i = keep; i < count; i++) {
        if (!version_is(versions[i].version, pinned)) {
            versions[surplus++] = versions[i];
        }
    }
    return surplus;
}

/* Removes them oldest first, so that an interruption leaves the newer ones. Versions that cannot be removed are logged
 * and dropped from the list; *first_out gets the first error. */
static size_t remove_versions(const struct persistent *p, struct published *versions, size_t count,
                              struct error *first_out)
{
    size_t removed = count; /* the list's tail from here on was removed */
    for (size_t i = count; i-- > 0;) {
        char name[DIR_NAME_MAX];
        struct error err = {0};
        version_dir_name(versions[i].version, name);
        tck_status_t status = p->ops->delete_version(p, versions[i].version, &err);
        if (status == TCK_ERR_NOENT) { /* a publish or another prune has removed it meanwhile */
            continue;
        }
        if (status != TCK_OK) {
            error_prefix(&err, "%s/%s/%s cannot be removed", p->config->save_dir, p->config->job, name);
            log_warn("%s", err.text);
            *first_out = first_out->code == TCK_OK ? err : *first_out;
            continue;
        }
        log_info("removed %s", name);
        versions[--removed] = versions[i];
    }
    memmove(versions, versions + removed, (count - removed) * sizeof(*versions));
    return count - removed;
}

/* NOLINTNEXTLINE(readability-function-size): the selection, dry_run, and the result */
tck_status_t persistent_prune(struct persistent *p, uint32_t keep, struct version pinned, bool dry_run,
                              struct published **removed_out, size_t *count_out, struct error *err)
{
    struct published *versions = NULL;
    size_t count = 0;
    tck_status_t status = good_versions(p, &versions, &count, err);
    if (status != TCK_OK) {
        return status;
    }
    count = select_surplus(versions, count, keep, pinned);
    struct error stays = {0};
    if (!dry_run && count > 0) {
        count = remove_versions(p, versions, count, &stays);
    }
    if (removed_out == NULL) {
        free(versions);
    } else {
        *removed_out = versions;
        *count_out = count;
    }
    return stays.code == TCK_OK ? TCK_OK : error_set(err, stays.code, "%s", stays.text);
}

/* ---- after a publish ------------------------------------------------------------------------------------------- */

/* Goes back to a term that began afresh, or whose note cannot be read: versions before that are kept. */
static struct history history_of(const struct persistent *p, struct version version)
{
    struct history history = {0};
    struct error ignored;
    while (history_add(&history, version)) {
        if (term_restored(p->terms, version.term, &version, &ignored) != TCK_OK) {
            break;
        }
    }
    return history;
}

void persistent_pin(struct persistent *p, struct version version)
{
    pthread_mutex_lock(&p->puts_lock);
    p->pinned = version;
    pthread_mutex_unlock(&p->puts_lock);
}

static size_t drop_pinned(struct persistent *p, struct published *versions, size_t count)
{
    size_t kept = 0;
    pthread_mutex_lock(&p->puts_lock);
    for (size_t i = 0; i < count; i++) {
        if (!version_is(versions[i].version, p->pinned)) {
            versions[kept++] = versions[i];
        }
    }
    pthread_mutex_unlock(&p->puts_lock);
    return kept;
}

static size_t keep_surplus(const struct history *history, struct published *versions, size_t count, uint32_t keep)
{
    struct version *list = calloc(count + 1, sizeof(*list));
    bool *surplus = calloc(count + 1, sizeof(*surplus));
    size_t kept = 0;
    if (list != NULL && surplus != NULL) {
        for (size_t i = 0; i < count; i++) {
            list[i] = versions[i].version;
        }
        retention_select(history, list, count, keep, surplus);
        for (size_t i = 0; i < count; i++) {
            if (surplus[i]) {
                versions[kept++] = versions[i];
            }
        }
    }
    free(list);
    free(surplus);
    return kept;
}

tck_status_t prune_superseded(struct persistent *p, struct version published, uint32_t keep, struct error *err)
{
    struct published *versions = NULL;
    size_t count = 0;
    tck_status_t status = keep > 0 ? good_versions(p, &versions, &count, err) : TCK_OK;
    if (status != TCK_OK || keep == 0) {
        return status;
    }
    struct history history = history_of(p, published);
    count = drop_pinned(p, versions, keep_surplus(&history, versions, count, keep));
    if (count > 0) {
        struct error ignored = {0}; /* logged already; the next publish tries again */
        (void)remove_versions(p, versions, count, &ignored);
    }
    free(versions);
    return TCK_OK;
}

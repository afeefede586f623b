/* SPDX-License-Identifier: Apache-2.0
 * The candidates of a survey: which it has, adding one, and freeing them. */
#include "tiers/persistent_impl.h"
#include "tiers/published_versions.h"

#include <stdlib.h>
#include <string.h>

bool survey_add(struct survey *survey, const struct published *which, const struct version_look *look)
{
    struct candidate c = {.which = *which, .standing = look->standing};
    if (look->standing != STANDING_GOOD) {
        c.why = strdup(look->why.text);
    } else {
        c.layout = look->manifest.layout;
        c.shard_count = look->manifest.file_count;
        c.shards = calloc((size_t)c.shard_count + 1, sizeof(*c.shards));
        for (uint32_t i = 0; c.shards != NULL && i < c.shard_count; i++) {
            c.shards[i] = look->manifest.files[i].shard;
        }
    }
    if (c.why == NULL && c.shards == NULL) {
        return false;
    }
    survey->candidates[survey->count++] = c;
    return true;
}

bool survey_wants(struct survey *survey, struct version version, size_t before)
{
    const struct survey_range *range = &survey->range;
    if (before < range->newest || (range->step != TCK_NEWEST && version.step == range->step)) {
        return true;
    }
    if (version_cmp(version, survey->deeper) > 0) {
        survey->deeper = version;
    }
    return false;
}

void candidate_free(struct candidate *c)
{
    free(c->why);
    free(c->shards);
}

void survey_free(struct survey *survey)
{
    for (size_t i = 0; i < survey->count; i++) {
        candidate_free(&survey->candidates[i]);
    }
    free(survey->candidates);
    *survey = (struct survey){0};
}

/* SPDX-License-Identifier: Apache-2.0
 * Storage trouble: kept, encoded, and shown on a shared page under a sequence lock. */
#include "base/trouble.h"

#include <stdio.h>
#include <string.h>

#define LOOK_TRIES 1000 /* a writer needs less than a microsecond */

void trouble_add(struct trouble *trouble, uint64_t step, const struct error *why, uint64_t wall_ms)
{
    if (trouble->code == TCK_OK) {
        *trouble = (struct trouble){.since_ms = wall_ms};
    }
    trouble->code = why->code;
    snprintf(trouble->text, sizeof(trouble->text), "%.*s", TROUBLE_TEXT - 1, why->text);
    if (step > trouble->newest_step) {
        trouble->first_step = trouble->steps == 0 ? step : trouble->first_step;
        trouble->newest_step = step;
        trouble->steps++;
    }
}

/* ---- on the wire --------------------------------------------------------------------------------------------- */

/* Encoded by hand: the code itself says whether the rest follows, whereas an optional part of a table has a separate
 * byte for that. */
void write_trouble(struct writer *w, const struct trouble *trouble)
{
    write_u32(w, (uint32_t)-trouble->code);
    if (trouble->code != TCK_OK) {
        write_u64(w, trouble->since_ms);
        write_u64(w, trouble->first_step);
        write_u64(w, trouble->newest_step);
        write_u64(w, trouble->steps);
        write_str(w, trouble->text);
    }
}

struct trouble read_trouble(struct reader *r)
{
    struct trouble trouble = {0};
    uint32_t code = read_u32(r);
    if (code > 255) {
        r->failed = true;
    }
    if (code != 0 && !r->failed) {
        trouble.code = -(int32_t)code;
        trouble.since_ms = read_u64(r);
        trouble.first_step = read_u64(r);
        trouble.newest_step = read_u64(r);
        trouble.steps = read_u64(r);
        read_str(r, trouble.text, sizeof(trouble.text));
    }
    return trouble;
}

/* ---- on a shared page ---------------------------------------------------------------------------------------- */

#define WORDS (sizeof(((struct shared_trouble *)0)->words) / sizeof(uint64_t))

void trouble_show(struct shared_trouble *shared, const struct trouble *trouble)
{
    uint64_t words[WORDS] = {0};
    uint64_t sequence = atomic_load_explicit(&shared->sequence, memory_order_relaxed);
    memcpy(words, trouble, sizeof(*trouble));
    atomic_store_explicit(&shared->sequence, sequence + 1, memory_order_relaxed);
    atomic_thread_fence(memory_order_release);
    for (size_t i = 0; i < WORDS; i++) {
        atomic_store_explicit(&shared->words[i], words[i], memory_order_relaxed);
    }
    atomic_store_explicit(&shared->sequence, sequence + 2, memory_order_release);
}

bool trouble_look(struct shared_trouble *shared, struct trouble *out)
{
    uint64_t words[WORDS];
    for (int i = 0; i < LOOK_TRIES; i++) {
        uint64_t before = atomic_load_explicit(&shared->sequence, memory_order_acquire);
        for (size_t k = 0; k < WORDS; k++) {
            words[k] = atomic_load_explicit(&shared->words[k], memory_order_relaxed);
        }
        atomic_thread_fence(memory_order_acquire);
        if (before % 2 == 0 && before == atomic_load_explicit(&shared->sequence, memory_order_relaxed)) {
            memcpy(out, words, sizeof(*out));
            out->text[sizeof(out->text) - 1] = '\0';
            return true;
        }
    }
    return false;
}

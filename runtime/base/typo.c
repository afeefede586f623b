/* SPDX-License-Identifier: Apache-2.0
 * Finds the known word that was meant by an unknown one. */
#include "base/typo.h"

#include <stdbool.h>
#include <string.h>

#define WORD_BYTES   64
#define LEAST_EDITS  2 /* always counted as a typing error; in long words a third of the letters may differ */
#define LEAST_COMMON 4 /* the least number of letters for which one word inside another counts */

static char plain_letter(char c)
{
    bool capital = c >= 'A' && c <= 'Z';
    return (char)(c == '-' ? '_' : capital ? c - 'A' + 'a' : c);
}

/* Lower case, and "-" as "_"; false if it is too long. */
static bool plain(const char *word, char out[WORD_BYTES])
{
    size_t len = strlen(word);
    for (size_t i = 0; i < len && len < WORD_BYTES; i++) {
        out[i] = plain_letter(word[i]);
    }
    out[len < WORD_BYTES ? len : 0] = '\0';
    return len < WORD_BYTES;
}

/* Insertions, deletions and replacements that turn a into b. */
static size_t edits(const char *a, const char *b)
{
    size_t row[WORD_BYTES];
    size_t b_len = strlen(b);
    for (size_t j = 0; j <= b_len; j++) {
        row[j] = j;
    }
    for (size_t i = 0; a[i] != '\0'; i++) {
        size_t diagonal = row[0];
        row[0] = i + 1;
        for (size_t j = 0; j < b_len; j++) {
            size_t best = diagonal + (a[i] != b[j]);
            diagonal = row[j + 1];
            best = row[j] + 1 < best ? row[j] + 1 : best;
            row[j + 1] = diagonal + 1 < best ? diagonal + 1 : best;
        }
    }
    return row[b_len];
}

static bool is_near(const char *word, const char *known, size_t distance)
{
    size_t len = strlen(word), known_len = strlen(known);
    bool contained = (len >= LEAST_COMMON && strstr(known, word) != NULL) ||
                     (known_len >= LEAST_COMMON && strstr(word, known) != NULL);
    return contained || distance <= LEAST_EDITS || distance <= len / 3;
}

const char *typo_nearest(const char *word, const char *(*known)(size_t i))
{
    char wanted[WORD_BYTES], candidate[WORD_BYTES];
    const char *nearest = NULL;
    size_t least = WORD_BYTES;
    bool fits = plain(word, wanted);
    for (size_t i = 0; fits && known(i) != NULL; i++) {
        size_t distance = plain(known(i), candidate) ? edits(wanted, candidate) : WORD_BYTES;
        if (distance < least && is_near(wanted, candidate, distance)) {
            least = distance;
            nearest = known(i);
        }
    }
    return nearest;
}

/* SPDX-License-Identifier: Apache-2.0
 * Any bytes as a manifest, alone and under the self-digest that fits them: refused, or a manifest that prints to a text
 * which parses to the same. */
#include "base/secret.h"
#include "fuzz.h"
#include "tiers/manifest.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TAIL_BYTES 77 /* ,"sha256":"<64 digits>"} */

static void check_order(const struct manifest *manifest)
{
    MUST_HOLD(manifest->file_count > 0);
    for (uint32_t i = 0; i < manifest->file_count; i++) {
        const struct manifest_file *file = &manifest->files[i];
        MUST_HOLD(manifest_find(manifest, file->shard) == file);
        MUST_HOLD(strchr(file->name, '/') == NULL);
        MUST_HOLD(hash128_is(digest_root(file->crcs, file->bytes), file->root));
    }
}

static void check(const char *text, size_t len)
{
    struct manifest manifest, again;
    char *first, *second;
    size_t first_len, second_len;
    if (manifest_parse(text, len, &manifest, NULL) != TCK_OK) {
        return;
    }
    check_order(&manifest);
    MUST_HOLD(manifest_print(&manifest, &first, &first_len, NULL) == TCK_OK);
    MUST_HOLD(manifest_parse(first, first_len, &again, NULL) == TCK_OK);
    MUST_HOLD(manifest_print(&again, &second, &second_len, NULL) == TCK_OK);
    MUST_HOLD(first_len == second_len && memcmp(first, second, first_len) == 0);
    free(first);
    free(second);
    manifest_free(&manifest);
    manifest_free(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t digest[MAC_BYTES];
    char *text = malloc(size + TAIL_BYTES + 1);
    memcpy(text, data, size);
    check(text, size);
    sha256(data, size, digest);
    char *at = text + size + sprintf(text + size, ",\"sha256\":\"");
    for (size_t i = 0; i < sizeof(digest); i++) {
        at += sprintf(at, "%02x", digest[i]);
    }
    sprintf(at, "\"}");
    check(text, size + TAIL_BYTES);
    free(text);
    return 0;
}

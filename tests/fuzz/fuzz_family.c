/* SPDX-License-Identifier: Apache-2.0
 * Any bytes as a mapping file, and as a rank's export map: refused, or rules that make names and rows within the
 * tensor, and boxes within their tensors. */
#include "fuzz.h"
#include "published/family.h"
#include <string.h>

static void check_made(const struct renamed *made, const struct box *box)
{
    MUST_HOLD(made->name != NULL);
    for (uint32_t i = 0; i < made->count; i++) {
        MUST_HOLD(made->rows[i].from <= box->size[0] && made->rows[i].count <= box->size[0] - made->rows[i].from);
    }
}

static void check_rules(const struct family_rules *rules, const struct export_map *map)
{
    static const char *const names[] = {"a.1.w", "embedding.word_embeddings.weight",
                                        "decoder.layers.3.self_attention.linear_qkv.weight"};
    const struct box box = {.ndim = 2, .size = {24, 5}};
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        struct renamed made[RENAMED_MAX];
        uint32_t count = 0;
        struct error err;
        if (family_apply(rules, map, names[i], &box, made, &count, &err) != TCK_OK) {
            continue;
        }
        for (uint32_t k = 0; k < count; k++) {
            check_made(&made[k], &box);
            renamed_free(&made[k]);
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    struct export_map map = {0};
    struct family_rules *rules = NULL;
    const char *base = NULL;
    uint32_t same = 0;
    struct error err;
    if (export_map_add(&map, (const char *)data, len, 3, &same, &err) == TCK_OK &&
        export_map_join(&map, &err) == TCK_OK) {
        for (uint32_t i = 0; i < map.count; i++) {
            MUST_HOLD(map.tensors[i].refused != NULL || map.tensors[i].part_count > 0);
        }
    }
    if (family_parse((const char *)data, len, &rules, &base, &err) == TCK_OK) {
        check_rules(rules, &map);
        family_free(rules);
    }
    export_map_free(&map);
    return 0;
}

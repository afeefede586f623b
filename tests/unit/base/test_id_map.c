/* SPDX-License-Identifier: Apache-2.0
 * The map from ids to places. */
#include "base/id_map.h"

#include <criterion/criterion.h>

#define MANY 10000u

static uint64_t id_of(uint32_t i)
{
    return i * UINT64_C(0xD1342543DE82EF95);
}

Test(id_map, an_empty_map_has_nothing)
{
    struct id_map map = {0};
    cr_assert_eq(id_map_find(&map, 0), ID_MAP_NONE);
    cr_assert_eq(id_map_find(&map, 7), ID_MAP_NONE);
    id_map_free(&map);
}

Test(id_map, finds_each_of_many_and_no_other)
{
    struct id_map map = {0};
    for (uint32_t i = 0; i < MANY; i++) {
        cr_assert(id_map_put(&map, id_of(i), i));
    }
    cr_assert_eq(map.count, MANY);
    for (uint32_t i = 0; i < MANY; i++) {
        cr_assert_eq(id_map_find(&map, id_of(i)), i);
        cr_assert_eq(id_map_find(&map, id_of(i) + 1), ID_MAP_NONE);
    }
    id_map_free(&map);
    cr_assert_eq(id_map_find(&map, id_of(1)), ID_MAP_NONE);
}

Test(id_map, consecutive_ids_and_ids_that_differ_only_in_high_bits_are_distinct)
{
    struct id_map map = {0};
    for (uint32_t i = 0; i < MANY; i++) {
        cr_assert(id_map_put(&map, i, i));
        cr_assert(id_map_put(&map, ((uint64_t)i + 1) << 40, MANY + i));
    }
    for (uint32_t i = 0; i < MANY; i++) {
        cr_assert_eq(id_map_find(&map, i), i);
        cr_assert_eq(id_map_find(&map, ((uint64_t)i + 1) << 40), MANY + i);
    }
    id_map_free(&map);
}

Test(id_map, an_id_that_is_put_again_has_its_new_place)
{
    struct id_map map = {0};
    cr_assert(id_map_put(&map, 5, 1));
    cr_assert(id_map_put(&map, 5, 2));
    cr_assert_eq(id_map_find(&map, 5), 2);
    cr_assert_eq(map.count, 1);
    id_map_free(&map);
}

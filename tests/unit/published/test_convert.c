/* SPDX-License-Identifier: Apache-2.0
 * Conversions lose nothing where the target has the value; otherwise they give the nearest value, and the even one of
 * two that are equally near. */
#include "published/convert.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#define TRIES 200000

static uint64_t seed = 1;

static uint64_t chance(void)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return seed ^ seed >> 29;
}

static double wide(uint16_t bits, tck_dtype_t dtype)
{
    double out;
    convert(&out, TCK_F64, &bits, dtype, 1);
    return out;
}

static uint16_t narrow(double number, tck_dtype_t dtype)
{
    uint16_t out;
    convert(&out, dtype, &number, TCK_F64, 1);
    return out;
}

/* Beyond the largest number, infinity takes the position of the next number. */
static double place_of(uint16_t bits, tck_dtype_t dtype)
{
    uint16_t largest = dtype == TCK_F16 ? 0x7bff : 0x7f7f;
    double top = wide(largest, dtype);
    return (bits & 0x7fff) > largest ? top + (top - wide(largest - 1, dtype)) : fabs(wide(bits, dtype));
}

static void assert_nearest(double number, tck_dtype_t dtype)
{
    uint16_t got = narrow(number, dtype), low = got & 0x7fff;
    double size = fabs(number), here = place_of(low, dtype);
    uint16_t infinity = dtype == TCK_F16 ? 0x7c00 : 0x7f80;
    cr_assert_eq(got >> 15, signbit(number) != 0);
    if (low > 0) {
        double below = size - place_of(low - 1, dtype);
        cr_assert(fabs(size - here) < below || (fabs(size - here) == below && low % 2 == 0) || size > here, "%a",
                  number);
    }
    if (low < infinity) {
        double above = place_of(low + 1, dtype) - size;
        cr_assert(fabs(size - here) < above || (fabs(size - here) == above && low % 2 == 0), "%a", number);
    }
}

static double random_number(tck_dtype_t dtype)
{
    int span = dtype == TCK_F16 ? 50 : 300;
    double number =
        ldexp(1 + (double)(chance() % (1u << 20)) / (1u << 20), (int)(chance() % (unsigned)span) - span / 2);
    number *= 1 + (double)(chance() % 3) * 1e-16; /* near a tie, not on it */
    return chance() % 2 ? number : -number;
}

Test(convert, all_small_numbers_survive_widening_and_narrowing)
{
    const tck_dtype_t kinds[] = {TCK_F16, TCK_BF16};
    for (int k = 0; k < 2; k++) {
        for (uint32_t bits = 0; bits < 65536; bits++) {
            double number = wide((uint16_t)bits, kinds[k]);
            float single = (float)number;
            uint16_t again;
            if (isnan(number)) {
                cr_assert(isnan(wide(narrow(number, kinds[k]), kinds[k])));
                continue;
            }
            cr_assert_eq(narrow(number, kinds[k]), bits);
            convert(&again, kinds[k], &single, TCK_F32, 1);
            cr_assert_eq(again, bits);
        }
    }
}

Test(convert, known_numbers)
{
    cr_assert_eq(wide(0x3c00, TCK_F16), 1);
    cr_assert_eq(wide(0x3f80, TCK_BF16), 1);
    cr_assert_eq(wide(0x0001, TCK_F16), 0x1p-24);
    cr_assert_eq(wide(0x0001, TCK_BF16), 0x1p-133);
    cr_assert_eq(narrow(65519.99, TCK_F16), 0x7bff);
    cr_assert_eq(narrow(65520, TCK_F16), 0x7c00);
    cr_assert_eq(narrow(-1e300, TCK_BF16), 0xff80);
    cr_assert_eq(narrow(0x1p-25, TCK_F16), 0);
    cr_assert_eq(narrow(0x1.8p-25, TCK_F16), 1);
    cr_assert_eq(narrow(-0.0, TCK_F16), 0x8000);
    cr_assert_eq(narrow((double)INFINITY, TCK_BF16), 0x7f80);
}

Test(convert, values_in_between_are_rounded_to_the_nearest_and_even_one)
{
    for (int i = 0; i < TRIES; i++) {
        assert_nearest(random_number(TCK_F16), TCK_F16);
        assert_nearest(random_number(TCK_BF16), TCK_BF16);
    }
}

Test(convert, a_value_that_is_a_tie_only_in_f32_is_not_rounded_as_one)
{
    /* Just above the middle of two bfloat16: a conversion through float would put it on the middle and round it to
     * even. */
    cr_assert_eq(narrow(0x1.01000001p0, TCK_BF16), 0x3f81);
    cr_assert_eq(narrow(0x1.01p0, TCK_BF16), 0x3f80);
}

Test(convert, the_direct_conversion_from_f32_to_bf16_is_the_same)
{
    for (int i = 0; i < 10 * TRIES; i++) {
        uint32_t bits = (uint32_t)chance();
        uint16_t quick;
        float single;
        memcpy(&single, &bits, sizeof(single));
        convert(&quick, TCK_BF16, &single, TCK_F32, 1);
        if (isnan(single)) {
            cr_assert(isnan(wide(quick, TCK_BF16)));
        } else {
            cr_assert_eq(quick, narrow((double)single, TCK_BF16), "%a", (double)single);
        }
    }
}

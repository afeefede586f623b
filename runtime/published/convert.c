/* SPDX-License-Identifier: Apache-2.0
 * Every kind is widened to a double without loss, so rounding happens only where a double is narrowed. */
#include "published/convert.h"

#include <string.h>

#define DOUBLE_MANTISSA 52
#define DOUBLE_BIAS     1023
#define DOUBLE_SPECIAL  0x7ff /* the exponent of infinities and NaNs */

/* A kind of 16 bits. */
struct kind {
    int mantissa, bias, special;
};

static const struct kind f16 = {10, 15, 0x1f};
static const struct kind bf16 = {7, 127, 0xff};

bool convert_can(tck_dtype_t dtype)
{
    return dtype == TCK_F64 || dtype == TCK_F32 || dtype == TCK_F16 || dtype == TCK_BF16;
}

/* ---- 16 bits ----------------------------------------------------------------------------------------------------- */

/* value / 2^shift, to the nearest, ties to even. */
static uint64_t round_shift(uint64_t value, int shift)
{
    uint64_t half, rest;
    if (shift > 63) {
        return 0;
    }
    half = UINT64_C(1) << (shift - 1);
    rest = value & ((half << 1) - 1);
    value >>= shift;
    return value + (rest > half || (rest == half && (value & 1) != 0));
}

static uint16_t narrow(double number, struct kind kind)
{
    uint64_t bits;
    memcpy(&bits, &number, sizeof(bits));
    uint16_t sign = (uint16_t)(bits >> 63 << 15);
    int exponent = (int)(bits >> DOUBLE_MANTISSA & DOUBLE_SPECIAL);
    uint64_t mantissa = bits & ((UINT64_C(1) << DOUBLE_MANTISSA) - 1), out;
    uint64_t infinity = (uint64_t)kind.special << kind.mantissa;
    if (exponent == DOUBLE_SPECIAL) { /* a NaN stays one, quiet */
        uint64_t quiet = mantissa == 0 ? 0 : UINT64_C(1) << (kind.mantissa - 1);
        return (uint16_t)(sign | infinity | quiet);
    }
    int shift = DOUBLE_MANTISSA - kind.mantissa, place = exponent - DOUBLE_BIAS + kind.bias;
    if (exponent == 0) {
        return sign; /* a double this small is zero in either kind */
    }
    if (place > 0) { /* a carry out of the mantissa goes into the exponent, which is correct */
        out = round_shift((uint64_t)place << DOUBLE_MANTISSA | mantissa, shift);
    } else { /* the result is subnormal */
        out = round_shift(UINT64_C(1) << DOUBLE_MANTISSA | mantissa, shift + 1 - place);
    }
    return (uint16_t)(sign | (out > infinity ? infinity : out));
}

static double widen(uint16_t bits, struct kind kind)
{
    uint64_t sign = (uint64_t)(bits >> 15) << 63, out;
    int exponent = bits >> kind.mantissa & kind.special;
    uint64_t mantissa = bits & ((UINT64_C(1) << kind.mantissa) - 1);
    double number;
    if (exponent == 0) { /* the mantissa times the smallest subnormal, which is a power of two */
        uint64_t smallest = (uint64_t)(DOUBLE_BIAS + 1 - kind.bias - kind.mantissa) << DOUBLE_MANTISSA;
        memcpy(&number, &smallest, sizeof(number));
        number *= (double)mantissa;
        return sign == 0 ? number : -number;
    }
    uint64_t place = exponent == kind.special ? DOUBLE_SPECIAL : (uint64_t)(exponent - kind.bias + DOUBLE_BIAS);
    out = sign | place << DOUBLE_MANTISSA | mantissa << (DOUBLE_MANTISSA - kind.mantissa);
    memcpy(&number, &out, sizeof(number));
    return number;
}

/* ---- arrays ------------------------------------------------------------------------------------------------------ */

static double load(const uint8_t *from, tck_dtype_t dtype, uint64_t i)
{
    double wide;
    float single;
    uint16_t half;
    if (dtype == TCK_F64) {
        memcpy(&wide, from + 8 * i, sizeof(wide));
        return wide;
    }
    if (dtype == TCK_F32) {
        memcpy(&single, from + 4 * i, sizeof(single));
        return (double)single;
    }
    memcpy(&half, from + 2 * i, sizeof(half));
    return widen(half, dtype == TCK_F16 ? f16 : bf16);
}

static void store(uint8_t *to, tck_dtype_t dtype, uint64_t i, double number)
{
    if (dtype == TCK_F64) {
        memcpy(to + 8 * i, &number, sizeof(number));
    } else if (dtype == TCK_F32) {
        float single = (float)number;
        memcpy(to + 4 * i, &single, sizeof(single));
    } else {
        uint16_t half = narrow(number, dtype == TCK_F16 ? f16 : bf16);
        memcpy(to + 2 * i, &half, sizeof(half));
    }
}

/* The conversion whose speed matters: the upper half of the bits, rounded. A carry goes into the exponent. */
static void f32_to_bf16(uint8_t *to, const uint8_t *from, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, from + 4 * i, sizeof(bits));
        bool nan = (bits & 0x7fffffff) > 0x7f800000;
        uint16_t half = (uint16_t)(nan ? bits >> 16 | 0x40 : (bits + 0x7fff + (bits >> 16 & 1)) >> 16);
        memcpy(to + 2 * i, &half, sizeof(half));
    }
}

void convert(void *to, tck_dtype_t to_dtype, const void *from, tck_dtype_t from_dtype, uint64_t count)
{
    if (from_dtype == TCK_F32 && to_dtype == TCK_BF16) {
        f32_to_bf16(to, from, count);
        return;
    }
    for (uint64_t i = 0; i < count; i++) {
        store(to, to_dtype, i, load(from, from_dtype, i));
    }
}

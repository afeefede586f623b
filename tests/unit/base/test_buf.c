/* SPDX-License-Identifier: Apache-2.0 */
#include "base/buf.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

Test(buf, integers_are_little_endian)
{
    static const uint8_t expected[] = {1, 3, 2, 7, 6, 5, 4, 15, 14, 13, 12, 11, 10, 9, 8};
    struct writer w = writer_new(0);

    write_u8(&w, 1);
    write_u16(&w, 0x0203);
    write_u32(&w, 0x04050607);
    write_u64(&w, 0x08090a0b0c0d0e0f);
    cr_assert_eq(w.len, sizeof(expected));
    cr_assert_arr_eq(w.data, expected, sizeof(expected));
    writer_free(&w);
}

Test(buf, reads_back_what_was_written)
{
    struct writer w = writer_new(0);
    struct reader r;
    char text[8];

    write_u64(&w, UINT64_MAX);
    write_str(&w, "hello");
    write_u8(&w, 200);
    write_bytes(&w, "xyz", 3);
    r = reader_of(w.data, w.len);
    cr_assert_eq(read_u64(&r), UINT64_MAX);
    read_str(&r, text, sizeof(text));
    cr_assert_str_eq(text, "hello");
    cr_assert_eq(read_u8(&r), 200);
    cr_assert_eq(reader_left(&r), 3);
    cr_assert_arr_eq(read_bytes(&r, 3), "xyz", 3);
    cr_assert(reader_done(&r));
    writer_free(&w);
}

Test(buf, reader_with_bytes_left_is_not_done)
{
    struct reader r = reader_of("ab", 2);

    read_u8(&r);
    cr_assert_not(reader_done(&r));
}

Test(buf, only_0_and_1_are_a_bool)
{
    const uint8_t bytes[] = {0, 1, 2};
    struct reader r = reader_of(bytes, sizeof(bytes));

    cr_assert(!read_bool(&r));
    cr_assert(read_bool(&r));
    cr_assert(!r.failed);
    cr_assert(!read_bool(&r));
    cr_assert(r.failed);
}

Test(buf, a_decoder_ends_well_only_at_the_end_of_its_input)
{
    const uint8_t bytes[] = {1, 2};
    struct reader r = reader_of(bytes, sizeof(bytes));

    (void)read_u8(&r);
    cr_assert_not(reader_done(&r));
    (void)read_u8(&r);
    cr_assert(reader_done(&r));
    (void)read_u8(&r);
    cr_assert_not(reader_done(&r));
}

Test(buf, reading_past_the_end_gives_zeros_and_stays_failed)
{
    struct reader r = reader_of("\xff\xff\xff", 3);

    cr_assert_eq(read_u32(&r), 0);
    cr_assert(r.failed);
    cr_assert_eq(read_u8(&r), 0);
    cr_assert_null(read_bytes(&r, 0));
    cr_assert_eq(reader_left(&r), 0);
    cr_assert_not(reader_done(&r));
}

Test(buf, no_length_can_wrap_around)
{
    struct reader r = reader_of("abcd", 4);

    read_u8(&r);
    cr_assert_null(read_bytes(&r, SIZE_MAX));
    cr_assert(r.failed);
}

Test(buf, empty_input_contains_an_empty_view)
{
    struct reader r = reader_of(NULL, 0);

    cr_assert_not_null(read_bytes(&r, 0));
    cr_assert(reader_done(&r));
}

static bool str_is_read(const void *data, size_t len, size_t cap)
{
    struct reader r = reader_of(data, len);
    char text[16] = "before";

    read_str(&r, text, cap);
    cr_assert(!r.failed || cap == 0 || text[0] == '\0');
    return !r.failed;
}

Test(buf, strings_are_checked)
{
    cr_assert(str_is_read("\3\0abc", 5, 4));
    cr_assert(str_is_read("\0\0", 2, 1));
    cr_assert_not(str_is_read("\3\0abc", 5, 3), "too small a buffer");
    cr_assert_not(str_is_read("\0\0", 2, 0), "no buffer");
    cr_assert_not(str_is_read("\3\0ab", 4, 16), "a string that is cut off");
    cr_assert_not(str_is_read("\3\0a\0c", 5, 16), "a NUL inside");
    cr_assert_not(str_is_read("\3", 1, 16), "half a length");
}

Test(buf, writer_fails_at_its_limit_and_stays_failed)
{
    struct writer w = writer_new(5);
    size_t len;

    write_u32(&w, 1);
    cr_assert_not(w.failed);
    write_u16(&w, 1);
    cr_assert(w.failed);
    write_u8(&w, 1);
    cr_assert_eq(w.len, 4);
    cr_assert_null(writer_take(&w, &len));
    cr_assert_null(w.data);
}

Test(buf, writer_can_be_filled_to_its_limit)
{
    static const uint8_t bytes[1000];
    struct writer w = writer_new(1000);

    write_bytes(&w, bytes, 999);
    write_u8(&w, 1);
    cr_assert_not(w.failed);
    cr_assert_eq(w.len, 1000);
    writer_free(&w);
}

Test(buf, writer_over_the_callers_bytes_takes_what_fits_and_no_more)
{
    uint8_t bytes[5] = {0};
    struct writer w = writer_over(bytes, 4);

    write_u16(&w, 0x0201);
    write_u16(&w, 0x0403);
    cr_assert_not(w.failed);
    write_u8(&w, 9);
    cr_assert(w.failed);
    cr_assert_eq(w.data, bytes);
    cr_assert_arr_eq(bytes, "\1\2\3\4\0", 5);
}

Test(buf, writer_grows_over_many_writes)
{
    struct writer w = writer_new(0);
    struct reader r;

    for (uint32_t i = 0; i < 10000; i++) {
        write_u32(&w, i);
    }
    r = reader_of(w.data, w.len);
    for (uint32_t i = 0; i < 10000; i++) {
        cr_assert_eq(read_u32(&r), i);
    }
    cr_assert(reader_done(&r));
    writer_free(&w);
}

Test(buf, string_over_its_length_field_fails)
{
    static char text[UINT16_MAX + 2];
    struct writer w = writer_new(0);

    memset(text, 'a', UINT16_MAX);
    write_str(&w, text);
    cr_assert_not(w.failed);
    text[UINT16_MAX] = 'a';
    write_str(&w, text);
    cr_assert(w.failed);
    writer_free(&w);
}

Test(buf, taken_bytes_are_the_callers_and_the_writer_is_empty)
{
    struct writer w = writer_new(0);
    size_t len;
    uint8_t *data;

    write_u16(&w, 0x4142);
    data = writer_take(&w, &len);
    cr_assert_eq(len, 2);
    cr_assert_arr_eq(data, "BA", 2);
    cr_assert_eq(w.len, 0);
    cr_assert_null(w.data);
    free(data);
}

Test(buf, nothing_written_can_be_taken)
{
    struct writer w = writer_new(0);
    size_t len = 1;
    void *data = writer_take(&w, &len);

    cr_assert_not_null(data);
    cr_assert_eq(len, 0);
    free(data);
}

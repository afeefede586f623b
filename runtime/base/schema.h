/* SPDX-License-Identifier: Apache-2.0
 * Structs that are sent, or that outlive their writer, defined by tables. A table is a macro that lists the fields of a
 * struct in the order of their bytes:
 *
 *     #define MSG_BEGIN(F)
 *         F(u32, seq)
 *         F(u64, step)
 *         F(bool, to_storage)
 *     SCHEMA_STRUCT(msg_begin, MSG_BEGIN)       struct msg_begin
 *     SCHEMA_DECLARE(msg_begin)                 msg_begin_encode, msg_begin_decode, msg_begin_free
 *     SCHEMA_CODEC(msg_begin, MSG_BEGIN, check) the same, defined; check(m): what must hold beside the fields' own
 * rules
 *
 * A struct that is a member of others has SCHEMA_PART instead of SCHEMA_CODEC. The kinds of fields:
 *
 *     F(u8, name), and u16, u32, u64, i32, bool, version, hash128
 *     F(error, name)                   struct error name, not TCK_OK: a u32, its distance below 0; its text as a str
 *     F(str, name, cap)                char name[cap]: a u16 length, then the bytes without a NUL
 *     F(padded, name, cap)             char name[cap]: all of it, zeros after the text
 *     F(choice, type, name, limit)     an enum, of which a u8 below limit travels
 *     F(constant, number, value)       no member: of the kind `number`, and nothing else decodes
 *     F(few, count, max, kind, name, ...)  uint32_t count, a u8; name[max], of which count travel, each of that kind
 *     F(bytes, name, n)                uint8_t name[n]
 *     F(view, number, len, type, name) a length of the kind `number`, then as many bytes; const type *name points into
 *                                      what was decoded
 *     F(rest, type, name, len)         size_t len; const type *name: all that is left of what was decoded
 *     F(part, type, name)              struct type name, by write_type and read_type
 *     F(optional, type, name)          the same after a u8, 1; or a 0 alone if type_is_none, and all zeros come back
 *     F(owned, type, name)             struct type name, by type_encode, type_decode and type_free
 *     F(list, type, name, count, max)  uint32_t count, then at most max parts: struct type *name, the receiver's
 *     F(owners, type, name, count, max) the same of parts that own memory: free_type frees it
 *     F(numbers, name, count, max)     the same of uint32_t
 *
 * A table of a struct that is declared by hand, without SCHEMA_STRUCT, may name members of members:
 *
 *     F(u64, node.agent_id)
 *
 * Decoders accept any bytes: those that no encoder produces are TCK_ERR_PROTO, and out is written on success only.
 * An array is allocated only if its elements can be among the bytes that are left. */
#ifndef TCK_BASE_SCHEMA_H
#define TCK_BASE_SCHEMA_H

#include "base/version.h"

#include <stdlib.h>
#include <string.h>

/* NOLINTBEGIN(bugprone-macro-parentheses): the arguments are types, names and whole fields. */

/* ---- what is made of a table --------------------------------------------------------------------------------- */

#define SCHEMA_STRUCT(name, TABLE) \
    struct name {                  \
        TABLE(SCHEMA_MEMBER)       \
    };

/* The minimum size of one. */
#define SCHEMA_LEAST_BYTES(TABLE) (0 TABLE(SCHEMA_BYTES))

#define SCHEMA_DECLARE(name)                                                               \
    void name##_encode(const struct name *m, struct writer *w);                            \
    must_check tck_status_t name##_decode(const void *data, size_t len, struct name *out); \
    /* Frees what decode has allocated; m is zeroed. */                                    \
    void name##_free(struct name *m);

#define SCHEMA_CODEC(name, TABLE, is_valid)                                    \
    void name##_encode(const struct name *m, struct writer *w)                 \
    {                                                                          \
        TABLE(SCHEMA_WRITE)                                                    \
    }                                                                          \
    void name##_free(struct name *m)                                           \
    {                                                                          \
        TABLE(SCHEMA_FREE)                                                     \
        *m = (struct name){0};                                                 \
    }                                                                          \
    tck_status_t name##_decode(const void *data, size_t len, struct name *out) \
    {                                                                          \
        struct reader reader = reader_of(data, len), *r = &reader;             \
        struct name value = {0}, *m = &value;                                  \
        tck_status_t status = TCK_ERR_PROTO;                                   \
        TABLE(SCHEMA_READ)                                                     \
        if (!reader_done(r) || !is_valid(m)) {                                 \
            name##_free(m);                                                    \
            return status;                                                     \
        }                                                                      \
        *out = value;                                                          \
        return TCK_OK;                                                         \
    }

/* Of tables without arrays. */
#define SCHEMA_PART(name, TABLE, is_valid)                   \
    enum { name##_LEAST_BYTES = SCHEMA_LEAST_BYTES(TABLE) }; \
    SCHEMA_PART_AS(static, name, TABLE, is_valid)

/* The same for all files: declared in a header and defined in one of them. */
#define SCHEMA_DECLARE_PART(name, TABLE)                       \
    enum { name##_LEAST_BYTES = SCHEMA_LEAST_BYTES(TABLE) };   \
    void write_##name(struct writer *w, const struct name *m); \
    struct name read_##name(struct reader *r);
#define SCHEMA_SHARED_PART(name, TABLE, is_valid) SCHEMA_PART_AS(, name, TABLE, is_valid)

#define SCHEMA_PART_AS(linkage, name, TABLE, is_valid)                         \
    linkage void write_##name(struct writer *w, const struct name *m){         \
        TABLE(SCHEMA_WRITE)} linkage struct name read_##name(struct reader *r) \
    {                                                                          \
        struct name value = {0}, *m = &value;                                  \
        TABLE(SCHEMA_READ)                                                     \
        r->failed = r->failed || !is_valid(m);                                 \
        return value;                                                          \
    }

/* For a table that needs no check. */
#define schema_any(m) true

#define SCHEMA_MEMBER(kind, ...) SCHEMA_MEMBER_##kind(__VA_ARGS__)
#define SCHEMA_BYTES(kind, ...)  SCHEMA_BYTES_##kind(__VA_ARGS__)
#define SCHEMA_WRITE(kind, ...)  SCHEMA_WRITE_##kind(__VA_ARGS__)
#define SCHEMA_READ(kind, ...)   SCHEMA_READ_##kind(__VA_ARGS__)
#define SCHEMA_FREE(kind, ...)   SCHEMA_FREE_##kind(__VA_ARGS__)

/* ---- the kinds of fields: numbers ---------------------------------------------------------------------------- */

#define SCHEMA_MEMBER_u8(name) uint8_t name;
#define SCHEMA_BYTES_u8(name)  +1
#define SCHEMA_WRITE_u8(name)  write_u8(w, m->name);
#define SCHEMA_READ_u8(name)   m->name = read_u8(r);
#define SCHEMA_FREE_u8(name)

#define SCHEMA_MEMBER_u16(name) uint16_t name;
#define SCHEMA_BYTES_u16(name)  +2
#define SCHEMA_WRITE_u16(name)  write_u16(w, m->name);
#define SCHEMA_READ_u16(name)   m->name = read_u16(r);
#define SCHEMA_FREE_u16(name)

#define SCHEMA_MEMBER_u32(name) uint32_t name;
#define SCHEMA_BYTES_u32(name)  +4
#define SCHEMA_WRITE_u32(name)  write_u32(w, m->name);
#define SCHEMA_READ_u32(name)   m->name = read_u32(r);
#define SCHEMA_FREE_u32(name)

#define SCHEMA_MEMBER_u64(name) uint64_t name;
#define SCHEMA_BYTES_u64(name)  +8
#define SCHEMA_WRITE_u64(name)  write_u64(w, m->name);
#define SCHEMA_READ_u64(name)   m->name = read_u64(r);
#define SCHEMA_FREE_u64(name)

#define SCHEMA_MEMBER_i32(name) int32_t name;
#define SCHEMA_BYTES_i32(name)  +4
#define SCHEMA_WRITE_i32(name)  write_u32(w, (uint32_t)m->name);
#define SCHEMA_READ_i32(name)   m->name = (int32_t)read_u32(r);
#define SCHEMA_FREE_i32(name)

#define SCHEMA_MEMBER_bool(name) bool name;
#define SCHEMA_BYTES_bool(name)  +1
#define SCHEMA_WRITE_bool(name)  write_u8(w, m->name);
#define SCHEMA_READ_bool(name)   m->name = read_bool(r);
#define SCHEMA_FREE_bool(name)

#define SCHEMA_MEMBER_version(name) struct version name;
#define SCHEMA_BYTES_version(name)  +16
#define SCHEMA_WRITE_version(name)  write_version(w, m->name);
#define SCHEMA_READ_version(name)   m->name = read_version(r);
#define SCHEMA_FREE_version(name)

#define SCHEMA_MEMBER_hash128(name) struct hash128 name;
#define SCHEMA_BYTES_hash128(name)  +16
#define SCHEMA_WRITE_hash128(name)  write_hash128(w, m->name);
#define SCHEMA_READ_hash128(name)   m->name = read_hash128(r);
#define SCHEMA_FREE_hash128(name)

#define SCHEMA_MEMBER_error(name) struct error name;
#define SCHEMA_BYTES_error(name)  +4 + 2
#define SCHEMA_WRITE_error(name)  write_error(w, &m->name);
#define SCHEMA_READ_error(name)   m->name = read_error(r);
#define SCHEMA_FREE_error(name)

#define SCHEMA_MEMBER_choice(type, name, limit) type name;
#define SCHEMA_BYTES_choice(type, name, limit)  +1
#define SCHEMA_WRITE_choice(type, name, limit)  write_u8(w, (uint8_t)m->name);
#define SCHEMA_READ_choice(type, name, limit) \
    m->name = (type)read_u8(r);               \
    r->failed = r->failed || (unsigned)m->name >= (unsigned)(limit);
#define SCHEMA_FREE_choice(type, name, limit)

#define SCHEMA_MEMBER_constant(number, value)
#define SCHEMA_BYTES_constant(number, value) SCHEMA_BYTES_##number()
#define SCHEMA_WRITE_constant(number, value) write_##number(w, value);
#define SCHEMA_READ_constant(number, value)  r->failed = read_##number(r) != (value) || r->failed;
#define SCHEMA_FREE_constant(number, value)

/* ---- bytes --------------------------------------------------------------------------------------------------- */

#define SCHEMA_MEMBER_str(name, cap) char name[cap];
#define SCHEMA_BYTES_str(name, cap)  +2
#define SCHEMA_WRITE_str(name, cap)  write_str(w, m->name);
#define SCHEMA_READ_str(name, cap)   read_str(r, m->name, sizeof(m->name));
#define SCHEMA_FREE_str(name, cap)

#define SCHEMA_MEMBER_padded(name, cap) char name[cap];
#define SCHEMA_BYTES_padded(name, cap)  +(cap)
#define SCHEMA_WRITE_padded(name, cap)  write_padded(w, m->name, sizeof(m->name));
#define SCHEMA_READ_padded(name, cap)   read_padded(r, m->name, sizeof(m->name));
#define SCHEMA_FREE_padded(name, cap)

#define SCHEMA_MEMBER_few(count, max, kind, name, ...) \
    uint32_t count;                                    \
    SCHEMA_MEMBER_##kind(name[max], ##__VA_ARGS__)
#define SCHEMA_BYTES_few(count, max, kind, name, ...) +1
#define SCHEMA_WRITE_few(count, max, kind, name, ...) \
    write_u8(w, (uint8_t)m->count);                   \
    for (uint32_t i = 0; i < m->count; i++) {         \
        SCHEMA_WRITE_##kind(name[i], ##__VA_ARGS__)   \
    }
#define SCHEMA_READ_few(count, max, kind, name, ...)        \
    m->count = read_u8(r);                                  \
    r->failed = r->failed || m->count > (max);              \
    for (uint32_t i = 0; !r->failed && i < m->count; i++) { \
        SCHEMA_READ_##kind(name[i], ##__VA_ARGS__)          \
    }
#define SCHEMA_FREE_few(count, max, kind, name, ...)

#define SCHEMA_MEMBER_bytes(name, n) uint8_t name[n];
#define SCHEMA_BYTES_bytes(name, n)  +(n)
#define SCHEMA_WRITE_bytes(name, n)  write_bytes(w, m->name, sizeof(m->name));
#define SCHEMA_READ_bytes(name, n)   read_into(r, m->name, sizeof(m->name));
#define SCHEMA_FREE_bytes(name, n)

#define SCHEMA_MEMBER_view(number, len, type, name) SCHEMA_MEMBER_##number(len) const type *name;
#define SCHEMA_BYTES_view(number, len, type, name)  SCHEMA_BYTES_##number(len)
#define SCHEMA_WRITE_view(number, len, type, name)  SCHEMA_WRITE_##number(len) write_bytes(w, m->name, m->len);
#define SCHEMA_READ_view(number, len, type, name)   SCHEMA_READ_##number(len) m->name = read_bytes(r, m->len);
#define SCHEMA_FREE_view(number, len, type, name)

#define SCHEMA_MEMBER_rest(type, name, len) \
    size_t len;                             \
    const type *name;
#define SCHEMA_BYTES_rest(type, name, len)
#define SCHEMA_WRITE_rest(type, name, len) write_bytes(w, m->name, m->len);
#define SCHEMA_READ_rest(type, name, len) \
    m->len = reader_left(r);              \
    m->name = read_bytes(r, m->len);
#define SCHEMA_FREE_rest(type, name, len)

/* ---- structs ------------------------------------------------------------------------------------------------- */

#define SCHEMA_MEMBER_part(type, name) struct type name;
#define SCHEMA_BYTES_part(type, name)  +type##_LEAST_BYTES
#define SCHEMA_WRITE_part(type, name)  write_##type(w, &m->name);
#define SCHEMA_READ_part(type, name)   m->name = read_##type(r);
#define SCHEMA_FREE_part(type, name)

#define SCHEMA_MEMBER_optional(type, name) struct type name;
#define SCHEMA_BYTES_optional(type, name)  +1
#define SCHEMA_WRITE_optional(type, name)   \
    write_u8(w, !type##_is_none(&m->name)); \
    if (!type##_is_none(&m->name)) {        \
        write_##type(w, &m->name);          \
    }
#define SCHEMA_READ_optional(type, name)                   \
    if (read_bool(r)) {                                    \
        m->name = read_##type(r);                          \
        r->failed = r->failed || type##_is_none(&m->name); \
    }
#define SCHEMA_FREE_optional(type, name)

#define SCHEMA_MEMBER_owned(type, name) struct type name;
#define SCHEMA_WRITE_owned(type, name)  type##_encode(&m->name, w);
#define SCHEMA_READ_owned(type, name)                        \
    if (!r->failed) {                                        \
        tck_status_t why = type##_decode(r, &m->name, NULL); \
        r->failed = why != TCK_OK;                           \
        status = why != TCK_OK ? why : status;               \
    }
#define SCHEMA_FREE_owned(type, name) type##_free(&m->name);

#define SCHEMA_MEMBER_list(type, name, count, max) \
    uint32_t count;                                \
    struct type *name;
#define SCHEMA_WRITE_list(type, name, count, max) \
    write_u32(w, m->count);                       \
    for (uint32_t i = 0; i < m->count; i++) {     \
        write_##type(w, &m->name[i]);             \
    }
#define SCHEMA_READ_list(type, name, count, max)                                                           \
    m->count = read_u32(r);                                                                                \
    m->name = m->count > (max) ? schema_no_array(r)                                                        \
                               : schema_array(r, m->count, type##_LEAST_BYTES, sizeof(*m->name), &status); \
    for (uint32_t i = 0; !r->failed && i < m->count; i++) {                                                \
        m->name[i] = read_##type(r);                                                                       \
    }
#define SCHEMA_FREE_list(type, name, count, max) free(m->name);

#define SCHEMA_MEMBER_owners SCHEMA_MEMBER_list
#define SCHEMA_WRITE_owners  SCHEMA_WRITE_list
#define SCHEMA_READ_owners   SCHEMA_READ_list
#define SCHEMA_FREE_owners(type, name, count, max)               \
    for (uint32_t i = 0; m->name != NULL && i < m->count; i++) { \
        free_##type(&m->name[i]);                                \
    }                                                            \
    free(m->name);

#define SCHEMA_MEMBER_numbers(name, count, max) \
    uint32_t count;                             \
    uint32_t *name;
#define SCHEMA_WRITE_numbers(name, count, max) \
    write_u32(w, m->count);                    \
    for (uint32_t i = 0; i < m->count; i++) {  \
        write_u32(w, m->name[i]);              \
    }
#define SCHEMA_READ_numbers(name, count, max)                                                            \
    m->count = read_u32(r);                                                                              \
    m->name = m->count > (max) ? schema_no_array(r)                                                      \
                               : schema_array(r, m->count, sizeof(*m->name), sizeof(*m->name), &status); \
    for (uint32_t i = 0; !r->failed && i < m->count; i++) {                                              \
        m->name[i] = read_u32(r);                                                                        \
    }
#define SCHEMA_FREE_numbers(name, count, max) free(m->name);

/* The codecs of F(error) and F(padded). */
void write_error(struct writer *w, const struct error *error);
struct error read_error(struct reader *r);
void write_padded(struct writer *w, const char *text, size_t cap);
void read_padded(struct reader *r, char *out, size_t cap);

/* Zeroed memory for count elements of size bytes, each of at least least_bytes in what is left. NULL if less is
 * left, or if there is no memory (*status is set then); in both cases the reader has failed. Never of size 0. */
void *schema_array(struct reader *r, uint32_t count, size_t least_bytes, size_t size, tck_status_t *status);

static inline void *schema_no_array(struct reader *r)
{
    r->failed = true;
    return NULL;
}

/* NOLINTEND(bugprone-macro-parentheses) */

#endif

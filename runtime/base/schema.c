/* SPDX-License-Identifier: Apache-2.0
 * See schema.h. */
#include "base/schema.h"

void *schema_array(struct reader *r, uint32_t count, size_t least_bytes, size_t size, tck_status_t *status)
{
    if (r->failed || count > reader_left(r) / least_bytes) {
        return schema_no_array(r);
    }
    void *array = calloc(count == 0 ? 1 : count, size);
    if (array == NULL) {
        *status = TCK_ERR_NOMEM;
        r->failed = true;
    }
    return array;
}

static bool status_of_wire(uint32_t wire, tck_status_t *out)
{
    static const tck_status_t known[] = {
#define TCK_STATUS_KNOWN(name, value, text) TCK_##name,
        TCK_STATUS_MAP(TCK_STATUS_KNOWN)
#undef TCK_STATUS_KNOWN
    };
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        if (known[i] != TCK_OK && wire == (uint32_t)-known[i]) {
            *out = known[i];
            return true;
        }
    }
    return false;
}

void write_error(struct writer *w, const struct error *error)
{
    write_u32(w, (uint32_t)-error->code);
    write_str(w, error->text);
}

struct error read_error(struct reader *r)
{
    struct error error = {0};
    uint32_t code = read_u32(r);
    read_str(r, error.text, sizeof(error.text));
    r->failed = r->failed || !status_of_wire(code, &error.code);
    return error;
}

void write_padded(struct writer *w, const char *text, size_t cap)
{
    size_t len = strnlen(text, cap - 1);
    write_bytes(w, text, len);
    for (size_t i = len; i < cap; i++) {
        write_u8(w, 0);
    }
}

void read_padded(struct reader *r, char *out, size_t cap)
{
    read_into(r, out, cap);
    size_t len = strnlen(out, cap);
    for (size_t i = len; i < cap; i++) {
        r->failed |= out[i] != '\0';
    }
    r->failed |= len == cap;
    out[cap - 1] = '\0';
}

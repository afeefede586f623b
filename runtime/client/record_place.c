/* SPDX-License-Identifier: Apache-2.0
 * Where records and blobs lie in the files of published versions. */
#include "client/api_check.h"
#include "published/published.h"

#include <string.h>

static tck_status_t check_place(struct tck_client *client, const tck_place_t *place, const char *function)
{
    tck_status_t status = check_order_of(client, CLIENT_REGISTERED, function);

    if (status == TCK_OK) {
        status = check_pointer(&client->error, place, function, "place_out");
    }
    if (status == TCK_OK && place->struct_size < sizeof(*place)) {
        status = error_set(&client->error, TCK_ERR_INVAL, "struct_size of the place is %zu, %zu is needed",
                           place->struct_size, sizeof(*place));
    }
    return status;
}

static void set_place(const struct tck_client *client, const struct record *record, tck_place_t *out)
{
    *out = (tck_place_t){.struct_size = out->struct_size, .offset = record->image_offset, .bytes = record->bytes};
    published_file_name(client->layout.shards[record->shard].id, out->file, sizeof(out->file));
}

tck_status_t tck_record_place(tck_client_t *client, uint32_t record, tck_place_t *place_out)
{
    tck_status_t status = check_place(client, place_out, __func__);

    if (status == TCK_OK && record >= client->layout.record_count) {
        status = error_set(&client->error, TCK_ERR_INVAL, "there is no record %u", record);
    }
    if (status == TCK_OK) {
        set_place(client, &client->layout.records[record], place_out);
    }
    return status;
}

tck_status_t tck_blob_place(tck_client_t *client, const char *key, tck_place_t *place_out)
{
    tck_status_t status = check_place(client, place_out, __func__);

    if (status == TCK_OK) {
        status = check_given(client, key);
    }
    if (status != TCK_OK) {
        return status;
    }
    for (uint32_t i = 0; i < client->layout.record_count; i++) {
        const struct record *record = &client->layout.records[i];

        if (record->blob && strcmp(record->key, key) == 0) {
            set_place(client, record, place_out);
            return TCK_OK;
        }
    }
    return error_set(&client->error, TCK_ERR_NOENT, "no blob \"%.200s\" was added", key);
}

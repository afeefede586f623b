/* SPDX-License-Identifier: Apache-2.0
 * Any bytes as the two header pages of a slot. Random pages stop at the CRC, so each is also tried with magic and CRC
 * put right: then the fields are refused, or make sense and survive a round trip. */
#include "fuzz.h"
#include "tiers/slot_header.h"
#include <endian.h>
#include <stdbool.h>
#include <string.h>

#define CRC_OFFSET 8
#define CRC_END    12

static void put_right(uint8_t *page)
{
    memcpy(page, "TckSlot1", CRC_OFFSET);
    uint32_t crc = htole32(crc32c(0, page + CRC_END, SLOT_HEADER_BYTES - CRC_END));
    memcpy(page + CRC_OFFSET, &crc, sizeof(crc));
}

static void check(const struct slot_header *header)
{
    uint8_t page[SLOT_HEADER_BYTES], again[SLOT_HEADER_BYTES];
    struct slot_header decoded;
    MUST_HOLD(header->slot < header->slot_count && header->slot_count <= CORE_SLOTS_MAX);
    MUST_HOLD(header->image_bytes > 0 && header->image_bytes <= header->slot_stride);
    MUST_HOLD(header->state < SLOT_STATES && name_is_safe(header->job));
    slot_header_encode(header, page);
    MUST_HOLD(slot_header_decode(page, &decoded, NULL) == TCK_OK);
    slot_header_encode(&decoded, again);
    MUST_HOLD(memcmp(page, again, sizeof(page)) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t pages[2][SLOT_HEADER_BYTES] = {{0}};
    struct slot_header header, first;
    struct error err = {0};
    size_t half = size / 2;
    memcpy(pages[0], data, half < SLOT_HEADER_BYTES ? half : SLOT_HEADER_BYTES);
    memcpy(pages[1], data + half, half < SLOT_HEADER_BYTES ? half : SLOT_HEADER_BYTES);
    (void)slot_header_newest(pages[0], pages[1], &header, &err);
    put_right(pages[0]);
    put_right(pages[1]);
    tck_status_t status = slot_header_newest(pages[0], pages[1], &header, &err);
    if (status != TCK_OK) {
        MUST_HOLD(status == TCK_ERR_CORRUPT || status == TCK_ERR_PROTO);
        return 0;
    }
    check(&header);
    if (slot_header_decode(pages[0], &first, NULL) == TCK_OK) {
        MUST_HOLD(first.sequence <= header.sequence);
    }
    return 0;
}

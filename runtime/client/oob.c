/* SPDX-License-Identifier: Apache-2.0
 * Exchanges among the ranks: a card per rank with its status, the text of its error, and the payload. */
#include "client/oob.h"

#include "client/bootstrap.h"

#include <endian.h>
#include <stdlib.h>
#include <string.h>

#define CARD_TEXT 160                 /* enough of an error to know what to look at */
#define CARD_HEAD (4 + CARD_TEXT)     /* status, text */
#define CARD_MAX  ((size_t)256 << 20) /* of one rank */

static void card_write(uint8_t *card, tck_status_t status, const struct error *err, const void *mine, size_t len)
{
    uint32_t code = htole32((uint32_t)status);

    memcpy(card, &code, sizeof(code));
    if (status != TCK_OK) {
        memcpy(card + 4, err->text, strnlen(err->text, CARD_TEXT - 1));
    } else if (len > 0) {
        memcpy(card + CARD_HEAD, mine, len);
    }
}

static tck_status_t card_status(const uint8_t *card)
{
    uint32_t code;

    memcpy(&code, card, sizeof(code));
    return (tck_status_t)(int32_t)le32toh(code);
}

/* Returns the error of the lowest failed rank, or copies the payloads of all. */
static tck_status_t cards_read(const struct oob *oob, const uint8_t *cards, void *all, size_t len, struct error *err)
{
    size_t card_bytes = CARD_HEAD + len;

    for (uint32_t r = 0; r < oob->world_size; r++) {
        const uint8_t *card = cards + r * card_bytes;
        tck_status_t status = card_status(card);

        if (status != TCK_OK) {
            return error_set(err, status, "rank %u: %.*s", r, CARD_TEXT, (const char *)card + 4);
        }
    }
    for (uint32_t r = 0; r < oob->world_size && len > 0; r++) {
        memcpy((uint8_t *)all + r * len, cards + r * card_bytes + CARD_HEAD, len);
    }
    return TCK_OK;
}

static tck_status_t exchange_cards(const struct oob *oob, uint8_t *mine, uint8_t *cards, size_t card_bytes,
                                   struct error *err)
{
    int rc;

    if (oob->world_size == 1) {
        memcpy(cards, mine, card_bytes);
        return TCK_OK;
    }
    rc = oob->caller.allgather(oob->caller.ctx, mine, cards, card_bytes);
    if (rc != 0 && bootstrap_failure(&oob->caller) != NULL) {
        *err = *bootstrap_failure(&oob->caller);
        return error_prefix(err, "the exchange among the ranks failed");
    }
    if (rc != 0) {
        return error_set(err, TCK_ERR_UNREACHABLE, "the caller's allgather failed with %d", rc);
    }
    return TCK_OK;
}

tck_status_t oob_exchange(const struct oob *oob, tck_status_t status, const void *mine, void *all, size_t len,
                          struct error *err)
{
    size_t card_bytes = CARD_HEAD + len;
    uint8_t *cards = len > CARD_MAX ? NULL : calloc(oob->world_size + (size_t)1, card_bytes);
    struct error other = {.code = TCK_OK, .text = ""};
    tck_status_t result;

    if (cards == NULL) {
        return error_set(err, TCK_ERR_NOMEM, "no memory to exchange %zu bytes with %u ranks", len, oob->world_size);
    }
    card_write(cards, status, err, mine, len);
    result = exchange_cards(oob, cards, cards + card_bytes, card_bytes, &other);
    if (result == TCK_OK) {
        result = cards_read(oob, cards + card_bytes, all, len, &other);
    }
    free(cards);
    if (status != TCK_OK) {
        return status;
    }
    if (result != TCK_OK) {
        *err = other;
    }
    return result;
}

tck_status_t oob_agree(const struct oob *oob, tck_status_t status, struct error *err)
{
    return oob_exchange(oob, status, NULL, NULL, 0, err);
}

/* SPDX-License-Identifier: Apache-2.0
 * Any bytes as each message between agents: the first byte chooses which. */
#include "agent/wire.h"
#include "fuzz.h"
#include <stdlib.h>

static void owners(unsigned which, const uint8_t *data, size_t size)
{
    struct wire_ready ready;
    struct wire_roots roots;
    struct wire_drained drained;
    struct wire_inventory inventory;
    if (which == 0 && wire_ready_decode(data, size, &ready) == TCK_OK) {
        free(ready.roots);
    } else if (which == 1 && wire_drained_decode(data, size, &drained) == TCK_OK) {
        wire_drained_free(&drained);
    } else if (which == 7 && wire_roots_decode(data, size, &roots) == TCK_OK) {
        free(roots.roots);
    } else if (which == 2 && wire_inventory_decode(data, size, &inventory) == TCK_OK) {
        free(inventory.known);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct wire_beat beat;
    struct wire_fetch fetch;
    struct wire_readable readable;
    struct wire_change change;
    struct wire_holder_ask holder_ask;
    struct wire_holder holder;
    if (size == 0) {
        return 0;
    }
    unsigned which = data[0] % 8;
    owners(which, data + 1, size - 1);
    if (which == 3) {
        (void)!wire_beat_decode(data + 1, size - 1, &beat);
    } else if (which == 4) {
        (void)!wire_fetch_decode(data + 1, size - 1, &fetch);
    } else if (which == 5) {
        (void)!wire_readable_decode(data + 1, size - 1, &readable);
    } else if (which == 6) {
        (void)!wire_change_decode(data + 1, size - 1, &change);
        (void)!wire_holder_ask_decode(data + 1, size - 1, &holder_ask);
        (void)!wire_holder_decode(data + 1, size - 1, &holder);
    }
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0
 * Reads boxes of whole tensors out of the entries that they consist of. */
#ifndef TCK_READER_ASSEMBLE_H
#define TCK_READER_ASSEMBLE_H

#include "published/wholes.h"

#define ASSEMBLE_ELEMENTS (1u << 20) /* of a box that is read at once */
#define ASSEMBLE_WIDEST   8          /* bytes of an element */

struct assembler {
    struct tck_published *published;
    uint8_t *saved, *converted; /* owned: ASSEMBLE_ELEMENTS each */
};

must_check tck_status_t assemble_begin(struct assembler *a, struct tck_published *published, struct error *err);
void assemble_end(struct assembler *a);

/* A box of at most ASSEMBLE_ELEMENTS elements, in C order, as dtype: that of the tensor, or one of those that
 * convert_can knows if it knows that of the tensor, too. */
must_check tck_status_t assemble_read(const struct assembler *a, const struct whole *whole, const struct box *want,
                                      tck_dtype_t dtype, uint8_t *to, struct error *err);
/* TCK_ERR_LAYOUT if a part that several ranks hold differs between them. Reads these parts. */
must_check tck_status_t assemble_check(const struct assembler *a, const struct whole *whole, struct error *err);

#endif

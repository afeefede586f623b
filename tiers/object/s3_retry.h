/* SPDX-License-Identifier: Apache-2.0
 * What to do after an attempt: a decision without I/O or clock. */
#ifndef TCK_TIERS_S3_RETRY_H
#define TCK_TIERS_S3_RETRY_H

#include "base/status.h"
#include "tiers/object/http_end.h"

#include <stdbool.h>
#include <stdint.h>

#define S3_WAIT_FIRST_MS 50
#define S3_WAIT_MAX_MS   5000

struct s3_outcome {
    enum http_end end;
    long http;        /* status of the answer; of little meaning unless end is HTTP_ANSWERED */
    const char *code; /* of the error document, or "" */
    uint32_t attempt; /* from 1 */
    uint64_t elapsed_ms, deadline_ms;
    uint32_t retry_after_s;
    uint32_t random;
    bool renewed;   /* credentials were renewed in this call already */
    bool clock_set; /* the clock's offset was corrected in this call already */
};

enum s3_verdict {
    S3_DONE,
    S3_WAIT,  /* wait_ms, then again */
    S3_RENEW, /* get new credentials, then again */
    S3_CLOCK, /* take the server's time, then again */
    S3_FAIL,  /* with status */
};

struct s3_next {
    enum s3_verdict verdict;
    tck_status_t status;
    uint64_t wait_ms;
};

struct s3_next s3_decide(const struct s3_outcome *outcome);

#endif

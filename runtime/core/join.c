/* SPDX-License-Identifier: Apache-2.0
 * The verdict on a JOIN. */
#include "core/join.h"

enum join_verdict join_judge(const struct join_standing *s)
{
    bool good = !s->missing && !s->unshared && !s->checking;
    if (good || s->returning) {
        return JOIN_ANSWER;
    }
    bool too_long = s->missing && s->waited_ms >= s->limit_ms;
    return (s->missing && s->gone) || s->unshared || too_long ? JOIN_REFUSE : JOIN_WAIT;
}

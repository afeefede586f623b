/* SPDX-License-Identifier: Apache-2.0
 * Decides when an agent exits by itself: because it is no longer needed, or because others can no longer connect to
 * it. Pure. */
#ifndef TCK_CORE_AGENT_END_H
#define TCK_CORE_AGENT_END_H

#include <stdbool.h>
#include <stdint.h>

#define AGENT_AFTER_DONE_MS 2000  /* after its job: a drain of another node may still need this one */
#define AGENT_DRAIN_WAIT_MS 60000 /* then it exits even if a drain or a note has not ended */
/* An agent that has lived this long does not count as one that died at once (supervisor_child.c). */
#define AGENT_DEAF_MS 15000

struct agent_use {
    bool stop_forced;
    bool trainers;          /* there are some */
    uint64_t idle_since_ms; /* no trainer since; 0: there was one at the last look */
    bool job_done;
    bool writes;    /* a drain or a note is being written; without the note that the job has ended well, the next launch
                       would blame the version */
    bool copies;    /* a published version is being copied to archive_dir: waited for, for as long as grace_ms */
    bool undrained; /* the newest commit is not on storage, and no drain of it is wanted */
    uint64_t linger_ms;
    uint64_t asked_ms; /* since when the system wants it to end (SIGTERM); 0: it does not */
    bool owes;         /* what was committed by then is not on storage, and can still get there */
    uint64_t grace_ms;
};

enum agent_leave {
    AGENT_IN_USE,
    AGENT_IDLE,
    AGENT_LEAVES_STOPPED,
    AGENT_LEAVES_ASKED, /* as the system wants */
    AGENT_LEAVES_DONE,  /* the job is done */
    AGENT_LEAVES_ALONE, /* no trainer came back */
};

enum agent_leave agent_leave_judge(const struct agent_use *use, uint64_t now_ms);
/* Whether it is time to ask for a drain of the newest commit, because the agent ends soon: the system wants it to, or
 * no trainer may come back. */
bool agent_drains_at_end(const struct agent_use *use, uint64_t now_ms);

struct agent_hearing {
    bool listening;    /* others can connect */
    bool job_done;     /* it exits soon anyway */
    bool kept;         /* all that it holds outlives the process */
    uint64_t since_ms; /* since when others cannot connect; 0: not noticed yet */
};

enum agent_deaf { AGENT_HEARS, AGENT_TURNS_DEAF, AGENT_STAYS_DEAF, AGENT_ENDS_DEAF };

enum agent_deaf agent_deaf_judge(const struct agent_hearing *hearing, uint64_t now_ms);

#endif

/* SPDX-License-Identifier: Apache-2.0
 * System calls on files that fail, end the process or lose what was not synced, at the n-th one of them. The linker
 * replaces those of the C library by these (--wrap in CMakeLists.txt). Only calls on regular files and directories
 * count. */
#ifndef TCK_TESTS_FAULT_DISK_H
#define TCK_TESTS_FAULT_DISK_H

#include <stdint.h>

enum fault {
    FAULT_NONE,
    FAULT_KILL,        /* the process ends before the call */
    FAULT_EIO,         /* the call fails, once */
    FAULT_ENOSPC,      /* the same */
    FAULT_EINTR,       /* the same */
    FAULT_SHORT,       /* a read or write carries half of its bytes */
    FAULT_LOSE_ALL,    /* the machine ends before the call: everything that was not synced is lost */
    FAULT_LOSE_DATA,   /* the same, but all names are as they were: only bytes are lost */
    FAULT_LOSE_RANDOM, /* the same, but names and bytes are lost at random */
    FAULT_COUNT
};

/* The fault hits this process at the at-th call from now (from 1 on). limbo: an empty directory on the same file
 * system, for deleted entries that may return. */
void fault_disk_begin(enum fault fault, uint32_t at, const char *limbo);
/* Calls since then. */
uint32_t fault_disk_calls(void);
/* Name of the call that the fault hit, or "". */
const char *fault_disk_hit(void);

#endif

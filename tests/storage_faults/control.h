/* SPDX-License-Identifier: Apache-2.0
 * What lying_fs is asked to do, in a file that it and its driver have mapped (run.py: class Control has the same
 * layout). The driver changes it while the file system works; each member is read once per call. */
#ifndef TCK_TESTS_STORAGE_FAULTS_CONTROL_H
#define TCK_TESTS_STORAGE_FAULTS_CONTROL_H

#include <stdint.h>

/* X(name, errno or 0). The number of a kind is its bit in `kinds`. */
#define LIE_MAP(X)                                              \
    X(EIO, EIO)                                                 \
    X(ESTALE, ESTALE)                                           \
    X(EMFILE, EMFILE)                                           \
    X(EACCES, EACCES)                                           \
    X(ENOSPC, ENOSPC)                                           \
    X(EDQUOT, EDQUOT)                                           \
    X(ETIMEDOUT, ETIMEDOUT)                                     \
    X(SHORT, 0) /* a read returns fewer bytes than there are */ \
    X(OLD, 0)   /* a directory is listed as it was earlier */   \
    X(HANG, 0)  /* the call takes hang_ms longer */             \
    X(FLIP, 0)  /* one bit of what is read is another one */    \
    X(EROFS, EROFS)

enum lie {
#define LIE_ENUM(name, number) LIE_##name,
    LIE_MAP(LIE_ENUM)
#undef LIE_ENUM
        LIE_COUNT,
    LIE_NONE = LIE_COUNT
};

/* Calls by what they do; to open a file for writing counts as making it. The number of a class is its bit in `calls`.
 */
enum call { CALL_LOOK, CALL_OPEN, CALL_MAKE, CALL_READ, CALL_WRITE, CALL_LIST, CALL_MOVE, CALL_REMOVE, CALL_SYNC };

struct control {
    uint64_t seed;     /* of the dice */
    uint32_t per_1000; /* so many of 1000 calls are lied to */
    uint32_t kinds;    /* bits of enum lie */
    uint32_t calls;    /* bits of enum call */
    uint32_t hang_ms;
    char only[64];   /* only for paths that contain this; empty: for all */
    char spared[64]; /* and not for those that contain this; empty: none */
    uint64_t seen;   /* calls so far */
    uint64_t told[LIE_COUNT];
};

#endif

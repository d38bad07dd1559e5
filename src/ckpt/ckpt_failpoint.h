/*
 * ckpt_failpoint - the places of a save where a test may make the world fail.
 *
 * ckpt_failpoint() is called at each of these as a save passes it, by the process and the
 * thread that does. In the program that is a weak function that returns 0. A test program
 * that defines its own may end the process there (a kill at that moment) or return -1
 * with errno set (that step fails).
 */
#ifndef CKPT_CKPT_FAILPOINT_H
#define CKPT_CKPT_FAILPOINT_H

#include "base/base.h"

/* By the process that commits, or by all of a job, each what it writes. */
#define CKPT_FAILPOINTS(X)                                                               \
    X(CKPT_AT_TEMP_CREATED)                                                              \
    X(CKPT_AT_FILE_CREATED) /* this and the next: once per file */                       \
    X(CKPT_AT_HEADER_WRITTEN)                                                            \
    X(CKPT_AT_COPIED)         /* all; only if writing is left to a thread */             \
    X(CKPT_AT_TENSOR_WRITTEN) /* all; once a piece of a tensor */                        \
    X(CKPT_AT_FILE_WRITTEN)   /* all; this and the next: once per file written to */     \
    X(CKPT_AT_FILE_SYNCED)                                                               \
    X(CKPT_AT_MANIFEST_WRITTEN)                                                          \
    X(CKPT_AT_TEMP_SYNCED)                                                               \
    X(CKPT_AT_EXCHANGE) /* only if a checkpoint is replaced; EINVAL: cannot exchange */  \
    X(CKPT_AT_COMMITTED)                                                                 \
    X(CKPT_AT_LATEST_WRITTEN)                                                            \
    X(CKPT_AT_TRASH_RENAMED) /* once for each checkpoint removed or replaced */          \
    X(CKPT_AT_TRASH_REMOVED)

#define CKPT_FAILPOINT_ENUM(name) name,
enum ckpt_failpoint { CKPT_FAILPOINTS(CKPT_FAILPOINT_ENUM) N_CKPT_FAILPOINTS };

/* 0: go on; -1 with errno set: the step that ends here has failed. */
int ckpt_failpoint(enum ckpt_failpoint at);

#endif

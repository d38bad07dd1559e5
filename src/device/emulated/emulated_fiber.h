/*
 * emulated_fiber - stacks of their own for the threads of a block, and the change from one
 * to another, on one thread of the system.
 *
 * A change is some instructions of assembler, on other processors swapcontext(). The
 * sanitizers are told of it, and a debugger's stack ends where a fiber begins.
 */
#ifndef DEVICE_EMULATED_EMULATED_FIBER_H
#define DEVICE_EMULATED_EMULATED_FIBER_H

#include "base/base.h"

#if !defined(__x86_64__) && !defined(__aarch64__)
#include <ucontext.h>
#endif

struct fiber {
    void *sp;           // while it does not run
    char *stack;        // its lowest byte; a page that nobody may touch is below it
    size_t stack_bytes; // of the thread's own stack unknown, until ASan tells them
    void *sanitizer;    // its fake stack, or ThreadSanitizer's fiber
    struct fiber *next; // in a list of free ones
#if !defined(__x86_64__) && !defined(__aarch64__)
    ucontext_t context;
#endif
};

/* A fiber that runs main() when it is first changed to; main never returns. CHECKs that
 * there is memory: fibers are few and small. */
struct fiber *fiber_make(void (*main)(void));
void fiber_free(struct fiber *f); // that does not run

/* Go on in `to`; returns when somebody changes back to `from`. */
void fiber_change(struct fiber *from, struct fiber *to);
/* What a fiber's main() does first. */
void fiber_begun(void);

#endif

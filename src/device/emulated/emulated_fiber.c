#include "device/emulated/emulated_fiber.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define FIBER_ASAN
#elif __has_feature(thread_sanitizer)
#define FIBER_TSAN
#endif
#elif defined(__SANITIZE_ADDRESS__)
#define FIBER_ASAN
#elif defined(__SANITIZE_THREAD__)
#define FIBER_TSAN
#endif

/* A kernel has few variables; what a sanitizer puts around each of them takes room. */
#if defined(FIBER_ASAN) || defined(FIBER_TSAN)
#define STACK_BYTES ((size_t)256 << 10)
#else
#define STACK_BYTES ((size_t)64 << 10)
#endif

/* -- what sanitizers want to know ---------------------------------------------------- */

#if defined(FIBER_ASAN)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>

/* The fiber that a change leaves: its stack's bounds are told where the change ends. */
static _Thread_local struct fiber *left;

static void leaving(struct fiber *from, struct fiber *to)
{
    left = from;
    __sanitizer_start_switch_fiber(&from->sanitizer, to->stack, to->stack_bytes);
}

static void arrived(struct fiber *self)
{
    const void *stack;
    size_t bytes;
    __sanitizer_finish_switch_fiber(self ? self->sanitizer : NULL, &stack, &bytes);
    if (!left->stack) { // a thread's own: known from now on
        left->stack = (char *)(uintptr_t)stack;
        left->stack_bytes = bytes;
    }
}

/* What is marked around the variables of functions that never returned would be taken for
 * part of whatever is mapped there next. */
static void forget(struct fiber *f)
{
    ASAN_UNPOISON_MEMORY_REGION(f->stack, f->stack_bytes);
}
#elif defined(FIBER_TSAN)
#include <sanitizer/tsan_interface.h>

static void leaving(struct fiber *from, struct fiber *to)
{
    if (!from->sanitizer)
        from->sanitizer = __tsan_get_current_fiber();
    if (!to->sanitizer)
        to->sanitizer = __tsan_create_fiber(0);
    __tsan_switch_to_fiber(to->sanitizer, 0);
}

static void arrived(struct fiber *self)
{
    (void)self;
}

static void forget(struct fiber *f)
{
    if (f->sanitizer)
        __tsan_destroy_fiber(f->sanitizer);
}
#else
static void leaving(struct fiber *from, struct fiber *to)
{
    (void)from;
    (void)to;
}

static void arrived(struct fiber *self)
{
    (void)self;
}

static void forget(struct fiber *f)
{
    (void)f;
}
#endif

void fiber_begun(void)
{
    arrived(NULL);
}

/* -- the change ---------------------------------------------------------------------- */

#if defined(__x86_64__)
/* Registers that a call keeps go to the stack that is left, and come from the other. */
void emulated_fiber_change(void **from_sp, void *to_sp);
void emulated_fiber_enter(void);
__asm__(".text\n"
        ".type emulated_fiber_change, @function\n"
        "emulated_fiber_change:\n"
        "    .cfi_startproc\n"
        "    pushq %rbp\n"
        "    .cfi_adjust_cfa_offset 8\n"
        "    .cfi_rel_offset %rbp, 0\n"
        "    pushq %rbx\n"
        "    .cfi_adjust_cfa_offset 8\n"
        "    .cfi_rel_offset %rbx, 0\n"
        "    pushq %r12\n"
        "    .cfi_adjust_cfa_offset 8\n"
        "    .cfi_rel_offset %r12, 0\n"
        "    pushq %r13\n"
        "    .cfi_adjust_cfa_offset 8\n"
        "    .cfi_rel_offset %r13, 0\n"
        "    pushq %r14\n"
        "    .cfi_adjust_cfa_offset 8\n"
        "    .cfi_rel_offset %r14, 0\n"
        "    pushq %r15\n"
        "    .cfi_adjust_cfa_offset 8\n"
        "    .cfi_rel_offset %r15, 0\n"
        "    movq %rsp, (%rdi)\n"
        "    movq %rsi, %rsp\n"
        "    popq %r15\n"
        "    .cfi_adjust_cfa_offset -8\n"
        "    popq %r14\n"
        "    .cfi_adjust_cfa_offset -8\n"
        "    popq %r13\n"
        "    .cfi_adjust_cfa_offset -8\n"
        "    popq %r12\n"
        "    .cfi_adjust_cfa_offset -8\n"
        "    popq %rbx\n"
        "    .cfi_adjust_cfa_offset -8\n"
        "    popq %rbp\n"
        "    .cfi_adjust_cfa_offset -8\n"
        "    ret\n"
        "    .cfi_endproc\n"
        ".size emulated_fiber_change, . - emulated_fiber_change\n"
        ".type emulated_fiber_enter, @function\n"
        "emulated_fiber_enter:\n"
        "    .cfi_startproc\n"
        "    .cfi_undefined %rip\n" // a debugger's stack ends here
        "    xorl %ebp, %ebp\n"
        "    callq *%rbx\n"
        "    ud2\n"
        "    .cfi_endproc\n"
        ".size emulated_fiber_enter, . - emulated_fiber_enter\n");

/* As if it had called emulated_fiber_change from the entry: r15, r14, r13, r12, rbx, rbp
 * and where to go on. There the stack is aligned as before a call. */
static void first_frame(struct fiber *f, void (*main)(void))
{
    void **sp = (void **)(void *)(f->stack + f->stack_bytes) - 9;
    memset(sp, 0, 9 * sizeof *sp);
    sp[4] = (void *)(uintptr_t)main;
    sp[6] = (void *)(uintptr_t)emulated_fiber_enter;
    f->sp = sp;
}
#elif defined(__aarch64__)
void emulated_fiber_change(void **from_sp, void *to_sp);
void emulated_fiber_enter(void);
__asm__(".text\n"
        ".type emulated_fiber_change, %function\n"
        "emulated_fiber_change:\n"
        "    sub sp, sp, #160\n"
        "    stp x19, x20, [sp, #0]\n"
        "    stp x21, x22, [sp, #16]\n"
        "    stp x23, x24, [sp, #32]\n"
        "    stp x25, x26, [sp, #48]\n"
        "    stp x27, x28, [sp, #64]\n"
        "    stp x29, x30, [sp, #80]\n"
        "    stp d8, d9, [sp, #96]\n"
        "    stp d10, d11, [sp, #112]\n"
        "    stp d12, d13, [sp, #128]\n"
        "    stp d14, d15, [sp, #144]\n"
        "    mov x9, sp\n"
        "    str x9, [x0]\n"
        "    mov sp, x1\n"
        "    ldp x19, x20, [sp, #0]\n"
        "    ldp x21, x22, [sp, #16]\n"
        "    ldp x23, x24, [sp, #32]\n"
        "    ldp x25, x26, [sp, #48]\n"
        "    ldp x27, x28, [sp, #64]\n"
        "    ldp x29, x30, [sp, #80]\n"
        "    ldp d8, d9, [sp, #96]\n"
        "    ldp d10, d11, [sp, #112]\n"
        "    ldp d12, d13, [sp, #128]\n"
        "    ldp d14, d15, [sp, #144]\n"
        "    add sp, sp, #160\n"
        "    ret\n"
        ".size emulated_fiber_change, . - emulated_fiber_change\n"
        ".type emulated_fiber_enter, %function\n"
        "emulated_fiber_enter:\n"
        "    .cfi_startproc\n"
        "    .cfi_undefined x30\n" // a debugger's stack ends here
        "    blr x19\n"
        "    brk #1\n"
        "    .cfi_endproc\n"
        ".size emulated_fiber_enter, . - emulated_fiber_enter\n");

static void first_frame(struct fiber *f, void (*main)(void))
{
    void **sp = (void **)(void *)(f->stack + f->stack_bytes) - 20;
    memset(sp, 0, 20 * sizeof *sp);
    sp[0] = (void *)(uintptr_t)main;
    sp[11] = (void *)(uintptr_t)emulated_fiber_enter;
    f->sp = sp;
}
#else
static void first_frame(struct fiber *f, void (*main)(void))
{
    CHECK(getcontext(&f->context) == 0, "getcontext");
    f->context.uc_stack.ss_sp = f->stack;
    f->context.uc_stack.ss_size = f->stack_bytes;
    makecontext(&f->context, main, 0);
}
#endif

void fiber_change(struct fiber *from, struct fiber *to)
{
    leaving(from, to);
#if defined(__x86_64__) || defined(__aarch64__)
    emulated_fiber_change(&from->sp, to->sp);
#else
    CHECK(swapcontext(&from->context, &to->context) == 0, "swapcontext");
#endif
    arrived(from);
}

struct fiber *fiber_make(void (*main)(void))
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    struct fiber *f = calloc(1, sizeof *f);
    char *map = mmap(NULL, page + STACK_BYTES, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(f && map != MAP_FAILED, "no memory for the stack of an emulated thread");
    CHECK(mprotect(map, page, PROT_NONE) == 0, "mprotect of %zu bytes", page);
    f->stack = map + page;
    f->stack_bytes = STACK_BYTES;
    first_frame(f, main);
    return f;
}

void fiber_free(struct fiber *f)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    forget(f);
    munmap(f->stack - page, page + f->stack_bytes);
    free(f);
}

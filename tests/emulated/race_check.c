/*
 * A checker of every access that kernels make on the emulated device.
 *
 * Kernels are compiled with -fsanitize=thread; what the compiler then calls before each
 * access to memory is defined here, in place of ThreadSanitizer's own library. Told, with
 * the kernel, block and thread, and the end of the program:
 *
 *   - two threads of a block touch the same bytes, one of them to write, and no barrier
 *     lies between (within a warp: no __syncwarp either);
 *   - two blocks of a launch touch the same bytes, one of them to write;
 *   - two operations (kernels, copies, fills, GEMMs, messages) touch the same bytes of
 *     device memory, one of them to write, and neither streams nor events nor the host
 *     have ordered them, whatever order they happened to run in;
 *   - shared memory is read that no thread of the block has written;
 *   - an address is touched that is in no allocation of device memory, not in the block's
 *     shared memory, not on the thread's own stack and no constant;
 *   - an element is touched at an address that its size does not divide.
 *
 * Since every barrier is one of the whole block, or of a whole warp, an access is known
 * by its thread, its phase (barriers so far, counted on over all blocks and launches) and
 * its step (those of the warp since the last barrier). Each two bytes of memory have a
 * cell that remembers the last write and what has read since: one thread; several lanes
 * of a warp; or several warps. Earlier reads that a barrier separates from a later one
 * need not be remembered: whoever races with them races with the later one, too, or is
 * ordered behind both.
 *
 * memcpy, memmove and memset are linked here by --wrap. Atomic operations are not defined:
 * kernels have none, and one that does is not linked.
 */
#include "device/emulated/emulated_block.h"
#include "device/emulated/emulated_memory.h"
#include "device/emulated/emulated_watch.h"

#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define GRANULE 1 // bytes of a cell: threads may write bytes side by side
#define REGION_BITS 16
#define REGION_CELLS (((size_t)1 << REGION_BITS) / GRANULE)
#define MAP_BITS 16
#define READERS 3 // operations of different streams that are remembered
#define NOBODY UINT16_MAX
#define SEVERAL_WARPS (UINT16_MAX - 1)
#define SEVERAL_LANES 0x8000 // and the warp
#define COPYING 0x4000       // a writer whose asynchronous copy has not been waited for

struct cell {
    uint32_t write_phase, read_phase; // 0: never
    uint32_t shared_in;               // the first phase of a launch: several blocks read
    uint16_t write_step, read_step;
    uint16_t writer, reader;
    uint32_t operation_wrote, operations_read[READERS]; // packed, see pack(); 0: none
};

struct region {
    uintptr_t number; // of the address
    struct cell *cells;
};

static struct {
    uint32_t phase, launch_first, block_first;
    uint16_t steps[BLOCK_MOST_THREADS / BLOCK_WARP];
    struct region regions[1 << MAP_BITS];
    struct region *last_region;
    struct emulated_range last_range; // of device memory
    bool is_operating;
    struct stream_point now; // the operation that runs
} all;

/* -- where cells are ----------------------------------------------------------------- */

static struct cell *cells_of(uintptr_t number)
{
    struct region *r = all.last_region;
    if (r && r->number == number)
        return r->cells;
    size_t slot = (number * 0x9E3779B97F4A7C15u) >> (64 - MAP_BITS);
    while (all.regions[slot].cells && all.regions[slot].number != number)
        slot = (slot + 1) % ARRAY_LEN(all.regions);
    r = &all.regions[slot];
    if (!r->cells) {
        r->number = number;
        r->cells = mmap(NULL, REGION_CELLS * sizeof(struct cell), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        CHECK(r->cells != MAP_FAILED, "no memory to check kernels with");
    }
    all.last_region = r;
    return r->cells;
}

static struct cell *cell_of(uintptr_t address)
{
    struct cell *cells = cells_of(address >> REGION_BITS);
    return &cells[address % ((uintptr_t)1 << REGION_BITS) / GRANULE];
}

/* -- verdicts ------------------------------------------------------------------------ */

static bool is_shared(uintptr_t address)
{
    uintptr_t first = (uintptr_t)emulated_here.shared;
    return address >= first && address < first + emulated_here.shared_bytes;
}

static const char *place_words(uintptr_t address)
{
    static char words[128];
    if (is_shared(address))
        snprintf(words, sizeof words, "byte %zu of shared memory",
                 (size_t)(address - (uintptr_t)emulated_here.shared));
    else
        snprintf(words, sizeof words, "byte %zu of %zu bytes of device memory",
                 (size_t)(address - (uintptr_t)all.last_range.first),
                 all.last_range.bytes);
    return words;
}

static const char *thread_words(uint32_t phase, uint16_t thread)
{
    static char words[64];
    if (phase < all.block_first)
        snprintf(words, sizeof words, "another block");
    else if (thread == SEVERAL_WARPS)
        snprintf(words, sizeof words, "threads of several warps");
    else if (thread & SEVERAL_LANES)
        snprintf(words, sizeof words, "several lanes of warp %d", thread - SEVERAL_LANES);
    else
        snprintf(words, sizeof words, "thread %d", thread);
    return words;
}

static void tell_race(uintptr_t address, bool is_write, uint32_t phase, uint16_t other,
                      bool was_write)
{
    CHECK(false, "%s, %s %s, which %s %s: nothing orders them", block_words(),
          is_write ? "writes" : "reads", place_words(address), thread_words(phase, other),
          was_write ? "wrote" : "read");
}

/* -- races --------------------------------------------------------------------------- */

static uint32_t warp_of(uint16_t thread)
{
    return thread & SEVERAL_LANES ? (uint32_t)(thread - SEVERAL_LANES)
                                  : thread / BLOCK_WARP;
}

/* Whether what another has done in that phase and step is ordered before now. What other
 * blocks did with shared memory was done with their own: `first` is then this block's
 * first phase, and of device memory the launch's. */
static bool is_ordered(uint32_t first, uint32_t phase, uint16_t step, uint16_t other,
                       uint16_t self)
{
    if (phase < first)
        return true;
    if (phase < all.block_first) // another block of the launch
        return false;
    if (phase < all.phase || other == self)
        return true;
    return other != SEVERAL_WARPS && warp_of(other) == warp_of(self) &&
           step < all.steps[warp_of(self)];
}

static void note_read(struct cell *c, uint16_t self, uint16_t step)
{
    if (c->read_phase >= all.launch_first && c->read_phase < all.block_first)
        c->shared_in = all.launch_first;
    if (c->read_phase != all.phase) {
        c->reader = self;
    } else if (c->reader == SEVERAL_WARPS || warp_of(c->reader) != warp_of(self)) {
        c->reader = SEVERAL_WARPS;
    } else if (c->read_step != step) {
        c->reader = self;
    } else if (c->reader != self) {
        c->reader = (uint16_t)(SEVERAL_LANES + warp_of(self));
    }
    c->read_phase = all.phase;
    c->read_step = step;
}

static void check_cell(uintptr_t address, enum watched_access how)
{
    struct cell *c = cell_of(address);
    uint16_t self = (uint16_t)emulated_here.thread.x, step = all.steps[self / BLOCK_WARP];
    uint32_t first = is_shared(address) ? all.block_first : all.launch_first;
    bool is_write = how != ACCESS_READ;
    if (how == ACCESS_COPY_ENDS)
        c->writer = (uint16_t)(c->writer & ~COPYING);
    CHECK(!(c->writer & COPYING) || c->write_phase < all.block_first,
          "%s, %s %s, which is still being copied to", block_words(),
          is_write ? "writes" : "reads", place_words(address));
    if (!is_ordered(first, c->write_phase, c->write_step, c->writer, self))
        tell_race(address, is_write, c->write_phase, c->writer, true);
    if (!is_write) {
        CHECK(!is_shared(address) || c->write_phase >= all.block_first,
              "%s, reads %s, which nobody has written", block_words(),
              place_words(address));
        note_read(c, self, step);
        return;
    }
    if (c->shared_in == first)
        tell_race(address, true, all.launch_first, NOBODY, false);
    if (!is_ordered(first, c->read_phase, c->read_step, c->reader, self))
        tell_race(address, true, c->read_phase, c->reader, false);
    if (how == ACCESS_COPY_BEGINS)
        self |= COPYING;
    c->write_phase = all.phase;
    c->write_step = step;
    c->writer = self;
    c->read_phase = 0;
    c->shared_in = 0;
}

/* -- the order of operations --------------------------------------------------------- */

#define STREAM_BITS 3

static uint32_t pack(const struct stream_point *at)
{
    return at->seen[at->stream] << STREAM_BITS | (uint32_t)at->stream;
}

static bool is_before_now(uint32_t packed)
{
    uint32_t stream = packed & ((1u << STREAM_BITS) - 1);
    return packed >> STREAM_BITS <= all.now.seen[stream];
}

static void tell_disorder(uintptr_t address, bool is_write, uint32_t other,
                          bool was_write)
{
    static const char *const names[] = {"compute",  "comm",          "copy",
                                        "to_next",  "from_previous", "to_previous",
                                        "from_next"};
    CHECK(false,
          "an operation of stream %s%s%s %s %s, which one of stream %s %s: no event "
          "orders them",
          names[all.now.stream], emulated_here.kernel ? ", " : "",
          emulated_here.kernel ? emulated_here.kernel : "", is_write ? "writes" : "reads",
          place_words(address), names[other & ((1u << STREAM_BITS) - 1)],
          was_write ? "wrote" : "read");
}

static void check_order(uintptr_t address, bool is_write)
{
    struct cell *c = cell_of(address);
    uint32_t self = pack(&all.now), *slot = NULL;
    if (!all.is_operating)
        return;
    if (!is_before_now(c->operation_wrote))
        tell_disorder(address, is_write, c->operation_wrote, true);
    for (int i = 0; i < READERS; i++) {
        uint32_t *reader = &c->operations_read[i];
        bool is_before = is_before_now(*reader);
        if (is_write && !is_before)
            tell_disorder(address, true, *reader, false);
        if (is_write || is_before)
            *reader = 0;
        slot = *reader == 0 ? reader : slot;
    }
    if (is_write)
        c->operation_wrote = self;
    else if (slot)
        *slot = self;
}

/* -- addresses ----------------------------------------------------------------------- */

struct sought {
    uintptr_t first, last;
};

/* Whether the bytes lie in a part of the program that is not written to. */
static int is_constant_of(struct dl_phdr_info *info, size_t size, void *context)
{
    const struct sought *x = context;
    (void)size;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *p = &info->dlpi_phdr[i];
        uintptr_t first = info->dlpi_addr + p->p_vaddr;
        bool is_fixed =
            (p->p_type == PT_LOAD && !(p->p_flags & PF_W)) || p->p_type == PT_GNU_RELRO;
        if (is_fixed && x->first >= first && x->last < first + p->p_memsz)
            return 1;
    }
    return 0;
}

static bool lies_in(uintptr_t first, size_t bytes, const void *memory, size_t room)
{
    uintptr_t from = (uintptr_t)memory;
    return first >= from && first + bytes <= from + room;
}

static bool is_device(uintptr_t first, size_t bytes)
{
    if (!lies_in(first, bytes, all.last_range.first, all.last_range.bytes))
        all.last_range = emulated_memory_device_at((const void *)first);
    return lies_in(first, bytes, all.last_range.first, all.last_range.bytes);
}

/* Nothing that other threads write: its own stack, where it is, its arguments. */
static bool is_own(uintptr_t first, size_t bytes, bool is_write)
{
    const struct emulated_here *h = &emulated_here;
    return lies_in(first, bytes, h->stack, h->stack_bytes) ||
           (!is_write && (lies_in(first, bytes, h, sizeof *h) ||
                          lies_in(first, bytes, h->args, h->args_bytes)));
}

static bool is_constant(uintptr_t first, size_t bytes)
{
    struct sought x = {first, first + bytes - 1};
    return dl_iterate_phdr(is_constant_of, &x) == 1;
}

static bool is_known(uintptr_t first, size_t bytes)
{
    const struct emulated_here *h = &emulated_here;
    return lies_in(first, bytes, h->shared, h->shared_bytes) || is_device(first, bytes);
}

static void check_orders(uintptr_t first, size_t bytes, enum watched_access how)
{
    if (!is_shared(first))
        for (uintptr_t at = first / GRANULE * GRANULE; at < first + bytes; at += GRANULE)
            check_order(at, how != ACCESS_READ);
}

static void check_cells(uintptr_t first, size_t bytes, enum watched_access how)
{
    for (uintptr_t at = first / GRANULE * GRANULE; at < first + bytes; at += GRANULE)
        check_cell(at, how);
    check_orders(first, bytes, how);
}

/* What the compiler knows to lie anywhere it reads and writes by bytes, there as here. */
static void check_place(const void *memory, size_t bytes)
{
    if (emulated_here.kernel)
        check_aligned(memory, bytes);
}

static void access_memory(const void *memory, size_t bytes, enum watched_access how)
{
    uintptr_t first = (uintptr_t)memory;
    bool is_write = how != ACCESS_READ;
    if (!emulated_here.kernel) {
        if (is_device(first, bytes)) // of a product
            check_orders(first, bytes, how);
        return;
    }
    if (bytes == 0 || is_own(first, bytes, is_write))
        return;
    if (is_known(first, bytes)) {
        check_cells(first, bytes, how);
        return;
    }
    bool begins_inside = is_device(first, 1) || is_shared(first);
    CHECK(!is_write && is_constant(first, bytes),
          "%s, %s %zu bytes at %p, which are not its own%s%s", block_words(),
          is_write ? "writes" : "reads", bytes, memory,
          begins_inside ? "; they begin with " : "",
          begins_inside ? place_words(first) : "");
}

/* -- what happens in a block --------------------------------------------------------- */

static void next_phase(void)
{
    all.phase++;
    memset(all.steps, 0, sizeof all.steps);
}

/* On the thread that runs the operation; others copy what they like meanwhile. */
static _Thread_local bool is_busy;

static void on_operation(const struct stream_point *at)
{
    is_busy = all.is_operating = at != NULL;
    all.last_range = (struct emulated_range){0};
    if (at)
        all.now = *at;
}

static void on_launch(void)
{
    next_phase();
    all.launch_first = all.phase;
    all.last_range = (struct emulated_range){0};
}

static void on_block(void)
{
    next_phase();
    all.block_first = all.phase;
}

static void on_warp(uint32_t warp)
{
    all.steps[warp]++;
}

static const struct emulated_watch watch = {
    .operation = on_operation,
    .launch = on_launch,
    .block = on_block,
    .barrier = next_phase,
    .warp = on_warp,
    .access = access_memory,
};

__attribute__((constructor)) static void begin(void)
{
    emulated_watch = &watch;
}

/* -- what compilers call ------------------------------------------------------------- */

#define CALLED(name, ...)                                                                \
    void name(__VA_ARGS__);                                                              \
    void name(__VA_ARGS__)
#define CALLED_OF_SIZE(n)                                                                \
    CALLED(__tsan_read##n, void *p)                                                      \
    {                                                                                    \
        check_place(p, n);                                                               \
        access_memory(p, n, ACCESS_READ);                                                \
    }                                                                                    \
    CALLED(__tsan_write##n, void *p)                                                     \
    {                                                                                    \
        check_place(p, n);                                                               \
        access_memory(p, n, ACCESS_WRITE);                                               \
    }                                                                                    \
    CALLED(__tsan_unaligned_read##n, void *p)                                            \
    {                                                                                    \
        access_memory(p, n, ACCESS_READ);                                                \
    }                                                                                    \
    CALLED(__tsan_unaligned_write##n, void *p)                                           \
    {                                                                                    \
        access_memory(p, n, ACCESS_WRITE);                                               \
    }

CALLED_OF_SIZE(1)
CALLED_OF_SIZE(2)
CALLED_OF_SIZE(4)
CALLED_OF_SIZE(8)
CALLED_OF_SIZE(16)

CALLED(__tsan_read_range, void *p, long bytes)
{
    access_memory(p, (size_t)bytes, ACCESS_READ);
}

CALLED(__tsan_write_range, void *p, long bytes)
{
    access_memory(p, (size_t)bytes, ACCESS_WRITE);
}

CALLED(__tsan_init, void)
{
}

CALLED(__tsan_func_entry, void *caller)
{
    (void)caller;
}

CALLED(__tsan_func_exit, void)
{
}

/* Copies that stay calls. The emulation's own are made of memory that it knows to be the
 * thread's, so of what is neither shared nor device memory nothing is said. */
static void touch_memory(const void *memory, size_t bytes, enum watched_access how)
{
    if (bytes == 0 || !is_busy || !is_known((uintptr_t)memory, bytes))
        return;
    if (emulated_here.kernel)
        check_cells((uintptr_t)memory, bytes, how);
    else
        check_orders((uintptr_t)memory, bytes, how);
}

void *__real_memcpy(void *to, const void *from, size_t bytes);
void *__real_memmove(void *to, const void *from, size_t bytes);
void *__real_memset(void *to, int byte, size_t bytes);
void *__wrap_memcpy(void *to, const void *from, size_t bytes);
void *__wrap_memmove(void *to, const void *from, size_t bytes);
void *__wrap_memset(void *to, int byte, size_t bytes);

void *__wrap_memcpy(void *to, const void *from, size_t bytes)
{
    touch_memory(from, bytes, ACCESS_READ);
    touch_memory(to, bytes, ACCESS_WRITE);
    return __real_memcpy(to, from, bytes);
}

void *__wrap_memmove(void *to, const void *from, size_t bytes)
{
    touch_memory(from, bytes, ACCESS_READ);
    touch_memory(to, bytes, ACCESS_WRITE);
    return __real_memmove(to, from, bytes);
}

void *__wrap_memset(void *to, int byte, size_t bytes)
{
    touch_memory(to, bytes, ACCESS_WRITE);
    return __real_memset(to, byte, bytes);
}

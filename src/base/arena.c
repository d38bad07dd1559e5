#include "base/arena.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

void arena_measure(struct arena *ar)
{
    *ar = (struct arena){0};
}

int arena_open_sparse(struct arena *ar, size_t bytes, const char *what, struct error *err)
{
    *ar = (struct arena){.capacity_bytes = bytes};
    if (bytes == 0)
        return 0;
    void *base =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED)
        return error_set(err, ERROR_RUNTIME, "cannot get %.1f MB of memory for %s: %s",
                         (double)bytes / 1e6, what, strerror(errno));
    madvise(base, bytes, MADV_NOHUGEPAGE);
    ar->base = base;
    return 0;
}

/* Best effort: without huge pages only speed differs. */
void arena_use_huge_pages(struct arena *ar)
{
    if (ar->base)
        madvise(ar->base, ar->capacity_bytes, MADV_HUGEPAGE);
}

int arena_open(struct arena *ar, size_t bytes, const char *what, struct error *err)
{
    if (arena_open_sparse(ar, bytes, what, err))
        return -1;
    arena_use_huge_pages(ar);
    return 0;
}

void arena_close(struct arena *ar)
{
    if (ar->base)
        munmap(ar->base, ar->capacity_bytes);
    *ar = (struct arena){0};
}

struct arena arena_over(void *base, size_t bytes)
{
    return (struct arena){.base = base, .capacity_bytes = bytes};
}

static size_t aligned(size_t n)
{
    return (n + ARENA_ALIGN - 1) / ARENA_ALIGN * ARENA_ALIGN;
}

bool arena_has_room(const struct arena *ar, size_t n)
{
    return aligned(n) <= ar->capacity_bytes - ar->used_bytes;
}

void *arena_bytes(struct arena *ar, size_t n)
{
    size_t start = ar->used_bytes;
    ar->used_bytes += aligned(n);
    if (!ar->base)
        return NULL;
    CHECK(ar->used_bytes <= ar->capacity_bytes, "%zu bytes wanted, %zu there",
          ar->used_bytes, ar->capacity_bytes);
    return ar->base + start;
}

void *arena_table(struct arena *ar, size_t n)
{
    if (ar->tables)
        return arena_bytes(ar->tables, n);
    ar->table_bytes += aligned(n);
    return arena_bytes(ar, n);
}

float *arena_f32(struct arena *ar, int64_t n)
{
    return arena_bytes(ar, (size_t)n * sizeof(float));
}

int32_t *arena_i32(struct arena *ar, int64_t n)
{
    return arena_bytes(ar, (size_t)n * sizeof(int32_t));
}

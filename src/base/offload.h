/*
 * offload - an array that lives on disk and passes through memory in windows.
 *
 * The array has one address range for life (offload_data), so that offset arithmetic is
 * that of ordinary memory; but only the windows that are held have memory behind them.
 * Touching any other byte is a segmentation fault, never wrong data. The file is read and
 * written in the background by threads of its own, past the page cache where the file
 * system can do so: what is dropped is gone from memory, not moved to a cache.
 *
 * Two ways to hold, which must not be mixed on the same bytes at the same time:
 *   - a pass (offload_begin, _advance..., _end): once over the array in increasing
 *     ranges, reading ahead of the cursor and writing behind it. It takes at most
 *     n_windows windows of memory, or its longest range and two;
 *   - by hand (offload_fetch, _wait, _drop): any range, in any order.
 *
 * The array is zero at opening. Its file has no name: it is gone when the process ends,
 * however it ends. All its space on disk is reserved at opening, so that a full disk is
 * found then. A disk that fails later is an error of the next call that can return one;
 * after such an error the content is lost and the array good only for closing.
 *
 * Threads: one at a time calls these functions for one array; what is held may be used by
 * any number of threads.
 */
#ifndef BASE_OFFLOAD_H
#define BASE_OFFLOAD_H

#include "base/base.h"
#include "base/error.h"

#define OFFLOAD_WINDOW_BYTES ((size_t)4 << 20) // whole huge pages, long enough for a disk
#define OFFLOAD_WINDOWS 4 // in use, read ahead, written behind, and one to even out

struct offload; // opaque

enum offload_use {
    OFFLOAD_READ,   // what is dropped is forgotten
    OFFLOAD_UPDATE, // what is dropped is written back
};

struct offload_options {
    const char *dir;     // borrowed; must exist; not in memory (tmpfs)
    const char *dir_key; // the setting that names it, for errors: "save_load.offload_dir"
    const char *what;    // borrowed for life: what the array is, for errors
    size_t n_bytes;      // of the array; 0 is fine
    size_t window_bytes; // 0: OFFLOAD_WINDOW_BYTES; else a multiple of 64 KiB
    int n_windows;  // 0: OFFLOAD_WINDOWS; else >= 2: most windows in memory in a pass
    bool is_cached; // go through the page cache even where direct access would work
};

MUST_CHECK int offload_open(struct offload **o, const struct offload_options *opt,
                            struct error *err);
/* Nothing is written back: the content ends here. NULL is fine. */
void offload_close(struct offload *o);

/* The address of byte 0, aligned to 2 MiB; NULL for an array of 0 bytes. */
void *offload_data(const struct offload *o);

/* -- a pass -------------------------------------------------------------------------- */

/* Start a pass; the first windows are read in the background from now on, so a call well
 * before the first advance hides them. One pass at a time. */
void offload_begin(struct offload *o, enum offload_use use);

/* Returns when bytes [first, end) are in memory; gives back all before `first`. A range
 * begins no earlier than the one before it did; bytes may be skipped. */
MUST_CHECK int offload_advance(struct offload *o, size_t first, size_t end,
                               struct error *err);

/* Give back the rest; returns at once, the last windows are written in the background.
 * Also the way to end a pass early. */
void offload_end(struct offload *o);

/* -- by hand ------------------------------------------------------------------------- */

/* Start to read [first, end) in the background and hold it. */
void offload_fetch(struct offload *o, size_t first, size_t end);
/* Returns when all of [first, end), which was fetched, is in memory. */
MUST_CHECK int offload_wait(struct offload *o, size_t first, size_t end,
                            struct error *err);
/* Undo one fetch of the same range. With OFFLOAD_UPDATE, what was written there is kept
 * even if another holder of the same window only reads. */
void offload_drop(struct offload *o, size_t first, size_t end, enum offload_use use);

#endif

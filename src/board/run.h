/*
 * run - one run as its output directory shows it, read while it grows.
 *
 * metrics.jsonl is read from where the last refresh ended; a file that was replaced or
 * truncated is read again from its start. Whatever it holds, memory is bounded by the
 * number of logged steps: lines that are too long are skipped, and lines that are no
 * JSON, and both are told. Nothing in the directory is changed, nothing outside read.
 *
 * Threads: one at a time.
 */
#ifndef BOARD_RUN_H
#define BOARD_RUN_H

#include "base/base.h"
#include "board/board_text.h"
#include "board/run_columns.h"
#include "board/run_config.h"
#include "board/run_events.h"
#include "ckpt/ckpt_lock.h"

#include <limits.h>
#include <sys/types.h>

#define RUN_FILE_NAME "metrics.jsonl"
#define RUN_LINE_BYTES_MOST 262144

struct run_file {
    ino_t inode;
    dev_t device;
    int64_t n_bytes, changed_ns; // as it was when it was last looked at
    int64_t offset;              // of the first byte that is not yet read
    bool is_skipping;            // the line there is too long
    bool is_partial;             // the line there has no end yet
    bool is_broken;              // it is no file, or cannot be read
    char before[64];             // the bytes before `offset`: the file is still the same
    int64_t n_before;
    int64_t n_lines, n_bad, n_long;
    int64_t first_skipped; // line that was left out, from 1; 0: none
    char problem[256];     // of is_broken
};

/* The last step of the run's trace as it is drawn, from the file with this identity. */
struct run_traced {
    ino_t inode;
    dev_t device;
    int64_t n_bytes, changed_ns;
    struct board_text drawing; // empty: there is none
};

struct run {
    char dir[PATH_MAX];
    char name[256]; // the last part of dir
    struct run_file file;
    struct run_scan scan;
    struct run_columns steps, evals;
    struct run_events events;
    struct run_config config;
    struct run_traced traced; // see run_pipeline.h
    struct ckpt_lock_view lock;
    double beat_changed; // clock_seconds() when the lock's beat last moved
    double last_time;    // of the newest line with a time, else the file's; 0: none
    double line_step;    // of the newest line
    bool is_out_of_memory;
    uint64_t version; // grows whenever anything above changes
};

void run_init(struct run *run, const char *dir);
void run_release(struct run *run);

/* Look at the directory and read up to n_most bytes of what is new, through `buffer` of
 * RUN_LINE_BYTES_MOST bytes or more. True: there is more to read now. */
bool run_refresh(struct run *run, char *buffer, size_t buffer_bytes, int64_t n_most);

/* A directory that holds what a run leaves. */
bool run_is_directory(const char *dir);

#endif

/*
 * offload_file - the nameless file behind an offloaded array.
 *
 * Made in a directory on a disk, with all its space reserved, zero; gone when the process
 * ends, however it ends. offload.c is its only user.
 *
 * Reads and writes go past the page cache where the file system can do so, and else
 * leave nothing in it. They are whole multiples of OFFLOAD_FILE_UNIT, in place and
 * length; the memory is aligned to a page. Threads: any.
 */
#ifndef BASE_OFFLOAD_FILE_H
#define BASE_OFFLOAD_FILE_H

#include "base/base.h"
#include "base/error.h"
#include "base/offload.h"

/* Direct access needs multiples of the disk's sector or the page; this one is of all. */
#define OFFLOAD_FILE_UNIT ((size_t)64 << 10)

struct offload_file {
    int fd;
    size_t n_bytes; // opt->n_bytes rounded up to the unit
    bool is_direct;
};

MUST_CHECK int offload_file_open(struct offload_file *f,
                                 const struct offload_options *opt, struct error *err);
void offload_file_close(struct offload_file *f);

/* -1 with errno set when not all n bytes could be moved. */
MUST_CHECK int offload_file_read(const struct offload_file *f, void *data, size_t n,
                                 size_t at);
MUST_CHECK int offload_file_write(const struct offload_file *f, const void *data,
                                  size_t n, size_t at);

#endif

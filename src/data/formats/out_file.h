/*
 * out_file - a file under a temporary name ("X.tmp") until out_file_commit(); writes are
 * collected into large ones. Locked, so that two processes never write the same one.
 */
#ifndef DATA_FORMATS_OUT_FILE_H
#define DATA_FORMATS_OUT_FILE_H

#include "base/base.h"
#include "base/error.h"

struct out_file {
    int fd; // -1 when not open
    char *path;
    char *tmp_path;
    uint8_t *buf;
    size_t used;
    uint64_t n_bytes; // written so far, the collected ones included
};

MUST_CHECK int out_file_open(struct out_file *f, const char *prefix, const char *suffix,
                             struct error *err);
MUST_CHECK int out_file_write(struct out_file *f, const void *data, size_t n,
                              struct error *err);
/* Hand everything collected to the system. */
MUST_CHECK int out_file_flush(struct out_file *f, struct error *err);
/* Flush, make it survive power loss, give it its name. */
MUST_CHECK int out_file_sync(struct out_file *f, struct error *err);
MUST_CHECK int out_file_commit(struct out_file *f, struct error *err);
/* Release; a file that was not committed is removed. One that is all zero is fine. */
void out_file_close(struct out_file *f);

#endif

/*
 * npz - numpy's archives: a zip file of NAME.npy members, stored or deflated, with or
 * without zip64.
 *
 * The archive is never trusted: every offset and length is checked against the size of
 * the file before it is used, and what is unpacked is checked against its CRC.
 */
#ifndef DATA_FORMATS_NPZ_H
#define DATA_FORMATS_NPZ_H

#include "base/base.h"
#include "base/error.h"
#include "data/formats/npy.h"

struct npz {
    int fd;           // borrowed
    const char *name; // borrowed; for errors
    uint64_t file_bytes;
    uint64_t directory_offset;
    uint64_t directory_bytes;
    uint64_t n_members;
};

struct npz_member {
    char name[128]; // "archive[member]", for errors
    bool is_deflated;
    uint32_t crc;
    uint64_t data_offset; // of the packed bytes in the archive
    uint64_t packed_bytes;
    uint64_t bytes; // of the array file
};

/* Read the directory's place. There is nothing to close: fd stays the caller's. */
MUST_CHECK int npz_init(struct npz *z, int fd, const char *name, struct error *err);

/* Look up array `array` (without ".npy"). *is_there tells whether it exists. */
MUST_CHECK int npz_find(const struct npz *z, const char *array, struct npz_member *m,
                        bool *is_there, struct error *err);

/* Describe the array without unpacking more than its beginning. */
MUST_CHECK int npz_describe(const struct npz *z, const struct npz_member *m,
                            struct npy *npy, struct error *err);

/* *values (malloc'ed, caller frees) := the *n numbers of a one-dimensional array, whose
 * CRC is checked. One that claims more than `most` is refused before it is unpacked:
 * hardly any bytes of an archive can stand for billions of numbers. */
MUST_CHECK int npz_read_numbers(const struct npz *z, const struct npz_member *m,
                                int64_t most, int64_t **values, int64_t *n,
                                struct error *err);

/* Unpack the array file into *data (malloc'ed, caller frees), check its CRC, describe it
 * in *npy: the elements start at *data + npy->data_offset. */
MUST_CHECK int npz_read(const struct npz *z, const struct npz_member *m, struct npy *npy,
                        uint8_t **data, struct error *err);

/* -- writing ------------------------------------------------------------------------- */

/* One stored member at a time: begin, write the array file's bytes, end; then finish.
 * Always zip64, so that there is one path for every size. */
struct npz_writer {
    int fd;           // borrowed; empty, at offset 0
    const char *name; // borrowed; for errors
    uint64_t offset;  // bytes written
    int n_members;
    struct npz_written {
        char name[32]; // "lens.npy"
        uint64_t offset;
        uint64_t bytes;
        uint32_t crc;
    } members[4];
};

void npz_writer_init(struct npz_writer *w, int fd, const char *name);
MUST_CHECK int npz_writer_begin(struct npz_writer *w, const char *array,
                                struct error *err);
MUST_CHECK int npz_writer_write(struct npz_writer *w, const void *data, size_t n,
                                struct error *err);
MUST_CHECK int npz_writer_end(struct npz_writer *w, struct error *err);
MUST_CHECK int npz_writer_finish(struct npz_writer *w, struct error *err);

#endif

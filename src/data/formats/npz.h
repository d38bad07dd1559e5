/*
 * npz - numpy's archives: a zip file of NAME.npy members, stored or deflated, with or
 * without zip64. The zip is libzip's part.
 *
 * An archive is never trusted: the size that a member claims is checked before anything
 * is allocated, and what is unpacked is checked against its CRC.
 */
#ifndef DATA_FORMATS_NPZ_H
#define DATA_FORMATS_NPZ_H

#include "base/base.h"
#include "base/error.h"
#include "data/formats/npy.h"

struct npz {
    const char *name; // borrowed; for errors
    struct npz_file *file;
    struct zip *archive;
};

struct npz_member {
    char name[128]; // "archive[member]", for errors
    uint64_t index;
    bool is_deflated;
    uint64_t packed_bytes;
    uint64_t bytes; // of the array file
};

/* Read the directory. fd stays the caller's, and open until npz_close(). */
MUST_CHECK int npz_open(struct npz *z, int fd, const char *name, struct error *err);
/* Nothing happens to one that npz_open() has not filled. */
void npz_close(struct npz *z);

/* Look up array `array` (without ".npy"). *is_there says whether it exists. */
MUST_CHECK int npz_find(const struct npz *z, const char *array, struct npz_member *m,
                        bool *is_there, struct error *err);

/* Describe the array without unpacking more than its beginning. */
MUST_CHECK int npz_describe(const struct npz *z, const struct npz_member *m,
                            struct npy *npy, struct error *err);

/* *offset := where in the archive the array file of a stored member begins. */
MUST_CHECK int npz_offset(const struct npz *z, const struct npz_member *m,
                          uint64_t *offset, struct error *err);

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

struct npz_array { // one-dimensional
    const char *name;
    enum disk_int type;
    int64_t n_elements;
    /* The n bytes of whole elements that begin at byte `at`, to `data`. */
    int (*read)(void *context, uint64_t at, uint8_t *data, size_t n, struct error *err);
    void *context;
};

/* Write the archive of the arrays, stored, to the empty file `fd`: equal arrays give
 * equal bytes. `name` is for errors. */
MUST_CHECK int npz_write(int fd, const char *name, const struct npz_array *arrays,
                         int n_arrays, struct error *err);

#endif

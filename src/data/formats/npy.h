/*
 * npy - numpy's array files, as far as integer arrays in C order go.
 *
 * Versions 1.0, 2.0 and 3.0 are read; fortran_order, objects, floats, big-endian data and
 * an array that does not fill its file exactly are refused. Written is 1.0, as numpy
 * does.
 *
 * `name` is used in errors only. Offsets in errors count from the start of the array
 * file.
 */
#ifndef DATA_FORMATS_NPY_H
#define DATA_FORMATS_NPY_H

#include "base/base.h"
#include "base/error.h"
#include "data/formats/disk_int.h"

#include <sys/types.h>

#define NPY_MAX_DIMS 32
#define NPY_MAX_HEADER_BYTES 65536
#define NPY_WRITE_HEADER_BYTES 128 // of every one-dimensional array

struct npy {
    enum disk_int type;
    int n_dims;
    int64_t shape[NPY_MAX_DIMS];
    int64_t n_elements;
    size_t data_offset; // from the start of the array file
};

/* Describe the array whose file starts with the n bytes at `head` and has file_bytes. n
 * must reach past the header, or be all of the file. */
MUST_CHECK int npy_parse(struct npy *npy, const uint8_t *head, size_t n,
                         uint64_t file_bytes, const char *name, struct error *err);

/* The same from a descriptor, for an array file of file_bytes that starts at `start`. */
MUST_CHECK int npy_read_header(struct npy *npy, int fd, off_t start, uint64_t file_bytes,
                               const char *name, struct error *err);

/* The header of a one-dimensional array; the elements follow it. */
void npy_write_header(uint8_t header[NPY_WRITE_HEADER_BYTES], enum disk_int type,
                      int64_t n_elements);

#endif

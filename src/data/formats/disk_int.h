/*
 * disk_int - integers as they lie in token and index files: little-endian, unaligned.
 *
 * The only place that knows how a type is encoded. Values that do not fit an int64_t
 * (u64 from 2^63 on) read as negative, which no count, length or token id may be.
 */
#ifndef DATA_FORMATS_DISK_INT_H
#define DATA_FORMATS_DISK_INT_H

#include "base/base.h"

enum disk_int {
    DISK_U8,
    DISK_I8,
    DISK_U16,
    DISK_I16,
    DISK_U32,
    DISK_I32,
    DISK_U64,
    DISK_I64,
    N_DISK_INTS
};

size_t disk_int_bytes(enum disk_int type);     // 1, 2, 4 or 8
const char *disk_int_name(enum disk_int type); // "uint16"

int64_t disk_int_get(enum disk_int type, const uint8_t *at);

/* values[0..n) := the n integers at `raw`. */
void disk_int_read_i32(enum disk_int type, const uint8_t *raw, int64_t n,
                       int32_t *values); // cut to 32 bits: for ids that were checked
void disk_int_read_i64(enum disk_int type, const uint8_t *raw, int64_t n,
                       int64_t *values);

/* The largest of n > 0 integers, each taken as unsigned after sign extension: so a
 * negative one counts as larger than any other. */
uint64_t disk_int_max(enum disk_int type, const uint8_t *raw, int64_t n);

/* raw := the n values in DISK_U16 or DISK_I32, which they must fit. */
void disk_int_write_i32(enum disk_int type, const int32_t *values, int64_t n,
                        uint8_t *raw);

/* Single fields of headers. */
uint16_t disk_get_u16(const uint8_t *at);
uint32_t disk_get_u32(const uint8_t *at);
uint64_t disk_get_u64(const uint8_t *at);
void disk_put_u16(uint8_t *at, uint16_t value);
void disk_put_u32(uint8_t *at, uint32_t value);
void disk_put_u64(uint8_t *at, uint64_t value);

#endif

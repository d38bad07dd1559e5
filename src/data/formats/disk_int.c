/*
 * Each loop over one type is written out, so that the compiler sees a plain widening copy
 * (or maximum) and vectorises it: the scan of all tokens at start runs at disk speed.
 */
#include "data/formats/disk_int.h"

#include <endian.h>
#include <string.h>

static const struct {
    const char *name;
    size_t bytes;
} types[N_DISK_INTS] = {
    [DISK_U8] = {"uint8", 1},   [DISK_I8] = {"int8", 1},    [DISK_U16] = {"uint16", 2},
    [DISK_I16] = {"int16", 2},  [DISK_U32] = {"uint32", 4}, [DISK_I32] = {"int32", 4},
    [DISK_U64] = {"uint64", 8}, [DISK_I64] = {"int64", 8},
};

size_t disk_int_bytes(enum disk_int type)
{
    return types[type].bytes;
}

const char *disk_int_name(enum disk_int type)
{
    return types[type].name;
}

uint16_t disk_get_u16(const uint8_t *at)
{
    uint16_t v;
    memcpy(&v, at, sizeof v);
    return le16toh(v);
}

uint32_t disk_get_u32(const uint8_t *at)
{
    uint32_t v;
    memcpy(&v, at, sizeof v);
    return le32toh(v);
}

uint64_t disk_get_u64(const uint8_t *at)
{
    uint64_t v;
    memcpy(&v, at, sizeof v);
    return le64toh(v);
}

void disk_put_u16(uint8_t *at, uint16_t value)
{
    value = htole16(value);
    memcpy(at, &value, sizeof value);
}

void disk_put_u32(uint8_t *at, uint32_t value)
{
    value = htole32(value);
    memcpy(at, &value, sizeof value);
}

void disk_put_u64(uint8_t *at, uint64_t value)
{
    value = htole64(value);
    memcpy(at, &value, sizeof value);
}

int64_t disk_int_get(enum disk_int type, const uint8_t *at)
{
    switch (type) {
    case DISK_U8:
        return at[0];
    case DISK_I8:
        return (int8_t)at[0];
    case DISK_U16:
        return disk_get_u16(at);
    case DISK_I16:
        return (int16_t)disk_get_u16(at);
    case DISK_U32:
        return disk_get_u32(at);
    case DISK_I32:
        return (int32_t)disk_get_u32(at);
    default:
        return (int64_t)disk_get_u64(at);
    }
}

void disk_int_read_i32(enum disk_int type, const uint8_t *raw, int64_t n, int32_t *values)
{
    if (type == DISK_U16)
        for (int64_t i = 0; i < n; i++)
            values[i] = disk_get_u16(raw + 2 * i);
    else if (type == DISK_I32)
        for (int64_t i = 0; i < n; i++)
            values[i] = (int32_t)disk_get_u32(raw + 4 * i);
    else
        for (int64_t i = 0; i < n; i++)
            values[i] = (int32_t)disk_int_get(type, raw + i * (int64_t)types[type].bytes);
}

void disk_int_read_i64(enum disk_int type, const uint8_t *raw, int64_t n, int64_t *values)
{
    for (int64_t i = 0; i < n; i++)
        values[i] = disk_int_get(type, raw + i * (int64_t)types[type].bytes);
}

static uint64_t max_u16(const uint8_t *raw, int64_t n)
{
    uint16_t max = 0;
    for (int64_t i = 0; i < n; i++) {
        uint16_t v = disk_get_u16(raw + 2 * i);
        max = v > max ? v : max;
    }
    return max;
}

/* Taken as unsigned, a negative int32 is already larger than any other. */
static uint64_t max_i32(const uint8_t *raw, int64_t n)
{
    uint32_t max = 0;
    for (int64_t i = 0; i < n; i++) {
        uint32_t v = disk_get_u32(raw + 4 * i);
        max = v > max ? v : max;
    }
    return (uint64_t)(int64_t)(int32_t)max;
}

uint64_t disk_int_max(enum disk_int type, const uint8_t *raw, int64_t n)
{
    if (type == DISK_U16)
        return max_u16(raw, n);
    if (type == DISK_I32)
        return max_i32(raw, n);
    uint64_t max = 0;
    for (int64_t i = 0; i < n; i++) {
        uint64_t v = (uint64_t)disk_int_get(type, raw + i * (int64_t)types[type].bytes);
        max = v > max ? v : max;
    }
    return max;
}

void disk_int_write_i32(enum disk_int type, const int32_t *values, int64_t n,
                        uint8_t *raw)
{
    CHECK(type == DISK_U16 || type == DISK_I32, "type %s", types[type].name);
    if (type == DISK_U16)
        for (int64_t i = 0; i < n; i++)
            disk_put_u16(raw + 2 * i, (uint16_t)values[i]);
    else
        for (int64_t i = 0; i < n; i++)
            disk_put_u32(raw + 4 * i, (uint32_t)values[i]);
}

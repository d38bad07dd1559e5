/*
 * The local header is written when the member ends and its checksum is known, into the
 * room left for it. All sizes and offsets are in zip64 fields, small archives included:
 * one path for every size, and the one that every test takes.
 */
#include "data/formats/npz.h"

#include "base/fs.h"
#include "data/formats/zip_layout.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <zlib.h>

#define LOCAL_EXTRA_BYTES 20   // id, length, size, packed size
#define CENTRAL_EXTRA_BYTES 28 // ... and the offset
#define DOS_DATE 0x0021        // 1980-01-01: equal input gives equal bytes

void npz_writer_init(struct npz_writer *w, int fd, const char *name)
{
    *w = (struct npz_writer){.fd = fd, .name = name};
}

static int put(struct npz_writer *w, const void *data, size_t n, struct error *err)
{
    if (fs_pwrite_exact(w->fd, data, n, (off_t)w->offset))
        return error_set(err, ERROR_RUNTIME, "cannot write '%s': %s", w->name,
                         strerror(errno));
    w->offset += n;
    return 0;
}

int npz_writer_begin(struct npz_writer *w, const char *array, struct error *err)
{
    CHECK(w->n_members < (int)ARRAY_LEN(w->members), "%d members", w->n_members);
    struct npz_written *m = &w->members[w->n_members++];
    uint8_t room[ZIP_LOCAL_BYTES + sizeof m->name + LOCAL_EXTRA_BYTES] = {0};
    snprintf(m->name, sizeof m->name, "%s.npy", array);
    m->offset = w->offset;
    m->bytes = 0;
    m->crc = (uint32_t)crc32_z(0, NULL, 0);
    return put(w, room, ZIP_LOCAL_BYTES + strlen(m->name) + LOCAL_EXTRA_BYTES, err);
}

int npz_writer_write(struct npz_writer *w, const void *data, size_t n, struct error *err)
{
    struct npz_written *m = &w->members[w->n_members - 1];
    m->crc = (uint32_t)crc32_z(m->crc, data, n);
    m->bytes += n;
    return put(w, data, n, err);
}

/* The fields that the local header and the directory's entry share: version ... sizes. */
static void put_common(uint8_t *at, const struct npz_written *m)
{
    disk_put_u16(at, ZIP_VERSION_ZIP64);
    disk_put_u16(at + 4, ZIP_METHOD_STORED);
    disk_put_u16(at + 8, DOS_DATE);
    disk_put_u32(at + 10, m->crc);
    disk_put_u32(at + 14, ZIP_SEE_ZIP64_32);
    disk_put_u32(at + 18, ZIP_SEE_ZIP64_32);
    disk_put_u16(at + 22, (uint16_t)strlen(m->name));
}

int npz_writer_end(struct npz_writer *w, struct error *err)
{
    const struct npz_written *m = &w->members[w->n_members - 1];
    size_t name_bytes = strlen(m->name);
    uint8_t header[ZIP_LOCAL_BYTES + sizeof m->name + LOCAL_EXTRA_BYTES] = {0};
    disk_put_u32(header, ZIP_LOCAL_SIGNATURE);
    put_common(header + 4, m);
    disk_put_u16(header + 28, LOCAL_EXTRA_BYTES);
    memcpy(header + ZIP_LOCAL_BYTES, m->name, name_bytes);
    uint8_t *extra = header + ZIP_LOCAL_BYTES + name_bytes;
    disk_put_u16(extra, ZIP64_EXTRA_ID);
    disk_put_u16(extra + 2, LOCAL_EXTRA_BYTES - 4);
    disk_put_u64(extra + 4, m->bytes);
    disk_put_u64(extra + 12, m->bytes);
    if (fs_pwrite_exact(w->fd, header, ZIP_LOCAL_BYTES + name_bytes + LOCAL_EXTRA_BYTES,
                        (off_t)m->offset))
        return error_set(err, ERROR_RUNTIME, "cannot write '%s': %s", w->name,
                         strerror(errno));
    return 0;
}

static int put_entry(struct npz_writer *w, const struct npz_written *m, struct error *err)
{
    size_t name_bytes = strlen(m->name);
    uint8_t entry[ZIP_CENTRAL_BYTES + sizeof m->name + CENTRAL_EXTRA_BYTES] = {0};
    disk_put_u32(entry, ZIP_CENTRAL_SIGNATURE);
    disk_put_u16(entry + 4, ZIP_VERSION_ZIP64);
    put_common(entry + 6, m);
    disk_put_u16(entry + 30, CENTRAL_EXTRA_BYTES);
    disk_put_u32(entry + 42, ZIP_SEE_ZIP64_32);
    memcpy(entry + ZIP_CENTRAL_BYTES, m->name, name_bytes);
    uint8_t *extra = entry + ZIP_CENTRAL_BYTES + name_bytes;
    disk_put_u16(extra, ZIP64_EXTRA_ID);
    disk_put_u16(extra + 2, CENTRAL_EXTRA_BYTES - 4);
    disk_put_u64(extra + 4, m->bytes);
    disk_put_u64(extra + 12, m->bytes);
    disk_put_u64(extra + 20, m->offset);
    return put(w, entry, ZIP_CENTRAL_BYTES + name_bytes + CENTRAL_EXTRA_BYTES, err);
}

int npz_writer_finish(struct npz_writer *w, struct error *err)
{
    uint64_t directory_offset = w->offset;
    for (int i = 0; i < w->n_members; i++)
        if (put_entry(w, &w->members[i], err))
            return -1;
    uint64_t directory_end = w->offset;
    uint8_t tail[ZIP64_END_BYTES + ZIP64_LOCATOR_BYTES + ZIP_END_BYTES] = {0};

    uint8_t *end64 = tail;
    disk_put_u32(end64, ZIP64_END_SIGNATURE);
    disk_put_u64(end64 + 4, ZIP64_END_BYTES - 12);
    disk_put_u16(end64 + 12, ZIP_VERSION_ZIP64);
    disk_put_u16(end64 + 14, ZIP_VERSION_ZIP64);
    disk_put_u64(end64 + 24, (uint64_t)w->n_members);
    disk_put_u64(end64 + 32, (uint64_t)w->n_members);
    disk_put_u64(end64 + 40, directory_end - directory_offset);
    disk_put_u64(end64 + 48, directory_offset);

    uint8_t *locator = end64 + ZIP64_END_BYTES;
    disk_put_u32(locator, ZIP64_LOCATOR_SIGNATURE);
    disk_put_u64(locator + 8, directory_end);
    disk_put_u32(locator + 16, 1);

    uint8_t *end = locator + ZIP64_LOCATOR_BYTES;
    disk_put_u32(end, ZIP_END_SIGNATURE);
    disk_put_u16(end + 8, (uint16_t)w->n_members);
    disk_put_u16(end + 10, (uint16_t)w->n_members);
    disk_put_u32(end + 12, ZIP_SEE_ZIP64_32);
    disk_put_u32(end + 16, ZIP_SEE_ZIP64_32);
    return put(w, tail, sizeof tail, err);
}

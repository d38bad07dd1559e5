/*
 * Reading: end record -> directory -> the member's entry -> its local header -> data.
 *
 * Sizes come from the directory. The data's place comes from the local header's own name
 * and extra lengths, because numpy puts a zip64 extra field into the local header that
 * the directory's entry does not have.
 */
#include "data/npz.h"

#include "base/fs.h"
#include "data/zip_layout.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <zlib.h>

/* No deflate stream grows by more; a claim beyond it is a lie told before we allocate. */
#define DEFLATE_MAX_RATIO 1032

#define CHUNK_BYTES 65536

static int bad(const struct npz *z, uint64_t at, const char *what, struct error *err)
{
    return error_set(err, ERROR_INPUT,
                     "'%s' is not a readable npz archive: at byte %llu, %s", z->name,
                     (unsigned long long)at, what);
}

/* Is [offset, offset + n) inside the file? */
static bool is_inside(const struct npz *z, uint64_t offset, uint64_t n)
{
    return offset <= z->file_bytes && n <= z->file_bytes - offset;
}

static int read_at(const struct npz *z, uint64_t offset, void *data, size_t n,
                   const char *what, struct error *err)
{
    if (!is_inside(z, offset, n))
        return bad(z, offset, what, err);
    if (fs_pread_exact(z->fd, data, n, (off_t)offset))
        return error_set(err, ERROR_INPUT, "cannot read '%s' at byte %llu: %s", z->name,
                         (unsigned long long)offset, strerror(errno));
    return 0;
}

/* The end record is the last one, before a comment of unknown length. */
static int find_end_record(const struct npz *z, uint64_t *at, uint8_t end[ZIP_END_BYTES],
                           struct error *err)
{
    int rc = -1;
    size_t n = ZIP_END_BYTES + ZIP_MAX_COMMENT_BYTES;
    if (n > z->file_bytes)
        n = (size_t)z->file_bytes;
    uint64_t start = z->file_bytes - n;
    uint8_t *tail = malloc(n + 1);
    if (!tail)
        return error_set(err, ERROR_RUNTIME, "out of memory reading '%s'", z->name);
    if (read_at(z, start, tail, n, "the file is truncated", err))
        goto done;
    for (size_t i = n >= ZIP_END_BYTES ? n - ZIP_END_BYTES + 1 : 0; i-- > 0;) {
        if (disk_get_u32(tail + i) != ZIP_END_SIGNATURE)
            continue;
        memcpy(end, tail + i, ZIP_END_BYTES);
        *at = start + i;
        rc = 0;
        goto done;
    }
    bad(z, z->file_bytes,
        "the file ends without the record that ends a zip file: it is "
        "truncated or something else",
        err);
done:
    free(tail);
    return rc;
}

static int read_zip64_end(struct npz *z, uint64_t end_at, struct error *err)
{
    uint8_t locator[ZIP64_LOCATOR_BYTES], end[ZIP64_END_BYTES];
    if (end_at < ZIP64_LOCATOR_BYTES)
        return bad(z, end_at, "the zip64 locator is missing", err);
    if (read_at(z, end_at - ZIP64_LOCATOR_BYTES, locator, sizeof locator,
                "the zip64 locator is missing", err))
        return -1;
    if (disk_get_u32(locator) != ZIP64_LOCATOR_SIGNATURE)
        return bad(z, end_at - ZIP64_LOCATOR_BYTES, "the zip64 locator is missing", err);
    uint64_t at = disk_get_u64(locator + 8);
    if (read_at(z, at, end, sizeof end, "the zip64 end record is missing", err))
        return -1;
    if (disk_get_u32(end) != ZIP64_END_SIGNATURE)
        return bad(z, at, "the zip64 end record is missing", err);
    z->n_members = disk_get_u64(end + 32);
    z->directory_bytes = disk_get_u64(end + 40);
    z->directory_offset = disk_get_u64(end + 48);
    return 0;
}

int npz_init(struct npz *z, int fd, const char *name, struct error *err)
{
    struct stat st;
    uint8_t end[ZIP_END_BYTES];
    uint64_t end_at = 0;
    *z = (struct npz){.fd = fd, .name = name};
    if (fstat(fd, &st))
        return error_set(err, ERROR_INPUT, "cannot read '%s': %s", name, strerror(errno));
    z->file_bytes = (uint64_t)st.st_size;
    if (find_end_record(z, &end_at, end, err))
        return -1;
    z->n_members = disk_get_u16(end + 10);
    z->directory_bytes = disk_get_u32(end + 12);
    z->directory_offset = disk_get_u32(end + 16);
    if ((z->n_members == ZIP_SEE_ZIP64_16 || z->directory_bytes == ZIP_SEE_ZIP64_32 ||
         z->directory_offset == ZIP_SEE_ZIP64_32) &&
        read_zip64_end(z, end_at, err))
        return -1;
    if (!is_inside(z, z->directory_offset, z->directory_bytes))
        return bad(z, end_at, "the directory lies outside the file", err);
    return 0;
}

/* Replace the sizes and the offset that the entry could not hold by those of its zip64
 * extra field, which lists only them, in this order. */
static int read_zip64_extra(const struct npz *z, uint64_t at, const uint8_t *extra,
                            size_t n, struct npz_member *m, uint64_t *local_offset,
                            struct error *err)
{
    uint64_t *fields[] = {&m->bytes, &m->packed_bytes, local_offset};
    const uint8_t *body = NULL;
    size_t body_bytes = 0;
    for (size_t i = 0; i + 4 <= n && !body;) {
        size_t field_bytes = disk_get_u16(extra + i + 2);
        if (field_bytes > n - i - 4)
            return bad(z, at, "an extra field is longer than its entry", err);
        if (disk_get_u16(extra + i) == ZIP64_EXTRA_ID) {
            body = extra + i + 4;
            body_bytes = field_bytes;
        }
        i += 4 + field_bytes;
    }
    for (size_t f = 0; f < ARRAY_LEN(fields); f++) {
        if (*fields[f] != ZIP_SEE_ZIP64_32)
            continue;
        if (body_bytes < 8)
            return bad(z, at, "a 64-bit size is missing", err);
        *fields[f] = disk_get_u64(body);
        body += 8;
        body_bytes -= 8;
    }
    return 0;
}

/* Find where the member's data starts, and that all of it is there. */
static int read_local_header(const struct npz *z, uint64_t at, struct npz_member *m,
                             struct error *err)
{
    uint8_t local[ZIP_LOCAL_BYTES];
    if (read_at(z, at, local, sizeof local, "a member lies outside the file", err))
        return -1;
    if (disk_get_u32(local) != ZIP_LOCAL_SIGNATURE)
        return bad(z, at, "the header of a member is missing", err);
    m->data_offset =
        at + ZIP_LOCAL_BYTES + disk_get_u16(local + 26) + disk_get_u16(local + 28);
    if (!is_inside(z, m->data_offset, m->packed_bytes))
        return bad(z, at, "a member is longer than the file", err);
    return 0;
}

/* Take over the entry at `at` of the directory; `rest` is its name and extra fields. */
static int read_entry(const struct npz *z, uint64_t at, const uint8_t *entry,
                      const uint8_t *rest, struct npz_member *m, struct error *err)
{
    unsigned flags = disk_get_u16(entry + 8), method = disk_get_u16(entry + 10);
    uint64_t local_offset = disk_get_u32(entry + 42);
    if (flags & 1)
        return bad(z, at, "the member is encrypted", err);
    if (method != ZIP_METHOD_STORED && method != ZIP_METHOD_DEFLATED)
        return bad(z, at, "the member is neither stored nor deflated", err);
    m->is_deflated = method == ZIP_METHOD_DEFLATED;
    m->crc = disk_get_u32(entry + 16);
    m->packed_bytes = disk_get_u32(entry + 20);
    m->bytes = disk_get_u32(entry + 24);
    if (read_zip64_extra(z, at, rest + disk_get_u16(entry + 28), disk_get_u16(entry + 30),
                         m, &local_offset, err) ||
        read_local_header(z, local_offset, m, err))
        return -1;
    if (!m->is_deflated && m->packed_bytes != m->bytes)
        return bad(z, at, "a stored member has two different sizes", err);
    if (m->is_deflated && m->bytes / DEFLATE_MAX_RATIO > m->packed_bytes)
        return bad(z, at, "a member claims to unpack to more than is possible", err);
    return 0;
}

int npz_find(const struct npz *z, const char *array, struct npz_member *m, bool *is_there,
             struct error *err)
{
    int rc = -1;
    uint8_t entry[ZIP_CENTRAL_BYTES];
    uint8_t *rest = malloc(2 * 65536);
    char wanted[64];
    uint64_t at = z->directory_offset, end = at + z->directory_bytes;
    *is_there = false;
    if (!rest)
        return error_set(err, ERROR_RUNTIME, "out of memory reading '%s'", z->name);
    int wanted_length = snprintf(wanted, sizeof wanted, "%s.npy", array);
    for (uint64_t i = 0; i < z->n_members && !*is_there; i++) {
        if (end - at < ZIP_CENTRAL_BYTES) {
            bad(z, at, "the directory ends too early", err);
            goto done;
        }
        if (read_at(z, at, entry, sizeof entry, "the directory is cut", err))
            goto done;
        size_t name_bytes = disk_get_u16(entry + 28);
        size_t rest_bytes = name_bytes + disk_get_u16(entry + 30);
        size_t entry_bytes = sizeof entry + rest_bytes + disk_get_u16(entry + 32);
        if (disk_get_u32(entry) != ZIP_CENTRAL_SIGNATURE || end - at < entry_bytes) {
            bad(z, at, "an entry of the directory is damaged", err);
            goto done;
        }
        if (read_at(z, at + sizeof entry, rest, rest_bytes, "the directory is cut", err))
            goto done;
        if (name_bytes == (size_t)wanted_length &&
            memcmp(rest, wanted, name_bytes) == 0) {
            snprintf(m->name, sizeof m->name, "%.90s[%s]", z->name, array);
            if (read_entry(z, at, entry, rest, m, err))
                goto done;
            *is_there = true;
        }
        at += entry_bytes;
    }
    rc = 0;
done:
    free(rest);
    return rc;
}

/* Run `stream` until `data` is full or the stream ends; -1 when it is damaged. */
static int inflate_member(const struct npz *z, const struct npz_member *m, uint8_t *data,
                          struct error *err)
{
    uint8_t chunk[CHUNK_BYTES];
    uint64_t fed = 0, filled = 0;
    int status = Z_OK, rc = -1;
    z_stream stream = {0};
    if (inflateInit2(&stream, -MAX_WBITS) != Z_OK)
        return error_set(err, ERROR_RUNTIME, "out of memory unpacking '%s'", m->name);
    while (status == Z_OK) {
        if (stream.avail_in == 0 && fed < m->packed_bytes) {
            uint64_t n = m->packed_bytes - fed;
            n = n < sizeof chunk ? n : sizeof chunk;
            if (read_at(z, m->data_offset + fed, chunk, (size_t)n, "it is cut", err))
                goto done;
            stream.next_in = chunk;
            stream.avail_in = (uInt)n;
            fed += n;
        }
        uint64_t room = m->bytes - filled;
        room = room < (1u << 30) ? room : (1u << 30);
        stream.next_out = data + filled;
        stream.avail_out = (uInt)room;
        status = inflate(&stream, Z_NO_FLUSH);
        filled += room - stream.avail_out;
    }
    if (status != Z_STREAM_END || filled != m->bytes) {
        bad(z, m->data_offset + fed - stream.avail_in, "the compressed data are damaged",
            err);
        goto done;
    }
    rc = 0;
done:
    inflateEnd(&stream);
    return rc;
}

static uint32_t crc_of(const uint8_t *data, uint64_t n)
{
    uLong crc = crc32_z(0, NULL, 0);
    return (uint32_t)crc32_z(crc, data, (z_size_t)n);
}

int npz_read(const struct npz *z, const struct npz_member *m, struct npy *npy,
             uint8_t **data, struct error *err)
{
    int rc = -1;
    uint8_t *bytes = malloc((size_t)m->bytes + 1);
    if (!bytes)
        return error_set(err, ERROR_RUNTIME, "no memory for the %llu bytes of '%s'",
                         (unsigned long long)m->bytes, m->name);
    if (m->is_deflated ? inflate_member(z, m, bytes, err)
                       : read_at(z, m->data_offset, bytes, (size_t)m->bytes,
                                 "the member is cut", err))
        goto done;
    if (crc_of(bytes, m->bytes) != m->crc) {
        bad(z, m->data_offset, "a member does not match its checksum", err);
        goto done;
    }
    if (npy_parse(npy, bytes, (size_t)m->bytes, m->bytes, m->name, err))
        goto done;
    rc = 0;
done:
    if (rc)
        free(bytes);
    *data = rc ? NULL : bytes;
    return rc;
}

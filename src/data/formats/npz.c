/*
 * Reading: end record -> directory -> the member's entry -> its local header -> data.
 *
 * Sizes come from the directory. The data's place comes from the local header's own name
 * and extra lengths, because numpy puts a zip64 extra field into the local header that
 * the directory's entry does not have.
 */
#include "data/formats/npz.h"

#include "base/fs.h"
#include "data/formats/zip_layout.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <zlib.h>

/* No deflate stream grows by more; a claim beyond it is a lie told before we allocate. */
#define DEFLATE_MAX_RATIO 1032

#define CHUNK_BYTES 65536
#define HEAD_BYTES (NPY_MAX_HEADER_BYTES + 4096u) // more than any header of an array

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

/* -- a member's bytes, one after the other --------------------------------------------
 */

struct stream {
    const struct npz *z;
    const struct npz_member *m;
    z_stream zlib;
    uint64_t n_fed, n_out; // packed and unpacked bytes so far
    uLong crc;
    uint8_t chunk[CHUNK_BYTES]; // packed
};

static int stream_open(struct stream *s, const struct npz *z, const struct npz_member *m,
                       struct error *err)
{
    s->z = z;
    s->m = m;
    s->zlib = (z_stream){0};
    s->n_fed = s->n_out = 0;
    s->crc = crc32_z(0, NULL, 0);
    if (m->is_deflated && inflateInit2(&s->zlib, -MAX_WBITS) != Z_OK)
        return error_set(err, ERROR_RUNTIME, "out of memory unpacking '%s'", m->name);
    return 0;
}

static void stream_close(struct stream *s)
{
    if (s->m->is_deflated)
        inflateEnd(&s->zlib);
}

static int refuse_stream(const struct stream *s, struct error *err)
{
    return bad(s->z, s->m->data_offset + s->n_fed - s->zlib.avail_in,
               "the compressed data are damaged", err);
}

/* Inflate until n bytes are out or the stream ends; *status is zlib's last. */
static int stream_inflate(struct stream *s, uint8_t *out, size_t n, int *status,
                          struct error *err)
{
    z_stream *zlib = &s->zlib;
    zlib->next_out = out;
    *status = Z_OK;
    for (uint64_t left = n; *status == Z_OK;) {
        uint64_t packed = s->m->packed_bytes - s->n_fed;
        if (zlib->avail_in == 0 && packed > 0) {
            packed = packed < sizeof s->chunk ? packed : sizeof s->chunk;
            if (read_at(s->z, s->m->data_offset + s->n_fed, s->chunk, (size_t)packed,
                        "it is cut", err))
                return -1;
            zlib->next_in = s->chunk;
            zlib->avail_in = (uInt)packed;
            s->n_fed += packed;
        }
        uInt room = (uInt)(left < (1u << 30) ? left : (1u << 30));
        zlib->avail_out = room;
        *status = inflate(zlib, Z_NO_FLUSH);
        left -= room - zlib->avail_out;
        if (left == 0)
            break;
    }
    return 0;
}

/* The next n bytes, all of them. */
static int stream_read(struct stream *s, uint8_t *out, size_t n, struct error *err)
{
    int status = Z_OK;
    if (n > s->m->bytes - s->n_out)
        return bad(s->z, s->m->data_offset, "a member is too short", err);
    if (s->m->is_deflated) {
        if (n > 0 && stream_inflate(s, out, n, &status, err))
            return -1;
        if (n > 0 && s->zlib.next_out != out + n)
            return refuse_stream(s, err);
    } else if (read_at(s->z, s->m->data_offset + s->n_out, out, n, "the member is cut",
                       err)) {
        return -1;
    }
    s->n_out += n;
    s->crc = crc32_z(s->crc, out, n);
    return 0;
}

/* Everything was read: does the packed data end here too, and is it what was packed? */
static int stream_finish(struct stream *s, struct error *err)
{
    uint8_t past;
    int status = Z_STREAM_END;
    if (s->m->is_deflated && stream_inflate(s, &past, 1, &status, err))
        return -1;
    if (status != Z_STREAM_END || (s->m->is_deflated && s->zlib.next_out != &past))
        return refuse_stream(s, err);
    if ((uint32_t)s->crc != s->m->crc)
        return bad(s->z, s->m->data_offset, "a member does not match its checksum", err);
    return 0;
}

/* -- arrays -------------------------------------------------------------------------- */

int npz_read(const struct npz *z, const struct npz_member *m, struct npy *npy,
             uint8_t **data, struct error *err)
{
    int rc = -1;
    struct stream s;
    uint8_t *bytes = malloc((size_t)m->bytes + 1);
    if (!bytes)
        return error_set(err, ERROR_RUNTIME, "no memory for the %llu bytes of '%s'",
                         (unsigned long long)m->bytes, m->name);
    if (stream_open(&s, z, m, err)) {
        free(bytes);
        return -1;
    }
    if (stream_read(&s, bytes, (size_t)m->bytes, err) || stream_finish(&s, err) ||
        npy_parse(npy, bytes, (size_t)m->bytes, m->bytes, m->name, err))
        goto done;
    *data = bytes;
    bytes = NULL;
    rc = 0;
done:
    stream_close(&s);
    free(bytes);
    return rc;
}

/* The numbers of `npy`, of which the first n_held bytes are at `held`, to `values`. */
static int read_numbers(struct stream *s, const struct npy *npy, uint8_t *held,
                        size_t n_held, int64_t *values, struct error *err)
{
    size_t size = disk_int_bytes(npy->type);
    for (int64_t done = 0; done < npy->n_elements;) {
        uint64_t more = s->m->bytes - s->n_out;
        size_t room = HEAD_BYTES - n_held;
        size_t part = more < room ? (size_t)more : room;
        if (stream_read(s, held + n_held, part, err))
            return -1;
        n_held += part;
        int64_t n = i64_min((int64_t)(n_held / size), npy->n_elements - done);
        disk_int_read_i64(npy->type, held, n, values + done);
        done += n;
        n_held -= (size_t)n * size;
        memmove(held, held + (size_t)n * size, n_held);
    }
    return stream_finish(s, err);
}

static int refuse_array(const struct npz_member *m, const struct npy *npy, int64_t most,
                        struct error *err)
{
    if (npy->n_dims != 1)
        return error_set(err, ERROR_INPUT, "'%s' has %d dimensions; it must have one",
                         m->name, npy->n_dims);
    if (npy->n_elements > most)
        return error_set(err, ERROR_INPUT,
                         "'%s' claims %lld numbers, where the dataset can have use for "
                         "%lld at most: they do not belong together",
                         m->name, (long long)npy->n_elements, (long long)most);
    return 0;
}

int npz_read_numbers(const struct npz *z, const struct npz_member *m, int64_t most,
                     int64_t **values, int64_t *n, struct error *err)
{
    struct npy npy;
    struct stream s;
    int rc = -1;
    size_t n_head = m->bytes < HEAD_BYTES ? (size_t)m->bytes : HEAD_BYTES;
    uint8_t *head = malloc(HEAD_BYTES);
    *values = NULL;
    if (!head)
        return error_set(err, ERROR_RUNTIME, "out of memory reading '%s'", m->name);
    if (stream_open(&s, z, m, err)) {
        free(head);
        return -1;
    }
    if (stream_read(&s, head, n_head, err) ||
        npy_parse(&npy, head, n_head, m->bytes, m->name, err) ||
        refuse_array(m, &npy, most, err))
        goto done;
    *values = malloc(((size_t)npy.n_elements + 1) * sizeof **values);
    if (!*values) {
        error_set(err, ERROR_RUNTIME, "no memory for the %lld numbers of '%s'",
                  (long long)npy.n_elements, m->name);
        goto done;
    }
    *n = npy.n_elements;
    memmove(head, head + npy.data_offset, n_head - npy.data_offset);
    rc = read_numbers(&s, &npy, head, n_head - npy.data_offset, *values, err);
done:
    stream_close(&s);
    free(head);
    if (rc) {
        free(*values);
        *values = NULL;
    }
    return rc;
}

int npz_describe(const struct npz *z, const struct npz_member *m, struct npy *npy,
                 struct error *err)
{
    struct stream s;
    size_t n_head = m->bytes < HEAD_BYTES ? (size_t)m->bytes : HEAD_BYTES;
    uint8_t *head = malloc(HEAD_BYTES);
    if (!head)
        return error_set(err, ERROR_RUNTIME, "out of memory reading '%s'", m->name);
    int rc = stream_open(&s, z, m, err);
    if (rc == 0) {
        rc = stream_read(&s, head, n_head, err);
        if (rc == 0)
            rc = npy_parse(npy, head, n_head, m->bytes, m->name, err);
        stream_close(&s);
    }
    free(head);
    return rc;
}

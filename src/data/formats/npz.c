#include "data/formats/npz.h"

#include "base/fs.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <zip.h>

/* The most that deflate compresses; a larger claim is refused before allocating. */
#define DEFLATE_MAX_RATIO 1032

#define HEAD_BYTES (NPY_MAX_HEADER_BYTES + 4096u) // more than any header of an array
#define DOS_DATE 0x0021 // 1980-01-01: equal input gives equal bytes

/* The file that libzip reads or writes, by its descriptor; libzip frees it. */
struct npz_file {
    int fd;
    uint64_t n_bytes;
    uint64_t at;        // of the next byte to read
    uint64_t last_read; // where the last reading began
    uint64_t write_at;
    zip_error_t error;
};

static zip_int64_t file_fails(struct npz_file *f, int kind)
{
    zip_error_set(&f->error, kind, errno);
    return -1;
}

static zip_int64_t file_read(struct npz_file *f, void *data, uint64_t n)
{
    uint64_t left = f->at < f->n_bytes ? f->n_bytes - f->at : 0;
    n = n < left ? n : left;
    if (fs_pread_exact(f->fd, data, n, (off_t)f->at))
        return file_fails(f, ZIP_ER_READ);
    f->last_read = f->at;
    f->at += n;
    return (zip_int64_t)n;
}

static zip_int64_t file_write(struct npz_file *f, const void *data, uint64_t n)
{
    if (fs_pwrite_exact(f->fd, data, n, (off_t)f->write_at))
        return file_fails(f, ZIP_ER_WRITE);
    f->write_at += n;
    f->n_bytes = f->write_at > f->n_bytes ? f->write_at : f->n_bytes;
    return (zip_int64_t)n;
}

static zip_int64_t file_seek(struct npz_file *f, uint64_t *at, void *to, uint64_t n)
{
    zip_int64_t offset =
        zip_source_seek_compute_offset(*at, f->n_bytes, to, n, &f->error);
    if (offset < 0)
        return -1;
    *at = (uint64_t)offset;
    return 0;
}

static zip_int64_t give_size(void *data, uint64_t n_bytes)
{
    zip_stat_t *st = data;
    zip_stat_init(st);
    st->size = n_bytes;
    st->valid = ZIP_STAT_SIZE;
    return (zip_int64_t)sizeof *st;
}

/* What libzip asks of a file. */
static zip_int64_t serve_file(void *context, void *data, zip_uint64_t n,
                              zip_source_cmd_t command)
{
    struct npz_file *f = context;
    switch (command) {
    case ZIP_SOURCE_READ:
        return file_read(f, data, n);
    case ZIP_SOURCE_SEEK:
        return file_seek(f, &f->at, data, n);
    case ZIP_SOURCE_TELL:
        return (zip_int64_t)f->at;
    case ZIP_SOURCE_WRITE:
        return file_write(f, data, n);
    case ZIP_SOURCE_SEEK_WRITE:
        return file_seek(f, &f->write_at, data, n);
    case ZIP_SOURCE_TELL_WRITE:
        return (zip_int64_t)f->write_at;
    case ZIP_SOURCE_STAT:
        return give_size(data, f->n_bytes);
    case ZIP_SOURCE_ERROR:
        return zip_error_to_data(&f->error, data, n);
    case ZIP_SOURCE_FREE:
        free(f);
        return 0;
    case ZIP_SOURCE_OPEN:
        f->at = 0;
        return 0;
    case ZIP_SOURCE_CLOSE:
    case ZIP_SOURCE_BEGIN_WRITE:
    case ZIP_SOURCE_COMMIT_WRITE:
    case ZIP_SOURCE_ROLLBACK_WRITE:
    case ZIP_SOURCE_REMOVE:
        return 0;
    case ZIP_SOURCE_SUPPORTS:
        return zip_source_make_command_bitmap(
            ZIP_SOURCE_SUPPORTS, ZIP_SOURCE_OPEN, ZIP_SOURCE_READ, ZIP_SOURCE_CLOSE,
            ZIP_SOURCE_STAT, ZIP_SOURCE_ERROR, ZIP_SOURCE_FREE, ZIP_SOURCE_SEEK,
            ZIP_SOURCE_TELL, ZIP_SOURCE_BEGIN_WRITE, ZIP_SOURCE_COMMIT_WRITE,
            ZIP_SOURCE_ROLLBACK_WRITE, ZIP_SOURCE_WRITE, ZIP_SOURCE_SEEK_WRITE,
            ZIP_SOURCE_TELL_WRITE, ZIP_SOURCE_REMOVE, -1);
    default:
        errno = EOPNOTSUPP;
        return file_fails(f, ZIP_ER_OPNOTSUPP);
    }
}

static int archive_open(struct npz *z, int fd, const char *name, int flags,
                        struct error *err)
{
    struct stat st;
    zip_error_t error = {0};
    *z = (struct npz){.name = name, .file = calloc(1, sizeof *z->file)};
    if (!z->file)
        return error_set(err, ERROR_RUNTIME, "out of memory opening '%s'", name);
    z->file->fd = fd;
    if (fstat(fd, &st)) {
        error_set(err, ERROR_INPUT, "cannot read '%s': %s", name, strerror(errno));
        free(z->file);
        return -1;
    }
    z->file->n_bytes = (uint64_t)st.st_size;
    zip_source_t *source = zip_source_function_create(serve_file, z->file, &error);
    if (source)
        z->archive = zip_open_from_source(source, flags, &error);
    if (z->archive)
        return 0;
    error_set(
        err, ERROR_INPUT,
        "'%s' is not a readable npz archive: %s; is it truncated, or something else?",
        name, zip_error_strerror(&error));
    zip_error_fini(&error);
    if (source)
        zip_source_free(source);
    else
        free(z->file);
    return -1;
}

/* -- reading ------------------------------------------------------------------------- */

int npz_open(struct npz *z, int fd, const char *name, struct error *err)
{
    if (archive_open(z, fd, name, ZIP_RDONLY, err))
        return -1;
    if (z->file->n_bytes > 0)
        return 0;
    npz_close(z); // libzip takes it for an archive without members
    return error_set(err, ERROR_INPUT, "'%s' is not a readable npz archive: it is empty",
                     name);
}

void npz_close(struct npz *z)
{
    if (z->archive)
        zip_discard(z->archive);
    z->archive = NULL;
}

static int refuse_member(const struct npz_member *m, const char *what, struct error *err)
{
    return error_set(err, ERROR_INPUT, "'%s' is not readable: %s", m->name, what);
}

int npz_find(const struct npz *z, const char *array, struct npz_member *m, bool *is_there,
             struct error *err)
{
    char wanted[64];
    zip_stat_t st;
    snprintf(wanted, sizeof wanted, "%s.npy", array);
    snprintf(m->name, sizeof m->name, "%.90s[%s]", z->name, array);
    zip_int64_t index = zip_name_locate(z->archive, wanted, ZIP_FL_ENC_RAW);
    *is_there = index >= 0;
    if (!*is_there)
        return 0;
    m->index = (uint64_t)index;
    if (zip_stat_index(z->archive, m->index, 0, &st))
        return refuse_member(m, zip_strerror(z->archive), err);
    if (st.encryption_method != ZIP_EM_NONE)
        return refuse_member(m, "it is encrypted", err);
    if (st.comp_method != ZIP_CM_STORE && st.comp_method != ZIP_CM_DEFLATE)
        return refuse_member(m, "it is neither stored nor deflated", err);
    m->is_deflated = st.comp_method == ZIP_CM_DEFLATE;
    m->packed_bytes = st.comp_size;
    m->bytes = st.size;
    if (m->packed_bytes > z->file->n_bytes)
        return refuse_member(m, "it is longer than the file", err);
    if (!m->is_deflated && m->packed_bytes != m->bytes)
        return refuse_member(m, "it is stored and has two different sizes", err);
    if (m->is_deflated && m->bytes / DEFLATE_MAX_RATIO > m->packed_bytes)
        return refuse_member(m, "it claims to unpack to more than is possible", err);
    return 0;
}

static zip_file_t *member_open(const struct npz *z, const struct npz_member *m,
                               struct error *err)
{
    zip_file_t *f = zip_fopen_index(z->archive, m->index, 0);
    if (!f)
        refuse_member(m, zip_strerror(z->archive), err);
    return f;
}

/* The next n bytes, all of them. */
static int member_read(zip_file_t *f, const struct npz_member *m, uint8_t *data, size_t n,
                       struct error *err)
{
    for (size_t done = 0; done < n;) {
        zip_int64_t got = zip_fread(f, data + done, n - done);
        if (got <= 0)
            return refuse_member(m, got < 0 ? zip_file_strerror(f) : "it is too short",
                                 err);
        done += (size_t)got;
    }
    return 0;
}

/* Everything was read: does the member end here, and is it what was packed? libzip
 * compares the checksum when it comes to the end. */
static int member_finish(zip_file_t *f, const struct npz_member *m, struct error *err)
{
    uint8_t past;
    zip_int64_t got = zip_fread(f, &past, 1);
    if (got == 0)
        return 0;
    return refuse_member(m, got < 0 ? zip_file_strerror(f) : "it is too long", err);
}

int npz_offset(const struct npz *z, const struct npz_member *m, uint64_t *offset,
               struct error *err)
{
    uint8_t first;
    zip_file_t *f = member_open(z, m, err);
    if (!f)
        return -1;
    int rc = member_read(f, m, &first, 1, err);
    *offset = z->file->last_read;
    zip_fclose(f);
    if (rc == 0 && m->bytes > z->file->n_bytes - *offset)
        rc = refuse_member(m, "it is longer than the file", err);
    return rc;
}

int npz_read(const struct npz *z, const struct npz_member *m, struct npy *npy,
             uint8_t **data, struct error *err)
{
    uint8_t *bytes = malloc((size_t)m->bytes + 1);
    if (!bytes)
        return error_set(err, ERROR_RUNTIME, "no memory for the %llu bytes of '%s'",
                         (unsigned long long)m->bytes, m->name);
    zip_file_t *f = member_open(z, m, err);
    int rc = f ? 0 : -1;
    if (rc || member_read(f, m, bytes, (size_t)m->bytes, err) ||
        member_finish(f, m, err) ||
        npy_parse(npy, bytes, (size_t)m->bytes, m->bytes, m->name, err)) {
        free(bytes);
        bytes = NULL;
        rc = -1;
    }
    if (f)
        zip_fclose(f);
    *data = bytes;
    return rc;
}

/* *head (malloc'ed, HEAD_BYTES) := the beginning of the member, *n_head bytes of it. */
static int read_head(zip_file_t *f, const struct npz_member *m, struct npy *npy,
                     uint8_t **head, size_t *n_head, struct error *err)
{
    *n_head = m->bytes < HEAD_BYTES ? (size_t)m->bytes : HEAD_BYTES;
    *head = malloc(HEAD_BYTES);
    if (!*head)
        return error_set(err, ERROR_RUNTIME, "out of memory reading '%s'", m->name);
    if (member_read(f, m, *head, *n_head, err))
        return -1;
    return npy_parse(npy, *head, *n_head, m->bytes, m->name, err);
}

int npz_describe(const struct npz *z, const struct npz_member *m, struct npy *npy,
                 struct error *err)
{
    uint8_t *head = NULL;
    size_t n_head;
    zip_file_t *f = member_open(z, m, err);
    if (!f)
        return -1;
    int rc = read_head(f, m, npy, &head, &n_head, err);
    free(head);
    zip_fclose(f);
    return rc;
}

/* The numbers of `npy`, of which the first n_held bytes are at `held`, to `values`. */
static int convert_numbers(zip_file_t *f, const struct npz_member *m,
                           const struct npy *npy, uint8_t *held, size_t n_held,
                           int64_t *values, struct error *err)
{
    size_t size = disk_int_bytes(npy->type);
    uint64_t more = (uint64_t)npy->n_elements * size - n_held;
    for (int64_t done = 0; done < npy->n_elements;) {
        size_t space = HEAD_BYTES - n_held;
        size_t part = more < space ? (size_t)more : space;
        if (member_read(f, m, held + n_held, part, err))
            return -1;
        more -= part;
        n_held += part;
        int64_t n = i64_min((int64_t)(n_held / size), npy->n_elements - done);
        disk_int_read_i64(npy->type, held, n, values + done);
        done += n;
        n_held -= (size_t)n * size;
        memmove(held, held + (size_t)n * size, n_held);
    }
    return member_finish(f, m, err);
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
    struct npy npy = {0};
    uint8_t *head = NULL;
    size_t n_head;
    int rc = -1;
    *values = NULL;
    zip_file_t *f = member_open(z, m, err);
    if (!f || read_head(f, m, &npy, &head, &n_head, err) ||
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
    rc = convert_numbers(f, m, &npy, head, n_head - npy.data_offset, *values, err);
done:
    if (f)
        zip_fclose(f);
    free(head);
    if (rc) {
        free(*values);
        *values = NULL;
    }
    return rc;
}

/* -- writing ------------------------------------------------------------------------- */

struct array_source {
    const struct npz_array *array;
    uint8_t header[NPY_WRITE_HEADER_BYTES];
    uint64_t at, n_bytes; // of the array file
    struct error failure; // of array->read
    zip_error_t error;
};

static zip_int64_t array_read(struct array_source *s, uint8_t *data, uint64_t n)
{
    const struct npz_array *a = s->array;
    uint64_t left = s->n_bytes - s->at;
    n = n < left ? n : left;
    if (s->at < sizeof s->header) {
        n = n < sizeof s->header - s->at ? n : sizeof s->header - s->at;
        memcpy(data, s->header + s->at, n);
    } else {
        n -= n % disk_int_bytes(a->type);
        if (n > 0 &&
            a->read(a->context, s->at - sizeof s->header, data, n, &s->failure)) {
            zip_error_set(&s->error, ZIP_ER_READ, 0);
            return -1;
        }
    }
    s->at += n;
    return (zip_int64_t)n;
}

/* What libzip asks of an array that it writes. */
static zip_int64_t serve_array(void *context, void *data, zip_uint64_t n,
                               zip_source_cmd_t command)
{
    struct array_source *s = context;
    switch (command) {
    case ZIP_SOURCE_OPEN:
        s->at = 0;
        return 0;
    case ZIP_SOURCE_READ:
        return array_read(s, data, n);
    case ZIP_SOURCE_STAT:
        return give_size(data, s->n_bytes);
    case ZIP_SOURCE_ERROR:
        return zip_error_to_data(&s->error, data, n);
    case ZIP_SOURCE_SUPPORTS:
        return zip_source_make_command_bitmap(
            ZIP_SOURCE_SUPPORTS, ZIP_SOURCE_OPEN, ZIP_SOURCE_READ, ZIP_SOURCE_CLOSE,
            ZIP_SOURCE_STAT, ZIP_SOURCE_ERROR, ZIP_SOURCE_FREE, -1);
    default: // closing and freeing: nothing to do
        return 0;
    }
}

static int add_array(struct npz *z, struct array_source *s, const struct npz_array *a)
{
    char member[64];
    *s = (struct array_source){.array = a};
    s->n_bytes = sizeof s->header + (uint64_t)a->n_elements * disk_int_bytes(a->type);
    npy_write_header(s->header, a->type, a->n_elements);
    snprintf(member, sizeof member, "%s.npy", a->name);
    zip_source_t *source = zip_source_function(z->archive, serve_array, s);
    if (!source)
        return -1;
    zip_int64_t index = zip_file_add(z->archive, member, source, 0);
    if (index < 0) {
        zip_source_free(source);
        return -1;
    }
    if (zip_set_file_compression(z->archive, (uint64_t)index, ZIP_CM_STORE, 0) ||
        zip_file_set_dostime(z->archive, (uint64_t)index, 0, DOS_DATE, 0))
        return -1;
    return 0;
}

int npz_write(int fd, const char *name, const struct npz_array *arrays, int n_arrays,
              struct error *err)
{
    enum { MOST = 4 };
    struct npz z;
    struct array_source sources[MOST];
    CHECK(n_arrays <= MOST, "%d arrays", n_arrays);
    if (archive_open(&z, fd, name, ZIP_CREATE | ZIP_TRUNCATE, err))
        return -1;
    int rc = 0, n = 0;
    for (; rc == 0 && n < n_arrays; n++)
        rc = add_array(&z, &sources[n], &arrays[n]);
    if (rc == 0 && zip_close(z.archive) == 0)
        return 0;
    error_set(err, ERROR_RUNTIME, "cannot write '%s': %s", name, zip_strerror(z.archive));
    for (int i = 0; i < n; i++)
        if (zip_error_code_zip(&sources[i].error) != ZIP_ER_OK)
            *err = sources[i].failure;
    zip_discard(z.archive);
    return -1;
}

/*
 * The header is a Python dict literal with exactly three keys, in any order:
 *
 *     {'descr': '<u2', 'fortran_order': False, 'shape': (5,), }
 *
 * A cursor walks over it; every step either moves past what it expected or reports the
 * byte where it stands.
 */
#include "data/formats/npy.h"

#include "base/fs.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const uint8_t magic[6] = {0x93, 'N', 'U', 'M', 'P', 'Y'};

static const struct {
    const char *descr;
    enum disk_int type;
} descrs[] = {
    {"|u1", DISK_U8},  {"|i1", DISK_I8},  {"<u1", DISK_U8},  {"<i1", DISK_I8},
    {"<u2", DISK_U16}, {"<i2", DISK_I16}, {"<u4", DISK_U32}, {"<i4", DISK_I32},
    {"<u8", DISK_U64}, {"<i8", DISK_I64},
};

struct cursor {
    const uint8_t *base; // start of the array file
    size_t at, end;      // the rest of the header
    const char *name;
    struct error *err;
};

static int refuse_header(struct cursor *c, const char *expected)
{
    return error_set(c->err, ERROR_INPUT,
                     "'%s' is not a numpy array file we can read: at byte %zu of its "
                     "header, %s expected",
                     c->name, c->at, expected);
}

static void skip_spaces(struct cursor *c)
{
    while (c->at < c->end && (c->base[c->at] == ' ' || c->base[c->at] == '\n'))
        c->at++;
}

/* Move past `symbol` if it comes next. */
static bool accept_symbol(struct cursor *c, const char *symbol)
{
    size_t n = strlen(symbol);
    skip_spaces(c);
    if (c->end - c->at < n || memcmp(c->base + c->at, symbol, n) != 0)
        return false;
    c->at += n;
    return true;
}

/* A quoted string without escapes, shorter than `size`. */
static int read_string(struct cursor *c, char *text, size_t size)
{
    skip_spaces(c);
    if (c->at >= c->end || (c->base[c->at] != '\'' && c->base[c->at] != '"'))
        return refuse_header(c, "a quoted string");
    uint8_t quote = c->base[c->at++];
    size_t n = 0;
    while (c->at < c->end && c->base[c->at] != quote) {
        if (n + 1 >= size || c->base[c->at] < 0x20 || c->base[c->at] > 0x7e)
            return refuse_header(c, "a short plain string");
        text[n++] = (char)c->base[c->at++];
    }
    if (c->at >= c->end)
        return refuse_header(c, "a closing quote");
    c->at++;
    text[n] = 0;
    return 0;
}

static int read_count(struct cursor *c, int64_t *value)
{
    skip_spaces(c);
    size_t first = c->at;
    int64_t v = 0;
    while (c->at < c->end && c->base[c->at] >= '0' && c->base[c->at] <= '9') {
        if (__builtin_mul_overflow(v, 10, &v) ||
            __builtin_add_overflow(v, c->base[c->at] - '0', &v))
            return refuse_header(c, "a dimension below 2^63");
        c->at++;
    }
    if (c->at == first)
        return refuse_header(c, "a dimension");
    *value = v;
    return 0;
}

static int parse_descr(struct cursor *c, struct npy *npy)
{
    char descr[32];
    if (!accept_symbol(c, "'") && !accept_symbol(c, "\""))
        return error_set(c->err, ERROR_INPUT,
                         "'%s' holds records, not an array of integers", c->name);
    c->at--;
    if (read_string(c, descr, sizeof descr))
        return -1;
    for (size_t i = 0; i < ARRAY_LEN(descrs); i++)
        if (strcmp(descr, descrs[i].descr) == 0) {
            npy->type = descrs[i].type;
            return 0;
        }
    const char *why = descr[0] == '>'      ? "big-endian data"
                      : strchr(descr, 'O') ? "Python objects"
                      : strchr(descr, 'f') ? "floating-point numbers"
                                           : "no integers";
    return error_set(c->err, ERROR_INPUT,
                     "'%s' holds %s (type '%s'); little-endian integers are needed, for "
                     "example '<u2' or '<i4'",
                     c->name, why, descr);
}

static int parse_order(struct cursor *c)
{
    if (accept_symbol(c, "False"))
        return 0;
    if (accept_symbol(c, "True"))
        return error_set(c->err, ERROR_INPUT,
                         "'%s' is in Fortran order; save it with numpy.ascontiguousarray",
                         c->name);
    return refuse_header(c, "True or False");
}

/* (), (5,), (2, 3), ... */
static int parse_shape(struct cursor *c, struct npy *npy)
{
    npy->n_dims = 0;
    npy->n_elements = 1;
    if (!accept_symbol(c, "("))
        return refuse_header(c, "'('");
    while (!accept_symbol(c, ")")) {
        if (npy->n_dims == NPY_MAX_DIMS)
            return refuse_header(c, "at most 32 dimensions");
        int64_t *dim = &npy->shape[npy->n_dims++];
        if (read_count(c, dim))
            return -1;
        if (__builtin_mul_overflow(npy->n_elements, *dim, &npy->n_elements))
            return refuse_header(c, "fewer than 2^63 elements");
        if (!accept_symbol(c, ",")) {
            if (!accept_symbol(c, ")"))
                return refuse_header(c, "',' or ')'");
            break;
        }
    }
    return 0;
}

static int parse_dict(struct cursor *c, struct npy *npy)
{
    bool has_descr = false, has_order = false, has_shape = false;
    if (!accept_symbol(c, "{"))
        return refuse_header(c, "'{'");
    while (!accept_symbol(c, "}")) {
        char key[32];
        bool *seen = NULL;
        if (read_string(c, key, sizeof key))
            return -1;
        if (!accept_symbol(c, ":"))
            return refuse_header(c, "':'");
        if (strcmp(key, "descr") == 0) {
            seen = &has_descr;
            if (parse_descr(c, npy))
                return -1;
        } else if (strcmp(key, "fortran_order") == 0) {
            seen = &has_order;
            if (parse_order(c))
                return -1;
        } else if (strcmp(key, "shape") == 0) {
            seen = &has_shape;
            if (parse_shape(c, npy))
                return -1;
        }
        if (!seen || *seen)
            return refuse_header(c, "each of descr, fortran_order and shape once");
        *seen = true;
        if (!accept_symbol(c, ",") && (c->at >= c->end || c->base[c->at] != '}'))
            return refuse_header(c, "',' or '}'");
    }
    skip_spaces(c);
    if (c->at != c->end)
        return refuse_header(c, "the end of the header");
    if (!has_descr || !has_order || !has_shape)
        return refuse_header(c, "descr, fortran_order and shape");
    return 0;
}

/* Declared lengths against the size of the file, before anyone allocates by them. */
static int check_size(const struct npy *npy, uint64_t file_bytes, const char *name,
                      struct error *err)
{
    uint64_t needed;
    if (__builtin_mul_overflow((uint64_t)npy->n_elements, disk_int_bytes(npy->type),
                               &needed) ||
        __builtin_add_overflow(needed, npy->data_offset, &needed))
        needed = UINT64_MAX;
    if (needed == file_bytes)
        return 0;
    return error_set(err, ERROR_INPUT,
                     "'%s' is %s: its header at byte 0 declares %lld elements of %s, so "
                     "it should end at byte %llu, but it has %llu bytes",
                     name, needed > file_bytes ? "truncated" : "too long",
                     (long long)npy->n_elements, disk_int_name(npy->type),
                     (unsigned long long)needed, (unsigned long long)file_bytes);
}

int npy_parse(struct npy *npy, const uint8_t *head, size_t n, uint64_t file_bytes,
              const char *name, struct error *err)
{
    if (n < 12 || memcmp(head, magic, sizeof magic) != 0)
        return error_set(err, ERROR_INPUT,
                         "'%s' is not a numpy array file: it does not start with "
                         "\\x93NUMPY and a header",
                         name);
    unsigned major = head[6], minor = head[7];
    if (major < 1 || major > 3 || minor != 0)
        return error_set(err, ERROR_INPUT,
                         "'%s' is a numpy array file of version %u.%u at byte 6; 1.0, "
                         "2.0 and 3.0 are known",
                         name, major, minor);
    size_t start = major == 1 ? 10 : 12;
    uint64_t header = major == 1 ? disk_get_u16(head + 8) : disk_get_u32(head + 8);
    if (header > NPY_MAX_HEADER_BYTES)
        return error_set(err, ERROR_INPUT,
                         "'%s' declares a header of %llu bytes at byte 8; more than %d "
                         "are refused",
                         name, (unsigned long long)header, NPY_MAX_HEADER_BYTES);
    if (header > n - start)
        return error_set(err, ERROR_INPUT,
                         "'%s' is truncated: its header should reach to byte %llu, but "
                         "the file has %llu bytes",
                         name, (unsigned long long)(start + header),
                         (unsigned long long)file_bytes);
    struct cursor c = {head, start, start + (size_t)header, name, err};
    if (parse_dict(&c, npy))
        return -1;
    npy->data_offset = start + (size_t)header;
    return check_size(npy, file_bytes, name, err);
}

int npy_read_header(struct npy *npy, int fd, off_t start, uint64_t file_bytes,
                    const char *name, struct error *err)
{
    int rc = -1;
    size_t n = 12 + NPY_MAX_HEADER_BYTES;
    uint8_t *head = malloc(n);
    if (!head)
        return error_set(err, ERROR_RUNTIME, "out of memory for the header of '%s'",
                         name);
    if (n > file_bytes)
        n = (size_t)file_bytes;
    if (fs_pread_exact(fd, head, n, start)) {
        error_set(err, ERROR_INPUT, "cannot read '%s': %s", name, strerror(errno));
        goto done;
    }
    rc = npy_parse(npy, head, n, file_bytes, name, err);
done:
    free(head);
    return rc;
}

void npy_write_header(uint8_t header[NPY_WRITE_HEADER_BYTES], enum disk_int type,
                      int64_t n_elements)
{
    const char *descr = NULL;
    for (size_t i = 0; i < ARRAY_LEN(descrs) && !descr; i++)
        if (descrs[i].type == type)
            descr = descrs[i].descr;
    memcpy(header, magic, sizeof magic);
    header[6] = 1;
    header[7] = 0;
    disk_put_u16(header + 8, NPY_WRITE_HEADER_BYTES - 10);
    int n = snprintf((char *)header + 10, NPY_WRITE_HEADER_BYTES - 10,
                     "{'descr': '%s', 'fortran_order': False, 'shape': (%lld,), }", descr,
                     (long long)n_elements);
    memset(header + 10 + n, ' ', (size_t)(NPY_WRITE_HEADER_BYTES - 10 - n));
    header[NPY_WRITE_HEADER_BYTES - 1] = '\n';
}

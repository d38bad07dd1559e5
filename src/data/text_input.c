/*
 * The first bytes are read when the file is opened; they choose one of three ways to give
 * out the rest (`unpackers`). An unpacker takes its input from in->raw[raw_at, raw_end).
 */
#include "data/text_input.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#define RAW_BYTES (1u << 18)
#define LOOK_BYTES 512u // of the start of a file: enough for every mark below
#define WAIT_MILLISECONDS 100
#define GZIP_WINDOW (15 + 16) // zlib's way to say: largest window, gzip wrapping

struct text_input {
    const char *path;
    struct text_watch watch;
    int fd;
    bool is_at_end;      // of the file
    bool is_looked_into; // `start` was filled and checked
    bool is_inside;      // a gzip member or zstd frame has begun and not ended
    const struct unpacker *unpacker;
    int64_t n_file_bytes; // read
    int64_t n_text_bytes; // given out
    size_t raw_at, raw_end;
    uint8_t *raw;
    size_t start_at, start_end;
    char start[LOOK_BYTES]; // of the text, not yet given out from start_at on
    z_stream gzip;
    ZSTD_DStream *zstd;
};

struct unpacker {
    const char *name;
    const char *mark; // the first bytes of such a file
    size_t n_mark;
    int (*open)(struct text_input *in, struct error *err);
    int (*read)(struct text_input *in, char *buf, size_t size, size_t *n,
                struct error *err);
};

/* -- the file itself ----------------------------------------------------------------- */

/* Read once into buf; *n is 0 only at the end of the file. */
static int read_file(struct text_input *in, void *buf, size_t size, size_t *n,
                     struct error *err)
{
    struct pollfd polled = {.fd = in->fd, .events = POLLIN};
    for (;;) {
        if (in->watch.tick(in->watch.context, err))
            return -1;
        if (poll(&polled, 1, WAIT_MILLISECONDS) == 0)
            continue;
        ssize_t got = read(in->fd, buf, size);
        if (got >= 0) {
            *n = (size_t)got;
            in->n_file_bytes += got;
            in->is_at_end = got == 0;
            return 0;
        }
        if (errno != EINTR && errno != EAGAIN)
            return error_set(err, ERROR_RUNTIME, "cannot read '%s': %s", in->path,
                             strerror(errno));
    }
}

/* Add to in->raw what one read gives, if there is room and more of the file. */
static int fill_raw(struct text_input *in, struct error *err)
{
    size_t n = 0;
    if (in->raw_at == in->raw_end)
        in->raw_at = in->raw_end = 0;
    if (in->is_at_end || in->raw_end == RAW_BYTES)
        return 0;
    if (read_file(in, in->raw + in->raw_end, RAW_BYTES - in->raw_end, &n, err))
        return -1;
    in->raw_end += n;
    return 0;
}

/* The offset in the file of the next byte to unpack. */
static long long offset_of(const struct text_input *in)
{
    return (long long)in->n_file_bytes - (long long)(in->raw_end - in->raw_at);
}

/* -- plain --------------------------------------------------------------------------- */

static int open_plain(struct text_input *in, struct error *err)
{
    (void)in;
    (void)err;
    return 0;
}

static int read_plain(struct text_input *in, char *buf, size_t size, size_t *n,
                      struct error *err)
{
    size_t held = in->raw_end - in->raw_at;
    if (held == 0) {
        *n = 0;
        return in->is_at_end ? 0 : read_file(in, buf, size, n, err);
    }
    *n = held < size ? held : size;
    memcpy(buf, in->raw + in->raw_at, *n);
    in->raw_at += *n;
    return 0;
}

/* -- packed -------------------------------------------------------------------------- */

static int refuse_damaged(const struct text_input *in, const char *reason,
                          struct error *err)
{
    return error_set(err, ERROR_INPUT,
                     "cannot unpack '%s': its %s data is damaged near byte %lld (%s); "
                     "copy or pack it again",
                     in->path, in->unpacker->name, offset_of(in), reason);
}

static int refuse_cut_short(const struct text_input *in, struct error *err)
{
    return error_set(err, ERROR_INPUT,
                     "cannot unpack '%s': it ends after %lld bytes, in the middle of its "
                     "%s data; copy it again",
                     in->path, (long long)in->n_file_bytes, in->unpacker->name);
}

static int open_gzip(struct text_input *in, struct error *err)
{
    if (inflateInit2(&in->gzip, GZIP_WINDOW) != Z_OK)
        return error_set(err, ERROR_RUNTIME, "no memory to unpack '%s'", in->path);
    return 0;
}

/* Unpack one step: in->raw to buf. *n bytes came out; none does not mean the end. */
static int step_gzip(struct text_input *in, char *buf, size_t size, size_t *n,
                     struct error *err)
{
    z_stream *z = &in->gzip;
    if (!in->is_inside)
        inflateReset(z);
    in->is_inside = true;
    z->next_in = in->raw + in->raw_at;
    z->avail_in = (uInt)(in->raw_end - in->raw_at);
    z->next_out = (Bytef *)buf;
    z->avail_out = (uInt)(size < UINT_MAX ? size : UINT_MAX);
    uInt room = z->avail_out;
    int status = inflate(z, Z_NO_FLUSH);
    in->raw_at = in->raw_end - z->avail_in;
    *n = room - z->avail_out;
    if (status == Z_STREAM_END)
        in->is_inside = false;
    else if (status == Z_MEM_ERROR)
        return error_set(err, ERROR_RUNTIME, "no memory to unpack '%s'", in->path);
    else if (status != Z_OK && status != Z_BUF_ERROR)
        return refuse_damaged(in, z->msg ? z->msg : "a dictionary is needed", err);
    return 0;
}

static int open_zstd(struct text_input *in, struct error *err)
{
    in->zstd = ZSTD_createDStream();
    if (!in->zstd)
        return error_set(err, ERROR_RUNTIME, "no memory to unpack '%s'", in->path);
    return 0;
}

static int step_zstd(struct text_input *in, char *buf, size_t size, size_t *n,
                     struct error *err)
{
    ZSTD_inBuffer from = {in->raw, in->raw_end, in->raw_at};
    ZSTD_outBuffer to = {buf, size, 0};
    size_t left = ZSTD_decompressStream(in->zstd, &to, &from);
    in->raw_at = from.pos;
    *n = to.pos;
    if (ZSTD_isError(left))
        return refuse_damaged(in, ZSTD_getErrorName(left), err);
    in->is_inside = left != 0;
    return 0;
}

/* Steps until something comes out, or the file ends between members or frames. */
static int read_packed(struct text_input *in, char *buf, size_t size, size_t *n,
                       int (*step)(struct text_input *, char *, size_t, size_t *,
                                   struct error *),
                       struct error *err)
{
    *n = 0;
    while (*n == 0) {
        if (in->watch.tick(in->watch.context, err))
            return -1;
        if (in->raw_at == in->raw_end && fill_raw(in, err))
            return -1;
        bool has_raw = in->raw_at < in->raw_end;
        if (!has_raw && !in->is_inside)
            return 0;
        if (step(in, buf, size, n, err))
            return -1;
        if (*n == 0 && !has_raw && in->is_inside)
            return refuse_cut_short(in, err);
    }
    return 0;
}

static int read_gzip(struct text_input *in, char *buf, size_t size, size_t *n,
                     struct error *err)
{
    return read_packed(in, buf, size, n, step_gzip, err);
}

static int read_zstd(struct text_input *in, char *buf, size_t size, size_t *n,
                     struct error *err)
{
    return read_packed(in, buf, size, n, step_zstd, err);
}

/* -- which of them ------------------------------------------------------------------- */

static const struct unpacker unpackers[] = {
    {"gzip", "\x1f\x8b", 2, open_gzip, read_gzip},
    {"zstd", "\x28\xb5\x2f\xfd", 4, open_zstd, read_zstd},
    {"zstd", "\x50\x2a\x4d\x18", 4, open_zstd, read_zstd}, // pzstd's frame of sizes
};
static const struct unpacker plain = {"plain", "", 0, open_plain, read_plain};

static bool has_mark(const void *bytes, size_t n, size_t offset, const char *mark,
                     size_t n_mark)
{
    return n >= offset + n_mark &&
           memcmp((const char *)bytes + offset, mark, n_mark) == 0;
}

/* What is surely no text, and what to do about it. */
static int refuse_other_files(const char *path, const void *bytes, size_t n,
                              struct error *err)
{
    static const struct {
        const char *mark;
        size_t n_mark, offset;
        const char *what;
    } others[] = {
        {"BZh", 3, 0, "packed by bzip2; unpack it first"},
        {"\xfd"
         "7zXZ",
         5, 0, "packed by xz; unpack it first"},
        {"PK\x03\x04", 4, 0, "a zip archive; unpack it first"},
        {"ustar", 5, 257, "a tar archive; unpack it first"},
        {"\x93NUMPY", 6, 0, "a numpy array, not text; name the text files"},
        {"MMIDIDX", 7, 0, "an index of token files, not text; name the text files"},
    };
    for (size_t i = 0; i < ARRAY_LEN(others); i++)
        if (has_mark(bytes, n, others[i].offset, others[i].mark, others[i].n_mark))
            return error_set(err, ERROR_INPUT, "'%s' is %s", path, others[i].what);
    return 0;
}

static int choose_unpacker(struct text_input *in, struct error *err)
{
    while (in->raw_end < LOOK_BYTES && !in->is_at_end)
        if (fill_raw(in, err))
            return -1;
    in->unpacker = &plain;
    for (size_t i = 0; i < ARRAY_LEN(unpackers); i++)
        if (has_mark(in->raw, in->raw_end, 0, unpackers[i].mark, unpackers[i].n_mark))
            in->unpacker = &unpackers[i];
    return in->unpacker->open(in, err);
}

int text_input_open(struct text_input **out, const char *path,
                    const struct text_watch *watch, struct error *err)
{
    int rc = -1;
    *out = NULL;
    struct text_input *in = calloc(1, sizeof *in);
    if (!in)
        return error_set(err, ERROR_RUNTIME, "out of memory");
    in->path = path;
    in->watch = *watch;
    in->raw = malloc(RAW_BYTES);
    // without waiting: a named pipe that nobody writes to must not hold up the watch
    in->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (in->fd < 0) {
        error_set(err, ERROR_INPUT, "cannot open '%s': %s", path, strerror(errno));
        goto done;
    }
    if (!in->raw) {
        error_set(err, ERROR_RUNTIME, "out of memory");
        goto done;
    }
    if (choose_unpacker(in, err))
        goto done;
    *out = in;
    rc = 0;
done:
    if (rc)
        text_input_close(in);
    return rc;
}

/* Read the start of the text, however little a read gives, and see whether it is one. */
static int look_into(struct text_input *in, struct error *err)
{
    in->is_looked_into = true;
    for (size_t n = 1; n > 0 && in->start_end < LOOK_BYTES; in->start_end += n)
        if (in->unpacker->read(in, in->start + in->start_end, LOOK_BYTES - in->start_end,
                               &n, err))
            return -1;
    return refuse_other_files(in->path, in->start, in->start_end, err);
}

int text_input_read(struct text_input *in, char *buf, size_t size, size_t *n,
                    struct error *err)
{
    if (!in->is_looked_into && look_into(in, err))
        return -1;
    *n = in->start_end - in->start_at < size ? in->start_end - in->start_at : size;
    memcpy(buf, in->start + in->start_at, *n);
    in->start_at += *n;
    if (*n == 0 && in->unpacker->read(in, buf, size, n, err))
        return -1;
    in->n_text_bytes += (int64_t)*n;
    return 0;
}

const char *text_input_path(const struct text_input *in)
{
    return in->path;
}

int64_t text_input_file_bytes(const struct text_input *in)
{
    return in->n_file_bytes;
}

int64_t text_input_text_bytes(const struct text_input *in)
{
    return in->n_text_bytes;
}

void text_input_close(struct text_input *in)
{
    if (!in)
        return;
    inflateEnd(&in->gzip); // refuses a stream that was never begun, harmlessly
    ZSTD_freeDStream(in->zstd);
    if (in->fd >= 0)
        close(in->fd);
    free(in->raw);
    free(in);
}

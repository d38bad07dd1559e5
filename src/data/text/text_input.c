/*
 * The first bytes are read when the file is opened; they choose one of three ways to give
 * out the rest (`unpackers`). An unpacker takes its input from in->raw[raw_at, raw_end).
 * What it gives out is looked into at its beginning, then checked or converted.
 */
#include "data/text/text_input.h"

#include "base/clock.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/utf8.h"
#include "data/text/text_encoding.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>
#include <zstd_errors.h>

#define WAIT_MILLISECONDS 100
#define WRITER_SECONDS 60.0     // a named pipe is waited for
#define WRITER_REPORT_SECONDS 1 // before it is said to be
#define RAW_BYTES (1u << 18)
#define MARK_BYTES 8u         // of the start of a file: enough for the packers' marks
#define LOOK_BYTES 65536u     // of the start of a text, to see what it is
#define GZIP_WINDOW (15 + 16) // zlib's way to say: largest window, gzip wrapping
#define ZSTD_WINDOW_LOG 31    // the largest that the zstd program packs with
#define USUAL_WINDOW_BYTES (128u << 20) // what zstd unpacks without being asked to

/* -- the bytes of a file ------------------------------------------------------------- */

const char *text_source_name(const char *path)
{
    return strcmp(path, TEXT_STANDARD_INPUT) == 0 ? "standard input" : path;
}

/* A terminal ends when its user says so, and the null device at once; no other does. */
static int refuse_device(const struct text_source *s, const struct stat *st,
                         struct error *err)
{
    bool is_null = st->st_rdev == makedev(1, 3);
    if (S_ISBLK(st->st_mode) || (S_ISCHR(st->st_mode) && !is_null && !isatty(s->fd)))
        return error_set(err, ERROR_INPUT, "'%s' is a device, not a file of text",
                         s->name);
    return 0;
}

int text_source_open(struct text_source *s, const char *path,
                     const struct text_watch *watch, struct error *err)
{
    struct stat st;
    bool is_standard = strcmp(path, TEXT_STANDARD_INPUT) == 0;
    *s = (struct text_source){
        .name = text_source_name(path), .watch = *watch, .open_seconds = clock_seconds()};
    if (!(s->watch.writer_seconds > 0))
        s->watch.writer_seconds = WRITER_SECONDS;
    // without waiting: a named pipe that nobody writes to must not hold up the watch
    s->fd = is_standard ? STDIN_FILENO
                        : open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (s->fd < 0 || fstat(s->fd, &st))
        return error_set(err, ERROR_INPUT, "cannot open '%s': %s", s->name,
                         strerror(errno));
    s->is_waiting_for_writer = S_ISFIFO(st.st_mode) && !is_standard;
    return refuse_device(s, &st, err);
}

/* Nobody has opened the named pipe for writing yet. */
static int wait_for_writer(struct text_source *s, struct error *err)
{
    double waited = clock_seconds() - s->open_seconds;
    if (waited >= s->watch.writer_seconds)
        return error_set(err, ERROR_INPUT,
                         "nobody has opened the named pipe '%s' for writing in %.0f s; "
                         "start what writes to it first",
                         s->name, waited);
    if (waited >= WRITER_REPORT_SECONDS && !s->is_reported) {
        s->is_reported = true;
        log_info("waiting for a writer of the named pipe '%s', for %.0f s at most",
                 s->name, s->watch.writer_seconds);
    }
    return 0;
}

int text_source_read(struct text_source *s, void *buf, size_t size, size_t *n,
                     struct error *err)
{
    struct pollfd polled = {.fd = s->fd, .events = POLLIN};
    for (;;) {
        if (s->watch.tick && s->watch.tick(s->watch.context, err))
            return -1;
        int n_ready = poll(&polled, 1, WAIT_MILLISECONDS);
        if (n_ready < 0 && errno == EINTR)
            continue; // tick() learns whether that asks us to stop
        bool is_ready = n_ready != 0;
        if (!is_ready && !s->is_waiting_for_writer)
            continue;
        ssize_t got = read(s->fd, buf, size);
        if (got == 0 && !is_ready) { // a writer that is silent would read as EAGAIN
            if (wait_for_writer(s, err))
                return -1;
        } else if (got >= 0) {
            *n = (size_t)got;
            s->n_bytes += got;
            s->is_at_end = got == 0;
            s->is_waiting_for_writer = false;
            return 0;
        } else if (errno != EINTR && errno != EAGAIN) {
            return error_set(err, fs_error_kind(errno), "cannot read '%s': %s", s->name,
                             strerror(errno));
        } else if (errno == EAGAIN) {
            s->is_waiting_for_writer = false;
        }
    }
}

void text_source_close(struct text_source *s)
{
    if (s->fd > STDERR_FILENO)
        close(s->fd);
    s->fd = -1;
}

/* -- the text in it ------------------------------------------------------------------ */

struct text_input {
    struct text_form form;
    enum text_encoding_kind encoding;
    struct text_source source;
    bool is_looked_into; // `start` was filled and checked
    bool is_inside;      // a gzip member or zstd frame has begun and not ended
    const struct unpacker *unpacker; // NULL: none is needed
    int64_t n_text_bytes;            // given out
    size_t raw_at, raw_end;
    uint8_t *raw;
    size_t start_at, start_end;
    char *start; // (LOOK_BYTES) of the text, not yet given out from start_at on
    struct utf8_check check;
    struct text_decoder *decoder; // or NULL
    z_stream gzip;
    ZSTD_DStream *zstd;
};

struct unpacker {
    const char *name;
    const char *mark; // the first bytes of such a file
    size_t n_mark;
    int (*open)(struct text_input *in, struct error *err);
    /* in->raw to buf; *n bytes came out, and none does not mean the end. */
    int (*step)(struct text_input *in, char *buf, size_t size, size_t *n,
                struct error *err);
};

/* -- the file itself ----------------------------------------------------------------- */

/* Add to in->raw what one read gives, if there is space and more of the file. */
static int fill_raw(struct text_input *in, struct error *err)
{
    size_t n = 0;
    if (in->raw_at == in->raw_end)
        in->raw_at = in->raw_end = 0;
    if (in->source.is_at_end || in->raw_end == RAW_BYTES)
        return 0;
    if (text_source_read(&in->source, in->raw + in->raw_end, RAW_BYTES - in->raw_end, &n,
                         err))
        return -1;
    in->raw_end += n;
    return 0;
}

/* The offset in the file of the next byte to unpack. */
static long long offset_of(const struct text_input *in)
{
    return (long long)in->source.n_bytes - (long long)(in->raw_end - in->raw_at);
}

/* -- plain --------------------------------------------------------------------------- */

static int read_plain(struct text_input *in, char *buf, size_t size, size_t *n,
                      struct error *err)
{
    size_t held = in->raw_end - in->raw_at;
    if (held == 0) {
        *n = 0;
        return in->source.is_at_end ? 0
                                    : text_source_read(&in->source, buf, size, n, err);
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
                     in->source.name, in->unpacker->name, offset_of(in), reason);
}

static int refuse_cut_short(const struct text_input *in, struct error *err)
{
    return error_set(err, ERROR_INPUT,
                     "cannot unpack '%s': it ends after %lld bytes, in the middle of its "
                     "%s data; copy it again",
                     in->source.name, (long long)in->source.n_bytes, in->unpacker->name);
}

static int open_gzip(struct text_input *in, struct error *err)
{
    if (inflateInit2(&in->gzip, GZIP_WINDOW) != Z_OK)
        return error_set(err, ERROR_RUNTIME, "no memory to unpack '%s'", in->source.name);
    return 0;
}

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
    uInt space = z->avail_out;
    int status = inflate(z, Z_NO_FLUSH);
    in->raw_at = in->raw_end - z->avail_in;
    *n = space - z->avail_out;
    if (status == Z_STREAM_END)
        in->is_inside = false;
    else if (status == Z_MEM_ERROR)
        return error_set(err, ERROR_RUNTIME, "no memory to unpack '%s'", in->source.name);
    else if (status != Z_OK && status != Z_BUF_ERROR)
        return refuse_damaged(in, z->msg ? z->msg : "a dictionary is needed", err);
    return 0;
}

/* The memory that the frame in in->raw needs to be unpacked, as its header says. */
static uint64_t zstd_window_bytes(const struct text_input *in)
{
    const uint8_t *header = in->raw + in->raw_at + 4;
    if (in->raw_end - in->raw_at < 6 || (header[0] & 0x20)) // as large as its content
        return 0;
    uint64_t base = (uint64_t)1 << (10 + (header[1] >> 3));
    return base + base / 8 * (header[1] & 7);
}

static int open_zstd(struct text_input *in, struct error *err)
{
    uint64_t window = zstd_window_bytes(in);
    in->zstd = ZSTD_createDStream();
    if (!in->zstd || ZSTD_isError(ZSTD_DCtx_setParameter(in->zstd, ZSTD_d_windowLogMax,
                                                         ZSTD_WINDOW_LOG)))
        return error_set(err, ERROR_RUNTIME, "no memory to unpack '%s'", in->source.name);
    if (window <= USUAL_WINDOW_BYTES || window > (uint64_t)1 << ZSTD_WINDOW_LOG)
        return 0; // a larger one is refused where it is read
    log_info("'%s' was packed with a window of %llu MB (zstd --long): to unpack it may "
             "take as much memory",
             in->source.name, (unsigned long long)(window >> 20));
    return 0;
}

static int refuse_zstd(const struct text_input *in, size_t code, struct error *err)
{
    switch (ZSTD_getErrorCode(code)) {
    case ZSTD_error_frameParameter_windowTooLarge:
        return error_set(err, ERROR_INPUT,
                         "cannot unpack '%s': it was packed with a window of more than "
                         "%u MB, the largest that zstd --long makes; pack it again with "
                         "--long=%d or less",
                         in->source.name, 1u << (ZSTD_WINDOW_LOG - 20), ZSTD_WINDOW_LOG);
    case ZSTD_error_dictionary_wrong:
        return error_set(err, ERROR_INPUT,
                         "cannot unpack '%s': it was packed with a dictionary (zstd -D); "
                         "unpack it first",
                         in->source.name);
    case ZSTD_error_memory_allocation:
        return error_set(err, ERROR_RUNTIME, "no memory to unpack '%s'", in->source.name);
    default:
        return refuse_damaged(in, ZSTD_getErrorName(code), err);
    }
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
        return refuse_zstd(in, left, err);
    in->is_inside = left != 0;
    return 0;
}

/* Steps until something comes out, or the file ends between members or frames. */
static int read_packed(struct text_input *in, char *buf, size_t size, size_t *n,
                       struct error *err)
{
    *n = 0;
    while (*n == 0) {
        if (in->source.watch.tick && in->source.watch.tick(in->source.watch.context, err))
            return -1;
        if (in->raw_at == in->raw_end && fill_raw(in, err))
            return -1;
        bool has_raw = in->raw_at < in->raw_end;
        if (!has_raw && !in->is_inside)
            return 0;
        if (in->unpacker->step(in, buf, size, n, err))
            return -1;
        if (*n == 0 && !has_raw && in->is_inside)
            return refuse_cut_short(in, err);
    }
    return 0;
}

static int read_bytes(struct text_input *in, char *buf, size_t size, size_t *n,
                      struct error *err)
{
    return in->unpacker ? read_packed(in, buf, size, n, err)
                        : read_plain(in, buf, size, n, err);
}

/* -- which of them ------------------------------------------------------------------- */

static const struct unpacker unpackers[] = {
    {"gzip", "\x1f\x8b", 2, open_gzip, step_gzip},
    {"zstd", "\x28\xb5\x2f\xfd", 4, open_zstd, step_zstd},
    {"zstd", "\x50\x2a\x4d\x18", 4, open_zstd, step_zstd}, // pzstd's frame of sizes
};

static int choose_unpacker(struct text_input *in, struct error *err)
{
    while (in->raw_end < MARK_BYTES && !in->source.is_at_end)
        if (fill_raw(in, err))
            return -1;
    for (size_t i = 0; i < ARRAY_LEN(unpackers) && in->form.kind != TEXT_RAW_FILE; i++)
        if (in->raw_end >= unpackers[i].n_mark &&
            memcmp(in->raw, unpackers[i].mark, unpackers[i].n_mark) == 0)
            in->unpacker = &unpackers[i];
    return in->unpacker ? in->unpacker->open(in, err) : 0;
}

int text_input_open(struct text_input **out, const char *path,
                    const struct text_form *form, const struct text_watch *watch,
                    struct error *err)
{
    int rc = -1;
    *out = NULL;
    struct text_input *in = calloc(1, sizeof *in);
    if (!in)
        return error_set(err, ERROR_RUNTIME, "out of memory");
    in->form = *form;
    in->encoding = form->kind == TEXT_RAW_FILE ? TEXT_IS_BYTES
                                               : text_encoding_kind_of(form->encoding);
    if (text_source_open(&in->source, path, watch, err))
        goto done;
    in->raw = malloc(RAW_BYTES);
    in->start = malloc(LOOK_BYTES);
    if (!in->raw || !in->start) {
        error_set(err, ERROR_RUNTIME, "out of memory");
        goto done;
    }
    if ((in->encoding == TEXT_IS_CONVERTED &&
         text_decoder_open(&in->decoder, form->encoding, in->source.name, err)) ||
        choose_unpacker(in, err))
        goto done;
    *out = in;
    rc = 0;
done:
    if (rc)
        text_input_close(in);
    return rc;
}

/* -- what is in it ------------------------------------------------------------------- */

#define AS_BYTES                                                                         \
    "--encoding " TEXT_ENCODING_BYTES " takes the bytes of a file as they are"

static int refuse_as(const struct text_input *in, const char *encoding, int64_t at,
                     struct error *err)
{
    return error_set(err, ERROR_INPUT,
                     "'%s' is not UTF-8 at byte %lld of its text; it looks like %s: give "
                     "--encoding %s (" AS_BYTES ")",
                     in->source.name, (long long)at, encoding, encoding);
}

/* Byte `at` of the text is not UTF-8; it is byte `bad` of the n bytes at hand. */
static int refuse_encoding(const struct text_input *in, const char *bytes, size_t n,
                           size_t bad, int64_t at, struct error *err)
{
    size_t line = bad; // a character begins where the line does
    while (line > 0 && bytes[line - 1] != '\n')
        line--;
    bool is_nul = bad < n && bytes[bad] == 0;
    const char *guess =
        text_guess_encoding(is_nul ? bytes : bytes + line, is_nul ? n : n - line);
    if (guess)
        return refuse_as(in, guess, at, err);
    if (is_nul)
        return error_set(
            err, ERROR_INPUT,
            "'%s' is not text: byte %lld of it is 0, as in binary files; " AS_BYTES,
            in->source.name, (long long)at);
    return error_set(err, ERROR_INPUT,
                     "'%s' is not UTF-8 at byte %lld of its text; name its encoding with "
                     "--encoding, for example WINDOWS-1252, or mend it; " AS_BYTES,
                     in->source.name, (long long)at);
}

/* Are most lines that are not ASCII not UTF-8 either? Several, to be sure. */
static bool has_bad_lines(const char *bytes, size_t n)
{
    int64_t n_bad = 0, n_good = 0;
    for (size_t begin = 0, end; begin < n; begin = end + 1) {
        const char *newline = memchr(bytes + begin, '\n', n - begin);
        end = newline ? (size_t)(newline - bytes) : n;
        bool is_ascii = true;
        for (size_t i = begin; i < end && is_ascii; i++)
            is_ascii = (uint8_t)bytes[i] < 0x80;
        bool is_bad = newline && utf8_find_bad(bytes + begin, end - begin) < end - begin;
        n_bad += is_bad;
        n_good += !is_ascii && !is_bad;
    }
    return n_bad >= 2 && n_bad > n_good;
}

/* Of lines of JSON single ones may be bad; a file in another encoding is bad all over. */
static bool is_refused(const struct text_input *in, const char *start, size_t n)
{
    if (in->form.kind != TEXT_JSON_LINES)
        return true;
    const char *guess = text_guess_encoding(start, n);
    return guess && (strncmp(guess, "UTF-", 4) == 0 || has_bad_lines(start, n));
}

/* Refuse what the start of the text shows to be something else. Plain text will be
 * checked to its end. */
static int check_start(struct text_input *in, struct error *err)
{
    const char *start = in->start;
    size_t n = in->start_end;
    if (in->encoding == TEXT_IS_BYTES)
        return 0;
    struct utf8_check check = {.n_held = 0};
    bool is_text = utf8_check_take(&check, start, n);
    const char *file = text_guess_file(start, n, is_text);
    if (file)
        return error_set(err, ERROR_INPUT, "'%s' is %s", in->source.name, file);
    if (in->encoding != TEXT_IS_UTF8)
        return 0;
    size_t at;
    const char *switching = text_guess_switching(start, n, &at);
    if (is_text && switching)
        return refuse_as(in, switching, (int64_t)at, err);
    if (!is_text && is_refused(in, start, n))
        return refuse_encoding(in, start, n, (size_t)check.n_bytes, check.n_bytes, err);
    if (n >= 3 && memcmp(start, "\xef\xbb\xbf", 3) == 0)
        in->start_at = 3;
    in->check.n_bytes = (int64_t)in->start_at;
    return 0;
}

/* Read the start of the text, however little a read gives, and see whether it is one. */
static int look_into(struct text_input *in, struct error *err)
{
    in->is_looked_into = true;
    for (size_t n = 1; n > 0 && in->start_end < LOOK_BYTES; in->start_end += n)
        if (read_bytes(in, in->start + in->start_end, LOOK_BYTES - in->start_end, &n,
                       err))
            return -1;
    return check_start(in, err);
}

/* -- reading ------------------------------------------------------------------------- */

/* Unpacked, and otherwise as it is in the file. */
static int read_unpacked(struct text_input *in, char *buf, size_t size, size_t *n,
                         struct error *err)
{
    *n = in->start_end - in->start_at < size ? in->start_end - in->start_at : size;
    memcpy(buf, in->start + in->start_at, *n);
    in->start_at += *n;
    return *n > 0 ? 0 : read_bytes(in, buf, size, n, err);
}

static int read_checked(struct text_input *in, char *buf, size_t size, size_t *n,
                        struct error *err)
{
    int64_t first = in->check.n_bytes + (int64_t)in->check.n_held;
    if (read_unpacked(in, buf, size, n, err))
        return -1;
    if (*n > 0 ? utf8_check_take(&in->check, buf, *n) : utf8_check_end(&in->check))
        return 0;
    if (*n == 0)
        return error_set(err, ERROR_INPUT,
                         "'%s' is not UTF-8: it ends in the middle of a character, at "
                         "byte %lld of its text; is it cut off?",
                         in->source.name, (long long)in->check.n_bytes);
    int64_t bad = in->check.n_bytes - first; // before the buffer: it began in the last
    return refuse_encoding(in, buf, *n, bad > 0 ? (size_t)bad : 0, in->check.n_bytes,
                           err);
}

static int read_converted(struct text_input *in, char *buf, size_t size, size_t *n,
                          struct error *err)
{
    size_t got = 1;
    while ((*n = text_decoder_get(in->decoder, buf, size)) == 0 && got > 0) {
        size_t space;
        char *to = text_decoder_buffer(in->decoder, &space);
        if (read_unpacked(in, to, space, &got, err) ||
            text_decoder_put(in->decoder, got, err))
            return -1;
        if (got == 0)
            *n = text_decoder_get(in->decoder, buf, size);
    }
    return 0;
}

int text_input_read(struct text_input *in, char *buf, size_t size, size_t *n,
                    struct error *err)
{
    bool is_checked = in->encoding == TEXT_IS_UTF8 && in->form.kind != TEXT_JSON_LINES;
    int rc;
    *n = 0;
    if (!in->is_looked_into && look_into(in, err))
        return -1;
    if (in->decoder)
        rc = read_converted(in, buf, size, n, err);
    else
        rc = is_checked ? read_checked(in, buf, size, n, err)
                        : read_unpacked(in, buf, size, n, err);
    in->n_text_bytes += rc ? 0 : (int64_t)*n;
    return rc;
}

const char *text_input_name(const struct text_input *in)
{
    return in->source.name;
}

enum text_kind text_input_kind(const struct text_input *in)
{
    return in->form.kind;
}

int64_t text_input_file_bytes(const struct text_input *in)
{
    return in->source.n_bytes;
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
    text_decoder_close(in->decoder);
    text_source_close(&in->source);
    free(in->raw);
    free(in->start);
    free(in);
}

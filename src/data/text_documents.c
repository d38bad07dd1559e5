#include "data/text_documents.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CHUNK_BYTES (1 << 20)
#define MAX_BLANK_BYTES 4096 // a longer line of white space is text

struct input {
    const char *path;
    int fd;
    int stop_fd;
    const struct text_sink *sink;
    char *chunk;
};

/* *n := bytes now in in->chunk; 0 at the end of the file. */
static int read_chunk(struct input *in, size_t *n, struct error *err)
{
    struct pollfd polled[2] = {{.fd = in->fd, .events = POLLIN},
                               {.fd = in->stop_fd, .events = POLLIN}};
    ssize_t got;
    do {
        if (poll(polled, 2, -1) >= 0 && polled[1].revents)
            return error_set(err, ERROR_STOPPED, "stopped on request while reading '%s'",
                             in->path);
        got = read(in->fd, in->chunk, CHUNK_BYTES);
    } while (got < 0 && errno == EINTR);
    if (got < 0)
        return error_set(err, ERROR_RUNTIME, "cannot read '%s': %s", in->path,
                         strerror(errno));
    *n = (size_t)got;
    return in->sink->progress(in->sink->context, *n, err);
}

static int append(const struct input *in, const char *bytes, size_t n, struct error *err)
{
    return n == 0 ? 0 : in->sink->append(in->sink->context, bytes, n, err);
}

static int end_document(const struct input *in, struct error *err)
{
    return in->sink->end_document(in->sink->context, err);
}

static int read_whole_file(struct input *in, struct error *err)
{
    size_t n = 0;
    do {
        if (read_chunk(in, &n, err) || append(in, in->chunk, n, err))
            return -1;
    } while (n > 0);
    return end_document(in, err);
}

/* -- blank lines ----------------------------------------------------------------------
 */

struct blank_state {
    bool is_in_document;
    bool is_in_line;       // past the white space a line may start with
    bool has_held_newline; // belongs to the document only if it goes on
    size_t n_held;         // white space at the start of a line: text or a blank line?
    char held[MAX_BLANK_BYTES];
};

static bool is_white(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\v' || c == '\f';
}

/* The line has something in it: what was held back belongs to the document. */
static int start_line(struct input *in, struct blank_state *s, struct error *err)
{
    if ((s->has_held_newline && append(in, "\n", 1, err)) ||
        append(in, s->held, s->n_held, err))
        return -1;
    s->has_held_newline = false;
    s->n_held = 0;
    s->is_in_line = s->is_in_document = true;
    return 0;
}

static int end_blank_line(struct input *in, struct blank_state *s, struct error *err)
{
    s->n_held = 0;
    s->has_held_newline = false;
    if (!s->is_in_document)
        return 0;
    s->is_in_document = false;
    return end_document(in, err);
}

static int take_chunk(struct input *in, struct blank_state *s, size_t n,
                      struct error *err)
{
    const char *at = in->chunk, *end = at + n;
    while (at < end) {
        if (s->is_in_line) {
            const char *newline = memchr(at, '\n', (size_t)(end - at));
            const char *line_end = newline ? newline : end;
            if (append(in, at, (size_t)(line_end - at), err))
                return -1;
            at = newline ? newline + 1 : end;
            s->has_held_newline = newline != NULL;
            s->is_in_line = newline == NULL;
        } else if (*at == '\n') {
            if (end_blank_line(in, s, err))
                return -1;
            at++;
        } else if (is_white(*at) && s->n_held < sizeof s->held) {
            s->held[s->n_held++] = *at++;
        } else if (start_line(in, s, err)) {
            return -1;
        }
    }
    return 0;
}

static int read_blank_lines(struct input *in, struct error *err)
{
    struct blank_state s = {0};
    size_t n = 0;
    do {
        if (read_chunk(in, &n, err) || take_chunk(in, &s, n, err))
            return -1;
    } while (n > 0);
    return end_blank_line(in, &s, err);
}

/* -- JSON lines ------------------------------------------------------------------------
 */

struct line { // collected over chunks
    char *bytes;
    size_t used, capacity;
    bool is_too_long;
    int64_t number;
};

static int collect(struct line *l, const char *bytes, size_t n, struct error *err)
{
    if (l->is_too_long || n > TEXT_MAX_LINE_BYTES - l->used) {
        l->is_too_long = true;
        return 0;
    }
    if (l->used + n > l->capacity) {
        size_t capacity = 2 * (l->used + n);
        char *larger = realloc(l->bytes, capacity);
        if (!larger)
            return error_set(err, ERROR_RUNTIME, "no memory for a line of %zu bytes",
                             l->used + n);
        l->bytes = larger;
        l->capacity = capacity;
    }
    if (n > 0)
        memcpy(l->bytes + l->used, bytes, n);
    l->used += n;
    return 0;
}

static bool is_blank(const struct line *l)
{
    for (size_t i = 0; i < l->used; i++)
        if (!is_white(l->bytes[i]))
            return false;
    return !l->is_too_long;
}

/* Integers are read as reals, because large ones in other keys are none of our business.
 */
static int take_json_line(struct input *in, const struct line *l, const char *key,
                          struct error *err)
{
    json_error_t json_err;
    char reason[256];
    if (is_blank(l))
        return 0;
    if (l->is_too_long) {
        snprintf(reason, sizeof reason, "longer than %u MB", TEXT_MAX_LINE_BYTES >> 20);
        return in->sink->bad_line(in->sink->context, in->path, l->number, reason, err);
    }
    json_t *root = json_loadb(
        l->bytes, l->used,
        JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL, &json_err);
    const json_t *text = json_object_get(root, key);
    int rc;
    if (json_is_string(text)) {
        rc = append(in, json_string_value(text), json_string_length(text), err) ||
                     end_document(in, err)
                 ? -1
                 : 0;
    } else {
        if (!root)
            snprintf(reason, sizeof reason, "not JSON: %s", json_err.text);
        else if (!json_is_object(root))
            snprintf(reason, sizeof reason, "not a JSON object");
        else
            snprintf(reason, sizeof reason, "%s \"%.100s\"",
                     text ? "no string under the key" : "no key", key);
        rc = in->sink->bad_line(in->sink->context, in->path, l->number, reason, err);
    }
    json_decref(root);
    return rc;
}

static int end_line(struct input *in, struct line *l, const char *key, struct error *err)
{
    l->number++;
    int rc = take_json_line(in, l, key, err);
    l->used = 0;
    l->is_too_long = false;
    return rc;
}

static int read_json_lines(struct input *in, const char *key, struct error *err)
{
    struct line line = {0};
    size_t n = 0;
    int rc = -1;
    do {
        if (read_chunk(in, &n, err))
            goto done;
        const char *at = in->chunk, *end = at + n;
        while (at < end) {
            const char *newline = memchr(at, '\n', (size_t)(end - at));
            const char *line_end = newline ? newline : end;
            if (collect(&line, at, (size_t)(line_end - at), err))
                goto done;
            if (newline && end_line(in, &line, key, err))
                goto done;
            at = newline ? newline + 1 : end;
        }
    } while (n > 0);
    rc = end_line(in, &line, key, err); // the last line need not end in a newline
done:
    free(line.bytes);
    return rc;
}

int text_documents_read(const char *path, enum text_kind kind, const char *json_key,
                        int stop_fd, const struct text_sink *sink, struct error *err)
{
    int rc = -1;
    struct input in = {path, -1, stop_fd, sink, malloc(CHUNK_BYTES)};
    if (!in.chunk)
        return error_set(err, ERROR_RUNTIME, "out of memory");
    in.fd = open(path, O_RDONLY | O_CLOEXEC);
    if (in.fd < 0) {
        error_set(err, ERROR_INPUT, "cannot open '%s': %s", path, strerror(errno));
        goto done;
    }
    switch (kind) {
    case TEXT_BLANK_LINES:
        rc = read_blank_lines(&in, err);
        break;
    case TEXT_WHOLE_FILE:
        rc = read_whole_file(&in, err);
        break;
    case TEXT_JSON_LINES:
        rc = read_json_lines(&in, json_key, err);
        break;
    }
done:
    if (in.fd >= 0)
        close(in.fd);
    free(in.chunk);
    return rc;
}

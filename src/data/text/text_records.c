#include "data/text/text_records.h"

#include "base/log.h"
#include "data/text/json_text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_BAD_LINES_SHOWN 10
#define CHUNK_BYTES (1 << 18)
#define MAX_BLANK_BYTES 4096 // a longer line of white space is text

struct record_source {
    struct text_input *in;
    const struct text_record_sink *sink;
    char *chunk;
};

/* Text that is JSON by the look of it is probably meant to be read as such. */
static void warn_of_json(const struct record_source *s, size_t n)
{
    const char *newline = memchr(s->chunk, '\n', n);
    size_t n_line = newline ? (size_t)(newline - s->chunk) : n;
    while (n_line > 0 && (s->chunk[n_line - 1] == '\r' || s->chunk[n_line - 1] == ' '))
        n_line--;
    if (n_line > 4 && memcmp(s->chunk, "{\"", 2) == 0 && s->chunk[n_line - 1] == '}')
        log_warning("'%s' looks like JSON lines, but is read as plain text; --json, or "
                    "for eval --json_key, reads it as JSON",
                    text_input_name(s->in));
}

/* *n := bytes now in s->chunk; 0 at the end of the file. */
static int read_chunk(struct record_source *s, size_t *n, struct error *err)
{
    bool is_first = text_input_text_bytes(s->in) == 0;
    if (text_input_read(s->in, s->chunk, CHUNK_BYTES, n, err))
        return -1;
    if (is_first && text_input_kind(s->in) < TEXT_JSON_LINES)
        warn_of_json(s, *n);
    return 0;
}

static int append_to_record(const struct record_source *s, const char *bytes, size_t n,
                            struct error *err)
{
    return n == 0 ? 0 : s->sink->append(s->sink->context, bytes, n, err);
}

static int end_document(const struct record_source *s, struct error *err)
{
    return s->sink->end(s->sink->context, 0, err);
}

static int read_whole_file(struct record_source *s, struct error *err)
{
    size_t n = 0;
    do {
        if (read_chunk(s, &n, err) || append_to_record(s, s->chunk, n, err))
            return -1;
    } while (n > 0);
    return end_document(s, err);
}

/* -- blank lines --------------------------------------------------------------------- */

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
static int start_line(struct record_source *s, struct blank_state *b, struct error *err)
{
    if ((b->has_held_newline && append_to_record(s, "\n", 1, err)) ||
        append_to_record(s, b->held, b->n_held, err))
        return -1;
    b->has_held_newline = false;
    b->n_held = 0;
    b->is_in_line = b->is_in_document = true;
    return 0;
}

static int end_blank_line(struct record_source *s, struct blank_state *b,
                          struct error *err)
{
    b->n_held = 0;
    b->has_held_newline = false;
    if (!b->is_in_document)
        return 0;
    b->is_in_document = false;
    return end_document(s, err);
}

static int split_at_blank_lines(struct record_source *s, struct blank_state *b, size_t n,
                                struct error *err)
{
    const char *at = s->chunk, *end = at + n;
    while (at < end) {
        if (b->is_in_line) {
            const char *newline = memchr(at, '\n', (size_t)(end - at));
            const char *line_end = newline ? newline : end;
            if (append_to_record(s, at, (size_t)(line_end - at), err))
                return -1;
            at = newline ? newline + 1 : end;
            b->has_held_newline = newline != NULL;
            b->is_in_line = newline == NULL;
        } else if (*at == '\n') {
            if (end_blank_line(s, b, err))
                return -1;
            at++;
        } else if (is_white(*at) && b->n_held < sizeof b->held) {
            b->held[b->n_held++] = *at++;
        } else if (start_line(s, b, err)) {
            return -1;
        }
    }
    return 0;
}

static int read_blank_lines(struct record_source *s, struct error *err)
{
    struct blank_state b = {0};
    size_t n = 0;
    do {
        if (read_chunk(s, &n, err) || split_at_blank_lines(s, &b, n, err))
            return -1;
    } while (n > 0);
    return end_blank_line(s, &b, err);
}

/* -- JSON lines ---------------------------------------------------------------------- */

struct line_state {
    int64_t number; // of the line that is being read, from 1
    size_t n_bytes; // of it so far
};

static int end_line(struct record_source *s, struct line_state *l, struct error *err)
{
    const struct text_record_sink *sink = s->sink;
    char reason[64];
    int rc;
    if (l->n_bytes > TEXT_MAX_LINE_BYTES) {
        snprintf(reason, sizeof reason, "longer than %u MiB", TEXT_MAX_LINE_BYTES >> 20);
        rc = sink->bad_line(sink->context, l->number, reason, err);
    } else {
        rc = sink->end(sink->context, l->number, err);
    }
    l->number++;
    l->n_bytes = 0;
    return rc;
}

static int split_into_lines(struct record_source *s, struct line_state *l, size_t n,
                            struct error *err)
{
    const char *at = s->chunk, *end = at + n;
    while (at < end) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        const char *line_end = newline ? newline : end;
        l->n_bytes += (size_t)(line_end - at);
        if (l->n_bytes <= TEXT_MAX_LINE_BYTES &&
            append_to_record(s, at, (size_t)(line_end - at), err))
            return -1;
        if (newline && end_line(s, l, err))
            return -1;
        at = newline ? newline + 1 : end;
    }
    return 0;
}

static int read_lines(struct record_source *s, size_t n, struct error *err)
{
    struct line_state l = {.number = 1};
    for (; n > 0;)
        if (split_into_lines(s, &l, n, err) || read_chunk(s, &n, err))
            return -1;
    return l.n_bytes > 0 ? end_line(s, &l, err) : 0; // the last newline may be missing
}

static int read_values(struct record_source *s, size_t n, struct error *err)
{
    struct json_values v;
    json_values_init(&v, s->sink);
    for (; n > 0;)
        if (json_values_take(&v, s->chunk, n, err) || read_chunk(s, &n, err))
            return -1;
    return json_values_end(&v, err);
}

static int read_json(struct record_source *s, struct error *err)
{
    size_t n = 0;
    if (read_chunk(s, &n, err))
        return -1;
    return json_values_is_one(s->chunk, n) ? read_values(s, n, err)
                                           : read_lines(s, n, err);
}

int text_records_read(struct text_input *in, const struct text_record_sink *sink,
                      struct error *err)
{
    static int (*const readers[])(struct record_source *, struct error *) = {
        [TEXT_BLANK_LINES] = read_blank_lines,
        [TEXT_WHOLE_FILE] = read_whole_file,
        [TEXT_JSON_LINES] = read_json,
        [TEXT_RAW_FILE] = read_whole_file,
    };
    struct record_source s = {in, sink, malloc(CHUNK_BYTES)};
    if (!s.chunk)
        return error_set(err, ERROR_RUNTIME, "out of memory");
    int rc = readers[text_input_kind(in)](&s, err);
    free(s.chunk);
    return rc;
}

int bad_lines_add(struct bad_lines *b, const char *path, int64_t line, const char *reason,
                  struct error *err)
{
    if (b->is_strict)
        return error_set(err, ERROR_INPUT, "%s:%lld: %s", path, (long long)line, reason);
    if (b->n++ == 0)
        snprintf(b->first, sizeof b->first, "%s:%lld, %s", path, (long long)line, reason);
    if (b->n <= MOST_BAD_LINES_SHOWN)
        log_warning("%s:%lld: line skipped: %s", path, (long long)line, reason);
    if (b->n == MOST_BAD_LINES_SHOWN)
        log_warning("further bad lines are only counted%s", b->advice ? b->advice : "");
    return 0;
}

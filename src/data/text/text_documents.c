#include "data/text/text_documents.h"

#include "data/text/json_line.h"

#include <stdlib.h>
#include <string.h>

struct reading {
    const char *name;     // of the file
    const char *json_key; // NULL: records are documents already
    bool is_cloze;
    const struct text_sink *sink;
    struct text_input *in;
    int64_t n_told; // bytes of text that progress() knows of
    char *line;     // of JSON, so far
    size_t n_line, line_capacity;
};

static int collect_line(struct reading *r, const char *bytes, size_t n, struct error *err)
{
    if (n > r->line_capacity - r->n_line) {
        size_t capacity = 2 * (r->n_line + n);
        char *larger = realloc(r->line, capacity);
        if (!larger)
            return error_set(err, ERROR_RUNTIME, "no memory for a line of %zu bytes",
                             r->n_line + n);
        r->line = larger;
        r->line_capacity = capacity;
    }
    memcpy(r->line + r->n_line, bytes, n);
    r->n_line += n;
    return 0;
}

static int take_bytes(void *reading, const char *bytes, size_t n, struct error *err)
{
    struct reading *r = reading;
    return r->json_key ? collect_line(r, bytes, n, err)
                       : r->sink->append(r->sink->context, bytes, n, err);
}

static int take_json(struct reading *r, int64_t number, struct error *err)
{
    const struct text_sink *sink = r->sink;
    struct json_line parsed;
    int rc = 0;
    switch ((r->is_cloze ? json_line_read_cloze
                         : json_line_read)(&parsed, r->line, r->n_line, r->json_key)) {
    case JSON_LINE_TEXT:
        if (parsed.n_text > 0)
            rc = sink->append(sink->context, parsed.text, parsed.n_text, err);
        if (rc == 0)
            rc = sink->end_document(sink->context, err);
        break;
    case JSON_LINE_BLANK:
        break;
    case JSON_LINE_BAD:
        rc = sink->bad_line(sink->context, r->name, number, parsed.reason, err);
        break;
    }
    json_line_release(&parsed);
    return rc;
}

static int take_end(void *reading, int64_t line, struct error *err)
{
    struct reading *r = reading;
    if (!r->json_key)
        return r->sink->end_document(r->sink->context, err);
    int rc = take_json(r, line, err);
    r->n_line = 0;
    return rc;
}

static int take_bad_line(void *reading, int64_t line, const char *reason,
                         struct error *err)
{
    struct reading *r = reading;
    r->n_line = 0;
    return r->sink->bad_line(r->sink->context, r->name, line, reason, err);
}

static int tick(void *reading, struct error *err)
{
    struct reading *r = reading;
    int64_t n = r->in ? text_input_text_bytes(r->in) : 0;
    size_t more = (size_t)(n - r->n_told);
    r->n_told = n;
    return r->sink->progress(r->sink->context, more, err);
}

int text_documents_read(const char *path, const struct text_form *form,
                        const struct text_sink *sink, struct error *err)
{
    struct reading r = {.name = text_source_name(path), .sink = sink};
    const struct text_record_sink records = {take_bytes, take_end, take_bad_line, &r};
    const struct text_watch watch = {.tick = tick, .context = &r};
    int rc = -1;
    if (form->kind == TEXT_JSON_LINES)
        r.json_key = form->json_key;
    r.is_cloze = form->is_cloze;
    if (text_input_open(&r.in, path, form, &watch, err) ||
        text_records_read(r.in, &records, err) || tick(&r, err))
        goto done;
    rc = 0;
done:
    text_input_close(r.in);
    free(r.line);
    return rc;
}

#include "data/text/text_documents.h"

#include "base/grow.h"
#include "data/text/json_text.h"

#include <stdlib.h>
#include <string.h>

struct reading {
    const char *name;     // of the file
    const char *json_key; // NULL: records are documents already
    bool is_cloze;
    const struct text_sink *sink;
    struct text_input *in;
    int64_t n_reported; // bytes of text that progress() knows of
    char *line;         // of JSON, so far
    size_t n_line;
    int64_t line_capacity;
};

static int collect_line(struct reading *r, const char *bytes, size_t n, struct error *err)
{
    if (grow_array(&r->line, &r->line_capacity, (int64_t)(r->n_line + n), 1))
        return error_set(err, ERROR_RUNTIME, "no memory for a line of %zu bytes",
                         r->n_line + n);
    memcpy(r->line + r->n_line, bytes, n);
    r->n_line += n;
    return 0;
}

static int append_record(void *reading, const char *bytes, size_t n, struct error *err)
{
    struct reading *r = reading;
    return r->json_key ? collect_line(r, bytes, n, err)
                       : r->sink->append(r->sink->context, bytes, n, err);
}

static int end_json(struct reading *r, int64_t number, struct error *err)
{
    const struct text_sink *sink = r->sink;
    struct json_line parsed;
    int rc = 0;
    switch (json_line_read(&parsed, r->line, r->n_line, r->json_key, r->is_cloze)) {
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

static int end_record(void *reading, int64_t line, struct error *err)
{
    struct reading *r = reading;
    if (!r->json_key)
        return r->sink->end_document(r->sink->context, err);
    int rc = end_json(r, line, err);
    r->n_line = 0;
    return rc;
}

static int skip_bad_record(void *reading, int64_t line, const char *reason,
                           struct error *err)
{
    struct reading *r = reading;
    r->n_line = 0;
    return r->sink->bad_line(r->sink->context, r->name, line, reason, err);
}

static int report_progress(void *reading, struct error *err)
{
    struct reading *r = reading;
    int64_t n = r->in ? text_input_text_bytes(r->in) : 0;
    size_t more = (size_t)(n - r->n_reported);
    r->n_reported = n;
    return r->sink->progress ? r->sink->progress(r->sink->context, more, err) : 0;
}

int text_documents_read(const char *path, const struct text_form *form,
                        const struct text_sink *sink, struct error *err)
{
    struct reading r = {.name = text_source_name(path), .sink = sink};
    const struct text_record_sink records = {append_record, end_record, skip_bad_record,
                                             &r};
    const struct text_watch watch = {.tick = report_progress, .context = &r};
    int rc = -1;
    if (form->kind == TEXT_JSON_LINES)
        r.json_key = form->json_key;
    r.is_cloze = form->is_cloze;
    if (text_input_open(&r.in, path, form, &watch, err) ||
        text_records_read(r.in, &records, err) || report_progress(&r, err))
        goto done;
    rc = 0;
done:
    text_input_close(r.in);
    free(r.line);
    return rc;
}

/* -- lists --------------------------------------------------------------------------- */

struct list_reading {
    struct text_list *list;
    const char *path;
    enum text_list_kind kind;
    int64_t line; // the one that is being read, of TEXT_LIST_LINES
    char *text;   // of the item that is being read
    size_t n;
    int64_t capacity;
};

static int out_of_memory(const char *path, struct error *err)
{
    return error_set(err, ERROR_RUNTIME, "out of memory for the texts of '%s'", path);
}

static int append_text(struct list_reading *r, const char *bytes, size_t n,
                       struct error *err)
{
    if (grow_array(&r->text, &r->capacity, (int64_t)(r->n + n + 1), 1))
        return out_of_memory(r->path, err);
    CHECK(r->text, "%zu bytes nowhere", r->n);
    if (n > 0)
        memcpy(r->text + r->n, bytes, n);
    r->n += n;
    r->text[r->n] = 0;
    return 0;
}

/* What was appended is an item. */
static int end_item(struct list_reading *r, struct error *err)
{
    struct text_list *list = r->list;
    if (append_text(r, NULL, 0, err)) // for the NUL of an empty one
        return -1;
    if (grow_array(&list->items, &list->capacity, list->n_items + 1, sizeof *list->items))
        return out_of_memory(r->path, err);
    list->items[list->n_items++] = (struct text_list_item){r->text, r->n, r->line};
    r->text = NULL;
    r->n = 0;
    r->capacity = 0;
    return 0;
}

static int end_line(struct list_reading *r, struct error *err)
{
    if (r->n > 0 && r->text[r->n - 1] == '\r')
        r->text[--r->n] = 0;
    int rc = r->n > 0 ? end_item(r, err) : 0;
    r->line++;
    return rc;
}

static int append_to_list(void *context, const char *bytes, size_t n, struct error *err)
{
    struct list_reading *r = context;
    while (r->kind == TEXT_LIST_LINES && n > 0) {
        const char *end = memchr(bytes, '\n', n);
        size_t n_line = end ? (size_t)(end - bytes) : n;
        if (append_text(r, bytes, n_line, err) || (end && end_line(r, err)))
            return -1;
        bytes += n_line + (end != NULL);
        n -= n_line + (end != NULL);
    }
    return n > 0 ? append_text(r, bytes, n, err) : 0;
}

static int end_in_list(void *context, struct error *err)
{
    struct list_reading *r = context;
    return r->kind == TEXT_LIST_LINES ? end_line(r, err) : end_item(r, err);
}

static int refuse_bad_line(void *context, const char *path, int64_t line,
                           const char *reason, struct error *err)
{
    (void)context;
    return error_set(err, ERROR_INPUT, "'%s':%lld: %s", path, (long long)line, reason);
}

int text_list_read(struct text_list *list, const char *path, enum text_list_kind kind,
                   const char *encoding, const char *json_key, struct error *err)
{
    struct list_reading r = {.list = list, .path = text_source_name(path), .kind = kind};
    const struct text_sink sink = {append_to_list, end_in_list, refuse_bad_line, NULL,
                                   &r};
    const struct text_form form = {
        .kind = kind == TEXT_LIST_JSON || kind == TEXT_LIST_CLOZE ? TEXT_JSON_LINES
                                                                  : TEXT_WHOLE_FILE,
        .encoding = encoding,
        .json_key = json_key,
        .is_cloze = kind == TEXT_LIST_CLOZE,
    };
    *list = (struct text_list){0};
    r.line = kind == TEXT_LIST_LINES;
    int rc = text_documents_read(path, &form, &sink, err);
    free(r.text);
    if (rc == 0 && list->n_items == 0)
        rc = error_set(err, ERROR_INPUT, "'%s' has no text in it", r.path);
    return rc;
}

void text_list_release(struct text_list *list)
{
    for (int64_t i = 0; i < list->n_items; i++)
        free(list->items[i].text);
    free(list->items);
    *list = (struct text_list){0};
}

#include "data/text/text_list.h"

#include "data/text/text_documents.h"

#include <stdlib.h>
#include <string.h>

struct reading {
    struct text_list *list;
    const char *path;
    enum text_list_kind kind;
    int64_t line; // the one that is being read, of TEXT_LIST_LINES
    char *text;   // of the item that is being read
    size_t n, capacity;
};

static int out_of_memory(const char *path, struct error *err)
{
    return error_set(err, ERROR_RUNTIME, "out of memory for the texts of '%s'", path);
}

static int append(struct reading *r, const char *bytes, size_t n, struct error *err)
{
    if (n >= r->capacity - r->n) { // one more for the NUL
        size_t wanted = (r->n + n + 1) * 2;
        char *larger = realloc(r->text, wanted);
        if (!larger)
            return out_of_memory(r->path, err);
        r->text = larger;
        r->capacity = wanted;
    }
    if (n > 0)
        memcpy(r->text + r->n, bytes, n);
    r->n += n;
    r->text[r->n] = 0;
    return 0;
}

/* What was appended is an item. */
static int end_item(struct reading *r, struct error *err)
{
    struct text_list *list = r->list;
    if (append(r, NULL, 0, err)) // for the NUL of an empty one
        return -1;
    if (list->n_items == list->capacity) {
        int64_t wanted = list->capacity * 2 + 64;
        struct text_list_item *larger =
            realloc(list->items, (size_t)wanted * sizeof *list->items);
        if (!larger)
            return out_of_memory(r->path, err);
        list->items = larger;
        list->capacity = wanted;
    }
    list->items[list->n_items++] = (struct text_list_item){r->text, r->n, r->line};
    r->text = NULL;
    r->n = r->capacity = 0;
    return 0;
}

static int end_line(struct reading *r, struct error *err)
{
    if (r->n > 0 && r->text[r->n - 1] == '\r')
        r->text[--r->n] = 0;
    int rc = r->n > 0 ? end_item(r, err) : 0;
    r->line++;
    return rc;
}

/* -- what the reader of documents calls ------------------------------------------------
 */

static int take_bytes(void *context, const char *bytes, size_t n, struct error *err)
{
    struct reading *r = context;
    while (r->kind == TEXT_LIST_LINES && n > 0) {
        const char *end = memchr(bytes, '\n', n);
        size_t part = end ? (size_t)(end - bytes) : n;
        if (append(r, bytes, part, err) || (end && end_line(r, err)))
            return -1;
        bytes += part + (end != NULL);
        n -= part + (end != NULL);
    }
    return n > 0 ? append(r, bytes, n, err) : 0;
}

static int take_end(void *context, struct error *err)
{
    struct reading *r = context;
    return r->kind == TEXT_LIST_LINES ? end_line(r, err) : end_item(r, err);
}

static int take_bad_line(void *context, const char *path, int64_t line,
                         const char *reason, struct error *err)
{
    (void)context;
    return error_set(err, ERROR_INPUT, "'%s':%lld: %s", path, (long long)line, reason);
}

static int take_progress(void *context, size_t n, struct error *err)
{
    (void)context;
    (void)n;
    (void)err;
    return 0;
}

int text_list_read(struct text_list *list, const char *path, enum text_list_kind kind,
                   const char *encoding, const char *json_key, struct error *err)
{
    struct reading r = {.list = list, .path = text_source_name(path), .kind = kind};
    const struct text_sink sink = {take_bytes, take_end, take_bad_line, take_progress,
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

/*
 * Two passes over libfyaml's events: the first judges the whole text, the second hands
 * out values. So a syntax error at the end is told before anything is applied, and no
 * tree is ever built: memory and time are linear whatever the nesting.
 */
#include "config/config_yaml.h"

#include "config/config_value.h"

#include <ctype.h>
#include <libfyaml.h>
#include <stdio.h>
#include <string.h>

/* Flow brackets open at once; the parser looks that far ahead before its first event, so
 * a hostile file is stopped before it. Quotes are not told apart here, which is why the
 * exact limit is checked on the events. */
#define MAX_OPEN_BRACKETS 1024

#define MAX_LIST_BYTES 32768 // more than any key takes

struct reader {
    const char *name, *text;
    size_t n;
    struct fy_diag *diag;
    struct fy_parser *parser;
};

/* -- opening, and errors of the parser ------------------------------------------------
 */

static int reader_open(struct reader *r, const char *name, const char *text, size_t n,
                       struct error *err)
{
    struct fy_diag_cfg diag_cfg;
    *r = (struct reader){.name = name, .text = text, .n = n};
    fy_diag_cfg_default(&diag_cfg);
    diag_cfg.fp = NULL;
    r->diag = fy_diag_create(&diag_cfg);
    if (r->diag) {
        fy_diag_set_collect_errors(r->diag, true);
        struct fy_parse_cfg cfg = {
            .flags = FYPCF_QUIET | FYPCF_COLLECT_DIAG | FYPCF_JSON_NONE, .diag = r->diag};
        r->parser = fy_parser_create(&cfg);
    }
    if (!r->parser || fy_parser_set_string(r->parser, text, n))
        return error_set(err, ERROR_RUNTIME, "%s: cannot start the YAML parser", name);
    return 0;
}

static void reader_close(struct reader *r)
{
    if (r->parser)
        fy_parser_destroy(r->parser);
    if (r->diag)
        fy_diag_destroy(r->diag);
}

/* Marks of quoted scalars, aliases and anchors point behind their first character. */
static struct config_place mark_place(const struct fy_mark *mark, bool has_sign,
                                      struct config_place otherwise)
{
    if (!mark)
        return otherwise;
    return (struct config_place){mark->line + 1, mark->column + (has_sign ? 0 : 1)};
}

static struct config_place event_place(const struct fy_event *event,
                                       struct config_place otherwise)
{
    bool has_sign = event->type == FYET_ALIAS;
    if (event->type == FYET_SCALAR) {
        enum fy_scalar_style style = fy_token_scalar_style(event->scalar.value);
        has_sign = style == FYSS_SINGLE_QUOTED || style == FYSS_DOUBLE_QUOTED;
    }
    return mark_place(fy_event_start_mark((struct fy_event *)event), has_sign, otherwise);
}

/* The first thing libfyaml complained about, as a sentence of ours. */
static int refuse_syntax(struct reader *r, struct config_place last, struct error *err)
{
    void *iterator = NULL;
    const struct fy_diag_error *first = fy_diag_errors_iterate(r->diag, &iterator);
    char shown[CONFIG_SHOWN_BYTES];
    if (!first)
        return error_set(err, ERROR_INPUT,
                         "%s:%d:%d: not valid YAML after here: check indentation, "
                         "brackets and quotes",
                         r->name, last.line, last.column);
    config_show(first->msg, shown);
    bool has_place = first->line > 0 && first->column > 0;
    return error_set(
        err, ERROR_INPUT,
        "%s:%d:%d: not valid YAML (%s): check indentation, brackets and quotes", r->name,
        has_place ? first->line : last.line, has_place ? first->column : last.column,
        shown);
}

static int refuse(const struct reader *r, struct config_place at, struct error *err,
                  const char *reason)
{
    return error_set(err, ERROR_INPUT, "%s:%d:%d: %s", r->name, at.line, at.column,
                     reason);
}

/* -- first pass: is it one sound document? --------------------------------------------
 */

static int check_brackets(const struct reader *r, const char *text, size_t n,
                          struct error *err)
{
    struct config_place at = {1, 0};
    int open = 0;
    bool is_comment = false;
    for (size_t i = 0; i < n; i++) {
        char c = text[i];
        at.column++;
        if (c == '\n') {
            at = (struct config_place){at.line + 1, 0};
            is_comment = false;
        } else if (c == '#' && (i == 0 || strchr(" \t\n", text[i - 1]))) {
            is_comment = true;
        } else if (!is_comment && (c == '[' || c == '{')) {
            if (++open > MAX_OPEN_BRACKETS)
                return refuse(r, at, err,
                              "nested deeper than 32: a configuration has at most 4 "
                              "levels");
        } else if (!is_comment && (c == ']' || c == '}')) {
            open -= open > 0;
        }
    }
    return 0;
}

/* What libfyaml (0.7) misreads: of some values over several lines, and of apostrophes in
 * a row, it counts another length than it writes, then gives no text and loses memory. No
 * value of a configuration needs either. NULL if there is no fault. */
static const char *scalar_fault(const struct reader *r, struct fy_token *scalar)
{
    enum fy_scalar_style style = fy_token_scalar_style(scalar);
    if (!scalar)
        return NULL;
    const struct fy_mark *start = fy_token_start_mark(scalar);
    const struct fy_mark *end = fy_token_end_mark(scalar);
    if (style == FYSS_LITERAL || style == FYSS_FOLDED || start->line != end->line)
        return "a value stands on one line: write this one without line breaks, and "
               "close "
               "its quote";
    bool is_within = start->input_pos <= end->input_pos && end->input_pos <= r->n;
    if (style == FYSS_SINGLE_QUOTED && is_within &&
        memmem(r->text + start->input_pos, end->input_pos - start->input_pos, "''''", 4))
        return "two apostrophes in a row in single quotes: write the value in double "
               "quotes";
    return NULL;
}

/* What YAML can and a configuration does not need: refused where it stands. */
static int check_oddity(const struct reader *r, const struct fy_event *event,
                        struct config_place at, struct error *err)
{
    struct fy_token *anchor = NULL, *tag = NULL;
    if (event->type == FYET_ALIAS)
        return refuse(r, at, err,
                      "aliases (*name) are not used here: write the value itself");
    if (event->type == FYET_SCALAR) {
        const char *fault = scalar_fault(r, event->scalar.value);
        if (fault)
            return refuse(r, at, err, fault);
        anchor = event->scalar.anchor;
        tag = event->scalar.tag;
    } else if (event->type == FYET_MAPPING_START) {
        anchor = event->mapping_start.anchor;
        tag = event->mapping_start.tag;
    } else if (event->type == FYET_SEQUENCE_START) {
        anchor = event->sequence_start.anchor;
        tag = event->sequence_start.tag;
    }
    if (!anchor && !tag)
        return 0;
    at = mark_place(fy_token_start_mark(anchor ? anchor : tag), anchor != NULL, at);
    return refuse(r, at, err,
                  anchor ? "anchors (&name) are not used here: remove it"
                         : "tags (!name) are not used here: remove it");
}

static int check_event(const struct reader *r, const struct fy_event *event,
                       struct config_place at, int *depth, int *n_documents,
                       struct error *err)
{
    if (check_oddity(r, event, at, err))
        return -1;
    switch (event->type) {
    case FYET_DOCUMENT_START:
        if (++*n_documents > 1)
            return refuse(r, at, err,
                          "a second YAML document begins: keep one document a file");
        return 0;
    case FYET_MAPPING_START:
    case FYET_SEQUENCE_START:
        if (++*depth > CONFIG_YAML_DEPTH)
            return refuse(r, at, err,
                          "nested deeper than 32: a configuration has at most 4 levels");
        return 0;
    case FYET_MAPPING_END:
    case FYET_SEQUENCE_END:
        --*depth;
        return 0;
    default:
        return 0;
    }
}

static int check_document(struct reader *r, struct error *err)
{
    struct config_place at = {1, 1};
    int depth = 0, n_documents = 0;
    struct fy_event *event;
    while ((event = fy_parser_parse(r->parser))) {
        at = event_place(event, at);
        int rc = check_event(r, event, at, &depth, &n_documents, err);
        fy_parser_event_free(r->parser, event);
        if (rc)
            return -1;
    }
    return fy_parser_get_stream_error(r->parser) ? refuse_syntax(r, at, err) : 0;
}

/* -- second pass: values --------------------------------------------------------------
 */

struct walk {
    struct reader *reader;
    config_node_fn *fn;
    void *context;
    char path[2 * CONFIG_NAME_BYTES];
    size_t path_ends[CONFIG_YAML_DEPTH + 1]; // length of the path outside each mapping
    int depth;                               // open mappings
    bool has_key;                            // the next event is a value
    bool is_in_list;
    struct config_node node;
    char list[MAX_LIST_BYTES];
    struct error *err;
};

static int walk_refuse(struct walk *w, struct config_place at, const char *reason)
{
    return refuse(w->reader, at, w->err, reason);
}

/* Text of a scalar, NUL-terminated in the token; NULL when it holds a NUL itself. */
static const char *scalar_text(const struct fy_event *event)
{
    size_t n;
    if (!event->scalar.value)
        return "";
    const char *text = fy_token_get_text(event->scalar.value, &n);
    if (!text || memchr(text, 0, n))
        return NULL;
    return fy_token_get_text0(event->scalar.value);
}

static int walk_key(struct walk *w, const struct fy_event *event, struct config_place at)
{
    const char *text = scalar_text(event);
    size_t used = w->path_ends[w->depth];
    if (!text || !*text)
        return walk_refuse(w, at, "a key is missing before the colon");
    int n = snprintf(w->path + used, CONFIG_NAME_BYTES, "%s%s", used ? "." : "", text);
    if (n >= CONFIG_NAME_BYTES || used + (size_t)n >= CONFIG_NAME_BYTES)
        return walk_refuse(w, at, "this key is too long for any key of a configuration");
    w->node = (struct config_node){.path = w->path, .key_place = at};
    w->has_key = true;
    return 0;
}

/* The path in w names what begins here; it stays in front of everything inside. */
static int walk_enter(struct walk *w, struct config_place at)
{
    if (w->depth > 0) {
        w->node.kind = NODE_SECTION;
        w->node.value_place = at;
        if (w->fn(w->context, &w->node, w->err))
            return -1;
    }
    w->depth++;
    w->path_ends[w->depth] = w->depth > 1 ? strlen(w->path) : 0;
    w->has_key = false;
    return 0;
}

static int walk_element(struct walk *w, const struct fy_event *event,
                        struct config_place at)
{
    const char *text = scalar_text(event);
    size_t used = strlen(w->list);
    const char separator[] = {w->node.text ? CONFIG_YAML_SEPARATOR : 0, 0};
    if (!text || !*text)
        return walk_refuse(w, at, "an element of this list is empty: remove it");
    for (const char *c = text; *c; c++)
        if (iscntrl((unsigned char)*c))
            return walk_refuse(w, at, "a control character in a list: remove it");
    if ((size_t)snprintf(w->list + used, MAX_LIST_BYTES - used, "%s%s", separator,
                         text) >= MAX_LIST_BYTES - used)
        return walk_refuse(w, at, "this list is too long for any key");
    w->node.text = w->list;
    return 0;
}

static int walk_scalar(struct walk *w, const struct fy_event *event,
                       struct config_place at)
{
    w->node.kind = NODE_SCALAR;
    w->node.text = scalar_text(event);
    w->node.is_quoted = fy_token_scalar_style(event->scalar.value) != FYSS_PLAIN;
    w->node.value_place = event->scalar.value ? at : w->node.key_place;
    w->has_key = false;
    if (!w->node.text)
        return walk_refuse(w, at, "a NUL character in a value: remove it");
    return w->fn(w->context, &w->node, w->err);
}

static int walk_list_end(struct walk *w)
{
    w->node.text = w->list;
    w->is_in_list = false;
    w->has_key = false;
    return w->fn(w->context, &w->node, w->err);
}

/* A document is one mapping, or nothing. */
static int walk_root(struct walk *w, const struct fy_event *event, struct config_place at)
{
    if (event->type == FYET_MAPPING_START)
        return walk_enter(w, at);
    const char *text = event->type == FYET_SCALAR ? scalar_text(event) : NULL;
    if (text && !*text)
        return 0;
    return walk_refuse(w, at, "a configuration is made of 'key: value' lines");
}

static int walk_event(struct walk *w, const struct fy_event *event,
                      struct config_place at)
{
    bool is_scalar = event->type == FYET_SCALAR;
    bool is_mapping = event->type == FYET_MAPPING_START;
    bool is_sequence = event->type == FYET_SEQUENCE_START;
    if (event->type == FYET_SEQUENCE_END)
        return walk_list_end(w);
    if (event->type == FYET_MAPPING_END) {
        w->depth--;
        w->path[w->path_ends[w->depth]] = 0;
        return 0;
    }
    if (!is_scalar && !is_mapping && !is_sequence)
        return 0;
    if (w->depth == 0)
        return walk_root(w, event, at);
    if (w->is_in_list)
        return is_scalar ? walk_element(w, event, at)
                         : walk_refuse(w, at, "a list holds plain values here");
    if (!w->has_key)
        return is_scalar ? walk_key(w, event, at)
                         : walk_refuse(w, at, "a key must be a plain word");
    if (is_mapping)
        return walk_enter(w, at);
    if (is_scalar)
        return walk_scalar(w, event, at);
    w->node.kind = NODE_LIST;
    w->node.value_place = at;
    w->is_in_list = true;
    w->list[0] = 0;
    return 0;
}

static int walk_document(struct walk *w)
{
    struct config_place at = {1, 1};
    struct fy_event *event;
    while ((event = fy_parser_parse(w->reader->parser))) {
        at = event_place(event, at);
        int rc = walk_event(w, event, at);
        fy_parser_event_free(w->reader->parser, event);
        if (rc)
            return -1;
    }
    return 0;
}

int config_yaml_read(const char *name, const char *text, size_t n, config_node_fn *fn,
                     void *context, struct error *err)
{
    struct reader reader = {.name = name};
    struct walk walk = {.reader = &reader, .fn = fn, .context = context, .err = err};
    int rc = -1;
    if (config_check_bytes(name, text, n, err) || check_brackets(&reader, text, n, err))
        return -1;
    if (reader_open(&reader, name, text, n, err) || check_document(&reader, err))
        goto done;
    reader_close(&reader);
    if (reader_open(&reader, name, text, n, err) || walk_document(&walk))
        goto done;
    rc = 0;
done:
    reader_close(&reader);
    return rc;
}

/*
 * Two walks over libyaml's events: the first judges the form of the whole text, the
 * second hands out values. So a syntax error at the end is reported before anything is
 * applied, and no tree is ever built: memory and time are linear whatever the nesting
 * (libyaml looks ahead by a line at most).
 */
#include "config/config_yaml.h"

#include "base/utf8.h"
#include "config/config_value.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <yaml.h>

#define MAX_LIST_BYTES 32768 // more than any key takes

struct walk {
    const char *name;
    config_node_fn *fn; // NULL: only the form is checked
    void *context;
    char path[2 * CONFIG_NAME_BYTES];
    size_t path_ends[CONFIG_YAML_DEPTH + 1]; // length of the path outside each mapping
    int depth;                               // open mappings
    int n_documents;
    bool has_key; // the next event is a value
    bool is_in_list;
    struct config_node node;
    char list[MAX_LIST_BYTES];
    struct error *err;
};

/* -- text or not? -------------------------------------------------------------------- */

bool config_is_control(uint32_t code)
{
    return code < 0x20 || (code >= 0x7F && code < 0xA0) || code == 0x2028 ||
           code == 0x2029 || code == 0xFFFE || code == 0xFFFF;
}

static int refuse_marks(const char *name, const char *text, size_t n, struct error *err)
{
    if (n >= 2 && (memcmp(text, "\xFF\xFE", 2) == 0 || memcmp(text, "\xFE\xFF", 2) == 0))
        return error_set(err, ERROR_INPUT, "%s:1:1: the file is UTF-16: save it as UTF-8",
                         name);
    if (n >= 3 && memcmp(text, "\xEF\xBB\xBF", 3) == 0)
        return error_set(err, ERROR_INPUT,
                         "%s:1:1: the file begins with a byte order mark: save it as "
                         "UTF-8 without one",
                         name);
    return 0;
}

int config_check_bytes(const char *name, const char *text, size_t n, struct error *err)
{
    int line = 1, column = 1;
    if (refuse_marks(name, text, n, err))
        return -1;
    for (size_t i = 0; i < n;) {
        uint32_t code;
        size_t length = utf8_decode(text + i, n - i, &code);
        if (length == 0)
            return error_set(err, ERROR_INPUT,
                             "%s:%d:%d: byte 0x%02x is not UTF-8: save the file as UTF-8",
                             name, line, column, (unsigned)(unsigned char)text[i]);
        if (config_is_control(code) && code != '\t' && code != '\n' && code != '\r')
            return error_set(err, ERROR_INPUT,
                             "%s:%d:%d: control character 0x%02x: remove it", name, line,
                             column, (unsigned)code);
        column = code == '\n' ? 1 : column + 1;
        line += code == '\n';
        i += length;
    }
    return 0;
}

/* -- refusals ------------------------------------------------------------------------ */

static struct config_place mark_place(const yaml_mark_t *mark)
{
    return (struct config_place){(int)mark->line + 1, (int)mark->column + 1};
}

static int refuse(struct walk *w, struct config_place at, const char *reason)
{
    return error_set(w->err, ERROR_INPUT, "%s:%d:%d: %s", w->name, at.line, at.column,
                     reason);
}

/* What libyaml complains about, as a sentence of ours. The context is what had begun,
 * such as a quote, which is where an error found at the end of the file was made. */
static int refuse_syntax(struct walk *w, const yaml_parser_t *parser)
{
    struct config_place at = mark_place(&parser->problem_mark);
    char began[96] = "";
    if (parser->error == YAML_MEMORY_ERROR)
        return error_set(w->err, ERROR_RUNTIME, "%s: out of memory in the YAML parser",
                         w->name);
    if (parser->problem &&
        (strcmp(parser->problem, "could not find expected ':'") == 0 ||
         strcmp(parser->problem, "found unexpected end of stream") == 0))
        at = mark_place(&parser->context_mark); // it is missed only in a later line
    if (parser->context)
        snprintf(began, sizeof began, "%s that begins at %d:%d, ", parser->context,
                 mark_place(&parser->context_mark).line,
                 mark_place(&parser->context_mark).column);
    return error_set(w->err, ERROR_INPUT,
                     "%s:%d:%d: not valid YAML (%s%s): check indentation, brackets and "
                     "quotes",
                     w->name, at.line, at.column, began,
                     parser->problem ? parser->problem : "unreadable");
}

/* What YAML can and a configuration does not need: refused where it stands. */
static int check_oddity(struct walk *w, const yaml_event_t *event, struct config_place at)
{
    const yaml_char_t *anchor = NULL, *tag = NULL;
    if (event->type == YAML_ALIAS_EVENT)
        return refuse(w, at, "aliases (*name) are not used here: write the value itself");
    if (event->type == YAML_SCALAR_EVENT) {
        anchor = event->data.scalar.anchor;
        tag = event->data.scalar.tag;
    } else if (event->type == YAML_MAPPING_START_EVENT) {
        anchor = event->data.mapping_start.anchor;
        tag = event->data.mapping_start.tag;
    } else if (event->type == YAML_SEQUENCE_START_EVENT) {
        anchor = event->data.sequence_start.anchor;
        tag = event->data.sequence_start.tag;
    }
    if (anchor)
        return refuse(w, at, "anchors (&name) are not used here: remove it");
    return tag ? refuse(w, at, "tags (!name) are not used here: remove it") : 0;
}

/* -- the walk ------------------------------------------------------------------------ */

static int hand_over(struct walk *w)
{
    return w->fn ? w->fn(w->context, &w->node, w->err) : 0;
}

/* Text of a scalar, which libyaml ends with a NUL; NULL when it holds a NUL itself. */
static const char *scalar_text(const yaml_event_t *event)
{
    const char *text = (const char *)event->data.scalar.value;
    return memchr(text, 0, event->data.scalar.length) ? NULL : text;
}

static bool is_plain(const yaml_event_t *event)
{
    return event->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
}

static int walk_key(struct walk *w, const yaml_event_t *event, struct config_place at)
{
    const char *text = scalar_text(event);
    size_t used = w->path_ends[w->depth];
    if (!text || !*text)
        return refuse(w, at, "a key is missing before the colon");
    int n = snprintf(w->path + used, CONFIG_NAME_BYTES, "%s%s", used ? "." : "", text);
    if (n >= CONFIG_NAME_BYTES || used + (size_t)n >= CONFIG_NAME_BYTES)
        return refuse(w, at, "this key is too long for any key of a configuration");
    w->node = (struct config_node){.path = w->path, .key_place = at};
    w->has_key = true;
    return 0;
}

/* The path in w names what begins here; it stays in front of everything inside. */
static int walk_enter(struct walk *w, struct config_place at)
{
    if (w->depth == CONFIG_YAML_DEPTH)
        return refuse(w, at,
                      "nested deeper than 32: a configuration has at most 4 levels");
    if (w->depth > 0) {
        w->node.kind = NODE_SECTION;
        w->node.value_place = at;
        if (hand_over(w))
            return -1;
    }
    w->depth++;
    w->path_ends[w->depth] = w->depth > 1 ? strlen(w->path) : 0;
    w->has_key = false;
    return 0;
}

static int walk_element(struct walk *w, const yaml_event_t *event, struct config_place at)
{
    const char *text = scalar_text(event);
    size_t used = strlen(w->list);
    const char separator[] = {w->node.text ? CONFIG_YAML_SEPARATOR : 0, 0};
    if (!text || !*text)
        return refuse(w, at, "an element of this list is empty: remove it");
    for (const char *c = text; *c; c++)
        if (iscntrl((unsigned char)*c))
            return refuse(w, at, "a control character in a list: remove it");
    if ((size_t)snprintf(w->list + used, MAX_LIST_BYTES - used, "%s%s", separator,
                         text) >= MAX_LIST_BYTES - used)
        return refuse(w, at, "this list is too long for any key");
    w->node.text = w->list;
    return 0;
}

static int walk_scalar(struct walk *w, const yaml_event_t *event, struct config_place at)
{
    w->node.kind = NODE_SCALAR;
    w->node.text = scalar_text(event);
    w->node.is_quoted = !is_plain(event);
    bool is_absent = is_plain(event) && event->data.scalar.length == 0;
    w->node.value_place = is_absent ? w->node.key_place : at;
    w->has_key = false;
    if (!w->node.text)
        return refuse(w, at, "a NUL character in a value: remove it");
    return hand_over(w);
}

static int walk_list_end(struct walk *w)
{
    w->node.text = w->list;
    w->is_in_list = false;
    w->has_key = false;
    return hand_over(w);
}

/* A document is one mapping, or nothing. */
static int walk_root(struct walk *w, const yaml_event_t *event, struct config_place at)
{
    if (event->type == YAML_MAPPING_START_EVENT)
        return walk_enter(w, at);
    if (event->type == YAML_SCALAR_EVENT && event->data.scalar.length == 0)
        return 0;
    return refuse(w, at, "a configuration is made of 'key: value' lines");
}

static int walk_node(struct walk *w, const yaml_event_t *event, struct config_place at)
{
    bool is_scalar = event->type == YAML_SCALAR_EVENT;
    if (check_oddity(w, event, at))
        return -1;
    if (w->depth == 0)
        return walk_root(w, event, at);
    if (is_scalar && event->start_mark.line != event->end_mark.line)
        return refuse(w, at,
                      "a value stands on one line: write this one without line breaks, "
                      "and close its quote");
    if (w->is_in_list)
        return is_scalar ? walk_element(w, event, at)
                         : refuse(w, at, "a list holds plain values here");
    if (!w->has_key)
        return is_scalar ? walk_key(w, event, at)
                         : refuse(w, at, "a key must be a plain word");
    if (is_scalar)
        return walk_scalar(w, event, at);
    if (event->type == YAML_MAPPING_START_EVENT)
        return walk_enter(w, at);
    w->node.kind = NODE_LIST;
    w->node.value_place = at;
    w->is_in_list = true;
    w->list[0] = 0;
    return 0;
}

static int walk_event(struct walk *w, const yaml_event_t *event)
{
    struct config_place at = mark_place(&event->start_mark);
    switch (event->type) {
    case YAML_DOCUMENT_START_EVENT:
        return w->n_documents++ == 0
                   ? 0
                   : refuse(w, at,
                            "a second YAML document begins: keep one document per file");
    case YAML_MAPPING_END_EVENT:
        w->depth--;
        w->path[w->path_ends[w->depth]] = 0;
        return 0;
    case YAML_SEQUENCE_END_EVENT:
        return walk_list_end(w);
    case YAML_ALIAS_EVENT:
    case YAML_SCALAR_EVENT:
    case YAML_MAPPING_START_EVENT:
    case YAML_SEQUENCE_START_EVENT:
        return walk_node(w, event, at);
    default:
        return 0;
    }
}

static int walk_text(struct walk *w, const char *text, size_t n)
{
    yaml_parser_t parser;
    yaml_event_t event;
    bool is_at_end = false;
    int rc = 0;
    if (!yaml_parser_initialize(&parser))
        return error_set(w->err, ERROR_RUNTIME, "%s: cannot start the YAML parser",
                         w->name);
    yaml_parser_set_input_string(&parser, (const unsigned char *)text, n);
    yaml_parser_set_encoding(&parser, YAML_UTF8_ENCODING);
    while (rc == 0 && !is_at_end) {
        if (!yaml_parser_parse(&parser, &event)) {
            rc = refuse_syntax(w, &parser);
            break;
        }
        is_at_end = event.type == YAML_STREAM_END_EVENT;
        rc = walk_event(w, &event);
        yaml_event_delete(&event);
    }
    yaml_parser_delete(&parser);
    return rc;
}

int config_yaml_read(const char *name, const char *text, size_t n, config_node_fn *fn,
                     void *context, struct error *err)
{
    struct walk form = {.name = name, .err = err};
    struct walk values = {.name = name, .fn = fn, .context = context, .err = err};
    if (config_check_bytes(name, text, n, err) || walk_text(&form, text, n))
        return -1;
    return walk_text(&values, text, n);
}

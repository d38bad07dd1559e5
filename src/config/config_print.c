/*
 * A configuration, or the table of keys, as text: for people (`trefoil config` and
 * docs/config.md), and as JSON, nested by section as the YAML is.
 */
#include "config/config_print.h"

#include "config/config_json.h"

#include "config/config_names.h"
#include "config/config_value.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COMMENT_COLUMN 46

/* -- one value ----------------------------------------------------------------------- */

/* The shortest decimal text that reads back as exactly `value`. */
static void write_float(double value, char *buf, size_t size)
{
    if (value == floor(value) && fabs(value) < 1e15) {
        snprintf(buf, size, "%.0f", value); // %g would write 50 as 5e+01
        return;
    }
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(buf, size, "%.*g", digits, value);
        if (strtod(buf, NULL) == value)
            return;
    }
}

/* YAML's single quotes have one escape: a quote is written twice. */
static void write_quoted(const char *text, char *buf, size_t size)
{
    size_t used = 0;
    buf[used++] = '\'';
    for (; *text && used + 4 < size; text++) {
        if (*text == '\'')
            buf[used++] = '\'';
        buf[used++] = *text;
    }
    buf[used++] = '\'';
    buf[used] = 0;
}

static void write_truth(enum config_truth value, char *buf, size_t size)
{
    static const char *const words[] = {
        [TRUTH_EMPTY] = "", [TRUTH_FALSE] = "False", [TRUTH_TRUE] = "True"};
    snprintf(buf, size, "%s", words[value]);
}

static void write_enum(const struct config_key *key, const void *member, char *buf,
                       size_t size)
{
    int value;
    memcpy(&value, member, sizeof value);
    snprintf(buf, size, "%d", value);
    for (const struct config_word *w = key->words; w->word; w++)
        if (w->value == value) {
            snprintf(buf, size, "%s", w->word);
            return;
        }
}

static void write_weights(const double *weights, char *buf, size_t size)
{
    char w[3][32];
    for (int i = 0; i < 3; i++)
        write_float(weights[i], w[i], sizeof w[i]);
    snprintf(buf, size, "[%s, %s, %s]", w[0], w[1], w[2]);
}

static void write_paths(const struct config_paths *paths, char *buf, size_t size)
{
    size_t used = (size_t)snprintf(buf, size, "[");
    if (paths->n_paths == 1) {
        write_quoted(paths->bytes, buf, size);
        return;
    }
    for (int64_t i = 0; i < paths->n_paths && used + 8 < size; i++) {
        used += (size_t)snprintf(buf + used, size - used, "%s", i ? ", " : "");
        write_quoted(config_path_at(paths, i), buf + used, size - used - 1);
        used += strlen(buf + used);
    }
    snprintf(buf + used, size - used, "]");
}

static void write_numbers(const struct config_numbers *numbers, char *buf, size_t size)
{
    size_t used = (size_t)snprintf(buf, size, "[");
    for (int64_t i = 0; i < numbers->n_values && used + 40 < size; i++) {
        char number[32];
        write_float(numbers->values[i], number, sizeof number);
        used += (size_t)snprintf(buf + used, size - used, "%s%s", i ? ", " : "", number);
    }
    snprintf(buf + used, size - used, "]");
}

void config_value_text(const struct config_key *key, const struct config *cfg, char *buf,
                       size_t size)
{
    const void *member = config_member_const(key, cfg);
    const int64_t *ints = member;
    switch (key->type) {
    case CONFIG_INT:
        snprintf(buf, size, "%lld", (long long)*ints);
        break;
    case CONFIG_FLOAT:
        write_float(*(const double *)member, buf, size);
        break;
    case CONFIG_BOOL:
        snprintf(buf, size, "%s", *(const bool *)member ? "True" : "False");
        break;
    case CONFIG_TRUTH:
        write_truth(*(const enum config_truth *)member, buf, size);
        break;
    case CONFIG_ENUM:
        write_enum(key, member, buf, size);
        break;
    case CONFIG_TEXT:
        write_quoted(member, buf, size);
        break;
    case CONFIG_WEIGHTS:
        write_weights(member, buf, size);
        break;
    case CONFIG_SHAPE:
        snprintf(buf, size, "[%lld, %lld, %lld]", (long long)ints[0], (long long)ints[1],
                 (long long)ints[2]);
        break;
    case CONFIG_PATHS:
    case CONFIG_TEXTS:
        write_paths(member, buf, size);
        break;
    case CONFIG_NUMBERS:
        write_numbers(member, buf, size);
        break;
    }
}

/* -- what YAML and Markdown share ---------------------------------------------------- */

/* Length of the section in front of a key's leaf name, without the last dot. */
static int section_length(const char *path)
{
    const char *leaf = config_leaf(path);
    return leaf == path ? 0 : (int)(leaf - path) - 1;
}

static bool is_same_section(const char *a, const char *b)
{
    int n = section_length(a);
    return n == section_length(b) && strncmp(a, b, (size_t)n) == 0;
}

static int depth_of(const char *path)
{
    int depth = 1; // below the root
    for (; *path; path++)
        depth += *path == '.';
    return depth;
}

/* What comes about when the key is absent, and when it is empty if that is another. */
static void describe_default(const struct config_key *key, char *buf, size_t size)
{
    const char *text = key->derived           ? key->derived
                       : key->without         ? key->without
                       : key->default_text[0] ? key->default_text
                                              : "empty";
    int n = snprintf(buf, size, "%s", text);
    if (key->sectioned_default)
        n += snprintf(buf + n, size - (size_t)n, "; %s in PaddleFleetX 2.4's form",
                      key->sectioned_default);
    if (key->tutorial_default)
        n += snprintf(buf + n, size - (size_t)n,
                      "; %s in the Colossal-AI tutorial's form", key->tutorial_default);
    if (key->empty)
        snprintf(buf + n, size - (size_t)n, "; %s when nothing follows the colon",
                 key->empty);
}

/* -- as YAML ------------------------------------------------------------------------- */

/* The section lines that open for `path` and were not open for `previous`. */
static void print_sections(const char *path, const char *previous, FILE *out)
{
    int n = section_length(path), start = 0;
    for (int end = 1; end <= n; end++) {
        if (end < n && path[end] != '.')
            continue;
        bool is_open = previous && section_length(previous) >= end &&
                       strncmp(path, previous, (size_t)end) == 0 && previous[end] == '.';
        int indent = start ? 4 : 2;
        if (!is_open)
            fprintf(out, "%s%*s%.*s:\n", start ? "" : "\n", indent, "", end - start,
                    path + start);
        start = end + 1;
    }
}

static void print_key(const struct config_key *key, const struct config *cfg, FILE *out)
{
    char value[CONFIG_TEXT_BYTES], standard[256];
    config_value_text(key, cfg, value, sizeof value);
    describe_default(key, standard, sizeof standard);
    int n = fprintf(out, "%*s%s: %s", 2 * depth_of(key->path), "", config_leaf(key->path),
                    value);
    fprintf(out, "%*s  # default: %s. %s\n", n < COMMENT_COLUMN ? COMMENT_COLUMN - n : 0,
            "", standard, key->meaning);
}

void config_print(const struct config *cfg, FILE *out)
{
    const char *previous = NULL;
    fprintf(out, "# The effective configuration; as a file it loads as it is.\n%s:\n",
            CONFIG_ROOT);
    for (int i = 0; i < config_n_keys; i++) {
        print_sections(config_keys[i].path, previous, out);
        print_key(&config_keys[i], cfg, out);
        previous = config_keys[i].path;
    }
}

static bool is_below(const char *path, const char *ancestor)
{
    size_t n = strlen(ancestor);
    return strncmp(path, ancestor, n) == 0 && (path[n] == 0 || path[n] == '.');
}

void config_print_keys(const struct config *cfg, const char *const *paths, size_t n_paths,
                       FILE *out)
{
    const char *previous = NULL;
    char value[CONFIG_TEXT_BYTES];
    fprintf(out, "%s:\n", CONFIG_ROOT);
    for (int i = 0; i < config_n_keys; i++) {
        const char *path = config_keys[i].path;
        bool is_wanted = false;
        for (size_t j = 0; j < n_paths; j++)
            is_wanted |= is_below(path, paths[j]);
        if (!is_wanted)
            continue;
        print_sections(path, previous, out);
        config_value_text(&config_keys[i], cfg, value, sizeof value);
        fprintf(out, "%*s%s: %s\n", 2 * depth_of(path), "", config_leaf(path), value);
        previous = path;
    }
}

/* -- as Markdown --------------------------------------------------------------------- */

static const char introduction[] =
    "# Configuration\n"
    "\n"
    "Made by `trefoil config --markdown`; do not edit.\n"
    "\n"
    "A configuration is a YAML file, given by `-c FILE`. Its root `PreTraining:` may be\n"
    "left out, and so may every key: then it has its default. So it has when nothing\n"
    "stands after its colon (`None`, `null` and `~` count as nothing), but for the keys\n"
    "whose default below says what nothing means: `max_steps` and `hang_timeout`.\n"
    "`-o key=value` overrides a key, as often as needed, the last one wins: the key is\n"
    "the dotted path (`-o Model.num_layers=4`), with or without the root, or the last\n"
    "part of it where only one key ends so (`-o max_steps=3`).\n"
    "`trefoil config -c FILE` prints every key with its effective value.\n"
    "\n"
    "Other names of keys, of PaddleFleetX since August 2022 and of Colossal-AI, are at\n"
    "the end; a file may mix them. `_base_: FILE`, relative to the file that says it,\n"
    "lays a file over another: what it gives overrides what that one gives, whatever\n"
    "the names, and `_inherited_: False` in a section takes nothing of it from there.\n"
    "A file with a section `Global`, `Engine` or `Data` has `sharding_stage` 2 where it\n"
    "is left out.\n"
    "\n"
    "- Numbers are decimal and finite: `1e-5` and `1.0e-5` are numbers; `0x10`, `0o10`,\n"
    "  `010`, `1_000`, `nan` and `inf` are refused. A quoted number is a string.\n"
    "- Truth values are `True`, `true`, `False`, `false`; `yes`, `no`, `on`, `off` and\n"
    "  the like are refused.\n"
    "- A list is written `[a, b]` or with a line for each element, and by `-o` as\n"
    "  `-o 'dataset.input_dir=[a, b]'`.\n"
    "- Unknown keys, keys given twice (by two of their names: with two values), "
    "anchors,\n"
    "  aliases, tags, values over several lines, several documents, text that is not\n"
    "  UTF-8, files over 1 MB, nesting over 32, files that are their own base and "
    "chains\n"
    "  of more than 16 are refused, with file, line and column.\n"
    "- Values marked *not yet* are understood, checked, and refused until a later\n"
    "  version has them; nothing is ever ignored but what the last table names.\n"
    "\n"
    "Rules between keys: `global_batch_size` = `local_batch_size` x data ranks\n"
    "(`dp_degree` x `sharding_degree`) x `gradient_accumulation`, exactly;\n"
    "`micro_batch_size` divides\n"
    "`local_batch_size`; `num_attention_heads` divides `hidden_size`; `max_seq_len` is "
    "at\n"
    "most `max_position_embeddings`; `eos_token_id` is below `vocab_size`; the training\n"
    "part of `split` has a weight, and with `eval_freq` above 0 so has the validation\n"
    "part; `weights` has a number for each element of `input_dir`, or none. A `max_lr`\n"
    "below `min_lr`, as in the original files, is accepted with a warning: the learning\n"
    "rate then rises after the warm-up.\n"
    "\n"
    "A run that continues from a checkpoint keeps the behaviour of version 2.0.0 where "
    "a\n"
    "key is left out and the checkpoint has the default of 2.0.0, or lacks the key; one\n"
    "line of the log names these keys. `decay_steps` that is left out follows\n"
    "`max_steps`, also when a run is extended: the log shows the next learning rate if\n"
    "it differs from the checkpoint's; set `decay_steps` to keep the old schedule.\n"
    "Warnings are logged when a run ends inside its warm-up, and when its highest\n"
    "learning rate is below 1 % of `max_lr`.\n";

static void markdown_section(const char *path, FILE *out)
{
    int n = section_length(path);
    if (n)
        fprintf(out, "\n## %.*s\n", n, path);
    else
        fprintf(out, "\n## Root\n");
    fprintf(out, "\n| key | default | values | meaning |\n|---|---|---|---|\n");
}

static void markdown_key(const struct config_key *key, FILE *out)
{
    char standard[256], values[256];
    describe_default(key, standard, sizeof standard);
    config_describe_type(key, values, sizeof values);
    fprintf(out, "| `%s` | %s | %s", config_leaf(key->path), standard, values);
    if (key->works_now) {
        fprintf(out, "; *not yet*: all but ");
        for (const char *p = key->works_now; *p; p++)
            fprintf(out, *p == '|' ? ", " : "%c", *p);
    }
    fprintf(out, " | %s |\n", key->meaning);
}

static const char *foreign_text(const struct config_foreign *row)
{
    switch (row->kind) {
    case FOREIGN_UNUSED:
        return "not used: named in one line of the log";
    case FOREIGN_ONLY:
        return "only ";
    case FOREIGN_REFUSED:
        return "refused: ";
    case FOREIGN_MIXED:
        return "False means `dtype` float32; True means `dtype`, float16 when it is left "
               "out";
    }
    return "";
}

/* The words that are possible: all but those with a reason behind their "=". */
static void markdown_words(const char *words, FILE *out)
{
    for (const char *p = words; *p; p += strcspn(p, "|"), p += *p == '|') {
        size_t n = strcspn(p, "|="), n_whole = strcspn(p, "|");
        if (n + 1 >= n_whole)
            fprintf(out, "%s`%.*s`%s", p == words ? "" : ", ", (int)n, p,
                    n < n_whole ? " (not used)" : "");
    }
}

static void markdown_foreign(const struct config_foreign *row, FILE *out)
{
    fprintf(out, "| `%s` | %s", row->name, foreign_text(row));
    if (row->kind == FOREIGN_ONLY)
        markdown_words(row->values, out);
    if (row->kind == FOREIGN_REFUSED)
        fputs(row->reason, out);
    fprintf(out, " |\n");
}

static void markdown_alias(const struct config_alias *alias, FILE *out)
{
    fprintf(out, "| `%s` | `%s`%s | %s |", alias->name, alias->path,
            alias->is_echo ? ", must agree with it" : "", alias->why);
    for (const char *p = alias->words; p && *p; p += strcspn(p, "|"), p += *p == '|') {
        int n_theirs = (int)strcspn(p, "="), n = (int)strcspn(p, "|");
        fprintf(out, "%s `%.*s` means `%.*s`", p == alias->words ? "" : ",", n_theirs, p,
                n - n_theirs - 1, p + n_theirs + 1);
    }
    fprintf(out, " |\n");
}

void config_print_markdown(FILE *out)
{
    fputs(introduction, out);
    for (int i = 0; i < config_n_keys; i++) {
        if (i == 0 || !is_same_section(config_keys[i].path, config_keys[i - 1].path))
            markdown_section(config_keys[i].path, out);
        markdown_key(&config_keys[i], out);
    }
    fprintf(out, "\n## Other names\n\n"
                 "| name | key | from | values |\n|---|---|---|---|\n");
    for (int i = 0; i < config_n_aliases; i++)
        markdown_alias(&config_aliases[i], out);
    fprintf(out, "\n## Names of PaddleFleetX that are no keys here\n\n"
                 "Also below `Engine` and `Data` where the section is.\n\n"
                 "| name | what becomes of it |\n|---|---|\n");
    for (int i = 0; i < config_n_foreigns; i++)
        markdown_foreign(&config_foreigns[i], out);
}

/* -- for manual page and completion -------------------------------------------------- */

/* The names of the values of an ENUM, without their second words. */
static void join_words(const struct config_word *words, char *buf, size_t size)
{
    size_t used = 0;
    buf[0] = 0;
    for (const struct config_word *w = words; w->word && used < size; w++) {
        bool is_alias = w > words && w->value == w[-1].value;
        if (!is_alias)
            used += (size_t)snprintf(buf + used, size - used, "%s%s", used ? "|" : "",
                                     w->word);
    }
}

bool config_hint_at(struct config_hint *hint, int i)
{
    if (i >= config_n_keys)
        return false;
    const struct config_key *key = &config_keys[i];
    *hint = (struct config_hint){.path = key->path, .meaning = key->meaning};
    describe_default(key, hint->standard, sizeof hint->standard);
    if (key->works_now)
        snprintf(hint->words, sizeof hint->words, "%s", key->works_now);
    else if (key->type == CONFIG_ENUM)
        join_words(key->words, hint->words, sizeof hint->words);
    else if (key->type == CONFIG_BOOL || key->type == CONFIG_TRUTH)
        snprintf(hint->words, sizeof hint->words, "True|False");
    return true;
}

/* -- as JSON ------------------------------------------------------------------------- */

/* One path is a string, as it is in YAML. */
static json_t *paths_to_json(const struct config_paths *paths)
{
    if (paths->n_paths == 1)
        return json_string(paths->bytes);
    json_t *list = json_array();
    for (int64_t i = 0; i < paths->n_paths; i++)
        CHECK(json_array_append_new(list, json_string(config_path_at(paths, i))) == 0,
              "out of memory");
    return list;
}

static json_t *numbers_to_json(const struct config_numbers *numbers)
{
    json_t *list = json_array();
    for (int64_t i = 0; i < numbers->n_values; i++)
        CHECK(json_array_append_new(list, json_real(numbers->values[i])) == 0,
              "out of memory");
    return list;
}

static json_t *value_to_json(const struct config_key *key, const struct config *cfg)
{
    char text[CONFIG_SHOWN_BYTES];
    const void *member = config_member_const(key, cfg);
    const int64_t *ints = member;
    const double *reals = member;
    switch (key->type) {
    case CONFIG_INT:
        return json_integer(*ints);
    case CONFIG_FLOAT:
        return json_real(*reals);
    case CONFIG_BOOL:
        return json_boolean(*(const bool *)member);
    case CONFIG_TRUTH:
        return *(const enum config_truth *)member == TRUTH_EMPTY
                   ? json_null()
                   : json_boolean(*(const enum config_truth *)member == TRUTH_TRUE);
    case CONFIG_ENUM:
        config_value_text(key, cfg, text, sizeof text);
        return json_string(text);
    case CONFIG_TEXT:
        return json_string(member);
    case CONFIG_WEIGHTS:
        return json_pack("[f,f,f]", reals[0], reals[1], reals[2]);
    case CONFIG_PATHS:
    case CONFIG_TEXTS:
        return paths_to_json(member);
    case CONFIG_NUMBERS:
        return numbers_to_json(member);
    case CONFIG_SHAPE:
        return json_pack("[I,I,I]", (json_int_t)ints[0], (json_int_t)ints[1],
                         (json_int_t)ints[2]);
    }
    return NULL;
}

char *config_to_json(const struct config *cfg)
{
    json_t *root = json_object();
    for (int i = 0; i < config_n_keys; i++) {
        const struct config_key *key = &config_keys[i];
        config_json_put(root, key, value_to_json(key, cfg));
    }
    char *text =
        json_dumps(root, JSON_INDENT(1) | JSON_REAL_PRECISION(CONFIG_REAL_DIGITS));
    json_decref(root);
    CHECK(text, "out of memory");
    return text;
}

const char *config_path_at(const struct config_paths *paths, int64_t i)
{
    const char *path = paths->bytes;
    CHECK(i >= 0 && i < paths->n_paths, "path %lld of %lld", (long long)i,
          (long long)paths->n_paths);
    for (; i > 0; i--)
        path += strlen(path) + 1;
    return path;
}

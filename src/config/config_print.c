/*
 * The table of keys for people: `trefoil config` and docs/config.md.
 */
#include "config/config_value.h"

#include <stdio.h>
#include <string.h>

#define COMMENT_COLUMN 46

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

/* What comes about when the key is absent. */
static void describe_default(const struct config_key *key, char *buf, size_t size)
{
    if (key->derived)
        snprintf(buf, size, "%s", key->derived);
    else
        snprintf(buf, size, "%s", key->default_text[0] ? key->default_text : "empty");
}

/* -- as YAML --------------------------------------------------------------------------
 */

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

/* -- as Markdown ----------------------------------------------------------------------
 */

static const char introduction[] =
    "# Configuration\n"
    "\n"
    "Made by `trefoil config --markdown`; do not edit.\n"
    "\n"
    "A configuration is a YAML file, given by `-c FILE`. Its root `PreTraining:` may be\n"
    "left out, and so may every key: then it has its default, as it has when nothing\n"
    "stands after its colon (`None`, `null` and `~` count as nothing).\n"
    "`-o key=value` overrides a key, as often as needed, the last one wins: the key is\n"
    "the dotted path (`-o Model.num_layers=4`), with or without the root, or the last\n"
    "part of it where only one key ends so (`-o max_steps=3`).\n"
    "`trefoil config -c FILE` prints every key with its effective value.\n"
    "\n"
    "- Numbers are decimal and finite: `1e-5` and `1.0e-5` are numbers; `0x10`, `0o10`,\n"
    "  `010`, `1_000`, `nan` and `inf` are refused. A quoted number is a string.\n"
    "- Truth values are `True`, `true`, `False`, `false`; `yes`, `no`, `on`, `off` and\n"
    "  the like are refused.\n"
    "- A list is written `[a, b]` or with a line for each element, and by `-o` as\n"
    "  `-o 'dataset.input_dir=[a, b]'`.\n"
    "- Unknown keys, keys given twice (also by two of their names), anchors, aliases,\n"
    "  tags, values over several lines, several documents, text that is not UTF-8,\n"
    "  files over 1 MB and nesting over 32 are refused, with file, line and column.\n"
    "- Values marked *not yet* are understood, checked, and refused until a later\n"
    "  version has them; nothing is ever ignored.\n"
    "\n"
    "Rules between keys: `global_batch_size` = `local_batch_size` x data ranks\n"
    "(`dp_degree` x `sharding_degree`), exactly; `micro_batch_size` divides\n"
    "`local_batch_size`; `num_attention_heads` divides `hidden_size`; `max_seq_len` is "
    "at\n"
    "most `max_position_embeddings`; `eos_token_id` is below `vocab_size`; the training\n"
    "part of `split` has a weight, and with `eval_freq` above 0 so has the validation\n"
    "part; `weights` has a number for each element of `input_dir`, or none. A `max_lr`\n"
    "below `min_lr`, as in the original files, is accepted with a warning: the learning\n"
    "rate then rises after the warm-up.\n";

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

static void markdown_alias(const struct config_alias *alias, FILE *out)
{
    fprintf(out, "| `%s` | `%s` | %s |", alias->name, alias->path, alias->why);
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
}

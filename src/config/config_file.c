/*
 * One file with the files it builds on: `_base_: FILE`, relative to the file that says
 * it.
 *
 * The text is walked twice. The first walk finds `_base_` and `_inherited_: False`, which
 * may stand anywhere; then the base is applied; then the second walk applies the rest.
 */
#include "config/config_file.h"

#include "base/fs.h"
#include "base/log.h"
#include "config/config_print.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define BASE "_base_"
#define INHERITED "_inherited_"
#define MAX_SECTIONS 64 // of the table of keys and of other names

/* -- names that are no keys (config_names.c) ----------------------------------------- */

static struct config_foreign_use *use_of(struct config_loader *l,
                                         const struct config_foreign *row)
{
    return &l->foreigns[row - config_foreigns];
}

static void mark(struct config_foreign_use *use, const struct config_foreign *row,
                 const struct config_given *given)
{
    char ours[CONFIG_NAME_BYTES];
    config_canonical(given->name, ours);
    if (use->is_seen && use->layer == given->from.layer)
        return;
    use->is_seen = true;
    use->layer = given->from.layer;
    // of something below the row, the row's name says enough
    snprintf(use->name, sizeof use->name, "%s",
             strcmp(ours, row->name) == 0 ? given->name : row->name);
    snprintf(use->where, sizeof use->where, "%s", given->where);
}

/* What the row says about a word. */
struct verdict {
    bool is_allowed, is_unused;
    const char *reason; // of a refusal, with its length
    int n_reason;
};

static struct verdict judge_word(const struct config_foreign *row,
                                 const struct config_text *text)
{
    struct verdict v = {.reason = row->reason, .n_reason = (int)strlen(row->reason)};
    size_t n_text = strlen(text->text);
    for (const char *p = row->values; *p; p += strcspn(p, "|"), p += *p == '|') {
        size_t n = strcspn(p, "|="), n_whole = strcspn(p, "|");
        if (text->is_list || n != n_text || memcmp(p, text->text, n) != 0)
            continue;
        v.is_unused = n + 1 == n_whole;
        v.is_allowed = v.is_unused || n == n_whole;
        v.reason = p + n + 1;
        v.n_reason = (int)n_whole - (int)n - 1;
    }
    return v;
}

/* A later layer may give another value, so a refusal waits until all is applied. */
static int note_only(struct config_foreign_use *use, const struct config_foreign *row,
                     const struct config_given *given, struct error *err)
{
    bool is_again = use->layer == given->from.layer && given->from.source == SOURCE_FILE;
    if (!given->text.text)
        return error_set(err, ERROR_INPUT, "%s: '%s' takes a value, not keys of its own",
                         given->where, given->name);
    if (use->refusal && is_again)
        return 0;
    struct verdict v = judge_word(row, &given->text);
    *use = (struct config_foreign_use){0}; // the last word counts
    if (!v.is_allowed || v.is_unused)
        mark(use, row, given);
    if (!v.is_allowed) {
        use->refusal = v.reason;
        use->n_refusal = v.n_reason;
        snprintf(use->name, sizeof use->name, "%s", given->name);
        config_show(given->text.text, use->shown);
    }
    return 0;
}

static int read_truth(const struct config_given *given, bool *value, struct error *err)
{
    const char *text = given->text.text;
    bool is_plain = text && !given->text.is_list && !given->text.is_quoted;
    char shown[CONFIG_SHOWN_BYTES];
    if (is_plain && (strcmp(text, "True") == 0 || strcmp(text, "true") == 0)) {
        *value = true;
        return 0;
    }
    if (is_plain && (strcmp(text, "False") == 0 || strcmp(text, "false") == 0)) {
        *value = false;
        return 0;
    }
    config_show(text ? text : "", shown);
    return error_set(err, ERROR_INPUT,
                     "%s: %s: '%s' is not a truth value: write True or False",
                     given->where, given->name, shown);
}

/* What is refused may be switched off by a key directly below it. */
static int note_refused(struct config_foreign_use *use, const struct config_foreign *row,
                        const struct config_given *given, struct error *err)
{
    static const char *const switches[] = {"enable", "use_qat"};
    char ours[CONFIG_NAME_BYTES], name[CONFIG_NAME_BYTES];
    config_canonical(given->name, ours);
    mark(use, row, given);
    for (size_t i = 0; i < ARRAY_LEN(switches); i++) {
        bool is_enabled = false;
        snprintf(name, sizeof name, "%s.%s", row->name, switches[i]);
        if (strcmp(ours, name) != 0)
            continue;
        if (read_truth(given, &is_enabled, err))
            return -1;
        use->is_disabled = !is_enabled;
    }
    return 0;
}

static int note_mixed(struct config_loader *l, const struct config_foreign *row,
                      const struct config_given *given, struct error *err)
{
    struct config_foreign_use *use = use_of(l, row);
    bool value = false, is_again = use->is_seen && use->layer == given->from.layer;
    if (read_truth(given, &value, err))
        return -1;
    if (is_again && given->from.source == SOURCE_FILE && value != l->mixed)
        return error_set(
            err, ERROR_INPUT,
            "%s: '%s' is set a second time with another value (first at %s): "
            "remove one",
            given->where, given->name, use->where);
    mark(use, row, given);
    l->mixed = value;
    return 0;
}

int config_foreign_apply(struct config_loader *l, const struct config_foreign *row,
                         const struct config_given *given, struct error *err)
{
    struct config_foreign_use *use = use_of(l, row);
    if (given->text.text && config_text_is_empty(&given->text)) {
        if (row->kind == FOREIGN_ONLY && given->from.layer > use->layer)
            *use = (struct config_foreign_use){0}; // left out after all
        return 0;
    }
    switch (row->kind) {
    case FOREIGN_UNUSED:
        mark(use, row, given);
        return 0;
    case FOREIGN_ONLY:
        return note_only(use, row, given, err);
    case FOREIGN_REFUSED:
        return note_refused(use, row, given, err);
    case FOREIGN_MIXED:
        return note_mixed(l, row, given, err);
    }
    return 0;
}

/* -- names that are no keys: when all is applied ------------------------------------- */

/* mix_precision.enable decides whether dtype, float16 when it is left out, counts. Of it
 * and use_pure_fp16 or dtype the later layer has its way. */
static int resolve_mixed(struct config_loader *l, const struct config_foreign_use *use,
                         struct error *err)
{
    const struct config_origins *origins = &l->ours.origins;
    struct config_precision *p = &l->ours.cfg->mix_precision;
    const struct config_key *fp16 = config_key_at("mix_precision.use_pure_fp16");
    const struct config_key *dtype = config_key_at("mix_precision.dtype");
    int layer =
        config_was_given(origins, fp16) ? origins->of[fp16 - config_keys].layer : 0;
    char where[CONFIG_WHERE_BYTES];
    if (layer > use->layer)
        return 0;
    if (layer == use->layer && p->use_pure_fp16 != l->mixed) {
        config_where(origins, fp16, where);
        return error_set(
            err, ERROR_INPUT,
            "%s: %s: it says %s and use_pure_fp16 says %s (%s): leave one of "
            "them out",
            use->where, use->name, l->mixed ? "True" : "False",
            p->use_pure_fp16 ? "True" : "False", where);
    }
    if (!l->mixed) {
        p->use_pure_fp16 = false;
        if (!config_was_given(origins, dtype) ||
            origins->of[dtype - config_keys].layer <= use->layer)
            p->dtype = DTYPE_F32;
    } else if (!config_was_given(origins, dtype)) {
        p->dtype = DTYPE_F16;
    }
    return 0;
}

int config_foreign_finish(struct config_loader *l, struct error *err)
{
    for (int i = 0; i < config_n_foreigns; i++) {
        const struct config_foreign_use *use = &l->foreigns[i];
        const struct config_foreign *row = &config_foreigns[i];
        if (!use->is_seen)
            continue;
        if (row->kind == FOREIGN_REFUSED && !use->is_disabled)
            return error_set(err, ERROR_INPUT, "%s: %s: %s", use->where, use->name,
                             row->reason);
        if (use->refusal)
            return error_set(err, ERROR_INPUT, "%s: %s: '%s' is not possible here: %.*s",
                             use->where, use->name, use->shown, use->n_refusal,
                             use->refusal);
        if (row->kind == FOREIGN_MIXED && !l->is_scan && resolve_mixed(l, use, err))
            return -1;
    }
    return 0;
}

/* PaddleFleetX 2.4's automatic parallelism took the level alone for float16. */
static void warn_of_level(const struct config_loader *l)
{
    const struct config_foreign_use *level =
        &l->foreigns[config_find_foreign("mix_precision.level") - config_foreigns];
    const struct config_foreign_use *enable =
        &l->foreigns[config_find_foreign("mix_precision.enable") - config_foreigns];
    const struct config_origins *origins = &l->ours.origins;
    if (level->is_seen && !enable->is_seen &&
        !config_was_given(origins, config_key_at("mix_precision.use_pure_fp16")) &&
        !config_was_given(origins, config_key_at("mix_precision.dtype")))
        log_warning("%s: %s alone does not switch to 16 bits: training is in float32; "
                    "for float16 add mix_precision.enable: True",
                    level->where, level->name);
}

void config_foreign_log(const struct config_loader *l)
{
    char line[1024] = "";
    size_t used = 0;
    for (int i = 0; i < config_n_foreigns && used < sizeof line; i++)
        if (l->foreigns[i].is_seen && (config_foreigns[i].kind == FOREIGN_UNUSED ||
                                       config_foreigns[i].kind == FOREIGN_ONLY))
            used += (size_t)snprintf(line + used, sizeof line - used, "%s%s",
                                     used ? ", " : "", l->foreigns[i].name);
    if (used)
        log_info("not used here, of the configuration: %s", line);
    warn_of_level(l);
}

/* -- a file -------------------------------------------------------------------------- */

struct layer {
    struct config_loader *loader;
    const char *file; // as shown
    int number;
    char base[CONFIG_PATH_BYTES]; // "": none
    struct config_place base_place;
    struct { // seen so far, to find duplicates
        char path[CONFIG_NAME_BYTES];
        struct config_place place;
    } sections[MAX_SECTIONS], renewed[MAX_SECTIONS]; // renewed: take nothing from a base
    int n_sections, n_renewed;
};

static int refuse_node(const struct layer *f, struct config_place at, struct error *err,
                       const char *path, const char *reason)
{
    char shown[CONFIG_SHOWN_BYTES];
    config_show(path, shown);
    return error_set(err, ERROR_INPUT, "%s:%d:%d: '%s' %s", f->file, at.line, at.column,
                     shown, reason);
}

/* -- first walk ---------------------------------------------------------------------- */

static int note_base(struct layer *f, const struct config_node *node, struct error *err)
{
    struct config_text text = {node->text, node->is_quoted, node->kind == NODE_LIST};
    if (node->kind != NODE_SCALAR)
        return refuse_node(f, node->value_place, err, BASE,
                           "takes the name of one file, relative to this one");
    if (config_text_is_empty(&text))
        return 0;
    if (f->base[0])
        return refuse_node(f, node->key_place, err, BASE,
                           "is set a second time: a file has one base");
    f->base_place = node->value_place;
    if (config_check_text(node->text, strlen(node->text), err))
        return error_prefix(err, "%s:%d:%d: %s", f->file, f->base_place.line,
                            f->base_place.column, BASE);
    snprintf(f->base, sizeof f->base, "%s", node->text);
    return 0;
}

static int note_inherited(struct layer *f, const struct config_node *node,
                          const char *path, struct error *err)
{
    bool is_scalar = node->kind == NODE_SCALAR && !node->is_quoted;
    if (is_scalar && (strcmp(node->text, "True") == 0 || strcmp(node->text, "true") == 0))
        return 0;
    if (!is_scalar ||
        (strcmp(node->text, "False") != 0 && strcmp(node->text, "false") != 0))
        return refuse_node(f, node->value_place, err, path, "is True or False");
    if (f->n_renewed == MAX_SECTIONS)
        return refuse_node(f, node->key_place, err, path, "comes too often");
    snprintf(f->renewed[f->n_renewed++].path, CONFIG_NAME_BYTES, "%.*s",
             (int)(config_leaf(path) - path), path);
    return 0;
}

static int on_first_walk(void *context, const struct config_node *node, struct error *err)
{
    const char *path = config_strip_root(node->path);
    if (strcmp(path, BASE) == 0)
        return note_base(context, node, err);
    if (strcmp(config_leaf(path), INHERITED) == 0)
        return note_inherited(context, node, path, err);
    return 0;
}

/* -- second walk --------------------------------------------------------------------- */

static int refuse_unknown(const struct layer *f, const struct config_node *node,
                          const char *path, struct error *err)
{
    char remedy[512], reason[600];
    config_suggest(path, remedy, sizeof remedy);
    snprintf(reason, sizeof reason, "is not a known key: %s", remedy);
    return refuse_node(f, node->key_place, err, path, reason);
}

static int enter_section(struct layer *f, const struct config_node *node,
                         const char *path, struct error *err)
{
    char reason[128];
    for (int i = 0; i < f->n_sections; i++)
        if (strcmp(f->sections[i].path, path) == 0) {
            snprintf(reason, sizeof reason,
                     "comes a second time, first in line %d: put its keys together",
                     f->sections[i].place.line);
            return refuse_node(f, node->key_place, err, node->path, reason);
        }
    CHECK(f->n_sections < MAX_SECTIONS, "more sections than the tables can have");
    snprintf(f->sections[f->n_sections].path, CONFIG_NAME_BYTES, "%s", path);
    f->sections[f->n_sections++].place = node->key_place;
    if (config_is_sectioned(path))
        f->loader->is_sectioned = true;
    return 0;
}

/* The same value by another name of the key means one thing, and so does one of two that
 * is empty; *is_said: there is nothing left to apply. */
static int check_again(struct layer *f, const struct config_key *key,
                       const struct config_alias *alias, const struct config_given *given,
                       struct config_place at, bool *is_said, struct error *err)
{
    static const char format[] = "is set a second time%s (%s, first at %s): remove one";
    struct config_target *target = config_target_of(f->loader, alias);
    const struct config_origin *first = &target->origins.of[key - config_keys];
    char where[CONFIG_WHERE_BYTES], reason[CONFIG_WHERE_BYTES + 300];
    char before[CONFIG_TEXT_BYTES], after[CONFIG_TEXT_BYTES];
    *is_said = false;
    if (first->source != SOURCE_FILE || first->layer != f->number)
        return 0;
    bool is_same_name = strcmp(first->name, given->name) == 0;
    bool is_empty = config_text_is_empty(&given->text);
    *is_said = is_empty;
    if (!is_same_name && (is_empty || first->is_empty))
        return 0;
    config_where(&target->origins, key, where);
    if (is_same_name) {
        snprintf(reason, sizeof reason, format, "", key->path, where);
        return refuse_node(f, at, err, given->name, reason);
    }
    config_value_text(key, target->cfg, before, sizeof before);
    if (config_apply(f->loader, key, alias, given, err))
        return -1;
    config_value_text(key, target->cfg, after, sizeof after);
    *is_said = true;
    if (strcmp(before, after) == 0)
        return 0;
    snprintf(reason, sizeof reason, format, " with another value", key->path, where);
    return refuse_node(f, at, err, given->name, reason);
}

static int on_key(struct layer *f, const struct config_key *key,
                  const struct config_alias *alias, const struct config_given *given,
                  struct config_place at, struct error *err)
{
    bool is_said;
    if (check_again(f, key, alias, given, at, &is_said, err))
        return -1;
    return is_said ? 0 : config_apply(f->loader, key, alias, given, err);
}

static int on_second_walk(void *context, const struct config_node *node,
                          struct error *err)
{
    struct layer *f = context;
    const char *path = config_strip_root(node->path);
    const struct config_alias *alias;
    const struct config_key *key = config_find(path, &alias);
    const struct config_foreign *foreign = key ? NULL : config_find_foreign(path);
    char reason[300], wanted[256], where[CONFIG_WHERE_BYTES];
    struct config_given given = {
        .name = path,
        .where = where,
        .from = {.source = SOURCE_FILE,
                 .place = node->value_place,
                 .file = f->file,
                 .layer = f->number},
        .text = {node->text, node->is_quoted, node->kind == NODE_LIST}};
    struct config_place at =
        node->kind == NODE_SECTION ? node->key_place : node->value_place;
    snprintf(where, sizeof where, "%s:%d:%d", f->file, at.line, at.column);
    if (f->loader->is_scan && (!foreign || foreign->kind == FOREIGN_MIXED))
        return 0;
    if (f->loader->is_scan)
        return config_foreign_apply(f->loader, foreign, &given, err);
    if (config_is_of_tutorial(path))
        f->loader->is_of_tutorial = true;
    if (strcmp(path, BASE) == 0 || strcmp(config_leaf(path), INHERITED) == 0)
        return 0;
    if (key && node->kind != NODE_SECTION)
        return on_key(f, key, alias, &given, node->key_place, err);
    if (key && !config_is_section(path)) {
        config_describe_type(key, wanted, sizeof wanted);
        snprintf(reason, sizeof reason, "takes %s, not keys of its own", wanted);
        return refuse_node(f, node->value_place, err, path, reason);
    }
    if (foreign)
        return config_foreign_apply(f->loader, foreign, &given, err);
    if (!config_is_section(path))
        return refuse_unknown(f, node, path, err);
    if (node->kind != NODE_SECTION && !config_text_is_empty(&given.text))
        return refuse_node(f, node->value_place, err, node->path,
                           "is a section: write its keys in the lines below, indented");
    return enter_section(f, node, path, err);
}

/* -- bases --------------------------------------------------------------------------- */

static bool is_in(const char *name, const char *section)
{
    return strncmp(name, section, strlen(section)) == 0; // ends in a dot, or is empty
}

/* Nothing of the section is taken from a base. */
static void renew(struct config_loader *l, const char *section)
{
    struct config_target *targets[] = {&l->ours, &l->echo};
    for (size_t t = 0; t < ARRAY_LEN(targets); t++)
        for (int i = 0; i < config_n_keys; i++)
            if (targets[t]->origins.of[i].source == SOURCE_FILE &&
                is_in(targets[t]->origins.of[i].name, section))
                config_reset_key(targets[t], &config_keys[i]);
    for (int i = 0; i < config_n_foreigns; i++)
        if (l->foreigns[i].is_seen && is_in(l->foreigns[i].name, section))
            l->foreigns[i] = (struct config_foreign_use){0};
}

/* Of a long path the end is shown: it says more than the beginning. */
static void show_file(const char *path, char buf[CONFIG_FILE_SHOWN])
{
    size_t n = strlen(path);
    if (n < CONFIG_FILE_SHOWN)
        snprintf(buf, CONFIG_FILE_SHOWN, "%s", path);
    else
        snprintf(buf, CONFIG_FILE_SHOWN, "...%s", path + n - (CONFIG_FILE_SHOWN - 4));
}

static int refuse_base(const struct layer *f, struct error *err, const char *reason)
{
    return error_set(err, ERROR_INPUT, "%s:%d:%d: %s: %s", f->file, f->base_place.line,
                     f->base_place.column, BASE, reason);
}

/* "dir/f.yaml" and "./g.yaml" make "dir/g.yaml". */
static int base_path(const struct layer *f, const char *path, char buf[PATH_MAX],
                     struct error *err)
{
    const char *slash = strrchr(path, '/'), *base = f->base;
    while (base[0] == '.' && base[1] == '/')
        base += 2;
    int n_dir = slash && base[0] != '/' ? (int)(slash + 1 - path) : 0;
    if (snprintf(buf, PATH_MAX, "%.*s%s", n_dir, path, base) >= PATH_MAX)
        return refuse_base(f, err, "the name of the file is too long");
    return 0;
}

static int apply_base(struct layer *f, const char *path, struct error *err)
{
    struct config_loader *l = f->loader;
    char name[PATH_MAX], *text = NULL;
    struct stat st;
    size_t n = 0;
    if (base_path(f, path, name, err))
        return -1;
    for (int i = 0; i < l->n_files && stat(name, &st) == 0; i++)
        if (l->files[i].inode == st.st_ino && l->files[i].device == st.st_dev)
            return refuse_base(f, err,
                               i == l->n_files - 1
                                   ? "this is the file itself: remove the line"
                                   : "that file builds on this one: remove one of the "
                                     "two lines");
    if (l->n_files == CONFIG_FILES_MOST)
        return refuse_base(f, err, "more than 16 files build on each other: join some");
    if (fs_read_regular(name, CONFIG_MAX_BYTES, &text, &n, err))
        return error_prefix(err, "%s:%d:%d: %s", f->file, f->base_place.line,
                            f->base_place.column, BASE);
    int rc = config_file_apply(l, name, text, n, err);
    free(text);
    return rc;
}

/* -- the whole ----------------------------------------------------------------------- */

int config_file_apply(struct config_loader *l, const char *path, const char *text,
                      size_t n, struct error *err)
{
    struct stat st;
    int rc = -1;
    struct layer *f = calloc(1, sizeof *f);
    if (!f)
        return error_set(err, ERROR_RUNTIME, "out of memory for a configuration");
    f->loader = l;
    f->file = l->files[l->n_files].shown;
    show_file(path, l->files[l->n_files].shown);
    if (stat(path, &st) == 0) {
        l->files[l->n_files].device = st.st_dev;
        l->files[l->n_files].inode = st.st_ino;
    }
    // the one this is the base of has the number above
    f->number = CONFIG_FILES_MOST - l->n_files++;
    if (n > CONFIG_MAX_BYTES) {
        error_set(err, ERROR_INPUT,
                  "%s: %zu bytes are too many for a configuration, which has at most %d",
                  f->file, n, CONFIG_MAX_BYTES);
        goto done;
    }
    if (n > 0 && config_yaml_read(f->file, text, n, on_first_walk, f, err))
        goto done;
    if (f->base[0] && apply_base(f, path, err) && !l->is_scan)
        goto done;
    for (int i = 0; i < f->n_renewed; i++)
        renew(l, f->renewed[i].path);
    rc = n > 0 ? config_yaml_read(f->file, text, n, on_second_walk, f, err) : 0;
done:
    free(f);
    return rc;
}

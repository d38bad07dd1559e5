/*
 * The order of a load: defaults, the file, the -o options, then what this version cannot
 * do, then the checkpoint to continue from, then the data, then deriving, then the rules
 * between keys. Each step sees complete input of the one before it, so an error is about
 * what the user wrote, not about a half-made state. After any error the file and the
 * options are scanned for features that this version lacks, which are reported instead.
 */
#include "config/config_load.h"

#include "base/fs.h"
#include "base/log.h"
#include "config/config_check.h"
#include "config/config_file.h"
#include "config/config_print.h"
#include "config/config_resume.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define GPT2_END_OF_TEXT 50256

/* -- one value ----------------------------------------------------------------------- */

void config_set_default(const struct config_key *key, struct config *cfg,
                        const char *text)
{
    struct config_text value = {.text = text};
    struct error err;
    if (!text)
        memset(config_member(key, cfg), 0, sizeof(int64_t));
    else if (config_value_set(key, cfg, &value, &err))
        CHECK(false, "default of '%s': %s", key->path, err.text);
}

void config_set_defaults(struct config *cfg)
{
    memset(cfg, 0, sizeof *cfg);
    for (int i = 0; i < config_n_keys; i++)
        config_set_default(&config_keys[i], cfg, config_keys[i].default_text);
}

void config_reset_key(struct config_target *target, const struct config_key *key)
{
    config_set_default(key, target->cfg, key->default_text);
    target->origins.of[key - config_keys] = (struct config_origin){0};
}

/* An alias may have words of its own: "theirs=ours|theirs=ours". */
static int translate(const struct config_alias *alias, struct config_text *text,
                     char ours[CONFIG_NAME_BYTES], struct error *err)
{
    char shown[CONFIG_SHOWN_BYTES];
    size_t n_text = strlen(text->text);
    if (!alias || !alias->words)
        return 0;
    for (const char *p = alias->words; *p; p += strcspn(p, "|"), p += *p == '|') {
        size_t n_theirs = strcspn(p, "=");
        const char *word = p + n_theirs + 1;
        if (text->is_list || n_theirs != n_text || memcmp(p, text->text, n_text) != 0)
            continue;
        snprintf(ours, CONFIG_NAME_BYTES, "%.*s", (int)strcspn(word, "|"), word);
        *text = (struct config_text){.text = ours};
        return 0;
    }
    config_show(text->text, shown);
    return error_set(err, ERROR_INPUT, "'%s' is unknown: use %.*s, or leave it empty",
                     shown, (int)strcspn(alias->words, "="), alias->words);
}

int config_apply(struct config_loader *l, const struct config_key *key,
                 const struct config_alias *alias, const struct config_given *given,
                 struct error *err)
{
    struct config_target *target = config_target_of(l, alias);
    struct config_origin *origin = &target->origins.of[key - config_keys];
    struct config_text text = given->text;
    struct error reason;
    char ours[CONFIG_NAME_BYTES];
    *origin = given->from;
    origin->is_empty = config_text_is_empty(&text);
    snprintf(origin->name, sizeof origin->name, "%s", alias ? given->name : key->path);
    if (origin->is_empty) {
        config_set_default(key, target->cfg, key->empty ? key->empty : key->default_text);
        return 0;
    }
    if (translate(alias, &text, ours, &reason) ||
        config_value_set(key, target->cfg, &text, &reason))
        return config_refuse(&target->origins, key, NULL, err, "%s", reason.text);
    return 0;
}

/* -- options ------------------------------------------------------------------------- */

struct list_option { // a list that is given by -o, while YAML reads it
    struct config_loader *loader;
    const struct config_key *key;
    const struct config_alias *alias;
    struct config_given given;
    bool is_read; // so that what fails afterwards is the value, not the syntax
};

static int on_list_option(void *context, const struct config_node *node,
                          struct error *err)
{
    struct list_option *o = context;
    if (node->kind != NODE_LIST)
        return 0;
    o->is_read = true;
    o->given.text = (struct config_text){node->text, false, true};
    return config_apply(o->loader, o->key, o->alias, &o->given, err);
}

/* `value` begins with a bracket: it is a list as in a file, quotes and all. */
static int apply_list(struct config_loader *l, const struct config_key *key,
                      const struct config_alias *alias, const struct config_given *given,
                      struct error *err)
{
    struct list_option o = {l, key, alias, *given, false};
    char *text = NULL;
    int n = asprintf(&text, "list: %s", given->text.text);
    if (n < 0)
        return error_set(err, ERROR_RUNTIME, "out of memory");
    int rc = config_yaml_read("-o", text, (size_t)n, on_list_option, &o, err);
    free(text);
    if (rc == 0 || o.is_read)
        return rc;
    return error_set(err, ERROR_INPUT,
                     "%s: this is no list: write [a, b], with quotes around elements "
                     "that have commas or brackets in them",
                     given->where);
}

/* "key=value" as name and text; `name` and `where` hold what *given points to. */
static int split_option(const char *option, struct config_given *given,
                        char name[CONFIG_NAME_BYTES], char where[CONFIG_WHERE_BYTES],
                        struct error *err)
{
    char shown[CONFIG_SHOWN_BYTES];
    const char *equals = strchr(option, '=');
    config_show(option, shown);
    if (config_check_bytes("-o", option, strlen(option), err))
        return -1;
    if (!equals || equals == option)
        return error_set(err, ERROR_INPUT, "-o %s: write key=value", shown);
    snprintf(name, CONFIG_NAME_BYTES, "%.*s", (int)i64_min(equals - option, INT32_MAX),
             option);
    snprintf(where, CONFIG_WHERE_BYTES, "-o %s", shown);
    *given = (struct config_given){
        .name = config_strip_root(name),
        .where = where,
        .from = {.source = SOURCE_OPTION, .option = option, .layer = CONFIG_OPTION_LAYER},
        .text = {.text = equals + 1}};
    return 0;
}

static int apply_option(struct config_loader *l, const char *option, struct error *err)
{
    char name[CONFIG_NAME_BYTES], full[CONFIG_NAME_BYTES], where[CONFIG_WHERE_BYTES];
    char remedy[512];
    struct config_given given = {0};
    const struct config_alias *alias;
    if (split_option(option, &given, name, where, err))
        return -1;
    CHECK(given.text.text, "an option without a value");
    const struct config_key *key = config_find_loose(given.name, &alias);
    const struct config_foreign *foreign = config_find_foreign(given.name);
    if (!key && !foreign && !config_is_section(given.name)) {
        foreign = config_complete_foreign(given.name, full);
        given.name = foreign ? full : given.name;
    }
    if (l->is_scan && (key || !foreign || foreign->kind == FOREIGN_MIXED))
        return 0;
    if (!key && foreign)
        return config_foreign_apply(l, foreign, &given, err);
    if (!key && config_is_section(given.name))
        return error_set(err, ERROR_INPUT,
                         "%s: '%s' is a section: name one of its keys, as in "
                         "%s.key=value",
                         where, given.name, given.name);
    if (!key) {
        config_suggest(given.name, remedy, sizeof remedy);
        return error_set(err, ERROR_INPUT, "%s: '%s' is not a known key: %s", where,
                         given.name, remedy);
    }
    if (given.text.text[0] == '[' && config_is_list(key))
        return apply_list(l, key, alias, &given, err);
    return config_apply(l, key, alias, &given, err);
}

/* -- what was left out ---------------------------------------------------------------- */

/* A key that was left out has the default of the files' form. */
static void apply_form_defaults(struct config_loader *l)
{
    struct config_target *target = &l->ours;
    for (int i = 0; i < config_n_keys; i++) {
        const struct config_key *key = &config_keys[i];
        if (config_was_given(&target->origins, key))
            continue;
        if (l->is_sectioned && key->sectioned_default)
            config_set_default(key, target->cfg, key->sectioned_default);
        if (l->is_of_tutorial && key->tutorial_default)
            config_set_default(key, target->cfg, key->tutorial_default);
    }
}

/* The tutorial's program reads the path of its data from the environment. */
static int apply_tutorial_data(struct config_loader *l, struct error *err)
{
    const struct config_key *key = config_key_at("dataset.input_dir");
    const char *path = getenv("DATA");
    if (!l->is_of_tutorial || config_was_given(&l->ours.origins, key) || !path ||
        !path[0])
        return 0;
    struct config_text value = {.text = path};
    if (config_value_set(key, l->ours.cfg, &value, err))
        return error_prefix(err, "the environment variable DATA");
    log_info("dataset.input_dir: '%s', by the environment variable DATA", path);
    return 0;
}

/* What is said again for evaluation must be what training has, unless a later layer
 * overrode that: then the older echo has no say. */
static int check_echoes(const struct config_loader *l, struct error *err)
{
    char ours[CONFIG_TEXT_BYTES], theirs[CONFIG_TEXT_BYTES], where[CONFIG_WHERE_BYTES];
    for (int i = 0; i < config_n_keys; i++) {
        const struct config_key *key = &config_keys[i];
        if (!config_was_given(&l->echo.origins, key) ||
            l->echo.origins.of[i].layer < l->ours.origins.of[i].layer)
            continue;
        config_value_text(key, l->ours.cfg, ours, sizeof ours);
        config_value_text(key, l->echo.cfg, theirs, sizeof theirs);
        if (strcmp(ours, theirs) == 0)
            continue;
        config_where(&l->ours.origins, key, where);
        return config_refuse(&l->echo.origins, key, NULL, err,
                             "%.*s is not the %s %.*s of training (%s): evaluation takes "
                             "the validation part of the same data, so give both one "
                             "value, or leave this one out",
                             CONFIG_SHOWN_BYTES, theirs, config_leaf(key->path),
                             CONFIG_SHOWN_BYTES, ours, where);
    }
    return 0;
}

/* How many tokens there are is known to whoever made the data. */
static int take_vocab_size(struct config_target *target,
                           const struct config_data_facts *facts, struct error *err)
{
    const struct config_key *key = config_key_at("Model.vocab_size");
    int64_t *vocab_size = &target->cfg->model.vocab_size;
    struct error reason;
    char text[32];
    snprintf(text, sizeof text, "%lld", (long long)facts->vocab_size);
    if (!facts->source[0]) {
        log_warning("Model.vocab_size is left out, and no .meta.json of the data in '%s' "
                    "says it: %lld, the default, is used",
                    config_path_at(&target->cfg->dataset.input_dir, 0),
                    (long long)*vocab_size);
        return 0;
    }
    if (facts->other_source[0])
        return config_refuse(&target->origins, key, NULL, err,
                             "it is %lld by '%s', but %lld by '%s': use datasets made "
                             "with one tokenizer, or set it",
                             (long long)facts->vocab_size, facts->source,
                             (long long)facts->other_vocab_size, facts->other_source);
    if (config_check_range(key, (double)facts->vocab_size, text, &reason))
        return error_set(err, ERROR_INPUT, "'%s': \"vocab_size\": %s", facts->source,
                         reason.text);
    *vocab_size = facts->vocab_size;
    log_info("Model.vocab_size: %lld, by '%s'", (long long)*vocab_size, facts->source);
    return 0;
}

/* PaddleFleetX leaves positions whose input token is the end of text, GPT-2's, out of the
 * loss, and its files do not name the token. */
static void mask_as_fleetx(struct config_target *target)
{
    struct config_dataset *d = &target->cfg->dataset;
    const struct config_key *mask = config_key_at("dataset.eod_mask_loss");
    const struct config_key *eos = config_key_at("dataset.eos_token_id");
    const char *path = config_path_at(&d->input_dir, 0);
    bool has_mask = config_was_given(&target->origins, mask);
    if (config_was_kept(&target->origins, mask)) {
        log_info(
            "kept from the checkpoint: positions whose input is the end of text count "
            "in the loss (dataset.eod_mask_loss)");
        return;
    }
    if (!config_was_given(&target->origins, eos) &&
        GPT2_END_OF_TEXT < target->cfg->model.vocab_size)
        d->eos_token_id = GPT2_END_OF_TEXT;
    if (has_mask)
        return;
    d->eod_mask_loss = d->eos_token_id >= 0;
    if (d->eod_mask_loss)
        log_info(
            "'%s' is in PaddleFleetX's form, without .meta.json: as there, positions "
            "whose input is token %lld, the end of text, are left out of the loss "
            "(dataset.eos_token_id, dataset.eod_mask_loss)",
            path, (long long)d->eos_token_id);
    else
        log_info("'%s' is in PaddleFleetX's form, without .meta.json, and dataset."
                 "eos_token_id is not known: all positions count in the loss; there, "
                 "those whose input is the end of text do not",
                 path);
}

/* Of data of several forms: one key serves all of it. */
static void tell_of_fleetx_part(const struct config_target *target, const char *part)
{
    const struct config_key *mask = config_key_at("dataset.eod_mask_loss");
    if (!config_was_given(&target->origins, mask) &&
        !config_was_kept(&target->origins, mask))
        log_info("'%s' is in PaddleFleetX's form, without .meta.json, and other data are "
                 "not: positions whose input is the end of text count in the loss of all "
                 "(dataset.eod_mask_loss)",
                 part);
}

/* An end of documents that is given, or no token of the model, is left to the check of the
 * data itself. */
static int ask_data(struct config_target *target, config_look_fn *look, struct error *err)
{
    struct config *cfg = target->cfg;
    struct config_data_facts facts;
    bool has_size = config_was_given(&target->origins, config_key_at("Model.vocab_size"));
    if (look(&cfg->dataset, &facts, err) ||
        (!has_size && take_vocab_size(target, &facts, err)))
        return -1;
    if (cfg->dataset.eos_token_id < 0 && facts.eos_token_id < cfg->model.vocab_size)
        cfg->dataset.eos_token_id = facts.eos_token_id;
    if (facts.is_plain_fleetx)
        mask_as_fleetx(target);
    else if (facts.plain_fleetx[0])
        tell_of_fleetx_part(target, facts.plain_fleetx);
    return 0;
}

/* -- the whole ----------------------------------------------------------------------- */

struct request { // one load; borrowed
    const char *name, *text;
    size_t n_text;
    char *const *overrides;
    int n_overrides;
    int64_t n_processes;
    struct config_sources sources;
};

static int finish_config(struct config_loader *l, const struct request *r,
                         struct error *err)
{
    struct config *cfg = l->ours.cfg;
    apply_form_defaults(l);
    if (apply_tutorial_data(l, err) || check_echoes(l, err) ||
        config_foreign_finish(l, err) ||
        config_check_works_now(cfg, &l->ours.origins, err) ||
        (r->sources.past && config_resume(&l->ours, r->sources.past, err)) ||
        (r->sources.look && ask_data(&l->ours, r->sources.look, err)) ||
        config_derive(cfg, &l->ours.origins, r->n_processes, err) ||
        config_check(cfg, &l->ours.origins, err))
        return -1;
    config_foreign_log(l);
    config_warn(cfg, &l->ours.origins);
    return 0;
}

static int load_with(struct config_loader *l, const struct request *r, struct error *err)
{
    if (r->text && config_file_apply(l, r->name, r->text, r->n_text, err))
        return -1;
    for (int i = 0; i < r->n_overrides; i++)
        if (apply_option(l, r->overrides[i], err))
            return -1;
    return finish_config(l, r, err);
}

/* *err := the first feature that is not in this version, if the request has one. Other
 * errors in such a file, for example unknown keys, are of no use to the user. */
static void prefer_feature(struct config_loader *l, const struct request *r,
                           struct error *err)
{
    struct error ignored, feature;
    memset(l->foreigns, 0, (size_t)config_n_foreigns * sizeof *l->foreigns);
    l->n_files = 0;
    l->is_scan = true;
    if (r->text && config_file_apply(l, r->name, r->text, r->n_text, &ignored))
        return;
    for (int i = 0; i < r->n_overrides; i++)
        if (apply_option(l, r->overrides[i], &ignored))
            return;
    if (config_foreign_finish(l, &feature))
        *err = feature;
}

static int load(struct config *cfg, const struct request *r, struct error *err)
{
    int rc = -1;
    struct config *echo = malloc(sizeof *echo);
    struct config_loader *l = calloc(1, sizeof *l);
    struct config_origin *origins = calloc(2 * (size_t)config_n_keys, sizeof *origins);
    struct config_foreign_use *foreigns =
        calloc((size_t)config_n_foreigns, sizeof *foreigns);
    if (!echo || !l || !origins || !foreigns) {
        error_set(err, ERROR_RUNTIME, "out of memory for a configuration");
        goto done;
    }
    l->ours = (struct config_target){cfg, {.of = origins}};
    l->echo = (struct config_target){echo, {.of = origins + config_n_keys}};
    l->foreigns = foreigns;
    config_set_defaults(cfg);
    config_set_defaults(echo);
    rc = load_with(l, r, err);
    if (rc)
        prefer_feature(l, r, err);
done:
    free(foreigns);
    free(origins);
    free(echo);
    free(l);
    return rc;
}

int config_load_text(struct config *cfg, const char *name, const char *text, size_t n,
                     char *const *overrides, int n_overrides, int64_t n_processes,
                     struct error *err)
{
    return load(
        cfg, &(struct request){name, text, n, overrides, n_overrides, n_processes, {0}},
        err);
}

/* *err := that of a file that could not be read, with what to do about it. The usual reason
 * is a path of the sources, given from elsewhere. */
static int refuse_unread(const char *path, struct error *err)
{
    char from[PATH_MAX];
    enum fs_type type;
    struct error ignored;
    if (fs_look(path, &type, &ignored))
        return -1;
    if (type == FS_DIRECTORY)
        return error_set(err, ERROR_INPUT,
                         "cannot read '%s': it is a directory; name a YAML file", path);
    if (type == FS_NOTHING && path[0] != '/' && getcwd(from, sizeof from))
        return error_set(err, ERROR_INPUT,
                         "cannot open '%s': No such file or directory; it is looked for "
                         "from '%s', where trefoil was started",
                         path, from);
    return -1;
}

int config_load_run(struct config *cfg, const char *path, char *const *overrides,
                    int n_overrides, int64_t n_processes,
                    const struct config_sources *sources, struct error *err)
{
    char *text = NULL;
    size_t n = 0;
    int rc;
    if (path && fs_read_all(path, CONFIG_MAX_BYTES, &text, &n, err))
        return refuse_unread(path, err);
    if (sources)
        rc = load(cfg,
                  &(struct request){path, text, n, overrides, n_overrides, n_processes,
                                    *sources},
                  err);
    else
        rc = config_load_text(cfg, path, text, n, overrides, n_overrides, n_processes,
                              err);
    free(text);
    return rc;
}

int config_load_for(struct config *cfg, const char *path, char *const *overrides,
                    int n_overrides, int64_t n_processes, struct error *err)
{
    return config_load_run(cfg, path, overrides, n_overrides, n_processes, NULL, err);
}

int config_load(struct config *cfg, const char *path, char *const *overrides,
                int n_overrides, struct error *err)
{
    return config_load_for(cfg, path, overrides, n_overrides, 1, err);
}

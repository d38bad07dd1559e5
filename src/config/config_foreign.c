/*
 * Names of the original files that are no keys here (config_names.c): what they may be,
 * and what is said about them.
 */
#include "base/log.h"
#include "config/config_loader.h"

#include <stdio.h>
#include <string.h>

static struct config_foreign_use *use_of(struct config_loader *l,
                                         const struct config_foreign *row)
{
    CHECK(config_n_foreigns <= CONFIG_FOREIGNS_MOST, "raise CONFIG_FOREIGNS_MOST");
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

static struct verdict judge(const struct config_foreign *row,
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
    struct verdict v = judge(row, &given->text);
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

/* What is refused may be switched off by the "enable" directly below it. */
static int note_refused(struct config_foreign_use *use, const struct config_foreign *row,
                        const struct config_given *given, struct error *err)
{
    char ours[CONFIG_NAME_BYTES], enable[CONFIG_NAME_BYTES];
    bool is_enabled = false;
    config_canonical(given->name, ours);
    snprintf(enable, sizeof enable, "%s.enable", row->name);
    mark(use, row, given);
    if (strcmp(ours, enable) != 0)
        return 0;
    if (read_truth(given, &is_enabled, err))
        return -1;
    use->is_disabled = !is_enabled;
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
    if (given->text.text && config_text_is_empty(&given->text))
        return 0;
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

/* -- when all is applied ---------------------------------------------------------------
 */

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
        if (row->kind == FOREIGN_MIXED && resolve_mixed(l, use, err))
            return -1;
    }
    return 0;
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
}

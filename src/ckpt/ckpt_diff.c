/*
 * The list is what a person needs to see which key of the model differs, so it is cut
 * after a few: a wrong hidden size changes every tensor.
 */
#include "ckpt/ckpt_diff.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define MAX_LISTED 5

int64_t ckpt_n_entries(const struct ckpt_file_spec *spec, const struct param_table *table)
{
    return table->n_params * spec->n_parts;
}

struct ckpt_entry ckpt_entry_at(const struct ckpt_file_spec *spec,
                                const struct param_table *table, int64_t i)
{
    struct ckpt_entry entry = {.param = &table->params[i / spec->n_parts],
                               .part = &spec->parts[i % spec->n_parts]};
    int n = snprintf(entry.name, sizeof entry.name, "%s%s", entry.param->name,
                     entry.part->suffix);
    CHECK(n < (int)sizeof entry.name, "tensor name '%s' is cut", entry.name);
    return entry;
}

struct diff {
    char text[1200];
    size_t used;
    int64_t n_found;
};

static void diff_add(struct diff *d, const char *fmt, ...) PRINTF_LIKE(2, 3);
static void diff_add(struct diff *d, const char *fmt, ...)
{
    va_list args;
    if (d->n_found++ >= MAX_LISTED)
        return;
    va_start(args, fmt);
    int n = vsnprintf(d->text + d->used, sizeof d->text - d->used, fmt, args);
    va_end(args);
    d->used += (size_t)i64_min(n, (int64_t)(sizeof d->text - d->used) - 1);
}

static const char *shape_text(const int64_t *shape, int n_dims, char *buf, size_t size)
{
    size_t used = (size_t)snprintf(buf, size, "[");
    for (int i = 0; i < n_dims && used < size; i++)
        used += (size_t)snprintf(buf + used, size - used, "%s%lld", i ? ", " : "",
                                 (long long)shape[i]);
    if (used < size)
        snprintf(buf + used, size - used, "]");
    return buf;
}

static void compare_entry(struct diff *d, const struct ckpt_entry *entry,
                          const struct safetensors_tensor *t)
{
    char found[128], wanted[128];
    const struct param *p = entry->param;
    if (!t)
        diff_add(d, "; '%s' is missing", entry->name);
    else if (t->n_dims != p->n_dims ||
             memcmp(t->shape, p->shape, (size_t)p->n_dims * sizeof *p->shape) != 0)
        diff_add(d, "; '%s' is %s, the model's is %s", entry->name,
                 shape_text(t->shape, t->n_dims, found, sizeof found),
                 shape_text(p->shape, p->n_dims, wanted, sizeof wanted));
    else if (!safetensors_is_float(t->dtype))
        diff_add(d, "; '%s' has dtype %s", entry->name, safetensors_dtype_name(t->dtype));
}

static bool is_expected(const struct ckpt_file_spec *spec,
                        const struct param_table *table, const char *name)
{
    for (int64_t i = 0; i < ckpt_n_entries(spec, table); i++)
        if (strcmp(ckpt_entry_at(spec, table, i).name, name) == 0)
            return true;
    return false;
}

int ckpt_diff_check(const struct ckpt_file_spec *spec, const struct param_table *table,
                    const struct safetensors *st, const char *path, struct error *err)
{
    struct diff d = {0};
    int64_t n_matched = 0;
    for (int64_t i = 0; i < ckpt_n_entries(spec, table); i++) {
        struct ckpt_entry entry = ckpt_entry_at(spec, table, i);
        const struct safetensors_tensor *t = safetensors_find(st, entry.name);
        n_matched += t != NULL;
        compare_entry(&d, &entry, t);
    }
    for (int64_t i = 0; i < st->n_tensors && n_matched < st->n_tensors; i++)
        if (!is_expected(spec, table, st->tensors[i].name)) {
            diff_add(&d, "; '%.100s' is not in the model", st->tensors[i].name);
            n_matched++;
        }
    if (d.n_found == 0)
        return 0;
    return error_set(err, ERROR_INPUT,
                     "'%s' is of another model than the configuration describes (%lld "
                     "difference%s)%s%s; correct the section Model, or name another "
                     "checkpoint",
                     path, (long long)d.n_found, d.n_found == 1 ? "" : "s", d.text,
                     d.n_found > MAX_LISTED ? "; ..." : "");
}

/*
 * The list is what a person needs to see which key of the model differs, so it is cut
 * after a few: a wrong hidden size changes every tensor.
 */
#include "ckpt/ckpt_diff.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define MAX_LISTED 5

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

static void compare_tensor(struct diff *d, const char *name, const struct param *p,
                           const struct safetensors_tensor *t)
{
    char found[128], wanted[128];
    if (t->n_dims != p->n_dims ||
        memcmp(t->shape, p->shape, (size_t)p->n_dims * sizeof *p->shape) != 0)
        diff_add(d, "; '%s' is %s, the model's is %s", name,
                 safetensors_shape_text(t->shape, t->n_dims, found, sizeof found),
                 safetensors_shape_text(p->shape, p->n_dims, wanted, sizeof wanted));
}

struct comparison {
    const struct param_table *whole;
    struct ckpt_kinds kinds;
    const struct update_rule *rule;
    const struct ckpt_read_file *files;
    int n_files;
    struct diff diff;
};

/* Compare what the model has of this name with what the files have; returns how many
 * tensors of the files that accounts for. */
static int64_t compare_entry(struct comparison *c, const struct param *param, int kind)
{
    char name[CKPT_TENSOR_NAME_BYTES];
    int64_t n_found = 0;
    ckpt_tensor_name(param, kind, c->rule, name);
    for (int i = 0; i < c->n_files; i++) {
        const struct safetensors_tensor *t = safetensors_find(&c->files[i].st, name);
        if (t && n_found++ == 0)
            compare_tensor(&c->diff, name, param, t);
    }
    if (n_found == 0)
        diff_add(&c->diff, "; '%s' is missing", name);
    if (n_found > 1)
        diff_add(&c->diff, "; '%s' is in several files", name);
    return n_found;
}

static bool is_expected(const struct comparison *c, const char *name)
{
    char expected[CKPT_TENSOR_NAME_BYTES];
    for (int64_t i = 0; i < c->whole->n_params; i++)
        for (int kind = c->kinds.first; kind < c->kinds.end; kind++) {
            ckpt_tensor_name(&c->whole->params[i], kind, c->rule, expected);
            if (strcmp(expected, name) == 0)
                return true;
        }
    return false;
}

static void list_unexpected(struct comparison *c, int64_t n_unexpected)
{
    for (int i = 0; i < c->n_files; i++)
        for (int64_t j = 0; j < c->files[i].st.n_tensors && n_unexpected > 0; j++)
            if (!is_expected(c, c->files[i].st.tensors[j].name)) {
                diff_add(&c->diff, "; '%.100s' is not in the model",
                         c->files[i].st.tensors[j].name);
                n_unexpected--;
            }
}

int ckpt_diff_check(const struct param_table *whole, enum ckpt_set set,
                    const struct update_rule *rule, const struct ckpt_read_file *files,
                    int n_files, const char *path, struct error *err)
{
    struct comparison c = {whole,         ckpt_set_kinds(set, rule), rule, files, n_files,
                           {.n_found = 0}};
    int64_t n_tensors = 0, n_accounted = 0;
    for (int64_t i = 0; i < whole->n_params; i++)
        for (int kind = c.kinds.first; kind < c.kinds.end; kind++)
            n_accounted += compare_entry(&c, &whole->params[i], kind);
    for (int i = 0; i < n_files; i++)
        n_tensors += files[i].st.n_tensors;
    list_unexpected(&c, n_tensors - n_accounted);
    const struct diff *d = &c.diff;
    if (d->n_found == 0)
        return 0;
    return error_set(err, ERROR_INPUT,
                     "checkpoint '%s' is of another %s than the configuration "
                     "describes (%lld difference%s)%s%s; correct %s, or name another "
                     "checkpoint",
                     path, set == CKPT_MODEL ? "model" : "optimizer",
                     (long long)d->n_found, d->n_found == 1 ? "" : "s", d->text,
                     d->n_found > MAX_LISTED ? "; ..." : "",
                     set == CKPT_MODEL ? "the section Model" : "Optimizer.name");
}

/*
 * The types of a safetensors file, and a description built tensor by tensor. Reading is
 * in safetensors_read.c, the header's text in safetensors_write.c.
 */
#include "ckpt/safetensors.h"

#include "ckpt/safetensors_dtype.h"

#include <stdlib.h>
#include <string.h>

// clang-format off
const struct safetensors_dtype_row safetensors_dtypes[N_SAFETENSORS_DTYPES] = {
    [SAFETENSORS_BOOL]        = {"BOOL", 8},
    [SAFETENSORS_U8]          = {"U8", 8},
    [SAFETENSORS_I8]          = {"I8", 8},
    [SAFETENSORS_F8_E5M2]     = {"F8_E5M2", 8},
    [SAFETENSORS_F8_E4M3]     = {"F8_E4M3", 8},
    [SAFETENSORS_F8_E8M0]     = {"F8_E8M0", 8},
    [SAFETENSORS_F8_E4M3FNUZ] = {"F8_E4M3FNUZ", 8},
    [SAFETENSORS_F8_E5M2FNUZ] = {"F8_E5M2FNUZ", 8},
    [SAFETENSORS_F4]          = {"F4", 4},
    [SAFETENSORS_F6_E2M3]     = {"F6_E2M3", 6},
    [SAFETENSORS_F6_E3M2]     = {"F6_E3M2", 6},
    [SAFETENSORS_I16]         = {"I16", 16},
    [SAFETENSORS_U16]         = {"U16", 16},
    [SAFETENSORS_F16]         = {"F16", 16},
    [SAFETENSORS_BF16]        = {"BF16", 16},
    [SAFETENSORS_I32]         = {"I32", 32},
    [SAFETENSORS_U32]         = {"U32", 32},
    [SAFETENSORS_F32]         = {"F32", 32},
    [SAFETENSORS_C64]         = {"C64", 64},
    [SAFETENSORS_F64]         = {"F64", 64},
    [SAFETENSORS_I64]         = {"I64", 64},
    [SAFETENSORS_U64]         = {"U64", 64},
};
// clang-format on

const char *safetensors_dtype_name(enum safetensors_dtype dtype)
{
    return safetensors_dtypes[dtype].name;
}

void safetensors_release(struct safetensors *st)
{
    for (int64_t i = 0; i < st->n_tensors; i++)
        free(st->tensors[i].name);
    free(st->tensors);
    free((void *)st->by_name);
    *st = (struct safetensors){0};
}

static int compare_names(const void *a, const void *b)
{
    const struct safetensors_tensor *const *x = a, *const *y = b;
    return strcmp((*x)->name, (*y)->name);
}

int safetensors_sort_names(struct safetensors *st, struct error *err)
{
    size_t n = (size_t)st->n_tensors;
    st->by_name = calloc(n + 1, sizeof(void *));
    if (!st->by_name)
        return error_set(err, ERROR_RUNTIME, "out of memory for %zu names", n);
    for (size_t i = 0; i < n; i++)
        st->by_name[i] = &st->tensors[i];
    if (n > 1)
        qsort((void *)st->by_name, n, sizeof(void *), compare_names);
    return 0;
}

const struct safetensors_tensor *safetensors_find(const struct safetensors *st,
                                                  const char *name)
{
    for (int64_t i = 0; i < st->n_tensors && !st->by_name; i++)
        if (strcmp(st->tensors[i].name, name) == 0)
            return &st->tensors[i];
    int64_t low = 0, high = st->by_name ? st->n_tensors : 0;
    while (low < high) {
        int64_t middle = (low + high) / 2;
        int order = strcmp(st->by_name[middle]->name, name);
        if (order == 0)
            return st->by_name[middle];
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

int64_t safetensors_offset(const struct safetensors *st,
                           const struct safetensors_tensor *t)
{
    return st->header_bytes + t->begin;
}

bool safetensors_count(struct safetensors_tensor *t, int64_t *n_bytes)
{
    int64_t n_bits;
    t->n_elements = 1;
    for (int i = 0; i < t->n_dims; i++)
        if (t->shape[i] < 0 ||
            __builtin_mul_overflow(t->n_elements, t->shape[i], &t->n_elements))
            return false;
    if (__builtin_mul_overflow(t->n_elements, safetensors_dtypes[t->dtype].n_bits,
                               &n_bits) ||
        n_bits % 8 != 0)
        return false;
    *n_bytes = n_bits / 8;
    return true;
}

struct safetensors_tensor *safetensors_add(struct safetensors *st, const char *name)
{
    if (st->n_tensors == st->capacity) {
        int64_t capacity = st->capacity ? 2 * st->capacity : 64;
        struct safetensors_tensor *larger =
            realloc(st->tensors, (size_t)capacity * sizeof *larger);
        if (!larger)
            return NULL;
        st->tensors = larger;
        st->capacity = capacity;
    }
    char *copy = strdup(name);
    if (!copy)
        return NULL;
    struct safetensors_tensor *t = &st->tensors[st->n_tensors++];
    *t = (struct safetensors_tensor){.name = copy};
    return t;
}

int safetensors_append(struct safetensors *st, const char *name,
                       enum safetensors_dtype dtype, int n_dims, const int64_t *shape,
                       struct error *err)
{
    int64_t n_bytes;
    CHECK(n_dims >= 0 && n_dims <= SAFETENSORS_MAX_DIMS, "'%s' has %d dims", name,
          n_dims);
    struct safetensors_tensor *t = safetensors_add(st, name);
    if (!t)
        return error_set(err, ERROR_RUNTIME, "out of memory for the header of '%s'",
                         name);
    t->dtype = dtype;
    t->n_dims = n_dims;
    memcpy(t->shape, shape, (size_t)n_dims * sizeof *shape);
    t->begin = st->data_bytes;
    if (!safetensors_count(t, &n_bytes) ||
        __builtin_add_overflow(t->begin, n_bytes, &t->end))
        return error_set(err, ERROR_INPUT, "tensor '%s' is too large for a file", name);
    st->data_bytes = t->end;
    return 0;
}

/* Tensors are dealt to files first; their places follow when the headers are known. */
#include "ckpt/ckpt_layout.h"

#include "ckpt/ckpt_sum.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const ckpt_set_names[N_CKPT_SETS] = {
    [CKPT_MODEL] = "model", [CKPT_OPTIMIZER] = "optimizer"};

struct ckpt_kinds ckpt_set_kinds(enum ckpt_set set, const struct update_rule *rule)
{
    if (set == CKPT_MODEL)
        return (struct ckpt_kinds){OPTIMIZER_WEIGHTS, OPTIMIZER_WEIGHTS + 1};
    return (struct ckpt_kinds){OPTIMIZER_WEIGHTS + 1, update_rule_n_tensors(rule)};
}

void ckpt_tensor_name(const struct param *param, int kind, const struct update_rule *rule,
                      char name[CKPT_TENSOR_NAME_BYTES])
{
    bool is_state = kind != OPTIMIZER_WEIGHTS;
    int n = snprintf(name, CKPT_TENSOR_NAME_BYTES, "%s%s%s", param->name,
                     is_state ? "." : "", is_state ? rule->states[kind - 1].name : "");
    CHECK(n < CKPT_TENSOR_NAME_BYTES, "tensor name '%s' is cut", name);
}

static struct ckpt_tensor *tensor_at(const struct ckpt_layout *layout, int64_t number,
                                     int kind)
{
    CHECK(number >= 0 && number < layout->n_rows, "parameter %lld of %lld",
          (long long)number, (long long)layout->n_rows);
    return &layout->tensors[number * layout->n_kinds + kind];
}

const struct ckpt_tensor *ckpt_layout_tensor(const struct ckpt_layout *layout,
                                             int64_t number, int kind)
{
    return tensor_at(layout, number, kind);
}

/* -- dealing tensors to files -------------------------------------------------------- */

static int out_of_memory(struct error *err)
{
    return error_set(err, ERROR_RUNTIME, "out of memory for the files of a checkpoint");
}

static int add_file(struct ckpt_layout *layout, struct error *err)
{
    size_t n = (size_t)layout->n_files + 1;
    struct ckpt_layout_file *files = realloc(layout->files, n * sizeof *files);
    if (!files)
        return out_of_memory(err);
    layout->files = files;
    files[layout->n_files++] = (struct ckpt_layout_file){.first_block = layout->n_blocks};
    return 0;
}

/* The last file has tensors, and one more of n_bytes would make it too large. */
static bool is_full(const struct ckpt_layout *layout, int64_t n_bytes,
                    int64_t max_file_bytes)
{
    const struct safetensors *st = &layout->files[layout->n_files - 1].st;
    return st->n_tensors > 0 && n_bytes > max_file_bytes - st->data_bytes;
}

static int add_tensor(struct ckpt_layout *layout, enum ckpt_set set,
                      const struct param *row, int kind, int64_t max_file_bytes,
                      struct error *err)
{
    char name[CKPT_TENSOR_NAME_BYTES];
    int64_t n_bytes = row->n_elements * (int64_t)sizeof(float);
    bool is_first = layout->n_files == layout->set_files[set];
    if ((is_first || is_full(layout, n_bytes, max_file_bytes)) && add_file(layout, err))
        return -1;
    struct ckpt_layout_file *last = &layout->files[layout->n_files - 1];
    ckpt_tensor_name(row, kind, layout->rule, name);
    *tensor_at(layout, row->number, kind) =
        (struct ckpt_tensor){.file = layout->n_files - 1,
                             .at = last->st.data_bytes, // the header's size comes later
                             .n_elements = row->n_elements,
                             .first_block = layout->n_blocks};
    layout->n_blocks += ckpt_n_blocks(row->n_elements);
    return safetensors_append(&last->st, name, SAFETENSORS_F32, row->n_dims, row->shape,
                              err);
}

static int add_set(struct ckpt_layout *layout, enum ckpt_set set,
                   const struct param_table *whole, int64_t max_file_bytes,
                   struct error *err)
{
    struct ckpt_kinds kinds = ckpt_set_kinds(set, layout->rule);
    layout->set_files[set] = layout->n_files;
    for (int64_t i = 0; i < whole->n_params; i++)
        for (int kind = kinds.first; kind < kinds.end; kind++)
            if (add_tensor(layout, set, &whole->params[i], kind, max_file_bytes, err))
                return -1;
    layout->set_files[set + 1] = layout->n_files;
    return 0;
}

/* -- names and headers --------------------------------------------------------------- */

static void name_files(struct ckpt_layout *layout, enum ckpt_set set)
{
    int first = layout->set_files[set], n = layout->set_files[set + 1] - first;
    for (int i = 0; i < n; i++) {
        char *name = layout->files[first + i].name;
        if (n == 1)
            snprintf(name, CKPT_FILE_NAME_BYTES, "%s.safetensors", ckpt_set_names[set]);
        else
            snprintf(name, CKPT_FILE_NAME_BYTES, "%s-%05d-of-%05d.safetensors",
                     ckpt_set_names[set], i + 1, n);
    }
}

static int encode_headers(struct ckpt_layout *layout, struct error *err)
{
    for (int i = 0; i < layout->n_files; i++) {
        struct ckpt_layout_file *file = &layout->files[i];
        if (safetensors_encode_header(&file->st, &file->header, err))
            return -1;
        layout->n_bytes += file->st.header_bytes + file->st.data_bytes;
    }
    for (int64_t i = 0; i < layout->n_rows * layout->n_kinds; i++) {
        struct ckpt_tensor *tensor = &layout->tensors[i];
        tensor->at += layout->files[tensor->file].st.header_bytes;
    }
    return 0;
}

int ckpt_layout_init(struct ckpt_layout *layout, const struct param_table *whole,
                     const struct update_rule *rule, int64_t max_file_bytes,
                     struct error *err)
{
    int rc = -1;
    CHECK(whole->n_params == whole->n_params_whole, "a part of %lld of %lld parameters",
          (long long)whole->n_params, (long long)whole->n_params_whole);
    *layout = (struct ckpt_layout){.rule = rule,
                                   .n_kinds = update_rule_n_tensors(rule),
                                   .n_rows = whole->n_params,
                                   .n_parameters = whole->n_elements};
    layout->tensors =
        calloc((size_t)(whole->n_params * layout->n_kinds) + 1, sizeof *layout->tensors);
    if (!layout->tensors) {
        out_of_memory(err);
        goto done;
    }
    for (int set = 0; set < N_CKPT_SETS; set++) {
        if (add_set(layout, (enum ckpt_set)set, whole, max_file_bytes, err))
            goto done;
        name_files(layout, (enum ckpt_set)set);
    }
    rc = encode_headers(layout, err);
done:
    if (rc)
        ckpt_layout_release(layout);
    return rc;
}

void ckpt_layout_release(struct ckpt_layout *layout)
{
    for (int i = 0; i < layout->n_files; i++) {
        safetensors_release(&layout->files[i].st);
        free(layout->files[i].header);
    }
    free(layout->files);
    free(layout->tensors);
    *layout = (struct ckpt_layout){0};
}

/* -- the index ----------------------------------------------------------------------- */

static json_t *index_json(const struct ckpt_layout *layout, enum ckpt_set set)
{
    int64_t total = 0;
    json_t *map = json_object();
    for (int i = layout->set_files[set]; i < layout->set_files[set + 1]; i++) {
        const struct ckpt_layout_file *file = &layout->files[i];
        total += file->st.data_bytes;
        for (int64_t j = 0; j < file->st.n_tensors; j++)
            if (json_object_set_new(map, file->st.tensors[j].name,
                                    json_string(file->name))) {
                json_decref(map);
                return NULL;
            }
    }
    return json_pack("{s:{s:I}, s:o}", "metadata", "total_size", (json_int_t)total,
                     "weight_map", map);
}

int ckpt_layout_index(const struct ckpt_layout *layout, enum ckpt_set set,
                      char name[CKPT_FILE_NAME_BYTES], char **text, struct error *err)
{
    *text = NULL;
    snprintf(name, CKPT_FILE_NAME_BYTES, "%s.safetensors.index.json",
             ckpt_set_names[set]);
    if (layout->set_files[set + 1] - layout->set_files[set] <= 1)
        return 0;
    json_t *root = index_json(layout, set);
    *text = root ? json_dumps(root, JSON_INDENT(2)) : NULL;
    json_decref(root);
    return *text ? 0 : out_of_memory(err);
}

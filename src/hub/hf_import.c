#include "hub/hf_import.h"

#include "base/fs.h"
#include "base/log.h"
#include "base/stop.h"
#include "ckpt/ckpt_saver.h"
#include "ckpt/ckpt_tokenizer.h"
#include "hub/hf_config.h"
#include "hub/hub_tensors.h"
#include "model/gpt_params.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* -- the tensors of a model directory, in one file or several ------------------------ */

#define ONE_NAME "model.safetensors"
#define INDEX_NAME "model.safetensors.index.json"
#define INDEX_MOST_BYTES ((size_t)64 << 20)
#define MOST_FILES 10000
#define TIED_HEAD "lm_head.weight"

struct hf_file {
    char path[PATH_MAX];
    int fd;
    struct safetensors st;
};

struct hf_files {
    char dir[PATH_MAX];
    struct hf_file *files; // owned
    int n_files;
    const char *prefix; // HF_PREFIX or "": what the names of GPT-2 begin with here
};

static int out_of_memory(const struct hf_files *hf, struct error *err)
{
    return error_set(err, ERROR_RUNTIME, "out of memory for the headers of '%s'",
                     hf->dir);
}

/* -- opening ------------------------------------------------------------------------- */

static int open_file(struct hf_files *hf, const char *name, struct error *err)
{
    struct hf_file *larger =
        realloc(hf->files, (size_t)(hf->n_files + 1) * sizeof *hf->files);
    if (!larger)
        return out_of_memory(hf, err);
    hf->files = larger;
    struct hf_file *file = &hf->files[hf->n_files++];
    *file = (struct hf_file){.fd = -1};
    if (fs_join(file->path, sizeof file->path, hf->dir, name, err))
        return -1;
    file->fd = open(file->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); // a pipe would wait
    if (file->fd < 0)
        return error_set(err, fs_error_kind(errno), "cannot open '%s': %s", file->path,
                         strerror(errno));
    return safetensors_read_header(&file->st, file->fd, file->path, NULL, err);
}

/* The file called `name`, opened unless it is. */
static struct hf_file *need_file(struct hf_files *hf, const char *name, struct error *err)
{
    for (int i = 0; i < hf->n_files; i++)
        if (strcmp(strrchr(hf->files[i].path, '/') + 1, name) == 0)
            return &hf->files[i];
    if (hf->n_files == MOST_FILES || name[0] == '.' || strchr(name, '/')) {
        error_set(err, ERROR_INPUT,
                  "'%s/%s' names the file '%.200s', which is no file of that directory, "
                  "or more than %d files",
                  hf->dir, INDEX_NAME, name, MOST_FILES);
        return NULL;
    }
    return open_file(hf, name, err) ? NULL : &hf->files[hf->n_files - 1];
}

/* Open what the index lists; each tensor must be in the file it says. */
static int open_listed(struct hf_files *hf, const json_t *map, struct error *err)
{
    if (json_object_size(map) == 0)
        return error_set(err, ERROR_INPUT, "'%s/%s' has no \"weight_map\"", hf->dir,
                         INDEX_NAME);
    for (void *at = json_object_iter((json_t *)(uintptr_t)map); at;
         at = json_object_iter_next((json_t *)(uintptr_t)map, at)) {
        const char *tensor = json_object_iter_key(at);
        const char *name = json_string_value(json_object_iter_value(at));
        if (!name)
            return error_set(err, ERROR_INPUT,
                             "'%s/%s': the file of tensor '%.200s' is no string", hf->dir,
                             INDEX_NAME, tensor);
        const struct hf_file *file = need_file(hf, name, err);
        if (!file)
            return -1;
        if (!safetensors_find(&file->st, tensor))
            return error_set(
                err, ERROR_INPUT,
                "'%s' does not hold the tensor '%.200s' that %s says it does", file->path,
                tensor, INDEX_NAME);
    }
    return 0;
}

static int open_index(struct hf_files *hf, const char *path, struct error *err)
{
    json_t *root = hf_json_read(path, INDEX_MOST_BYTES, err);
    if (!root)
        return -1;
    int rc = open_listed(hf, json_object_get(root, "weight_map"), err);
    json_decref(root);
    return rc;
}

static int open_all(struct hf_files *hf, struct error *err)
{
    char one[PATH_MAX], index[PATH_MAX], pickle[PATH_MAX];
    enum fs_type of_one, of_index;
    if (fs_join(one, sizeof one, hf->dir, ONE_NAME, err) ||
        fs_join(index, sizeof index, hf->dir, INDEX_NAME, err) ||
        fs_join(pickle, sizeof pickle, hf->dir, "pytorch_model.bin", err) ||
        fs_look(one, &of_one, err) || fs_look(index, &of_index, err))
        return -1;
    if (of_one != FS_NOTHING)
        return open_file(hf, ONE_NAME, err);
    if (of_index != FS_NOTHING)
        return open_index(hf, index, err);
    return error_set(err, ERROR_INPUT, "'%s' has neither %s nor %s%s", hf->dir, ONE_NAME,
                     INDEX_NAME,
                     fs_exists(pickle) ? "; its pytorch_model.bin is a pickle, which is "
                                         "not read: save the model with "
                                         "safe_serialization=True"
                                       : "");
}

static const struct safetensors_tensor *
find_name(const struct hf_files *hf, const char *name, const struct hf_file **file)
{
    for (int i = 0; i < hf->n_files; i++) {
        const struct safetensors_tensor *t = safetensors_find(&hf->files[i].st, name);
        if (t) {
            *file = &hf->files[i];
            return t;
        }
    }
    *file = NULL;
    return NULL;
}

static int hf_files_open(struct hf_files *hf, const char *dir, struct error *err)
{
    const struct hf_file *file;
    *hf = (struct hf_files){.prefix = HF_PREFIX};
    if (snprintf(hf->dir, sizeof hf->dir, "%s", dir) >= (int)sizeof hf->dir)
        return error_set(err, ERROR_INPUT, "path too long: '%.200s...'", dir);
    if (open_all(hf, err))
        return -1;
    if (!find_name(hf, HF_PREFIX "wte.weight", &file))
        hf->prefix = "";
    return 0;
}

static void hf_files_close(struct hf_files *hf)
{
    for (int i = 0; i < hf->n_files; i++) {
        if (hf->files[i].fd >= 0)
            close(hf->files[i].fd);
        safetensors_release(&hf->files[i].st);
    }
    free(hf->files);
    hf->files = NULL;
    hf->n_files = 0;
}

static const struct safetensors_tensor *hf_files_find(const struct hf_files *hf,
                                                      const struct param *row,
                                                      const struct hf_file **file)
{
    char name[HF_NAME_BYTES], full[sizeof(HF_PREFIX) + HF_NAME_BYTES];
    hf_name(row, HF_TRANSFORMERS, name);
    snprintf(full, sizeof full, "%s%s", hf->prefix, name);
    return find_name(hf, full, file);
}

static const struct safetensors_tensor *hf_files_find_head(const struct hf_files *hf,
                                                           const struct hf_file **file)
{
    return find_name(hf, TIED_HEAD, file);
}

/* -- checking ------------------------------------------------------------------------ */

static int check_row(const struct hf_files *hf, const struct param *row,
                     struct error *err)
{
    const struct hf_file *file;
    const struct safetensors_tensor *t = hf_files_find(hf, row, &file);
    struct hf_shape want = hf_shape(row, HF_TRANSFORMERS);
    char name[HF_NAME_BYTES], there[80], wanted[80];
    if (!t) {
        hf_name(row, HF_TRANSFORMERS, name);
        return error_set(err, ERROR_INPUT, "'%s' has no tensor '%s%s'", hf->dir,
                         hf->prefix, name);
    }
    if (!safetensors_is_float(t->dtype))
        return error_set(err, ERROR_INPUT,
                         "'%s': tensor '%s' is of type %s; F32, F16 and BF16 can be "
                         "imported",
                         file->path, t->name, safetensors_dtype_name(t->dtype));
    if (t->n_dims == want.n_dims &&
        memcmp(t->shape, want.shape, (size_t)want.n_dims * sizeof *want.shape) == 0)
        return 0;
    return error_set(
        err, ERROR_INPUT,
        "'%s': tensor '%s' has the shape %s, but config.json makes it "
        "%s",
        file->path, t->name,
        safetensors_shape_text(t->shape, t->n_dims, there, sizeof there),
        safetensors_shape_text(want.shape, want.n_dims, wanted, sizeof wanted));
}

static bool is_expected(const struct hf_files *hf, const struct param_table *whole,
                        const char *name)
{
    size_t n = strlen(hf->prefix);
    if (strcmp(name, TIED_HEAD) == 0)
        return true;
    if (strncmp(name, hf->prefix, n) != 0)
        return false;
    if (hf_name_is_buffer(name + n))
        return true;
    for (int64_t i = 0; i < whole->n_params; i++) {
        char known[HF_NAME_BYTES];
        hf_name(&whole->params[i], HF_TRANSFORMERS, known);
        if (strcmp(known, name + n) == 0)
            return true;
    }
    return false;
}

/* No tensor that we would leave out, none in two files. */
static int check_file(const struct hf_files *hf, const struct hf_file *file,
                      const struct param_table *whole, struct error *err)
{
    for (int64_t i = 0; i < file->st.n_tensors; i++) {
        const char *name = file->st.tensors[i].name;
        const struct hf_file *first;
        if (!is_expected(hf, whole, name))
            return error_set(err, ERROR_INPUT,
                             "'%s' holds the tensor '%.200s', which is no part of the "
                             "GPT-2 that config.json describes",
                             file->path, name);
        if (find_name(hf, name, &first) && first != file)
            return error_set(err, ERROR_INPUT, "tensor '%.200s' is in '%s' and in '%s'",
                             name, first->path, file->path);
    }
    return 0;
}

static int hf_files_check(const struct hf_files *hf, const struct param_table *whole,
                          struct error *err)
{
    for (int64_t i = 0; i < whole->n_params; i++)
        if (check_row(hf, &whole->params[i], err))
            return -1;
    for (int i = 0; i < hf->n_files; i++)
        if (check_file(hf, &hf->files[i], whole, err))
            return -1;
    return 0;
}

struct hf_importer {
    struct hf_files files;
    struct config cfg;
    char *config_json; // of cfg, owned
    struct param_table table;
    float *raw, *turned;      // (the largest tensor) each
    const struct param *held; // whose numbers are in `turned`; NULL: none's

    struct shard_map map;
    struct ckpt_saver *saver;
};

/* -- the configuration -------------------------------------------------------------- */

/* Defaults, and the model's own: through the same checks as a user's. */
static int make_config(struct hf_importer *im, const struct hf_config *hf,
                       struct error *err)
{
    const struct config_model *m = &hf->model;
    char text[16][96];
    char *overrides[16];
    const struct {
        const char *key;
        int64_t value;
    } sizes[] = {
        {"Model.vocab_size", m->vocab_size},
        {"Model.hidden_size", m->hidden_size},
        {"Model.num_layers", m->num_layers},
        {"Model.num_attention_heads", m->num_attention_heads},
        {"Model.ffn_hidden_size", m->ffn_hidden_size},
        {"Model.max_position_embeddings", m->max_position_embeddings},
        {"dataset.max_seq_len", m->max_position_embeddings},
        {"dataset.eos_token_id", hf->eos},
    };
    const struct {
        const char *key;
        double value;
    } rates[] = {
        {"Model.hidden_dropout_prob", m->hidden_dropout_prob},
        {"Model.embed_drop_rate", m->embed_drop_rate},
        {"Model.attention_probs_dropout_prob", m->attention_probs_dropout_prob},
        {"Model.initializer_range", m->initializer_range},
        {"Model.norm_epsilon", m->norm_epsilon},
        {"Optimizer.lr.max_lr",
         5e-5}, // the defaults of these two are PaddleFleetX's, which
        {"Optimizer.lr.min_lr", 1e-5}, // have them the wrong way round
    };
    int n = 0;
    snprintf(text[n++], sizeof text[0], "Model.activation=%s",
             m->activation == MODEL_GELU ? "gelu" : "gelu_tanh");
    for (size_t i = 0; i < ARRAY_LEN(rates); i++)
        snprintf(text[n++], sizeof text[0], "%s=%.17g", rates[i].key, rates[i].value);
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++)
        snprintf(text[n++], sizeof text[0], "%s=%lld", sizes[i].key,
                 (long long)sizes[i].value);
    for (int i = 0; i < n; i++)
        overrides[i] = text[i];
    if (config_load(&im->cfg, NULL, overrides, n, err))
        return -1;
    im->config_json = config_to_json(&im->cfg);
    return 0;
}

/* -- numbers ------------------------------------------------------------------------ */

/* im->turned := the numbers of `row`, laid out as ours. */
static int load_row(struct hf_importer *im, const struct param *row, struct error *err)
{
    const struct hf_file *file;
    const struct safetensors_tensor *t = hf_files_find(&im->files, row, &file);
    struct hf_shape shape = hf_shape(row, HF_TRANSFORMERS);
    CHECK(t && file, "%s was found before", row->name);
    float *to = shape.is_transposed ? im->raw : im->turned;
    if (im->held == row)
        return 0;
    im->held = NULL;
    if (safetensors_read_f32(&file->st, t, file->fd, file->path, 0, t->n_elements, to,
                             err))
        return -1;
    if (shape.is_transposed)
        hf_transpose(im->turned, im->raw, shape.shape[0], shape.shape[1]);
    im->held = row;
    return 0;
}

static const float *view_imported(void *context, int kind, const struct ckpt_piece *piece,
                                  int64_t first, int64_t n, float *buffer,
                                  struct error *err)
{
    struct hf_importer *im = context;
    if (stop_check(err))
        return NULL;
    if (kind == OPTIMIZER_WEIGHTS)
        return load_row(im, piece->row, err) ? NULL : im->turned + piece->first + first;
    memset(buffer, 0, (size_t)n * sizeof *buffer);
    return buffer;
}

/* A model with a number that is none would give nothing else. All are looked at before
 * the checkpoint is begun. */
static int check_numbers(struct hf_importer *im, struct error *err)
{
    for (int64_t i = 0; i < im->table.n_params; i++) {
        const struct param *row = &im->table.params[i];
        const struct hf_file *file;
        const struct safetensors_tensor *t = hf_files_find(&im->files, row, &file);
        if (load_row(im, row, err))
            return -1;
        for (int64_t j = 0; j < t->n_elements; j++)
            if (!isfinite(im->turned[j]))
                return error_set(err, ERROR_INPUT,
                                 "'%s': tensor '%s' has a number that is %s, so the "
                                 "model can give nothing else; was its training ended by "
                                 "an overflow?",
                                 file->path, t->name,
                                 isnan(im->turned[j]) ? "none (NaN)" : "infinite");
    }
    return 0;
}

/* A head of its own cannot be kept, since ours is the embedding: say so. The embedding is
 * the first parameter. */
static int warn_of_head(struct hf_importer *im, struct error *err)
{
    const struct param *row = &im->table.params[0];
    const struct hf_file *file;
    const struct safetensors_tensor *head = hf_files_find_head(&im->files, &file);
    if (!head || !safetensors_is_float(head->dtype) ||
        head->n_elements != row->n_elements)
        return 0;
    if (load_row(im, row, err) ||
        safetensors_read_f32(&file->st, head, file->fd, file->path, 0, head->n_elements,
                             im->raw, err))
        return -1;
    if (memcmp(im->raw, im->turned, (size_t)row->n_elements * sizeof *im->raw) != 0)
        log_warning("'%s': tensor '%s' differs from the embedding, which is the head of "
                    "a GPT-2; it is left out, as transformers leaves it out",
                    file->path, head->name);
    return 0;
}

/* -- the checkpoint ----------------------------------------------------------------- */

static int open_input(struct hf_importer *im, const char *input, struct error *err)
{
    struct hf_config hf;
    int64_t most = 1;
    if (hf_config_read(&hf, input, err) || make_config(im, &hf, err) ||
        gpt_param_table(&im->table, &im->cfg.model, NULL, err) ||
        hf_files_open(&im->files, input, err) || hf_names_check(&im->table, err) ||
        hf_files_check(&im->files, &im->table, err))
        return -1;
    for (int64_t i = 0; i < im->table.n_params; i++)
        most = i64_max(most, im->table.params[i].n_elements);
    im->raw = malloc((size_t)most * sizeof *im->raw);
    im->turned = malloc((size_t)most * sizeof *im->turned);
    if (!im->raw || !im->turned)
        return error_set(err, ERROR_RUNTIME,
                         "out of memory for two tensors of %lld numbers, the largest of "
                         "'%s'",
                         (long long)most, input);
    return check_numbers(im, err) || warn_of_head(im, err) ? -1 : 0;
}

static int write_checkpoint(struct hf_importer *im, const char *output_dir, char *path,
                            size_t path_size, struct error *err)
{
    struct ckpt_progress progress = {.config_json = im->config_json};
    struct ckpt_saver_options opt = {.output_dir = output_dir,
                                     .whole = &im->table,
                                     .rule = update_rule_of(&im->cfg.optimizer),
                                     .map = &im->map,
                                     .max_file_bytes = CKPT_MAX_FILE_BYTES,
                                     .source = {view_imported, im}};
    if (fs_join(path, path_size, output_dir, ckpt_name_make(0, 0).text, err) ||
        shard_map_init(&im->map, &im->table, 1, 0, err) ||
        ckpt_saver_open(&im->saver, &opt, err))
        return -1;
    if (ckpt_newest_step(output_dir) >= 0)
        return error_set(err, ERROR_INPUT,
                         "'%s' holds checkpoints already; name another directory for "
                         "the imported one",
                         output_dir);
    if (ckpt_saver_save(im->saver, &progress, true, err) == 0)
        return 0;
    (void)!stop_check(err); // says it better
    return -1;
}

static void release_importer(struct hf_importer *im)
{
    ckpt_saver_close(im->saver);
    shard_map_release(&im->map);
    hf_files_close(&im->files);
    param_table_release(&im->table);
    free(im->config_json);
    free(im->raw);
    free(im->turned);
}

int hf_import(const char *input, const char *output_dir, char *path, size_t path_size,
              struct config *cfg, struct error *err)
{
    struct hf_importer *im = calloc(1, sizeof *im);
    if (!im)
        return error_set(err, ERROR_RUNTIME, "out of memory for an import");
    int rc = open_input(im, input, err);
    if (rc == 0)
        rc = write_checkpoint(im, output_dir, path, path_size, err);
    *cfg = im->cfg;
    release_importer(im);
    free(im);
    struct error lost; // a model is of use without its tokenizer
    if (rc == 0 && ckpt_tokenizer_keep(output_dir, input, &lost))
        log_warning("the tokenizer is not taken over, only the model: %s", lost.text);
    return rc;
}

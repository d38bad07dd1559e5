#include "hub/hf_import.h"

#include "base/fs.h"
#include "base/log.h"
#include "base/stop.h"
#include "ckpt/ckpt_saver.h"
#include "ckpt/ckpt_tokenizer.h"
#include "hub/hf_config.h"
#include "hub/hf_files.h"
#include "model/gpt_params.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

/* -- the configuration -----------------------------------------------------------------
 */

/* Defaults, and the model's own: through the same checks as a user's. */
static int make_config(struct hf_importer *im, const struct hf_config *hf,
                       struct error *err)
{
    const struct config_model *m = &hf->model;
    char text[13][96];
    char *overrides[13];
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
        {"Model.attention_probs_dropout_prob", m->attention_probs_dropout_prob},
        {"Model.initializer_range", m->initializer_range},
        {"Optimizer.lr.max_lr", 5e-5}, // the defaults of these two are the seeds', which
        {"Optimizer.lr.min_lr", 1e-5}, // have them the wrong way round
    };
    int n = 0;
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

/* -- numbers ---------------------------------------------------------------------------
 */

/* im->turned := the numbers of `row`, laid out as ours. */
static int hold(struct hf_importer *im, const struct param *row, struct error *err)
{
    const struct hf_file *file;
    const struct safetensors_tensor *t = hf_files_find(&im->files, row, &file);
    struct hf_shape shape = hf_shape(row, HF_TRANSFORMERS);
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
                                  int64_t first, int64_t n, float *room,
                                  struct error *err)
{
    struct hf_importer *im = context;
    if (stop_check(err))
        return NULL;
    if (kind == OPTIMIZER_WEIGHTS)
        return hold(im, piece->row, err) ? NULL : im->turned + piece->first + first;
    memset(room, 0, (size_t)n * sizeof *room);
    return room;
}

/* A model with a number that is none would give nothing else. All are looked at before
 * the checkpoint is begun. */
static int check_numbers(struct hf_importer *im, struct error *err)
{
    for (int64_t i = 0; i < im->table.n_params; i++) {
        const struct param *row = &im->table.params[i];
        const struct hf_file *file;
        const struct safetensors_tensor *t = hf_files_find(&im->files, row, &file);
        if (hold(im, row, err))
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
    if (hold(im, row, err) || safetensors_read_f32(&file->st, head, file->fd, file->path,
                                                   0, head->n_elements, im->raw, err))
        return -1;
    if (memcmp(im->raw, im->turned, (size_t)row->n_elements * sizeof *im->raw) != 0)
        log_warning("'%s': tensor '%s' differs from the embedding, which is the head of "
                    "a GPT-2; it is left out, as transformers leaves it out",
                    file->path, head->name);
    return 0;
}

/* -- the checkpoint --------------------------------------------------------------------
 */

static int open_input(struct hf_importer *im, const char *input, struct error *err)
{
    struct hf_config hf;
    int64_t most = 1;
    if (hf_config_read(&hf, input, err) || make_config(im, &hf, err) ||
        gpt_param_table(&im->table, &im->cfg.model, NULL, err) ||
        hf_files_open(&im->files, input, err) ||
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
              struct config_model *model, struct error *err)
{
    struct hf_importer *im = calloc(1, sizeof *im);
    if (!im)
        return error_set(err, ERROR_RUNTIME, "out of memory for an import");
    int rc = open_input(im, input, err);
    if (rc == 0)
        rc = write_checkpoint(im, output_dir, path, path_size, err);
    *model = im->cfg.model;
    release_importer(im);
    free(im);
    struct error lost; // a model is of use without its tokenizer
    if (rc == 0 && ckpt_tokenizer_keep(output_dir, input, &lost))
        log_warning("the tokenizer is not taken over, only the model: %s", lost.text);
    return rc;
}

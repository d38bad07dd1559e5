/*
 * hf_fixture - a small model as a checkpoint, and directories to take it through, shared
 * by the tests of other formats.
 */
#ifndef TESTS_HF_FIXTURE_H
#define TESTS_HF_FIXTURE_H

#include "ckpt_whole.h"
#include "test.h"

#include "base/fs.h"
#include "base/log.h"
#include "ckpt/ckpt_find.h"
#include "ckpt/safetensors.h"
#include "hub/hf_export.h"
#include "hub/hf_import.h"
#include "hub/hub_tensors.h"
#include "model/gpt_params.h"

#include <fcntl.h>
#include <limits.h>
#include <unistd.h>

#define FIXTURE_V 260
#define FIXTURE_H 12
#define FIXTURE_F 20
#define FIXTURE_P 9

struct hf_fixture {
    char *dir;
    char ckpt[PATH_MAX]; // the directory of the checkpoint
    struct config cfg;
    struct param_table table;
    float *params; // what was saved
};

/* Numbers that bfloat16 and float16 hold exactly, different in neighbouring places. */
static inline float fixture_number(int64_t row, int64_t i)
{
    return (float)((i * 7 + row * 13) % 251 - 125) / 64.0F;
}

static inline void fixture_path(const struct hf_fixture *f, const char *name,
                                char path[PATH_MAX])
{
    struct error err;
    assert_ok(fs_join(path, PATH_MAX, f->dir, name, &err), err);
}

static inline void fixture_save(struct hf_fixture *f)
{
    struct error err;
    size_t n = (size_t)f->table.n_flat;
    float *zeros = calloc(n, sizeof *zeros);
    char *json = config_to_json(&f->cfg);
    struct ckpt_state state = {
        .table = &f->table,
        .progress = {.step = 3, .consumed_samples = 24, .config_json = json},
        .rule = update_rule_of(&(struct config_optim){.name = OPTIMIZER_ADAMW}),
        .flat = {f->params, zeros, zeros}};
    struct ckpt_keep keep = {0};
    fixture_path(f, "ckpt", f->ckpt);
    assert_ok(ckpt_save(f->ckpt, &state, &keep, NULL, 0, &err), err);
    free(json);
    free(zeros);
}

static inline int hf_set_up(void **state)
{
    struct hf_fixture *f = calloc(1, sizeof *f);
    struct error err;
    char *settings[] = {
        (char[]){"Model.vocab_size=260"},
        (char[]){"Model.hidden_size=12"},
        (char[]){"Model.num_layers=2"},
        (char[]){"Model.num_attention_heads=3"},
        (char[]){"Model.ffn_hidden_size=20"},
        (char[]){"Model.max_position_embeddings=9"},
        (char[]){"dataset.max_seq_len=8"},
        (char[]){"dataset.eos_token_id=256"},
        (char[]){"dataset.input_dir=nowhere"},
    };
    log_set_level(LOG_ERROR);
    f->dir = test_make_directory();
    assert_ok(config_load(&f->cfg, NULL, settings, ARRAY_LEN(settings), &err), err);
    assert_ok(gpt_param_table(&f->table, &f->cfg.model, NULL, &err), err);
    f->params = calloc((size_t)f->table.n_flat, sizeof *f->params);
    for (int64_t i = 0; i < f->table.n_params; i++)
        for (int64_t j = 0; j < f->table.params[i].n_elements; j++)
            f->params[f->table.params[i].offset + j] = fixture_number(i, j);
    fixture_save(f);
    *state = f;
    return 0;
}

static inline int hf_tear_down(void **state)
{
    struct hf_fixture *f = *state;
    struct error err;
    assert_ok(fs_remove_tree(f->dir, &err), err);
    param_table_release(&f->table);
    free(f->params);
    free(f->dir);
    free(f);
    return 0;
}

static inline int try_export(const struct hf_fixture *f, const char *ckpt,
                             const struct hf_export_options *opt, const char *name,
                             struct error *err)
{
    struct hub_source *src = calloc(1, sizeof *src);
    char from[PATH_MAX], path[PATH_MAX];
    fixture_path(f, ckpt, from);
    fixture_path(f, name, path);
    int rc = hub_source_open(src, from, err);
    if (rc == 0)
        rc = hf_export(src, opt, path, err);
    hub_source_close(src);
    free(src);
    return rc;
}

static inline void export_as(const struct hf_fixture *f, const char *ckpt,
                             enum dtype dtype, int64_t max_file_bytes, const char *name)
{
    struct error err;
    struct hf_export_options opt = {.dtype = dtype, .max_file_bytes = max_file_bytes};
    assert_ok(try_export(f, ckpt, &opt, name, &err), err);
}

static inline int try_import(const struct hf_fixture *f, const char *from, const char *to,
                             struct error *err)
{
    char input[PATH_MAX], output[PATH_MAX], path[PATH_MAX];
    fixture_path(f, from, input);
    fixture_path(f, to, output);
    struct config cfg;
    return hf_import(input, output, path, sizeof path, &cfg, err);
}

static inline void assert_says(const struct error *err, const char *words)
{
    if (!strstr(err->text, words))
        fail_msg("'%s' does not say '%s'", err->text, words);
}

static inline char *read_file(const struct hf_fixture *f, const char *name, size_t *n)
{
    char path[PATH_MAX];
    char *data = NULL;
    struct error err;
    fixture_path(f, name, path);
    assert_ok(fs_read_all(path, 1 << 26, &data, n, &err), err);
    return data;
}

static inline void write_file(const struct hf_fixture *f, const char *name,
                              const void *data, size_t n)
{
    char path[PATH_MAX];
    struct error err;
    fixture_path(f, name, path);
    assert_ok(fs_write_atomic(path, data, n, &err), err);
}

/* Replace the first occurrence of a text in a file. */
static inline void edit_file(const struct hf_fixture *f, const char *name,
                             const char *from, const char *to)
{
    size_t n;
    char *text = read_file(f, name, &n), *edited = NULL;
    size_t at = 0, n_from = strlen(from);
    while (at + n_from <= n && memcmp(text + at, from, n_from) != 0)
        at++;
    assert_true(at + n_from <= n);
    int n_edited = asprintf(&edited, "%.*s%s%s", (int)at, text, to, text + at + n_from);
    assert_true(n_edited > 0);
    write_file(f, name, edited, (size_t)n_edited);
    free(edited);
    free(text);
}

#endif

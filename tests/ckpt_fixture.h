/*
 * ckpt_fixture - a small model's state and a directory to save it in, shared by the
 * checkpoint tests.
 */
#ifndef TESTS_CKPT_FIXTURE_H
#define TESTS_CKPT_FIXTURE_H

#include "ckpt_whole.h"
#include "test.h"

#include "base/fs.h"
#include "base/log.h"
#include "base/philox.h"
#include "ckpt/ckpt_find.h"
#include "ckpt/ckpt_format.h"
#include "model/gpt_params.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

struct fixture {
    char *dir;
    struct param_table table;
    struct ckpt_state state;  // what is saved
    struct ckpt_state loaded; // of the same shape, for reading back
};

static inline void make_table(struct param_table *table, int64_t V, int64_t H, int64_t L)
{
    struct config_model m = {.vocab_size = V,
                             .norm_epsilon = 1e-5,
                             .max_position_embeddings = 9,
                             .hidden_size = H,
                             .num_layers = L,
                             .num_attention_heads = 2,
                             .ffn_hidden_size = 3 * H};
    struct error err;
    assert_ok(gpt_param_table(table, &m, NULL, &err), err);
}

enum { N_KINDS = 3 }; // tensors of a parameter, with the rule of the tests

static inline const struct update_rule *test_rule(void)
{
    static const struct config_optim cfg = {.name = OPTIMIZER_ADAMW};
    assert_int_equal(update_rule_n_tensors(update_rule_of(&cfg)), N_KINDS);
    return update_rule_of(&cfg);
}

static inline struct ckpt_state make_state(const struct param_table *table)
{
    size_t n = (size_t)table->n_flat;
    struct ckpt_state s = {.table = table,
                           .rule = test_rule(),
                           .progress.config_json =
                               "{\"seed\": 7, \"lr\": 1e-05, \"a\": {}}",
                           .flat = {calloc(n, sizeof(float)), calloc(n, sizeof(float)),
                                    calloc(n, sizeof(float))}};
    assert_true(s.flat[0] && s.flat[1] && s.flat[2]);
    return s;
}

static inline void free_state(struct ckpt_state *s)
{
    for (int kind = 0; kind < N_KINDS; kind++)
        free(s->flat[kind]);
}

/* Give the state other numbers, NaNs among them, and the counters of `step`. */
static inline void fill_state(struct ckpt_state *s, int64_t step)
{
    for (uint32_t b = 0; b < N_KINDS; b++)
        for (int64_t i = 0; i < s->table->n_params; i++)
            for (int64_t j = 0; j < s->table->params[i].n_elements; j++) {
                uint32_t counter[4] = {(uint32_t)j, (uint32_t)i, b, (uint32_t)step};
                uint32_t key[2] = {1, 2}, bits[4];
                philox_4x32(key, counter, bits);
                memcpy(s->flat[b] + s->table->params[i].offset + j, bits, sizeof(float));
            }
    struct ckpt_progress *p = &s->progress;
    p->step = step;
    p->epoch = 0;
    p->consumed_samples = step * 8;
    p->scaler = (struct ckpt_scaler){65536.0 / 3, step % 5, step % 2, 1};
    snprintf(p->data_fingerprint, sizeof p->data_fingerprint, "data%d", (int)step % 100);
}

static inline void assert_state_equal(const struct ckpt_state *a,
                                      const struct ckpt_state *b)
{
    size_t n = (size_t)a->table->n_flat * sizeof(float);
    const struct ckpt_progress *p = &a->progress, *q = &b->progress;
    assert_int_equal(p->step, q->step);
    assert_int_equal(p->epoch, q->epoch);
    assert_int_equal(p->consumed_samples, q->consumed_samples);
    assert_true(p->scaler.scale == q->scaler.scale);
    assert_int_equal(p->scaler.good_steps, q->scaler.good_steps);
    assert_int_equal(p->scaler.bad_steps, q->scaler.bad_steps);
    assert_string_equal(p->data_fingerprint, q->data_fingerprint);
    for (int kind = 0; kind < N_KINDS; kind++)
        assert_memory_equal(a->flat[kind], b->flat[kind], n);
}

static const struct ckpt_keep keep_all = {0};

static inline int set_up(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    f->dir = test_make_directory();
    make_table(&f->table, 37, 8, 2);
    f->state = make_state(&f->table);
    f->loaded = make_state(&f->table);
    log_set_level(LOG_ERROR);
    *state = f;
    return 0;
}

static inline int tear_down(void **state)
{
    struct fixture *f = *state;
    struct error err;
    assert_ok(fs_remove_tree(f->dir, &err), err);
    free_state(&f->state);
    free_state(&f->loaded);
    param_table_release(&f->table);
    free(f->dir);
    free(f);
    return 0;
}

static inline void save(struct fixture *f, int64_t step, int64_t keep_last)
{
    struct error err;
    fill_state(&f->state, step);
    struct ckpt_keep keep = {.last = keep_last};
    assert_ok(ckpt_save(f->dir, &f->state, &keep, NULL, 0, &err), err);
}

/* What the directory resolves to must be `step`, with the numbers it was saved with. */
static inline void assert_resolves_to(struct fixture *f, int64_t step)
{
    char path[4096];
    struct error err;
    assert_ok(ckpt_resolve(f->dir, N_CKPT_SETS, path, sizeof path, &err), err);
    assert_ok(ckpt_load(path, &f->loaded, &err), err);
    fill_state(&f->state, step);
    assert_state_equal(&f->loaded, &f->state);
}

static inline void assert_says(const struct error *err, const char *words)
{
    if (!strstr(err->text, words))
        fail_msg("'%s' does not say '%s'", err->text, words);
}

/* The names in the directory, sorted, joined by spaces. */
static inline void assert_names(const struct fixture *f, const char *expected)
{
    struct fs_names list;
    struct error err;
    char text[4096] = "";
    assert_ok(fs_list(f->dir, &list, &err), err);
    for (int64_t i = 0; i < list.n_names; i++) {
        strcat(text, i ? " " : "");
        strcat(text, list.names[i]);
    }
    fs_names_release(&list);
    assert_string_equal(text, expected);
}

static inline char *join(const char *dir, const char *name)
{
    char *path = malloc(4096);
    struct error err;
    assert_ok(fs_join(path, 4096, dir, name, &err), err);
    return path;
}

/* dir/epoch_0_step_<step>/<file>, malloc'ed. */
static inline char *file_path(const struct fixture *f, int64_t step, const char *file)
{
    char name[128];
    snprintf(name, sizeof name, "epoch_0_step_%lld/%s", (long long)step, file);
    return join(f->dir, name);
}

static inline int64_t file_size(const char *path)
{
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    return st.st_size;
}

static inline void flip_bit(const char *path, int64_t offset, int bit)
{
    uint8_t byte;
    int fd = open(path, O_RDWR);
    assert_true(fd >= 0);
    assert_int_equal(fs_pread_exact(fd, &byte, 1, offset), 0);
    byte ^= (uint8_t)(1u << bit);
    assert_int_equal(fs_pwrite_exact(fd, &byte, 1, offset), 0);
    close(fd);
}

#endif

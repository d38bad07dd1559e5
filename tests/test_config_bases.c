/* `_base_`: a configuration file that is laid over another. */
#include "config_fixture.h"
#include "test.h"

#include "base/fs.h"

struct files {
    char *dir;
};

static int make_files(void **state)
{
    struct files *f = malloc(sizeof *f);
    struct error err;
    f->dir = test_make_directory();
    char sub[4200];
    snprintf(sub, sizeof sub, "%s/sub", f->dir);
    assert_ok(fs_make_directories(sub, &err), err);
    *state = f;
    return 0;
}

static int remove_files(void **state)
{
    struct files *f = *state;
    struct error err;
    assert_ok(fs_remove_tree(f->dir, &err), err);
    free(f->dir);
    free(f);
    return 0;
}

static void put(const struct files *f, const char *name, const char *text)
{
    char path[4200];
    struct error err;
    snprintf(path, sizeof path, "%s/%s", f->dir, name);
    assert_ok(fs_write_atomic(path, text, strlen(text), &err), err);
}

static int load_file(const struct files *f, const char *name, struct config *cfg,
                     struct error *err)
{
    char path[4200];
    snprintf(path, sizeof path, "%s/%s", f->dir, name);
    return config_load(cfg, path, NULL, 0, err);
}

/* The sentence may have the directory in front of its names. */
static void assert_file_refused(const struct files *f, const char *name,
                                const char *sentence)
{
    struct config cfg;
    struct error err = {.text = ""};
    if (load_file(f, name, &cfg, &err) == 0)
        fail_msg("accepted: %s", name);
    assert_int_equal(err.kind, ERROR_INPUT);
    size_t n = strlen(f->dir);
    assert_int_equal(strncmp(err.text, f->dir, n), 0);
    if (strncmp(err.text + n + 1, sentence, strlen(sentence)) != 0)
        fail_msg("expected: %s\nfound:    %s", sentence, err.text);
}

static void test_base__is_laid_under_the_file(void **state)
{
    struct files *f = *state;
    struct config cfg, same;
    struct error err;
    put(f, "base.yaml", sectioned);
    put(f, "sub/middle.yaml",
        "Global: {local_batch_size: 6}\n_base_: ../base.yaml\nModel: {num_layers: 8}\n");
    put(f, "top.yaml", "_base_: ./sub/middle.yaml\nseed: 9\nEngine:\n  max_steps:\n");
    assert_ok(load_file(f, "top.yaml", &cfg, &err), err);
    assert_int_equal(cfg.seed, 9);
    assert_int_equal(cfg.max_steps, 0);
    assert_int_equal(cfg.batch_size.local_batch_size, 6);
    assert_int_equal(cfg.model.num_layers, 8);
    assert_int_equal(cfg.model.hidden_size, 64);
    put(f, "alone.yaml", "_base_: base.yaml\n");
    assert_ok(load_file(f, "alone.yaml", &cfg, &err), err);
    assert_ok(
        config_load_text(&same, "f.yaml", sectioned, strlen(sectioned), NULL, 0, 1, &err),
        err);
    assert_same(&cfg, &same);
    put(f, "none.yaml", "_base_:\nseed: 2\n");
    assert_ok(load_file(f, "none.yaml", &cfg, &err), err);
}

static void test_base__gives_way_whatever_the_names(void **state)
{
    struct files *f = *state;
    struct config cfg;
    struct error err;
    put(f, "base.yaml",
        "Data:\n  Train: {dataset: {input_dir: a, max_seq_len: 8}}\n"
        "  Eval: {dataset: {input_dir: a, max_seq_len: 8}}\n");
    put(f, "top.yaml", "_base_: base.yaml\ndataset: {input_dir: b}\nSEQ_LEN: 16\n");
    assert_ok(load_file(f, "top.yaml", &cfg, &err), err);
    assert_string_equal(config_path_at(&cfg.dataset.input_dir, 0), "b");
    assert_int_equal(cfg.dataset.max_seq_len, 16);
    put(f, "top.yaml",
        "_base_: base.yaml\nData:\n  Eval: {dataset: {max_seq_len: 16}}\n");
    assert_file_refused(f, "top.yaml",
                        "top.yaml:3:33: Data.Eval.dataset.max_seq_len: 16 is not");
}

static void test_base__is_not_inherited_where_a_section_says_so(void **state)
{
    struct files *f = *state;
    struct config cfg;
    struct error err;
    put(f, "base.yaml", sectioned);
    put(f, "top.yaml",
        "_base_: base.yaml\nOptimizer:\n  beta1: 0.7\n"
        "  _inherited_: False\nModel: {_inherited_: True}\n");
    assert_ok(load_file(f, "top.yaml", &cfg, &err), err);
    assert_true(cfg.optimizer.adam_beta1 == 0.7 && cfg.optimizer.adam_beta2 == 0.999);
    assert_true(cfg.optimizer.grad_clip == 1 && cfg.optimizer.lr.max_lr == 0.003);
    assert_int_equal(cfg.model.hidden_size, 64);
}

static void test_base__that_is_wrong_names_file_and_line(void **state)
{
    struct files *f = *state;
    put(f, "none.yaml", "seed: 1\n_base_: ./nowhere.yaml\n");
    assert_file_refused(f, "none.yaml", "none.yaml:2:9: _base_: cannot open '");
    put(f, "self.yaml", "_base_: self.yaml\n");
    assert_file_refused(f, "self.yaml",
                        "self.yaml:1:9: _base_: this is the file itself: remove the");
    put(f, "a.yaml", "_base_: sub/b.yaml\n");
    put(f, "sub/b.yaml", "_base_: ../a.yaml\n");
    assert_file_refused(f, "a.yaml", "sub/b.yaml:1:9: _base_: that file builds on this");
    put(f, "bad.yaml", "Engine:\n  max_steps: 1\n  max_steps: 2\n");
    put(f, "top.yaml", "_base_: bad.yaml\n");
    assert_file_refused(f, "top.yaml",
                        "bad.yaml:3:3: 'Engine.max_steps' is set a second");
    put(f, "bad.yaml", "Engine: [\n");
    assert_file_refused(f, "top.yaml", "bad.yaml:");
    put(f, "top.yaml", "_base_: [a, b]\n");
    assert_file_refused(f, "top.yaml", "top.yaml:1:9: '_base_' takes the name of one");
    put(f, "top.yaml", "_base_: sub\n");
    assert_file_refused(f, "top.yaml", "top.yaml:1:9: _base_: cannot read '");
    put(f, "top.yaml", "_base_: \"a\\nb\"\n");
    assert_file_refused(f, "top.yaml", "top.yaml:1:9: _base_: control character 0x0a");
    put(f, "top.yaml", "_base_: a\n_base_: b\n");
    assert_file_refused(f, "top.yaml", "top.yaml:2:1: '_base_' is set a second time");
    put(f, "top.yaml", "Model: {_base_: a}\n");
    assert_file_refused(f, "top.yaml", "top.yaml:1:9: 'Model._base_' is not a known key");
    char name[32], text[64];
    for (int i = 0; i < 20; i++) {
        snprintf(name, sizeof name, "c%d.yaml", i);
        snprintf(text, sizeof text, "_base_: c%d.yaml\n", i + 1);
        put(f, name, text);
    }
    assert_file_refused(f, "c0.yaml", "c15.yaml:1:9: _base_: more than 16 files");
}

static void test_base__of_a_rule_points_into_it(void **state)
{
    struct files *f = *state;
    put(f, "base.yaml", "Model:\n  max_position_embeddings: 1024\n");
    put(f, "top.yaml",
        "_base_: base.yaml\nData: {Train: {dataset: {max_seq_len: 2048}}}\n");
    char sentence[4400];
    snprintf(sentence, sizeof sentence,
             "top.yaml:2:39: Data.Train.dataset.max_seq_len: 2048 is more than "
             "max_position_embeddings 1024 (%s/base.yaml:2:28): change that line to "
             "max_position_embeddings: 2048",
             f->dir);
    assert_file_refused(f, "top.yaml", sentence);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_base__is_laid_under_the_file, make_files,
                                        remove_files),
        cmocka_unit_test_setup_teardown(test_base__gives_way_whatever_the_names,
                                        make_files, remove_files),
        cmocka_unit_test_setup_teardown(
            test_base__is_not_inherited_where_a_section_says_so, make_files,
            remove_files),
        cmocka_unit_test_setup_teardown(test_base__that_is_wrong_names_file_and_line,
                                        make_files, remove_files),
        cmocka_unit_test_setup_teardown(test_base__of_a_rule_points_into_it, make_files,
                                        remove_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

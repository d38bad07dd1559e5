/* Export to the transformers library: names, orientation, files, and nothing half done.
 */
#include "hf_fixture.h"
#include "param_fixture.h"

#include <jansson.h>

static const struct hf_export_options plain = {DTYPE_F32, HF_MAX_FILE_BYTES, NULL};

/* Element i of a tensor of an exported directory. */
static float exported(const struct hf_fixture *f, const char *file, const char *name,
                      int64_t i)
{
    struct safetensors st = {0};
    struct error err;
    char path[PATH_MAX];
    float x;
    fixture_path(f, file, path);
    int fd = open(path, O_RDONLY);
    assert_true(fd >= 0);
    assert_ok(safetensors_read_header(&st, fd, path, NULL, &err), err);
    const struct safetensors_tensor *t = safetensors_find(&st, name);
    assert_non_null(t);
    assert_ok(safetensors_read_f32(&st, t, fd, path, i, 1, &x, &err), err);
    safetensors_release(&st);
    close(fd);
    return x;
}

static void test_names__every_parameter_has_its_own(void **state)
{
    struct hf_fixture *f = *state;
    for (int dialect = 0; dialect < N_HF_DIALECTS; dialect++)
        for (int64_t i = 0; i < f->table.n_params; i++)
            for (int64_t j = 0; j < i; j++) {
                char a[HF_NAME_BYTES], b[HF_NAME_BYTES];
                hf_name(&f->table.params[i], (enum hf_dialect)dialect, a);
                hf_name(&f->table.params[j], (enum hf_dialect)dialect, b);
                assert_string_not_equal(a, b);
            }
}

static void test_names__masks_are_buffers_and_biases_are_not(void **state)
{
    (void)state;
    assert_true(hf_name_is_buffer("h.0.attn.bias"));
    assert_true(hf_name_is_buffer("h.11.attn.masked_bias"));
    assert_false(hf_name_is_buffer("h.0.attn.c_attn.bias"));
    assert_false(hf_name_is_buffer("h.0.ln_1.bias"));
    assert_false(hf_name_is_buffer("h.attn.bias"));
    assert_false(hf_name_is_buffer("h.0.attn.bias2"));
}

static void test_transpose__odd_sizes(void **state)
{
    (void)state;
    enum { R = 37, C = 70 };
    static float x[R * C], y[R * C];
    for (int i = 0; i < R * C; i++)
        x[i] = (float)i;
    hf_transpose(y, x, R, C);
    for (int r = 0; r < R; r++)
        for (int c = 0; c < C; c++)
            assert_true(y[c * R + r] == x[r * C + c]);
}

static void test_export__conv1d_is_in_by_out_and_embeddings_are_not(void **state)
{
    struct hf_fixture *f = *state;
    static const struct {
        const char *ours, *theirs;
        int64_t out, in;
        bool is_transposed;
    } cases[] = {
        {"layers.1.attn.qkv.weight", "transformer.h.1.attn.c_attn.weight", 3 * FIXTURE_H,
         FIXTURE_H, true},
        {"layers.0.mlp.fc.weight", "transformer.h.0.mlp.c_fc.weight", FIXTURE_F,
         FIXTURE_H, true},
        {"layers.0.mlp.proj.weight", "transformer.h.0.mlp.c_proj.weight", FIXTURE_H,
         FIXTURE_F, true},
        {"embedding.word.weight", "transformer.wte.weight", FIXTURE_V, FIXTURE_H, false},
    };
    export_as(f, "ckpt", DTYPE_F32, HF_MAX_FILE_BYTES, "hf");
    for (size_t k = 0; k < ARRAY_LEN(cases); k++) {
        const struct param *row = find_param(&f->table, cases[k].ours);
        int64_t out = cases[k].out, in = cases[k].in;
        assert_int_equal(row->n_elements, out * in);
        for (int64_t o = 0; o < out; o += 5)
            for (int64_t i = 0; i < in; i += 3) {
                int64_t there = cases[k].is_transposed ? i * out + o : o * in + i;
                assert_true(exported(f, "hf/model.safetensors", cases[k].theirs, there) ==
                            f->params[row->offset + o * in + i]);
            }
    }
}

static json_t *read_json(const struct hf_fixture *f, const char *name)
{
    size_t n;
    char *text = read_file(f, name, &n);
    json_t *root = json_loadb(text, n, 0, NULL);
    assert_non_null(root);
    free(text);
    return root;
}

static void test_export__config_says_what_the_model_is(void **state)
{
    struct hf_fixture *f = *state;
    static const struct {
        const char *key;
        int64_t value;
    } numbers[] = {
        {"vocab_size", FIXTURE_V},
        {"n_embd", FIXTURE_H},
        {"n_layer", 2},
        {"n_head", 3},
        {"n_inner", FIXTURE_F},
        {"n_positions", FIXTURE_P},
        {"n_ctx", FIXTURE_P},
        {"eos_token_id", 256},
        {"bos_token_id", 256},
    };
    export_as(f, "ckpt", DTYPE_F16, HF_MAX_FILE_BYTES, "hf");
    json_t *root = read_json(f, "hf/config.json");
    for (size_t i = 0; i < ARRAY_LEN(numbers); i++)
        assert_int_equal(json_integer_value(json_object_get(root, numbers[i].key)),
                         numbers[i].value);
    assert_string_equal(json_string_value(json_object_get(root, "model_type")), "gpt2");
    assert_string_equal(json_string_value(json_object_get(root, "torch_dtype")),
                        "float16");
    assert_true(json_is_true(json_object_get(root, "tie_word_embeddings")));
    json_decref(root);
    root = read_json(f, "hf/generation_config.json");
    assert_int_equal(json_integer_value(json_object_get(root, "eos_token_id")), 256);
    json_decref(root);
}

static void test_export__files_are_cut_and_listed(void **state)
{
    struct hf_fixture *f = *state;
    const char *key;
    json_t *value;
    export_as(f, "ckpt", DTYPE_F32, 4000, "hf");
    json_t *root = read_json(f, "hf/model.safetensors.index.json");
    json_t *map = json_object_get(root, "weight_map");
    assert_int_equal(json_object_size(map), f->table.n_params);
    assert_int_equal(json_integer_value(json_object_get(json_object_get(root, "metadata"),
                                                        "total_size")),
                     f->table.n_elements * 4);
    json_object_foreach(map, key, value)
    {
        char file[PATH_MAX];
        snprintf(file, sizeof file, "hf/%s", json_string_value(value));
        (void)exported(f, file, key, 0);
    }
    assert_string_not_equal(
        json_string_value(json_object_get(map, "transformer.wte.weight")),
        json_string_value(json_object_get(map, "transformer.wpe.weight")));
    json_decref(root);
}

static void test_export__tokenizer_files_come_along(void **state)
{
    struct hf_fixture *f = *state;
    struct tokenizer *bytes = NULL, *again = NULL;
    struct error err;
    char path[PATH_MAX];
    assert_ok(tokenizer_open(&bytes, TOKENIZER_BYTES, &err), err);
    struct hf_export_options opt = {DTYPE_F32, HF_MAX_FILE_BYTES, bytes};
    assert_ok(try_export(f, "ckpt", &opt, "hf", &err), err);
    fixture_path(f, "hf", path);
    assert_ok(tokenizer_open(&again, path, &err), err);
    assert_int_equal(tokenizer_vocab_size(again), 257);
    tokenizer_close(bytes);
    tokenizer_close(again);
}

/* -- refusals ------------------------------------------------------------------------ */

static void assert_nothing_beside(const struct hf_fixture *f, int64_t n_expected)
{
    struct fs_names list;
    struct error err;
    assert_ok(fs_list(f->dir, &list, &err), err);
    assert_int_equal(list.n_names, n_expected);
    fs_names_release(&list);
}

static void test_export__leaves_a_directory_that_is_not_empty_alone(void **state)
{
    struct hf_fixture *f = *state;
    struct error err;
    char path[PATH_MAX];
    size_t n;
    fixture_path(f, "hf", path);
    assert_ok(fs_make_directories(path, &err), err);
    write_file(f, "hf/mine", "x", 1);
    assert_int_equal(try_export(f, "ckpt", &plain, "hf", &err), -1);
    assert_says(&err, "not empty; remove it or name another");
    free(read_file(f, "hf/mine", &n));
    assert_int_equal(n, 1);
    assert_nothing_beside(f, 2);
}

static void test_export__takes_an_empty_directory_and_a_slash(void **state)
{
    struct hf_fixture *f = *state;
    struct error err;
    char path[PATH_MAX];
    fixture_path(f, "hf", path);
    assert_ok(fs_make_directories(path, &err), err);
    assert_ok(try_export(f, "ckpt", &plain, "hf//", &err), err);
    assert_nothing_beside(f, 2);
}

static void test_export__refuses_what_float16_cannot_hold_and_cleans_up(void **state)
{
    struct hf_fixture *f = *state;
    struct error err;
    struct hf_export_options opt = {DTYPE_F16, HF_MAX_FILE_BYTES, NULL};
    const struct param *row = find_param(&f->table, "layers.1.ln2.weight");
    f->params[row->offset + 5] = 65519.0F; // rounds down to the largest half
    fixture_save(f);
    assert_ok(try_export(f, "ckpt", &opt, "fits", &err), err);
    f->params[row->offset + 5] = -65520.0F;
    fixture_save(f);
    assert_int_equal(try_export(f, "ckpt", &opt, "hf", &err), -1);
    assert_says(&err, "'transformer.h.1.ln_2.weight' does not fit float16: number 5");
    assert_nothing_beside(f, 2);
    opt.dtype = DTYPE_BF16;
    assert_ok(try_export(f, "ckpt", &opt, "hf", &err), err);
}

static void test_export__a_damaged_checkpoint_gives_nothing(void **state)
{
    struct hf_fixture *f = *state;
    struct error err;
    size_t n;
    char *data = read_file(f, "ckpt/epoch_0_step_3/model.safetensors", &n);
    data[n - 5] ^= 1;
    write_file(f, "ckpt/epoch_0_step_3/model.safetensors", data, n);
    free(data);
    assert_int_equal(try_export(f, "ckpt/epoch_0_step_3", &plain, "hf", &err), -1);
    assert_says(&err, "damaged");
    assert_nothing_beside(f, 1);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, hf_set_up, hf_tear_down)

static void test_names__a_parameter_without_one_is_refused(void **state)
{
    struct hf_fixture *f = *state;
    struct error err;
    assert_ok(hf_names_check(&f->table, &err), err);
    snprintf(f->table.params[3].name, PARAM_NAME_BYTES, "layers.0.out_scale");
    assert_int_equal(hf_names_check(&f->table, &err), -1);
    assert_int_equal(err.kind, ERROR_INPUT);
    assert_non_null(strstr(err.text, "'layers.0.out_scale'"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_names__every_parameter_has_its_own),
        TEST(test_names__a_parameter_without_one_is_refused),
        TEST(test_names__masks_are_buffers_and_biases_are_not),
        TEST(test_transpose__odd_sizes),
        TEST(test_export__conv1d_is_in_by_out_and_embeddings_are_not),
        TEST(test_export__config_says_what_the_model_is),
        TEST(test_export__files_are_cut_and_listed),
        TEST(test_export__tokenizer_files_come_along),
        TEST(test_export__leaves_a_directory_that_is_not_empty_alone),
        TEST(test_export__takes_an_empty_directory_and_a_slash),
        TEST(test_export__refuses_what_float16_cannot_hold_and_cleans_up),
        TEST(test_export__a_damaged_checkpoint_gives_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Import from the transformers library: round trips, old and new files, refusals. */
#include "hf_fixture.h"

static void assert_same_file(const struct hf_fixture *f, const char *a, const char *b)
{
    size_t n_a, n_b;
    char *x = read_file(f, a, &n_a), *y = read_file(f, b, &n_b);
    assert_int_equal(n_a, n_b);
    assert_memory_equal(x, y, n_a);
    free(x);
    free(y);
}

static void assert_refused(const struct hf_fixture *f, const char *words)
{
    struct error err;
    assert_int_equal(try_import(f, "hf", "imported", &err), -1);
    assert_int_equal(err.kind, ERROR_INPUT);
    assert_says(&err, words);
}

/* -- round trips --------------------------------------------------------------------- */

static void test_import__an_export_comes_back_byte_for_byte(void **state)
{
    struct hf_fixture *f = *state;
    struct error err;
    static const enum dtype dtypes[] = {DTYPE_F32, DTYPE_F16, DTYPE_BF16};
    for (size_t i = 0; i < ARRAY_LEN(dtypes); i++) {
        char first[32], imported[32], again[32], a[64], b[64];
        snprintf(first, sizeof first, "hf%zu", i);
        snprintf(imported, sizeof imported, "imported%zu", i);
        snprintf(again, sizeof again, "again%zu", i);
        export_as(f, "ckpt", dtypes[i], HF_MAX_FILE_BYTES, first);
        assert_ok(try_import(f, first, imported, &err), err);
        export_as(f, imported, dtypes[i], HF_MAX_FILE_BYTES, again);
        snprintf(a, sizeof a, "%s/model.safetensors", first);
        snprintf(b, sizeof b, "%s/model.safetensors", again);
        assert_same_file(f, a, b);
        snprintf(a, sizeof a, "%s/config.json", first);
        snprintf(b, sizeof b, "%s/config.json", again);
        assert_same_file(f, a, b);
    }
}

static void test_import__several_files_are_one_model(void **state)
{
    struct hf_fixture *f = *state;
    struct error err;
    export_as(f, "ckpt", DTYPE_F32, 3000, "hf");
    assert_ok(try_import(f, "hf", "imported", &err), err);
    assert_same_file(f, "ckpt/epoch_0_step_3/model.safetensors",
                     "imported/epoch_0_step_0/model.safetensors");
}

static void test_import__is_a_checkpoint_of_step_0_without_moments(void **state)
{
    struct hf_fixture *f = *state;
    struct error err;
    char dir[PATH_MAX], path[PATH_MAX];
    size_t n = (size_t)f->table.n_flat;
    struct ckpt_state got = {.table = &f->table,
                             .rule = update_rule_of(&(struct config_optim){.name = 0}),
                             .flat = {calloc(n, sizeof(float)), malloc(n * sizeof(float)),
                                      malloc(n * sizeof(float))}};
    export_as(f, "ckpt", DTYPE_F32, HF_MAX_FILE_BYTES, "hf");
    assert_ok(try_import(f, "hf", "imported", &err), err);
    fixture_path(f, "imported", dir);
    assert_ok(ckpt_resolve(dir, 1, path, sizeof path, &err), err);
    assert_ok(ckpt_load(path, &got, &err), err);
    assert_int_equal(got.progress.step, 0);
    assert_int_equal(got.progress.consumed_samples, 0);
    assert_memory_equal(got.flat[0], f->params, n * sizeof(float));
    for (int64_t i = 0; i < f->table.n_params; i++)
        for (int64_t j = 0; j < f->table.params[i].n_elements; j++) {
            int64_t at = f->table.params[i].offset + j;
            assert_true(got.flat[1][at] == 0 && got.flat[2][at] == 0);
        }
    free(got.flat[0]);
    free(got.flat[1]);
    free(got.flat[2]);
}

/* -- what other versions wrote ------------------------------------------------------- */

/* Write the tensors of hf/model.safetensors again: `prefix` before GPT-2's own names, and
 * one more tensor unless `extra` is NULL. */
static void rewrite(const struct hf_fixture *f, const char *prefix, const char *extra,
                    enum safetensors_dtype extra_dtype)
{
    struct safetensors st = {0}, out = {0};
    struct error err;
    size_t n, n_prefix = strlen(HF_PREFIX);
    char *data = read_file(f, "hf/model.safetensors", &n), *header = NULL;
    int64_t n_header = (int64_t)(*(uint64_t *)(void *)data) + 8;
    assert_ok(safetensors_parse(&st, data + 8, (size_t)n_header - 8,
                                (int64_t)n - n_header, "hf", &err),
              err);
    for (int64_t i = 0; i < st.n_tensors; i++) {
        char name[128];
        const struct safetensors_tensor *t = &st.tensors[i];
        snprintf(name, sizeof name, "%s%s", prefix, t->name + n_prefix);
        assert_ok(safetensors_append(&out, name, t->dtype, t->n_dims, t->shape, &err),
                  err);
    }
    const int64_t shape[] = {1, 1, 2, 2};
    if (extra)
        assert_ok(safetensors_append(&out, extra, extra_dtype, 4, shape, &err), err);
    assert_ok(safetensors_encode_header(&out, &header, &err), err);
    size_t n_new = (size_t)(out.header_bytes + out.data_bytes);
    char *file = calloc(1, n_new);
    memcpy(file, header, (size_t)out.header_bytes);
    memcpy(file + out.header_bytes, data + n_header, n - (size_t)n_header);
    write_file(f, "hf/model.safetensors", file, n_new);
    free(file);
    free(header);
    free(data);
    safetensors_release(&st);
    safetensors_release(&out);
}

static void test_import__masks_and_a_tied_head_are_left_out(void **state)
{
    struct hf_fixture *f = *state;
    struct error err;
    static const struct {
        const char *prefix, *extra;
    } cases[] = {
        {"", "h.0.attn.bias"},         {"", "h.1.attn.masked_bias"},
        {"", "lm_head.weight"},        {HF_PREFIX, HF_PREFIX "h.0.attn.bias"},
        {HF_PREFIX, "lm_head.weight"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char hf[PATH_MAX], imported[32], file[80];
        fixture_path(f, "hf", hf);
        assert_ok(fs_remove_tree(hf, &err), err);
        export_as(f, "ckpt", DTYPE_F32, HF_MAX_FILE_BYTES, "hf");
        rewrite(f, cases[i].prefix, cases[i].extra, SAFETENSORS_U8);
        snprintf(imported, sizeof imported, "imported%zu", i);
        assert_ok(try_import(f, "hf", imported, &err), err);
        snprintf(file, sizeof file, "%s/epoch_0_step_0/model.safetensors", imported);
        assert_same_file(f, "ckpt/epoch_0_step_3/model.safetensors", file);
    }
}

/* -- refusals ------------------------------------------------------------------------ */

static void test_import__refuses_what_is_no_number_by_its_tensor(void **state)
{
    struct hf_fixture *f = *state;
    static const struct {
        uint32_t bits;
        const char *words;
    } cases[] = {{0x7fc00000, "a number that is none (NaN)"},
                 {0xff800000, "a number that is infinite"}};
    struct error err = {.text = ""};
    size_t n;
    export_as(f, "ckpt", DTYPE_F32, HF_MAX_FILE_BYTES, "hf");
    char *data = read_file(f, "hf/model.safetensors", &n);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        memcpy(data + n - 8, &cases[i].bits, sizeof cases[i].bits);
        write_file(f, "hf/model.safetensors", data, n);
        assert_int_equal(try_import(f, "hf", "imported", &err), -1);
        assert_int_equal(err.kind, ERROR_INPUT);
        assert_says(&err, cases[i].words);
        assert_says(&err, "tensor 'transformer.");
        char made[PATH_MAX];
        fixture_path(f, "imported/epoch_0_step_0", made);
        assert_false(fs_exists(made));
    }
    free(data);
}

static void
test_import__takes_activation_epsilon_and_dropout_and_gives_them_back(void **state)
{
    struct hf_fixture *f = *state;
    static const struct {
        const char *theirs, *again;
        enum config_activation ours;
    } cases[] = {
        {"\"gelu_new\"", "\"gelu_new\"", MODEL_GELU_TANH},
        {"\"gelu_pytorch_tanh\"", "\"gelu_new\"", MODEL_GELU_TANH},
        {"\"gelu\"", "\"gelu\"", MODEL_GELU},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char name[32], imported[32], again[32], file[64];
        char input[PATH_MAX], output[PATH_MAX], path[PATH_MAX];
        struct error err;
        struct config cfg;
        size_t n;
        snprintf(name, sizeof name, "hf%zu", i);
        snprintf(file, sizeof file, "hf%zu/config.json", i);
        snprintf(imported, sizeof imported, "imported%zu", i);
        snprintf(again, sizeof again, "again%zu", i);
        export_as(f, "ckpt", DTYPE_F32, HF_MAX_FILE_BYTES, name);
        edit_file(f, file, "\"gelu_new\"", cases[i].theirs);
        edit_file(f, file, "1e-5", "0.00025");
        edit_file(f, file, "\"embd_pdrop\": 0.1", "\"embd_pdrop\": 0.25");
        fixture_path(f, name, input);
        fixture_path(f, imported, output);
        assert_ok(hf_import(input, output, path, sizeof path, &cfg, &err), err);
        assert_int_equal(cfg.model.activation, cases[i].ours);
        assert_true(cfg.model.norm_epsilon == 0.00025);
        assert_true(cfg.model.embed_drop_rate == 0.25);
        assert_true(cfg.model.hidden_dropout_prob == 0.1);
        export_as(f, imported, DTYPE_F32, HF_MAX_FILE_BYTES, again);
        snprintf(file, sizeof file, "%s/config.json", again);
        char *text = read_file(f, file, &n);
        assert_non_null(strstr(text, cases[i].again));
        assert_non_null(strstr(text, "\"layer_norm_epsilon\": 0.00025"));
        assert_non_null(strstr(text, "\"embd_pdrop\": 0.25"));
        free(text);
    }
}

static void test_import__refuses_other_models_with_what_they_say(void **state)
{
    struct hf_fixture *f = *state;
    static const struct {
        const char *from, *to, *words;
    } cases[] = {
        {"\"gpt2\"", "\"llama\"",
         "\"model_type\" is \"llama\"; a GPT-2 can be imported only where it is gpt2"},
        {"\"gelu_new\"", "\"relu\"",
         "\"activation_function\" is \"relu\"; a GPT-2 can be imported only where it is "
         "gelu, gelu_new or gelu_pytorch_tanh"},
        {"\"gelu_new\"", "3", "\"activation_function\" is 3;"},
        {"\"GPT2LMHeadModel\"", "\"GPT2DoubleHeadsModel\"", "GPT2DoubleHeadsModel"},
        {"1e-5", "2", "\"layer_norm_epsilon\" is 2; "},
        {"1e-5", "0", "\"layer_norm_epsilon\" is 0; "},
        {"1e-5", "\"1e-5\"", "\"layer_norm_epsilon\" is \"1e-5\"; "},
        {"\"embd_pdrop\": 0.1", "\"embd_pdrop\": 1", "\"embd_pdrop\" is 1;"},
        {"\"tie_word_embeddings\": true", "\"tie_word_embeddings\": false",
         "\"tie_word_embeddings\" is false"},
        {"\"scale_attn_weights\": true", "\"scale_attn_weights\": false",
         "\"scale_attn_weights\""},
        {"\"n_head\": 3", "\"n_head\": 5", "a divisor of n_embd"},
        {"\"n_layer\": 2", "\"n_layer\": -2", "\"n_layer\" is -2"},
        {"\"n_layer\": 2", "\"n_layer\": 3", "has no tensor 'transformer.h.2"},
        {"\"n_layer\": 2", "\"n_layer\": 1", "is no part of the GPT-2 that config.json"},
        {"\"n_positions\": 9", "\"n_positions\": 10",
         "'transformer.wpe.weight' has the shape [9, 12], but config.json makes it [10, "
         "12]"},
        {"\"n_embd\": 12,", "\"n_embd\": 12, \"n_embd\": 12,", "duplicate"},
        {"\"resid_pdrop\": 0.1", "\"resid_pdrop\": 1.0", "\"resid_pdrop\" is 1;"},
        {"\"eos_token_id\": 256", "\"eos_token_id\": 260", "\"eos_token_id\" is 260"},
    };
    size_t n;
    export_as(f, "ckpt", DTYPE_F32, HF_MAX_FILE_BYTES, "hf");
    char *config = read_file(f, "hf/config.json", &n);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        write_file(f, "hf/config.json", config, n);
        edit_file(f, "hf/config.json", cases[i].from, cases[i].to);
        assert_refused(f, cases[i].words);
    }
    free(config);
}

static void test_import__refuses_tensors_it_would_leave_out(void **state)
{
    struct hf_fixture *f = *state;
    export_as(f, "ckpt", DTYPE_F32, HF_MAX_FILE_BYTES, "hf");
    rewrite(f, HF_PREFIX, HF_PREFIX "h.0.crossattention.bias", SAFETENSORS_F32);
    assert_refused(f, "'transformer.h.0.crossattention.bias', which is no part");
}

static void test_import__refuses_directories_that_are_not_whole(void **state)
{
    struct hf_fixture *f = *state;
    char path[PATH_MAX];
    export_as(f, "ckpt", DTYPE_F32, 3000, "hf");
    edit_file(f, "hf/model.safetensors.index.json", "model-00002", "model-00001");
    assert_refused(f, "does not hold the tensor");
    edit_file(f, "hf/model.safetensors.index.json", "\"model-00001", "\"../model-00001");
    assert_refused(f, "no file of that directory");
    fixture_path(f, "hf/model.safetensors.index.json", path);
    unlink(path);
    assert_refused(f, "has neither model.safetensors nor");
    write_file(f, "hf/pytorch_model.bin", "x", 1);
    assert_refused(f, "safe_serialization=True");
    fixture_path(f, "hf/config.json", path);
    unlink(path);
    assert_refused(f, "config.json");
}

static void test_import__leaves_other_checkpoints_alone(void **state)
{
    struct hf_fixture *f = *state;
    struct error err;
    export_as(f, "ckpt", DTYPE_F32, HF_MAX_FILE_BYTES, "hf");
    assert_int_equal(try_import(f, "hf", "ckpt", &err), -1);
    assert_says(&err, "holds checkpoints already");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, hf_set_up, hf_tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_import__refuses_what_is_no_number_by_its_tensor),
        TEST(test_import__an_export_comes_back_byte_for_byte),
        TEST(test_import__several_files_are_one_model),
        TEST(test_import__is_a_checkpoint_of_step_0_without_moments),
        TEST(test_import__masks_and_a_tied_head_are_left_out),
        TEST(test_import__takes_activation_epsilon_and_dropout_and_gives_them_back),
        TEST(test_import__refuses_other_models_with_what_they_say),
        TEST(test_import__refuses_tensors_it_would_leave_out),
        TEST(test_import__refuses_directories_that_are_not_whole),
        TEST(test_import__leaves_other_checkpoints_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* GGUF files, read back by another few lines: header, tensors, tokenizer. */
#include "hf_fixture.h"
#include "param_fixture.h"

#include "hub/gguf.h"

struct gguf { // a file in memory and a place in it
    char *data;
    size_t n, at;
    uint64_t n_tensors, n_pairs;
};

static uint64_t take_int(struct gguf *g, int n_bytes)
{
    uint64_t value = 0;
    assert_true(g->at + (size_t)n_bytes <= g->n);
    for (int i = 0; i < n_bytes; i++)
        value |= (uint64_t)(uint8_t)g->data[g->at++] << (8 * i);
    return value;
}

static void take_text(struct gguf *g, char *text, size_t size)
{
    uint64_t n = take_int(g, 8);
    if (n >= size || g->at + n > g->n) {
        fail_msg("a text of %llu bytes", (unsigned long long)n);
        return;
    }
    memcpy(text, g->data + g->at, n);
    text[n] = 0;
    g->at += n;
}

static void skip_value(struct gguf *g, uint64_t type)
{
    char text[4096];
    uint64_t element, n;
    switch (type) {
    case GGUF_TEXT:
        take_text(g, text, sizeof text);
        return;
    case GGUF_ARRAY:
        element = take_int(g, 4);
        n = take_int(g, 8);
        for (uint64_t i = 0; i < n; i++)
            skip_value(g, element);
        return;
    case GGUF_BOOL:
        g->at += 1;
        return;
    default:
        assert_true(type == GGUF_U32 || type == GGUF_I32 || type == GGUF_F32);
        g->at += 4;
    }
}

static struct gguf open_gguf(const struct hf_fixture *f, const char *name)
{
    struct gguf g = {0};
    g.data = read_file(f, name, &g.n);
    assert_memory_equal(g.data, "GGUF", 4);
    g.at = 4;
    assert_int_equal(take_int(&g, 4), 3);
    g.n_tensors = take_int(&g, 8);
    g.n_pairs = take_int(&g, 8);
    return g;
}

/* Move to the value of `key`, or behind all pairs for NULL; its type is returned. */
static uint64_t find_pair(struct gguf *g, const char *key)
{
    g->at = 24;
    for (uint64_t i = 0; i < g->n_pairs; i++) {
        char name[256];
        take_text(g, name, sizeof name);
        uint64_t type = take_int(g, 4);
        if (key && strcmp(name, key) == 0)
            return type;
        skip_value(g, type);
    }
    assert_null(key);
    return 0;
}

struct gguf_tensor {
    uint64_t n_dims, dims[2], type, offset;
};

/* The tensor's record, and where the data begins. */
static struct gguf_tensor find_tensor(struct gguf *g, const char *wanted, size_t *data)
{
    struct gguf_tensor found = {0};
    find_pair(g, NULL);
    for (uint64_t i = 0; i < g->n_tensors; i++) {
        char name[256];
        struct gguf_tensor t = {0};
        take_text(g, name, sizeof name);
        t.n_dims = take_int(g, 4);
        for (uint64_t d = 0; d < t.n_dims; d++)
            t.dims[d] = take_int(g, 8);
        t.type = take_int(g, 4);
        t.offset = take_int(g, 8);
        assert_int_equal(t.offset % GGUF_ALIGN, 0);
        if (strcmp(name, wanted) == 0)
            found = t;
    }
    *data = (g->at + GGUF_ALIGN - 1) / GGUF_ALIGN * GGUF_ALIGN;
    assert_true(found.n_dims > 0);
    return found;
}

static int try_form(const struct hf_fixture *f, const char *tokenizer_name,
                    enum dtype dtype, enum config_activation activation,
                    struct error *err)
{
    struct hub_source *src = calloc(1, sizeof *src);
    struct tokenizer *t = NULL;
    char path[PATH_MAX];
    fixture_path(f, "a.gguf", path);
    assert_ok(hub_source_open(src, f->ckpt, err), *err);
    assert_ok(tokenizer_open(&t, tokenizer_name, err), *err);
    src->cfg.model.activation = activation;
    src->cfg.model.norm_epsilon = 1e-6;
    int rc = gguf_export(src, t, dtype, path, err);
    tokenizer_close(t);
    hub_source_close(src);
    free(src);
    return rc;
}

static int try_gguf(const struct hf_fixture *f, const char *tokenizer_name,
                    enum dtype dtype, struct error *err)
{
    return try_form(f, tokenizer_name, dtype, MODEL_GELU_TANH, err);
}

static void test_gguf__tensors_are_out_by_in_where_they_say(void **state)
{
    struct hf_fixture *f = *state;
    struct error err;
    size_t data;
    const struct param *row = find_param(&f->table, "layers.1.attn.qkv.weight");
    assert_ok(try_gguf(f, TOKENIZER_BYTES, DTYPE_F32, &err), err);
    struct gguf g = open_gguf(f, "a.gguf");
    assert_int_equal(g.n_tensors, f->table.n_params);
    struct gguf_tensor t = find_tensor(&g, "blk.1.attn_qkv.weight", &data);
    assert_int_equal(t.n_dims, 2);
    assert_int_equal(t.dims[0], FIXTURE_H); // the fastest first
    assert_int_equal(t.dims[1], 3 * FIXTURE_H);
    assert_memory_equal(g.data + data + t.offset, f->params + row->offset,
                        (size_t)row->n_elements * sizeof(float));
    free(g.data);
}

static void test_gguf__float16_is_of_matrices_alone(void **state)
{
    struct hf_fixture *f = *state;
    struct error err;
    size_t data;
    assert_ok(try_gguf(f, TOKENIZER_BYTES, DTYPE_F16, &err), err);
    struct gguf g = open_gguf(f, "a.gguf");
    struct gguf_tensor t = find_tensor(&g, "token_embd.weight", &data);
    assert_int_equal(t.type, 1);
    uint16_t half;
    memcpy(&half, g.data + data + t.offset + 2 * 17, sizeof half);
    assert_true(f16_to_f32(half) == f->params[17]); // the first row of the table
    static const char *const floats[] = {"position_embd.weight", "blk.0.ffn_up.bias",
                                         "blk.0.attn_norm.weight", "output_norm.bias"};
    for (size_t i = 0; i < ARRAY_LEN(floats); i++)
        assert_int_equal(find_tensor(&g, floats[i], &data).type, 0);
    free(g.data);
}

static void test_gguf__says_the_sizes_of_the_model(void **state)
{
    struct hf_fixture *f = *state;
    struct error err;
    static const struct {
        const char *key;
        uint64_t value;
    } numbers[] = {
        {"gpt2.context_length", FIXTURE_P},      {"gpt2.embedding_length", FIXTURE_H},
        {"gpt2.feed_forward_length", FIXTURE_F}, {"gpt2.block_count", 2},
        {"gpt2.attention.head_count", 3},        {"tokenizer.ggml.eos_token_id", 256},
        {"tokenizer.ggml.bos_token_id", 256},
    };
    assert_ok(try_gguf(f, TOKENIZER_BYTES, DTYPE_F32, &err), err);
    struct gguf g = open_gguf(f, "a.gguf");
    for (size_t i = 0; i < ARRAY_LEN(numbers); i++) {
        assert_int_equal(find_pair(&g, numbers[i].key), GGUF_U32);
        assert_int_equal(take_int(&g, 4), numbers[i].value);
    }
    float epsilon = 1e-6F;
    uint32_t bits;
    memcpy(&bits, &epsilon, sizeof bits);
    assert_int_equal(find_pair(&g, "gpt2.attention.layer_norm_epsilon"), GGUF_F32);
    assert_int_equal(take_int(&g, 4), bits);
    free(g.data);
}

static void test_gguf__refuses_exact_gelu(void **state)
{
    struct hf_fixture *f = *state;
    struct error err;
    char path[PATH_MAX];
    fixture_path(f, "a.gguf", path);
    assert_int_equal(try_form(f, TOKENIZER_BYTES, DTYPE_F32, MODEL_GELU, &err), -1);
    assert_int_equal(err.kind, ERROR_INPUT);
    assert_says(&err, "Model.activation is gelu");
    assert_says(&err, "export to hf instead");
    assert_false(fs_exists(path));
}

static void test_gguf__bytes_are_a_vocabulary_of_symbols(void **state)
{
    struct hf_fixture *f = *state;
    struct error err;
    char text[64];
    static const struct {
        int id;
        const char *text;
        int type;
    } tokens[] = {{' ', "\xC4\xA0", 1},      {'a', "a", 1},        {255, "\xC3\xBF", 1},
                  {256, "<|endoftext|>", 3}, {257, "[PAD257]", 5}, {259, "[PAD259]", 5}};
    assert_ok(try_gguf(f, TOKENIZER_BYTES, DTYPE_F32, &err), err);
    struct gguf g = open_gguf(f, "a.gguf");
    for (size_t i = 0; i < ARRAY_LEN(tokens); i++) {
        assert_int_equal(find_pair(&g, "tokenizer.ggml.tokens"), GGUF_ARRAY);
        assert_int_equal(take_int(&g, 4), GGUF_TEXT);
        assert_int_equal(take_int(&g, 8), FIXTURE_V);
        for (int id = 0; id <= tokens[i].id; id++)
            take_text(&g, text, sizeof text);
        assert_string_equal(text, tokens[i].text);
        assert_int_equal(find_pair(&g, "tokenizer.ggml.token_type"), GGUF_ARRAY);
        g.at += 12 + 4 * (size_t)tokens[i].id;
        assert_int_equal(take_int(&g, 4), tokens[i].type);
    }
    free(g.data);
}

#define LETTERS "\"a\":0,\"b\":1,\"ab\":2"
#define JSON_TOKENIZER(options, prefix_space)                                            \
    "{\"version\":\"1.0\",\"added_tokens\":[],\"normalizer\":null,\"pre_tokenizer\":"    \
    "{\"type\":\"ByteLevel\",\"add_prefix_space\":" prefix_space ",\"use_regex\":true}," \
    "\"decoder\":{\"type\":\"ByteLevel\"},\"model\":{\"type\":\"BPE\"," options          \
    "\"vocab\":{" LETTERS "},\"merges\":[\"a b\"]}}"

static void test_gguf__merges_and_what_it_cannot_say(void **state)
{
    struct hf_fixture *f = *state;
    struct error err;
    char path[PATH_MAX], text[64];
    static const char plain[] = JSON_TOKENIZER("", "false");
    static const char spaced[] = JSON_TOKENIZER("", "true");
    static const char whole[] = JSON_TOKENIZER("\"ignore_merges\":true,", "false");
    fixture_path(f, "tokenizer.json", path);
    write_file(f, "tokenizer.json", spaced, sizeof spaced - 1);
    assert_int_equal(try_gguf(f, path, DTYPE_F32, &err), -1);
    assert_says(&err, "adds a space before a text, which a GGUF cannot say");
    write_file(f, "tokenizer.json", whole, sizeof whole - 1);
    assert_int_equal(try_gguf(f, path, DTYPE_F32, &err), -1);
    assert_says(&err, "takes words that are tokens whole");
    write_file(f, "tokenizer.json", plain, sizeof plain - 1);
    assert_ok(try_gguf(f, path, DTYPE_F32, &err), err);
    struct gguf g = open_gguf(f, "a.gguf");
    assert_int_equal(find_pair(&g, "tokenizer.ggml.merges"), GGUF_ARRAY);
    assert_int_equal(take_int(&g, 4), GGUF_TEXT);
    assert_int_equal(take_int(&g, 8), 1);
    take_text(&g, text, sizeof text);
    assert_string_equal(text, "a b");
    free(g.data);
}

static void test_gguf__leaves_a_file_that_exists_alone(void **state)
{
    struct hf_fixture *f = *state;
    struct error err;
    size_t n;
    write_file(f, "a.gguf", "mine", 4);
    assert_int_equal(try_gguf(f, TOKENIZER_BYTES, DTYPE_F32, &err), -1);
    assert_says(&err, "it exists; remove it or name another");
    free(read_file(f, "a.gguf", &n));
    assert_int_equal(n, 4);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, hf_set_up, hf_tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_gguf__tensors_are_out_by_in_where_they_say),
        TEST(test_gguf__float16_is_of_matrices_alone),
        TEST(test_gguf__says_the_sizes_of_the_model),
        TEST(test_gguf__refuses_exact_gelu),
        TEST(test_gguf__bytes_are_a_vocabulary_of_symbols),
        TEST(test_gguf__merges_and_what_it_cannot_say),
        TEST(test_gguf__leaves_a_file_that_exists_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/*
 * Decoding against training's forward, and against itself: the bits of a text do not
 * depend on slots, neighbours or threads.
 */
#include "model_fixture.h"
#include "test.h"

#include "model/gpt_generate.h"

enum { V = 101, S = 21, N_TEXTS = 7 };

static const enum dtype dtypes[] = {DTYPE_F32, DTYPE_F16, DTYPE_BF16};

static struct config small_config(int64_t positions)
{
    return (struct config){
        .model = {.vocab_size = V,
                  .hidden_size = 40,
                  .num_layers = 3,
                  .num_attention_heads = 4,
                  .ffn_hidden_size = 150,
                  .norm_epsilon = 1e-5,
                  .max_position_embeddings = positions},
        .dataset = {.max_seq_len = positions},
        .seed = 77,
    };
}

struct decoding {
    struct model model;
    struct gpt_decoder dec;
};

static void decoding_open(struct decoding *m, enum dtype dtype, int64_t positions,
                          int64_t n_slots)
{
    struct config cfg = small_config(positions);
    struct error err;
    cfg.mix_precision.dtype = dtype;
    assert_ok(model_prepare(&m->model, &cfg, 1, 1, LAYOUT_DECODE, &err), err);
    assert_ok(model_start(&m->model, 0.1, &err), err);
    assert_ok(gpt_decoder_open(&m->dec, &m->model.runner.gpt, n_slots, NULL, &err), err);
}

static void decoding_close(struct decoding *m)
{
    gpt_decoder_close(&m->dec);
    model_close(&m->model);
}

static int32_t token(int64_t text, int64_t i)
{
    return (int32_t)((i * 37 + 11 + text * 29) % V);
}

/* -- logits -------------------------------------------------------------------------- */

/* A text read at once, and token by token: the sums are added in another order, and what
 * is rounded to 16 bits after them may fall to the other side. */
static void test_gpt_decode__one_by_one_is_the_prompt_in_one_go(void **state)
{
    (void)state;
    static const double allowed[] = {2e-5, 2e-3, 1e-2};
    for (size_t d = 0; d < ARRAY_LEN(dtypes); d++) {
        struct decoding m;
        int32_t tokens[S];
        decoding_open(&m, dtypes[d], S, 2);
        for (int64_t i = 0; i < S; i++)
            tokens[i] = token(0, i);
        gpt_decoder_prompt(&m.dec, 0, tokens, 1);
        for (int64_t n = 1; n <= S; n++) {
            float one_by_one[V];
            memcpy(one_by_one, gpt_decoder_logits(&m.dec, 0), sizeof one_by_one);
            gpt_decoder_prompt(&m.dec, 1, tokens, n);
            const float *at_once = gpt_decoder_logits(&m.dec, 0);
            for (int v = 0; v < V; v++)
                assert_close(one_by_one[v], at_once[v], allowed[d]);
            if (n < S)
                gpt_decoder_step(&m.dec, (int64_t[]){0}, &tokens[n], 1);
        }
        decoding_close(&m);
    }
}

/* Text t alone in slot 0 of its own decoder: (n, V) logits after tokens first .. */
static void logits_alone(enum dtype dtype, int64_t t, int64_t n_prompt, int64_t n,
                         float (*logits)[V])
{
    struct decoding m;
    int32_t tokens[S];
    decoding_open(&m, dtype, S, 1);
    for (int64_t i = 0; i < S; i++)
        tokens[i] = token(t, i);
    gpt_decoder_prompt(&m.dec, 0, tokens, n_prompt);
    for (int64_t i = 0; i < n; i++) {
        memcpy(logits[i], gpt_decoder_logits(&m.dec, 0), sizeof logits[i]);
        if (i + 1 < n)
            gpt_decoder_step(&m.dec, (int64_t[]){0}, &tokens[n_prompt + i], 1);
    }
    decoding_close(&m);
}

/* Texts of different lengths in the slots of one decoder, in reverse order, one of them
 * joining late. */
static void check_together(enum dtype dtype, int n_threads)
{
    enum { TEXTS = 5, STEPS = 6 };
    static float want[TEXTS][STEPS][V];
    struct decoding m;
    kernels_set_threads(1);
    for (int64_t t = 0; t < TEXTS; t++)
        logits_alone(dtype, t, 1 + 3 * t, STEPS, want[t]);
    kernels_set_threads(n_threads);
    decoding_open(&m, dtype, S, TEXTS);
    int64_t n_fed[TEXTS] = {0}; // logits seen of each text
    for (int64_t step = 0; step < STEPS; step++) {
        int64_t slots[TEXTS], n = 0;
        int32_t fed[TEXTS];
        for (int64_t t = 0; t < TEXTS; t++) {
            int64_t slot = TEXTS - 1 - t, n_prompt = 1 + 3 * t;
            if (n_fed[t] == 0 && (t != 2 || step == 3)) {
                int32_t tokens[S];
                for (int64_t i = 0; i < S; i++)
                    tokens[i] = token(t, i);
                gpt_decoder_prompt(&m.dec, slot, tokens, n_prompt);
                assert_memory_equal(gpt_decoder_logits(&m.dec, 0), want[t][0],
                                    sizeof want[t][0]);
                n_fed[t] = 1;
            } else if (n_fed[t] > 0) {
                fed[n] = token(t, n_prompt + n_fed[t] - 1);
                slots[n++] = slot;
            }
        }
        if (n == 0)
            continue;
        gpt_decoder_step(&m.dec, slots, fed, n);
        for (int64_t i = 0; i < n; i++) {
            int64_t t = TEXTS - 1 - slots[i];
            assert_memory_equal(gpt_decoder_logits(&m.dec, i), want[t][n_fed[t]],
                                sizeof want[t][0]);
            n_fed[t]++;
        }
    }
    decoding_close(&m);
    kernels_set_threads(1);
}

static void test_gpt_decode__neighbours_do_not_change_a_bit(void **state)
{
    (void)state;
    for (size_t d = 0; d < ARRAY_LEN(dtypes); d++)
        check_together(dtypes[d], 1);
    check_together(DTYPE_F32, 2);
}

/* -- texts --------------------------------------------------------------------------- */

struct record { // of the calls of gpt_generate()
    int64_t n_tokens[N_TEXTS];
    int64_t n_ended, order[N_TEXTS];
    int32_t last[N_TEXTS];
};

static int on_token(void *context, const struct gpt_text *text, int32_t id,
                    struct error *err)
{
    struct record *r = context;
    (void)err;
    r->n_tokens[text->index]++;
    r->last[text->index] = id;
    return 0;
}

static int on_end(void *context, const struct gpt_text *text, struct error *err)
{
    struct record *r = context;
    (void)err;
    r->order[r->n_ended++] = text->index;
    return 0;
}

static int fail_at_second(void *context, const struct gpt_text *text, struct error *err)
{
    int *n = context;
    (void)text;
    return ++*n == 2 ? error_set(err, ERROR_RUNTIME, "no more") : 0;
}

static void texts_open(struct gpt_text *texts)
{
    for (int64_t t = 0; t < N_TEXTS; t++) {
        int64_t n = 1 + t * 5; // some longer than S
        texts[t] = (struct gpt_text){.index = t, .n_tokens = n, .n_prompt = n};
        texts[t].capacity = n;
        texts[t].tokens = calloc((size_t)n, sizeof *texts[t].tokens);
        assert_non_null(texts[t].tokens);
        for (int64_t i = 0; i < n; i++)
            texts[t].tokens[i] = token(t, i);
    }
}

static void texts_close(struct gpt_text *texts)
{
    for (int64_t t = 0; t < N_TEXTS; t++)
        free(texts[t].tokens);
}

/* Continue N_TEXTS texts, n_slots at a time. */
static void continue_texts(struct gpt_text *texts, struct record *r, int64_t positions,
                           int64_t n_slots, int64_t max_tokens, int32_t eos)
{
    struct decoding m;
    struct error err;
    struct sampler sampler = {.temperature = 0.7, .top_p = 1.0, .seed = 5};
    assert_ok(sampler_init(&sampler, V, &err), err);
    decoding_open(&m, DTYPE_F32, positions, n_slots);
    texts_open(texts);
    *r = (struct record){.n_ended = 0};
    struct gpt_generate gen = {.decoder = &m.dec,
                               .sampler = &sampler,
                               .replica = m.model.world,
                               .max_tokens = max_tokens,
                               .eos = eos,
                               .context = r,
                               .on_token = on_token,
                               .on_end = on_end};
    assert_ok(gpt_generate(&gen, texts, N_TEXTS, &err), err);
    decoding_close(&m);
    sampler_release(&sampler);
}

static void assert_same_texts(const struct gpt_text *a, const struct gpt_text *b)
{
    for (int64_t t = 0; t < N_TEXTS; t++) {
        assert_int_equal(a[t].n_tokens, b[t].n_tokens);
        assert_int_equal(a[t].is_ended, b[t].is_ended);
        assert_memory_equal(a[t].tokens, b[t].tokens,
                            (size_t)a[t].n_tokens * sizeof *a[t].tokens);
    }
}

static void test_gpt_generate__slots_do_not_change_a_token(void **state)
{
    (void)state;
    static const int64_t slots[] = {2, 3, N_TEXTS, 50};
    struct gpt_text one[N_TEXTS], many[N_TEXTS];
    struct record r;
    continue_texts(one, &r, S, 1, 40, 3);
    for (size_t i = 0; i < ARRAY_LEN(slots); i++) {
        continue_texts(many, &r, S, slots[i], 40, 3);
        assert_same_texts(one, many);
        texts_close(many);
    }
    texts_close(one);
}

static void test_gpt_generate__all_texts_end_at_their_length_or_eos(void **state)
{
    (void)state;
    enum { MAX_TOKENS = 60 };
    struct gpt_text texts[N_TEXTS];
    struct record r;
    int64_t n_eos = 0;
    continue_texts(texts, &r, S, 3, MAX_TOKENS, 3);
    assert_int_equal(r.n_ended, N_TEXTS);
    for (int64_t t = 0; t < N_TEXTS; t++) {
        int64_t n = texts[t].n_tokens - texts[t].n_prompt;
        assert_int_equal(r.n_tokens[t], n);
        assert_true(texts[t].is_ended ? n < MAX_TOKENS : n == MAX_TOKENS);
        assert_true(n == 0 || texts[t].tokens[texts[t].n_tokens - 1] == r.last[t]);
        for (int64_t i = texts[t].n_prompt; i < texts[t].n_tokens; i++)
            assert_true(texts[t].tokens[i] != 3);
        n_eos += texts[t].is_ended;
    }
    assert_true(n_eos > 0 && n_eos < N_TEXTS); // so that both are seen here
    texts_close(texts);
}

/* One token each: a slot is free again at once, and texts end in their order. */
static void test_gpt_generate__a_text_that_ends_makes_room_at_once(void **state)
{
    (void)state;
    struct gpt_text texts[N_TEXTS];
    struct record r;
    continue_texts(texts, &r, S, 2, 1, -1);
    for (int64_t t = 0; t < N_TEXTS; t++)
        assert_int_equal(r.order[t], t);
    texts_close(texts);
}

/* A model that sees one token has no room for a second. */
static void test_gpt_generate__one_position_is_enough(void **state)
{
    (void)state;
    struct gpt_text texts[N_TEXTS];
    struct record r;
    continue_texts(texts, &r, 1, 3, 5, -1);
    for (int64_t t = 0; t < N_TEXTS; t++)
        assert_int_equal(r.n_tokens[t], 5);
    texts_close(texts);
}

static void test_gpt_generate__a_failure_of_the_caller_ends_it(void **state)
{
    (void)state;
    struct decoding m;
    struct error err;
    struct gpt_text texts[N_TEXTS];
    struct sampler sampler = {.temperature = 0};
    int n_ended = 0;
    assert_ok(sampler_init(&sampler, V, &err), err);
    decoding_open(&m, DTYPE_F32, S, 2);
    texts_open(texts);
    struct gpt_generate gen = {.decoder = &m.dec,
                               .sampler = &sampler,
                               .replica = m.model.world,
                               .max_tokens = 3,
                               .eos = -1,
                               .context = &n_ended,
                               .on_end = fail_at_second};
    assert_int_equal(gpt_generate(&gen, texts, N_TEXTS, &err), -1);
    assert_string_equal(err.text, "no more");
    assert_int_equal(n_ended, 2);
    texts_close(texts);
    decoding_close(&m);
    sampler_release(&sampler);
}

static void test_gpt_decode__has_as_many_slots_as_positions_at_most(void **state)
{
    (void)state;
    struct decoding m;
    struct error err;
    struct gpt_decoder dec;
    decoding_open(&m, DTYPE_F32, S, 1);
    assert_ok(gpt_decoder_open(&dec, &m.model.runner.gpt, INT64_MAX / 64, NULL, &err),
              err);
    assert_int_equal(dec.n_slots, S);
    gpt_decoder_close(&dec);
    decoding_close(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gpt_decode__one_by_one_is_the_prompt_in_one_go),
        cmocka_unit_test(test_gpt_decode__neighbours_do_not_change_a_bit),
        cmocka_unit_test(test_gpt_generate__slots_do_not_change_a_token),
        cmocka_unit_test(test_gpt_generate__all_texts_end_at_their_length_or_eos),
        cmocka_unit_test(test_gpt_generate__a_text_that_ends_makes_room_at_once),
        cmocka_unit_test(test_gpt_generate__one_position_is_enough),
        cmocka_unit_test(test_gpt_generate__a_failure_of_the_caller_ends_it),
        cmocka_unit_test(test_gpt_decode__has_as_many_slots_as_positions_at_most),
    };
    kernels_set_threads(1); // small calls on a busy machine wait long for a second
    return cmocka_run_group_tests(tests, NULL, NULL);
}

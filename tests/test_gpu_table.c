/*
 * The GPU's table on the emulated device, where it does more than one kernel takes: arrays
 * that are longer than what passes to the device at once, more ranks than arguments have
 * room for, shapes without elements. And that its kernels without products along a row
 * give the bits of the processor's, whatever order threads run in.
 */
#include "device/device.h"
#include "device/emulated/emulated_options.h"
#include "test.h"

/* -- both devices -------------------------------------------------------------------- */

struct pair { // the same numbers for the processor and for the device
    void *host, *gpu;
    size_t bytes;
};

static struct device *gpu;
static struct stream *stream;

static int open_device(void **state)
{
    struct error err;
    (void)state;
    gpu = device_of(DEVICE_EMULATED, DTYPE_F32);
    assert_ok(device_open(gpu, &(struct device_request){.n_local = 1}, &err), err);
    stream = device_stream(gpu, STREAM_COMPUTE);
    return 0;
}

static int close_device(void **state)
{
    (void)state;
    device_close(gpu);
    return 0;
}

static const struct kernels *cpu(void)
{
    return device_cpu(DTYPE_F32)->k;
}

static struct stream *cpu_stream(void)
{
    return device_stream(device_cpu(DTYPE_F32), STREAM_COMPUTE);
}

static struct pair pair_new(size_t bytes)
{
    struct pair p = {malloc(bytes), gpu->ops->alloc(gpu, bytes), bytes};
    assert_non_null(p.host);
    assert_non_null(p.gpu);
    return p;
}

static void pair_free(struct pair *p)
{
    free(p->host);
    device_free(gpu, p->gpu, p->bytes);
}

/* n floats between -1 and 1. */
static struct pair floats_new(int64_t n, uint32_t seed)
{
    struct pair p = pair_new((size_t)n * sizeof(float));
    struct philox_key key = philox_key(seed, PHILOX_SAMPLE_TOKEN, 0);
    for (int64_t i = 0; i < n; i++)
        ((float *)p.host)[i] = 2 * philox_uniform(key, (uint64_t)i, 0) - 1;
    device_copy(stream, p.gpu, p.host, p.bytes, COPY_TO_DEVICE);
    return p;
}

/* The device's numbers have the bits of the processor's; both are freed. */
static void assert_same(struct pair *p, const char *what)
{
    char *got = malloc(p->bytes);
    struct error err;
    assert_non_null(got);
    device_copy(stream, got, p->gpu, p->bytes, COPY_TO_HOST);
    device_synchronize(stream);
    assert_ok(device_check(gpu, &err), err);
    for (size_t i = 0; i < p->bytes; i++)
        if (got[i] != ((char *)p->host)[i])
            fail_msg("%s: byte %zu of %zu differs", what, i, p->bytes);
    free(got);
    pair_free(p);
}

/* -- more than passes at once -------------------------------------------------------- */

enum { TOKENS = 20000, WORDS = 70000, PLACES = 1000, H = 6 }; // rows of 17 bits

static int32_t *rows_new(int64_t n, int32_t n_rows, bool has_none)
{
    int32_t *rows = malloc((size_t)n * sizeof *rows);
    assert_non_null(rows);
    for (int64_t i = 0; i < n; i++) { // every row, some often that differ by 2^16
        int64_t far = i % 2 && n_rows > UINT16_MAX + 7 ? UINT16_MAX + 1 : 0;
        rows[i] = (int32_t)(i % 3 == 0 ? far + i % 7 : i * 31 % n_rows) -
                  (has_none && i % 11 == 0 ? n_rows : 0);
    }
    return rows;
}

static void test_embedding_bwd__of_many_tokens_adds_in_their_order(void **state)
{
    (void)state;
    struct pair dwte = floats_new(WORDS * H, 1), dwpe = floats_new(PLACES * H, 2);
    struct pair dx = floats_new(TOKENS * H, 3);
    int32_t *tokens = rows_new(TOKENS, WORDS, true);
    int32_t *places = rows_new(TOKENS, PLACES, false);
    struct embedding_bwd e = {dwte.gpu, dwpe.gpu, dx.gpu, tokens, places, 1, TOKENS, H};
    gpu->k->embedding_bwd(stream, &e);
    e.dwte = dwte.host;
    e.dwpe = dwpe.host;
    e.dx = dx.host;
    cpu()->embedding_bwd(cpu_stream(), &e);
    memset(tokens, 0, TOKENS * sizeof *tokens); // were read when the call returned
    assert_same(&dwte, "dwte");
    assert_same(&dwpe, "dwpe");
    pair_free(&dx);
    free(tokens);
    free(places);
}

static void test_embedding_fwd__of_many_tokens_is_the_processor_s(void **state)
{
    enum { N = 70000 };
    (void)state;
    struct pair wte = floats_new(WORDS * H, 4), wpe = floats_new(PLACES * H, 5);
    struct pair x = floats_new(N * H, 6);
    for (int i = 0; i < PLACES * H; i += 5) // a token that is not here adds no 0 to it
        ((float *)wpe.host)[i] = -0.0F;
    device_copy(stream, wpe.gpu, wpe.host, wpe.bytes, COPY_TO_DEVICE);
    int32_t *tokens = rows_new(N, WORDS, true), *places = rows_new(N, PLACES, false);
    struct weight words = {.data = wte.gpu, .rows = WORDS, .cols = H, .version = 1};
    struct weight at = {.data = wpe.gpu, .rows = PLACES, .cols = H, .version = 1};
    struct embedding e = {x.gpu, &words, &at, tokens, places, 1, N, H};
    gpu->k->embedding_fwd(stream, &e);
    device_synchronize(stream);
    words.data = wte.host;
    at.data = wpe.host;
    e.x = x.host;
    cpu()->embedding_fwd(cpu_stream(), &e);
    assert_same(&x, "x");
    pair_free(&wte);
    pair_free(&wpe);
    free(tokens);
    free(places);
}

static void test_add_rows__of_many_rows_adds_each(void **state)
{
    enum { N = 70000, ROWS = 3 * N };
    (void)state;
    struct pair x = floats_new(ROWS, 7), y = floats_new(N, 8);
    int32_t *rows = malloc(N * sizeof *rows);
    assert_non_null(rows);
    for (int32_t i = 0; i < N; i++)
        rows[i] = ROWS - 1 - 3 * i;
    gpu->k->add_rows(stream, &(struct add_rows){x.gpu, y.gpu, rows, N, 1});
    cpu()->add_rows(cpu_stream(), &(struct add_rows){x.host, y.host, rows, N, 1});
    assert_same(&x, "x");
    pair_free(&y);
    free(rows);
}

/* Rows differ in nothing that the sums along them could round otherwise: dx is compared
 * as well. */
static void test_layernorm_bwd__of_many_rows_has_its_chunks_in_order(void **state)
{
    enum { N = 33000, C = 1 };
    (void)state;
    struct pair dx = floats_new(N, 9), dy = floats_new(N, 10), x = floats_new(N, 11);
    struct pair g = floats_new(C, 12), mean = floats_new(N, 13), rstd = floats_new(N, 14);
    struct pair dg = floats_new(C, 15), db = floats_new(C, 16);
    struct pair partial = floats_new(kernel_partials(N, 2 * C), 17);
    struct layernorm_bwd ln = {dx.gpu,   dg.gpu,   db.gpu,      dy.gpu, x.gpu, g.gpu,
                               mean.gpu, rstd.gpu, partial.gpu, N,      C};
    gpu->k->layernorm_bwd(stream, &ln);
    struct layernorm_bwd of_host = {dx.host,      dg.host, db.host,   dy.host,
                                    x.host,       g.host,  mean.host, rstd.host,
                                    partial.host, N,       C};
    cpu()->layernorm_bwd(cpu_stream(), &of_host);
    assert_same(&dx, "dx");
    assert_same(&dg, "dg");
    assert_same(&db, "db");
    struct pair *rest[] = {&dy, &x, &g, &mean, &rstd, &partial};
    for (size_t i = 0; i < ARRAY_LEN(rest); i++)
        pair_free(rest[i]);
}

/* 16-bit numbers, since they have to be many: more chunks than are fetched at once. */
static void test_sum_squares__of_many_chunks_come_to_the_host(void **state)
{
    const int64_t n = 34 * 1000 * 1000 + 1, n_chunks = (n - 1) / KERNEL_SQUARE_CHUNK + 1;
    (void)state;
    struct pair x = pair_new((size_t)n * sizeof(uint16_t));
    double *got = malloc((size_t)n_chunks * sizeof *got);
    double *want = malloc((size_t)n_chunks * sizeof *want);
    assert_true(got && want);
    for (int64_t i = 0; i < n; i++)
        ((uint16_t *)x.host)[i] = (uint16_t)(i * 40503 % 0x7C00);
    device_copy(stream, x.gpu, x.host, x.bytes, COPY_TO_DEVICE);
    gpu->k->sum_squares(stream, &(struct sum_squares){got, x.gpu, DTYPE_F16, n});
    cpu()->sum_squares(cpu_stream(), &(struct sum_squares){want, x.host, DTYPE_F16, n});
    device_synchronize(stream);
    assert_memory_equal(got, want, (size_t)n_chunks * sizeof *got);
    pair_free(&x);
    free(got);
    free(want);
}

/* -- the rings between host and device ---------------------------------------------- */

#define RING_PART_BYTES ((size_t)256 << 10) // of a stream of messages, which has four

/* What was not waited for stays where it is, however much follows. */
static void test_downloads__wait_for_their_place(void **state)
{
    enum { LONG = 7, SHORT = 600, FLOATS = 50000 };
    struct stream *s = device_stream(gpu, STREAM_COMM);
    (void)state;
    struct pair x = floats_new(LONG * FLOATS, 34);
    float *got = malloc(x.bytes);
    assert_non_null(got);
    device_synchronize(stream);
    assert_int_equal(emulated_streams("eager"),
                     0); // so that the ring has no other reason
    for (int i = 0; i < LONG; i++)
        device_copy(s, got + i * FLOATS, (float *)x.gpu + i * FLOATS,
                    FLOATS * sizeof(float), COPY_TO_HOST);
    device_synchronize(s);
    assert_int_equal(emulated_streams("late"), 0);
    assert_memory_equal(got, x.host, x.bytes);
    memset(got, 0, x.bytes);
    for (int i = 0; i < SHORT; i++)
        device_copy(s, got + i, (float *)x.gpu + i, sizeof(float), COPY_TO_HOST);
    device_synchronize(s);
    assert_memory_equal(got, x.host, SHORT * sizeof(float));
    pair_free(&x);
    free(got);
}

/* An array that is asked for again is there, or comes again: kernels that wrote in its
 * place have left what the host knows of it. */
static void test_arrays__are_not_found_where_scratch_was(void **state)
{
    enum { ROWS = RING_PART_BYTES / (2 * sizeof(float)), N_ADDED = 10 };
    struct stream *s = device_stream(gpu, STREAM_COMM);
    int32_t rows[N_ADDED];
    float *got = malloc(ROWS * sizeof *got); // half a part of the ring
    (void)state;
    assert_non_null(got);
    struct pair x = floats_new(ROWS, 35), y = floats_new(ROWS, 36), g = floats_new(1, 37);
    struct pair partial = floats_new(kernel_partials(ROWS, 2), 38),
                sum = floats_new(16, 39);
    device_synchronize(stream);
    for (int32_t i = 0; i < N_ADDED; i++)
        rows[i] = N_ADDED - i;
    for (int turn = 0; turn < 2; turn++) {
        gpu->k->add_rows(s, &(struct add_rows){sum.gpu, x.gpu, rows, N_ADDED, 1});
        cpu()->add_rows(cpu_stream(),
                        &(struct add_rows){sum.host, x.host, rows, N_ADDED, 1});
        if (turn > 0)
            break;
        for (int i = 0; i < 7; i++) // to the end of the ring's last part
            device_copy(s, got, x.gpu, x.bytes, COPY_TO_HOST);
        gpu->k->layernorm_bwd(s, &(struct layernorm_bwd){.dx = y.gpu,
                                                         .dy = x.gpu,
                                                         .x = x.gpu,
                                                         .g = g.gpu,
                                                         .mean = x.gpu,
                                                         .rstd = x.gpu,
                                                         .partial = partial.gpu,
                                                         .N = ROWS,
                                                         .C = 1});
    }
    device_synchronize(s);
    assert_same(&sum, "rows that were added twice");
    free(got);
    struct pair *rest[] = {&x, &y, &g, &partial};
    for (size_t i = 0; i < ARRAY_LEN(rest); i++)
        pair_free(rest[i]);
}

/* -- ranks --------------------------------------------------------------------------- */

static void check_ranks(int n_parts, enum dtype dtype)
{
    enum { N = 1003, PARTS_MOST = 150 };
    const void *of_gpu[PARTS_MOST], *of_host[PARTS_MOST];
    struct pair all = floats_new(PARTS_MOST * N, 18), x = floats_new(N, 19);
    size_t row = N * dtype_bytes(dtype);
    if (dtype != DTYPE_F32) {
        struct pair stored = pair_new(PARTS_MOST * row);
        dtype_store(stored.host, all.host, dtype, PARTS_MOST * N);
        device_copy(stream, stored.gpu, stored.host, stored.bytes, COPY_TO_DEVICE);
        pair_free(&all);
        all = stored;
    }
    for (int p = 0; p < n_parts; p++) {
        of_gpu[p] = (char *)all.gpu + (size_t)p * row;
        of_host[p] = (char *)all.host + (size_t)p * row;
    }
    struct reduction r = {REDUCE_SUM, dtype, x.gpu, of_gpu, n_parts, N};
    gpu->k->reduce(stream, &r);
    r.x = x.host;
    r.parts = of_host;
    cpu()->reduce(cpu_stream(), &r);
    assert_same(&x, "sums over ranks");
    pair_free(&all);
}

static void test_reduce__has_room_for_any_number_of_ranks(void **state)
{
    static const int numbers[] = {1, 2, 63, 64, 65, 150};
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(numbers); i++) {
        check_ranks(numbers[i], DTYPE_F32);
        check_ranks(numbers[i], DTYPE_BF16);
    }
}

/* -- orders -------------------------------------------------------------------------- */

enum { SAMPLES = 2, S = 67, N = SAMPLES * S, C = 301 };

static void check_bits(const char *order)
{
    assert_int_equal(emulated_order(order), 0);
    struct pair y = floats_new(N * C, 20), x = floats_new(N * C, 21);
    struct pair dy = floats_new(N * C, 22), dx = floats_new(N * C, 23);
    struct pair b = floats_new(C, 24), db = floats_new(C, 25);
    struct pair partial = floats_new(kernel_partials(N, C), 26);
    struct dropout drop = dropout_init(0.1, 7, PHILOX_DROP_MLP_OUT, 1, 3, 5);
    drop.first_row = 9;
    struct activation_bwd act = {
        ACTIVATION_GELU_TANH, dx.gpu, y.gpu, db.gpu, dy.gpu, x.gpu, b.gpu,
        partial.gpu,          N,      C};
    gpu->k->activation_bwd(stream, &act);
    struct activation_bwd of_host = {
        ACTIVATION_GELU_TANH, dx.host, y.host, db.host, dy.host, x.host, b.host,
        partial.host,         N,       C};
    cpu()->activation_bwd(cpu_stream(), &of_host);
    struct residual r = {x.gpu, dy.gpu, y.gpu, b.gpu, SAMPLES, S, C, drop};
    gpu->k->bias_dropout_residual(stream, &r);
    struct residual r_host = {x.host, dy.host, y.host, b.host, SAMPLES, S, C, drop};
    cpu()->bias_dropout_residual(cpu_stream(), &r_host);
    assert_same(&dx, "dx of GELU");
    assert_same(&db, "db of GELU");
    assert_same(&y, "GELU");
    assert_same(&x, "a residual sum with dropout");
    pair_free(&dy);
    pair_free(&b);
    pair_free(&partial);
}

static void test_kernels__have_the_processor_s_bits_in_any_order_of_threads(void **state)
{
    (void)state;
    check_bits("forward");
    check_bits("reverse");
    check_bits("random:3");
}

/* -- addresses ------------------------------------------------------------------------ */

static void *at(void *memory, int64_t elements)
{
    return (float *)memory + elements;
}

/* Parts of tensors, as shards are: aligned to an element. */
static void test_kernels__take_tensors_that_begin_anywhere(void **state)
{
    enum { ELEMENTS = 1000, N_UPDATED = 497 };
    static const int steps[] = {1, 16, 17, 21}; // whose biases round otherwise in float
    struct adamw_rule rule = {.lr = 1e-3,
                              .beta1 = 0.9,
                              .beta2 = 0.999,
                              .epsilon = 1e-8,
                              .decay = 0.01,
                              .grad_scale = 0.5};
    (void)state;
    for (int64_t first = 0; first < 4; first++) {
        rule.bias1 = 1 - pow(rule.beta1, steps[first]);
        rule.bias2 = 1 - pow(rule.beta2, steps[first]);
        struct pair p = floats_new(ELEMENTS + 3, 28), m = floats_new(ELEMENTS + 3, 29);
        struct pair v = floats_new(ELEMENTS + 3, 30), half = floats_new(ELEMENTS + 3, 31);
        for (int64_t i = 0; i < ELEMENTS + 3; i++)
            ((float *)v.host)[i] = fabsf(((float *)v.host)[i]);
        device_copy(stream, v.gpu, v.host, v.bytes, COPY_TO_DEVICE);
        struct adamw u = {.rule = rule,
                          .master = at(p.gpu, first),
                          .param = (uint16_t *)half.gpu + first,
                          .param_dtype = DTYPE_F16,
                          .grad = at(half.gpu, N_UPDATED + first), // behind param
                          .exp_avg = at(m.gpu, first),
                          .exp_avg_sq = at(v.gpu, first),
                          .n = N_UPDATED};
        gpu->k->adamw(stream, &u);
        u.master = at(p.host, first);
        u.param = (uint16_t *)half.host + first;
        u.exp_avg = at(m.host, first);
        u.exp_avg_sq = at(v.host, first);
        u.grad = at(half.host, N_UPDATED + first);
        cpu()->adamw(cpu_stream(), &u);
        assert_same(&p, "parameters");
        assert_same(&m, "first moments");
        assert_same(&v, "second moments");
        assert_same(&half, "parameters of 16 bits");
    }
}

/* Columns behind a row are none of its own, though what lies there is taken for 0. */
static void test_xent_max_and_top__look_at_the_row_alone(void **state)
{
    (void)state;
    struct pair logits = pair_new(5 * sizeof(float)), top = pair_new(sizeof(float));
    struct pair column = pair_new(sizeof(int32_t));
    for (int c = 0; c < 5; c++)
        ((float *)logits.host)[c] = -1.0F - (float)c;
    *(float *)top.host = 0; // another part's
    *(int32_t *)column.host = -1;
    device_copy(stream, logits.gpu, logits.host, logits.bytes, COPY_TO_DEVICE);
    device_copy(stream, top.gpu, top.host, top.bytes, COPY_TO_DEVICE);
    gpu->k->xent_top(stream, &(struct xent){.column = column.gpu,
                                            .logits = logits.gpu,
                                            .row_max = top.gpu,
                                            .R = 1,
                                            .V = 5});
    assert_same(&column, "the column of a maximum that is not there");
    gpu->k->xent_max(
        stream, &(struct xent){.logits = logits.gpu, .row_max = top.gpu, .R = 1, .V = 5});
    *(float *)top.host = -1;
    assert_same(&top, "the maximum of a row");
    pair_free(&logits);
}

/* From where they are 0 to where they are cut: each has the processor's bits, which its
 * sum does not show. */
static void test_xent_exp__has_the_processor_s_exponentials(void **state)
{
    enum { V = 20001 };
    const int32_t behind = V; // another part's
    (void)state;
    struct pair logits = pair_new(V * sizeof(float)), top = pair_new(sizeof(float));
    struct pair sum = floats_new(1, 32), target = floats_new(1, 33);
    for (int c = 0; c < V; c++)
        ((float *)logits.host)[c] = -95.0F + (float)c * 0.01F;
    *(float *)top.host = 1;
    device_copy(stream, logits.gpu, logits.host, logits.bytes, COPY_TO_DEVICE);
    device_copy(stream, top.gpu, top.host, top.bytes, COPY_TO_DEVICE);
    struct xent x = {.logits = logits.gpu,
                     .row_max = top.gpu,
                     .row_sum = sum.gpu,
                     .target_logit = target.gpu,
                     .targets = &behind,
                     .R = 1,
                     .V = V};
    gpu->k->xent_exp(stream, &x);
    x.logits = logits.host;
    x.row_max = top.host;
    x.row_sum = sum.host;
    x.target_logit = target.host;
    cpu()->xent_exp(cpu_stream(), &x);
    assert_same(&logits, "exponentials");
    assert_same(&target, "the logit of a target that is not there");
    pair_free(&sum);
    pair_free(&top);
}

/* -- nothing ------------------------------------------------------------------------- */

static void test_kernels__without_elements_are_no_launch(void **state)
{
    (void)state;
    struct pair x = floats_new(8, 27);
    struct weight w = {.data = x.gpu, .rows = 2, .cols = 2, .version = 1};
    struct linear_bwd_weight added = {&w, x.gpu, x.gpu, 2, true, 0};
    struct dropout none = dropout_none();
    int32_t id = 0;
    device_synchronize(stream);
    struct gpu_counters before = device_counters(gpu);
    gpu->k->embedding_fwd(stream, &(struct embedding){x.gpu, &w, &w, &id, &id, 0, 2, 2});
    gpu->k->embedding_bwd(
        stream, &(struct embedding_bwd){x.gpu, x.gpu, x.gpu, &id, &id, 0, 2, 2});
    gpu->k->layernorm_fwd(stream, &(struct layernorm){x.gpu, x.gpu, x.gpu, x.gpu, x.gpu,
                                                      x.gpu, 0, 2, 1e-5F});
    gpu->k->layernorm_bwd(stream,
                          &(struct layernorm_bwd){x.gpu, x.gpu, x.gpu, x.gpu, x.gpu,
                                                  x.gpu, x.gpu, x.gpu, x.gpu, 0, 2});
    gpu->k->linear_fwd(stream, &(struct linear){.w = &w, .x = x.gpu, .y = x.gpu, .N = 0});
    gpu->k->linear_bwd_weight(stream, &added);
    gpu->k->bias_grad(stream, &(struct bias_grad){x.gpu, x.gpu, x.gpu, 0, 2});
    gpu->k->activation_fwd(stream, &(struct activation_fwd){ACTIVATION_GELU_TANH, x.gpu,
                                                            x.gpu, x.gpu, 0, 2});
    gpu->k->bias_dropout_residual(
        stream, &(struct residual){x.gpu, x.gpu, x.gpu, x.gpu, 0, 2, 2, none});
    gpu->k->dropout_fwd(stream, &(struct dropped){x.gpu, x.gpu, 0, 2, 2, none});
    gpu->k->xent_max(stream, &(struct xent){.logits = x.gpu, .row_max = x.gpu, .V = 2});
    gpu->k->xent_exp(stream, &(struct xent){.logits = x.gpu, .targets = &id, .V = 2});
    gpu->k->reduce(stream, &(struct reduction){.x = x.gpu, .n_parts = 0});
    gpu->k->sum_squares(stream, &(struct sum_squares){NULL, x.gpu, DTYPE_F32, 0});
    gpu->k->copy(stream, &(struct floats){x.gpu, x.gpu, 0});
    gpu->k->add(stream, &(struct floats){x.gpu, x.gpu, 0});
    gpu->k->fill(stream, &(struct fill){x.gpu, 1, 0});
    gpu->k->add_rows(stream, &(struct add_rows){x.gpu, x.gpu, &id, 0, 2});
    device_synchronize(stream);
    struct gpu_counters after = device_counters(gpu);
    assert_int_equal(after.launches, before.launches);
    assert_int_equal(after.gemms, before.gemms);
    assert_int_equal(after.bytes_to_device, before.bytes_to_device);
    assert_int_equal(after.synchronisations, before.synchronisations + 1);
    added.accumulate = false;
    gpu->k->linear_bwd_weight(stream, &added);
    memset(x.host, 0, (size_t)(w.rows * w.cols) * sizeof(float));
    assert_same(&x, "a sum of nothing, and what nothing was written to");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_embedding_bwd__of_many_tokens_adds_in_their_order),
        cmocka_unit_test(test_embedding_fwd__of_many_tokens_is_the_processor_s),
        cmocka_unit_test(test_add_rows__of_many_rows_adds_each),
        cmocka_unit_test(test_layernorm_bwd__of_many_rows_has_its_chunks_in_order),
        cmocka_unit_test(test_sum_squares__of_many_chunks_come_to_the_host),
        cmocka_unit_test(test_downloads__wait_for_their_place),
        cmocka_unit_test(test_arrays__are_not_found_where_scratch_was),
        cmocka_unit_test(test_reduce__has_room_for_any_number_of_ranks),
        cmocka_unit_test(test_kernels__have_the_processor_s_bits_in_any_order_of_threads),
        cmocka_unit_test(test_kernels__take_tensors_that_begin_anywhere),
        cmocka_unit_test(test_xent_max_and_top__look_at_the_row_alone),
        cmocka_unit_test(test_xent_exp__has_the_processor_s_exponentials),
        cmocka_unit_test(test_kernels__without_elements_are_no_launch),
    };
    return cmocka_run_group_tests(tests, open_device, close_device);
}

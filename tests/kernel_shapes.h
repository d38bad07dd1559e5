/*
 * kernel_shapes - the shapes that kernels are tried on, in families, and how large a
 * buffer of a case is on one of them.
 */
#ifndef TESTS_KERNEL_SHAPES_H
#define TESTS_KERNEL_SHAPES_H

#ifndef TEST_SHAPE_STEP // an emulator takes every so many-th shape
#define TEST_SHAPE_STEP 1
#endif

#include "kernel_test.h"

#define VOCAB 17

struct shape {
    enum dtype dtype; // of the device
    int64_t B, S;
    int64_t C;    // hidden, vocabulary or elements, as the kernel has it
    int64_t A, D; // of attention; D: columns that a product gives
    int64_t A_kv; // heads of keys and values
    double rate;  // of dropout
    int64_t first_sample;
};

/* Elements of a buffer, of one sample if it is PER_SAMPLE. */
enum extent {
    SIZE_ONE,
    SIZE_S,
    SIZE_C,
    SIZE_D,
    SIZE_SC,
    SIZE_VC,
    SIZE_CD,
    SIZE_DY_ROW, // of a gradient whose rows may lie apart
    SIZE_AD,
    SIZE_SAD,
    SIZE_S3AD,
    SIZE_AS,
    SIZE_PARTIAL_C,
    SIZE_PARTIAL_2C,
    SIZE_SQUARES,
};
enum share { WHOLE, PER_SAMPLE };
enum role { END, IN, OUT, UPDATED, SCRATCH, SPOILED }; // SPOILED: read, and left anyhow
enum type { OF_FLOAT, OF_T, OF_INT, OF_DOUBLE };
enum filling { BELL, POSITIVE, TOKENS, POSITIONS, TARGETS, FIRST_KEYS, KEY_ENDS };

struct buffer {
    enum role role;
    enum type type;
    enum share share;
    enum extent extent;
    enum filling fill;
    double tolerance; // allowed: tolerance * (|want| + mean of |want|) + floor
    double floor;
    bool has_inner; // rounded to T on its way: a unit more of the mean in 16 bits
};

enum family { ROWS, PRODUCT, ATTENTION, LOSS, FLAT };

static const int64_t samples[][2] = {{1, 1},  {2, 1},  {5, 1}, {7, 9},
                                     {1, 64}, {65, 1}, {2, 65}}; // B, S
static const int64_t columns[] = {1, 3, 7, 16, 17, 127, 128, 129, 768, 1000};
static const int64_t lengths[] = {1, 2, 7, 64, 127, 128, 129, 200, 257, 300};
static const int64_t head_sizes[] = {1, 5, 16, 64, 80};
static const int64_t vocabularies[] = {1, 2, 17, 1000, 50304};
static const int64_t counts[] = {1, 2, 15, 17, 1000, 16383, 16384, 16385, 50001};
static const double rates[] = {0, 0.1, 0.5};
/* Rows, then k and columns of a product: around blocks of 256 and groups of 32 of k. */
static const int64_t products[][3] = {
    {1, 1, 1},    {1, 3, 2},     {2, 31, 15},   {3, 32, 16},  {5, 33, 17},
    {6, 64, 31},  {7, 255, 33},  {16, 256, 32}, {17, 257, 7}, {31, 65, 65},
    {32, 95, 48}, {33, 70, 110}, {64, 512, 40}, {65, 520, 5}, {130, 48, 130},
    {13, 1, 50},  {1, 700, 96},  {200, 17, 3},  {48, 300, 64}};

static inline int64_t shapes_of(enum family family)
{
    switch (family) {
    case ROWS:
        return (int64_t)(ARRAY_LEN(samples) * ARRAY_LEN(columns));
    case PRODUCT:
        return 2 * (int64_t)ARRAY_LEN(products);
    case ATTENTION:
        return (int64_t)(ARRAY_LEN(lengths) * ARRAY_LEN(head_sizes));
    case LOSS:
        return 3 * (int64_t)ARRAY_LEN(vocabularies);
    case FLAT:
        return (int64_t)ARRAY_LEN(counts);
    }
    return 0;
}

/* Shape i of a family. */
static inline struct shape shape_at(enum family family, int64_t i, enum dtype dtype)
{
    struct shape s = {.dtype = dtype,
                      .A = 1,
                      .A_kv = 1,
                      .D = 1,
                      .S = 1,
                      .rate = rates[i % 3],
                      .first_sample = 11};
    int64_t n_samples = ARRAY_LEN(samples), n_columns = ARRAY_LEN(columns);
    int64_t n_lengths = ARRAY_LEN(lengths), n_heads = ARRAY_LEN(head_sizes);
    int64_t n_vocabularies = ARRAY_LEN(vocabularies), n_counts = ARRAY_LEN(counts);
    switch (family) {
    case ROWS:
        s.B = samples[i % n_samples][0];
        s.S = samples[i % n_samples][1];
        s.C = columns[i / n_samples % n_columns];
        break;
    case PRODUCT: // each twice: with this and that
        s.B = products[i / 2][0];
        s.C = products[i / 2][1];
        s.D = products[i / 2][2];
        s.rate = rates[i % 2];
        break;
    case ATTENTION:
        s.S = lengths[i % n_lengths];
        s.D = head_sizes[i / n_lengths % n_heads];
        s.A = (i + i / n_lengths) % 2 ? 4 : 1; // every length and size meets both
        s.A_kv = s.A == 1 ? 1 : i % 3 == 0 ? 4 : i % 3; // 4, 1 or 2 of 4
        s.B = s.S < 128 ? 3 : 1;
        break;
    case LOSS:
        s.C = vocabularies[i % n_vocabularies];
        s.B = 1 + 2 * (i / n_vocabularies);
        break;
    case FLAT:
        s.B = 1 + i % 3;
        s.C = counts[i % n_counts];
        break;
    }
    return s;
}

/* Elements from row to row of a product's gradient. */
static inline int64_t dy_row_of(const struct shape *s)
{
    return s->rate > 0 ? 2 * s->D : s->D;
}

static inline int64_t extent_of(enum extent extent, const struct shape *s)
{
    switch (extent) {
    case SIZE_S:
        return s->S;
    case SIZE_C:
        return s->C;
    case SIZE_ONE:
        return 1;
    case SIZE_D:
        return s->D;
    case SIZE_SC:
        return s->S * s->C;
    case SIZE_VC:
        return VOCAB * s->C;
    case SIZE_CD:
        return s->C * s->D;
    case SIZE_DY_ROW:
        return dy_row_of(s);
    case SIZE_AD:
        return s->A * s->D;
    case SIZE_SAD:
        return s->S * s->A * s->D;
    case SIZE_S3AD:
        return s->S * (s->A + 2 * s->A_kv) * s->D;
    case SIZE_AS:
        return s->A * s->S;
    case SIZE_PARTIAL_C:
        return kernel_partials(s->B * s->S, s->C);
    case SIZE_PARTIAL_2C:
        return kernel_partials(s->B * s->S, 2 * s->C);
    case SIZE_SQUARES:
        return i64_round_up(s->B * s->S * s->C, KERNEL_SQUARE_CHUNK) /
               KERNEL_SQUARE_CHUNK;
    }
    return 0;
}

static inline int64_t buffer_elements(const struct buffer *b, const struct shape *s)
{
    return extent_of(b->extent, s) * (b->share == PER_SAMPLE ? s->B : 1);
}

static inline size_t element_bytes(const struct buffer *b, const struct shape *s)
{
    return b->type == OF_DOUBLE ? sizeof(double)
           : b->type == OF_T    ? dtype_bytes(s->dtype)
                                : sizeof(float);
}

#endif

/* The hash of tensor data: as documented, the same however it is cut, never missing what
 * it promises not to miss. */
#include "test.h"

#include "base/philox.h"
#include "ckpt/ckpt_format.h"

#define BLOCK_WORDS (CKPT_BLOCK_BYTES / 4)

static uint32_t mix(uint32_t x)
{
    x ^= x >> 16;
    x *= 0x85EBCA6B;
    x ^= x >> 13;
    x *= 0xC2B2AE35;
    x ^= x >> 16;
    return x;
}

/* The formula of the header, word by word. */
static uint64_t slow_hash(const uint32_t *words, int64_t n)
{
    uint64_t hash = 0;
    for (int64_t i = 0; i < n; i++) {
        uint32_t c = (uint32_t)(i / 4096), j = (uint32_t)(i % 4096);
        uint32_t k = 2 * mix(j + 1) + 1;
        uint64_t m = ((uint64_t)mix(2 * c + 1) << 32) + 2 * (uint64_t)mix(2 * c + 2) + 1;
        hash += m * k * words[i];
    }
    return hash;
}

static float *random_words(int64_t n)
{
    float *words = malloc((size_t)n * sizeof *words);
    assert_non_null(words);
    for (int64_t i = 0; i < n; i++) {
        uint32_t key[2] = {3, 4}, counter[4] = {(uint32_t)i, 0, 0, 0}, bits[4];
        philox_4x32(key, counter, bits);
        memcpy(words + i, bits, sizeof *words);
    }
    return words;
}

static void flip(float *words, int64_t i, uint32_t bits)
{
    uint32_t word;
    memcpy(&word, words + i, sizeof word);
    word ^= bits;
    memcpy(words + i, &word, sizeof word);
}

static void test_sum__is_the_formula(void **state)
{
    static const int64_t lengths[] = {0, 1, 3, 4095, 4096, 4097, 10000, BLOCK_WORDS};
    struct ckpt_sum_keys keys;
    float *words = random_words(BLOCK_WORDS);
    uint32_t *raw = malloc((size_t)CKPT_BLOCK_BYTES);
    memcpy(raw, words, (size_t)CKPT_BLOCK_BYTES);
    ckpt_sum_keys_init(&keys);
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++)
        assert_true(ckpt_sum(&keys, 0, words, lengths[i]) == slow_hash(raw, lengths[i]));
    free(raw);
    free(words);
    (void)state;
}

static void test_sum__parts_add_up_in_any_order(void **state)
{
    struct ckpt_sum_keys keys;
    int64_t n = 50001;
    float *words = random_words(n);
    ckpt_sum_keys_init(&keys);
    uint64_t whole = ckpt_sum(&keys, 0, words, n);
    for (int64_t part = 1; part < n; part = part * 3 + 1) {
        uint64_t sum = 0;
        for (int64_t i = (n - 1) / part * part; i >= 0; i -= part)
            sum += ckpt_sum(&keys, i, words + i, i64_min(part, n - i));
        assert_true(sum == whole);
    }
    free(words);
    (void)state;
}

static void test_sum__keys_are_odd_and_all_different(void **state)
{
    struct ckpt_sum_keys keys;
    ckpt_sum_keys_init(&keys);
    for (int i = 0; i < CKPT_SUM_KEYS; i++) {
        assert_true(keys.k[i] & 1);
        for (int j = 0; j < i; j++)
            assert_true(keys.k[i] != keys.k[j]);
    }
    (void)state;
}

static void test_sum__any_one_or_two_flipped_bits_change_it(void **state)
{
    struct ckpt_sum_keys keys;
    int64_t n = 9000;
    float *words = random_words(n);
    ckpt_sum_keys_init(&keys);
    uint64_t whole = ckpt_sum(&keys, 0, words, n);
    for (int64_t i = 0; i < n; i += 7)
        for (int bit = 0; bit < 32; bit += 5) {
            flip(words, i, 1u << bit);
            assert_true(ckpt_sum(&keys, 0, words, n) != whole);
            flip(words, i + 1, 1u << bit);
            assert_true(ckpt_sum(&keys, 0, words, n) != whole);
            flip(words, i, 1u << bit);
            flip(words, i + 1, 1u << bit);
        }
    assert_true(ckpt_sum(&keys, 0, words, n) == whole);
    free(words);
    (void)state;
}

static void test_sum__exchanged_and_moved_words_change_it(void **state)
{
    struct ckpt_sum_keys keys;
    int64_t n = 8192;
    float *words = random_words(2 * n);
    ckpt_sum_keys_init(&keys);
    uint64_t whole = ckpt_sum(&keys, 0, words, n);
    for (int64_t i = 0; i + 4096 < n; i += 11) {
        int64_t j = i + 1 + i % 4096; // in the same run, and in the next
        float swap = words[i];
        words[i] = words[j];
        words[j] = swap;
        assert_true(ckpt_sum(&keys, 0, words, n) != whole);
        swap = words[i];
        words[i] = words[j];
        words[j] = swap;
        assert_true(ckpt_sum(&keys, 0, words + i + 1, n) != whole);
    }
    free(words);
    (void)state;
}

static void test_sums__blocks_are_counted_and_records_bring_them_together(void **state)
{
    struct ckpt_sums whole, a, b;
    struct ckpt_sum_record records[8];
    struct error err;
    int64_t n = 2 * BLOCK_WORDS + 100;
    float *words = random_words(n);
    assert_int_equal(ckpt_n_blocks(n), 3);
    assert_int_equal(ckpt_n_blocks(BLOCK_WORDS), 1);
    assert_int_equal(ckpt_n_blocks(0), 0);
    assert_int_equal(ckpt_block_words(n, 2), 100);
    assert_ok(ckpt_sums_init(&whole, 4, &err), err);
    assert_ok(ckpt_sums_init(&a, 4, &err), err);
    assert_ok(ckpt_sums_init(&b, 4, &err), err);
    ckpt_sums_add(&whole, 1, 0, words, n);
    ckpt_sums_add(&a, 1, 0, words, 1000);
    ckpt_sums_add(&b, 1, 1000, words + 1000, n - 1000);
    assert_int_equal(ckpt_sums_records(&b, records), 3);
    for (int i = 0; i < 3; i++)
        ckpt_sums_add_record(&a, &records[i]);
    assert_memory_equal(a.hashes, whole.hashes, 4 * sizeof *a.hashes);
    assert_memory_equal(a.counts, whole.counts, 4 * sizeof *a.counts);
    assert_int_equal(whole.counts[0], 0);
    assert_int_equal(whole.counts[3], 100);
    ckpt_sums_release(&whole);
    ckpt_sums_release(&a);
    ckpt_sums_release(&b);
    free(words);
    (void)state;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sum__is_the_formula),
        cmocka_unit_test(test_sum__parts_add_up_in_any_order),
        cmocka_unit_test(test_sum__keys_are_odd_and_all_different),
        cmocka_unit_test(test_sum__any_one_or_two_flipped_bits_change_it),
        cmocka_unit_test(test_sum__exchanged_and_moved_words_change_it),
        cmocka_unit_test(test_sums__blocks_are_counted_and_records_bring_them_together),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

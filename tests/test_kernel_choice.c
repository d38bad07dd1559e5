/*
 * Which set of kernels computes, from what was found of a processor: plain ones, and ones
 * that announce what they cannot do. And what is found of this one.
 */
#include "test.h"

#include "device/device.h"
#include "device/kernel_sets.h"

#include <signal.h>

#define AVX2 (HAS_AVX2 | HAS_FMA | HAS_F16C | KEEPS_256_BITS)
#define AVX512                                                                           \
    (AVX2 | HAS_AVX512F | HAS_AVX512DQ | HAS_AVX512BW | HAS_AVX512VL | KEEPS_512_BITS)
#define AMX                                                                              \
    (AVX512 | HAS_AMX_TILE | HAS_AMX_BF16 | KEEPS_TILES | GRANTS_TILES | MULTIPLIES_TILES)

#ifdef __x86_64__

static void test_choice__is_the_fastest_that_runs(void **state)
{
    (void)state;
    static const struct {
        uint32_t facts;
        enum kernel_set f32, f16, bf16;
    } cases[] = {
        {0, KERNEL_SET_GENERIC, KERNEL_SET_GENERIC, KERNEL_SET_GENERIC},
        {AVX2, KERNEL_SET_AVX2, KERNEL_SET_AVX2, KERNEL_SET_AVX2},
        {AVX2 & ~(uint32_t)HAS_F16C, KERNEL_SET_GENERIC, KERNEL_SET_GENERIC,
         KERNEL_SET_GENERIC},
        {AVX512, KERNEL_SET_AVX512, KERNEL_SET_AVX512, KERNEL_SET_AVX512},
        {AVX512 & ~(uint32_t)KEEPS_512_BITS, KERNEL_SET_AVX2, KERNEL_SET_AVX2,
         KERNEL_SET_AVX2},
        {AMX, KERNEL_SET_AVX512, KERNEL_SET_AVX512, KERNEL_SET_AMX},
        {AMX & ~(uint32_t)HAS_AVX512BW, KERNEL_SET_AVX2, KERNEL_SET_AVX2,
         KERNEL_SET_AVX2},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        uint32_t facts = cases[i].facts;
        assert_int_equal(kernel_set_for(KERNEL_SET_AUTO, facts, DTYPE_F32), cases[i].f32);
        assert_int_equal(kernel_set_for(KERNEL_SET_AUTO, facts, DTYPE_F16), cases[i].f16);
        assert_int_equal(kernel_set_for(KERNEL_SET_AUTO, facts, DTYPE_BF16),
                         cases[i].bf16);
    }
}

static void test_choice__follows_what_is_wanted(void **state)
{
    (void)state;
    struct error err;
    for (int set = KERNEL_SET_AUTO; set < N_KERNEL_SETS; set++)
        assert_ok(kernel_set_check((enum kernel_set)set, AMX, &err), err);
    for (int set = KERNEL_SET_GENERIC; set < N_KERNEL_SETS; set++)
        assert_int_equal(kernel_set_for((enum kernel_set)set, AMX, DTYPE_BF16), set);
    assert_int_equal(kernel_set_for(KERNEL_SET_AMX, AMX, DTYPE_F32), KERNEL_SET_AVX512);
    assert_int_equal(kernel_set_for(KERNEL_SET_AMX, AMX, DTYPE_F16), KERNEL_SET_AVX512);
}

static void refuses(enum kernel_set wanted, uint32_t facts, const char *sentence)
{
    struct error err;
    assert_int_equal(kernel_set_check(wanted, facts, &err), -1);
    assert_int_equal(err.kind, ERROR_INPUT);
    assert_string_equal(err.text, sentence);
}

static void test_choice__of_what_is_lacking_is_refused(void **state)
{
    (void)state;
    refuses(KERNEL_SET_AVX2, 0,
            "cpu_kernels is 'avx2', and this processor lacks AVX2, FMA, F16C; here can "
            "be had: generic, and auto, which takes the fastest");
    refuses(KERNEL_SET_AVX512, AVX2,
            "cpu_kernels is 'avx512', and this processor lacks AVX512F, AVX512DQ, "
            "AVX512BW, AVX512VL; here can be had: generic, avx2, and auto, which takes "
            "the fastest");
    refuses(KERNEL_SET_AMX, AVX512,
            "cpu_kernels is 'amx', and this processor lacks AMX-TILE, AMX-BF16; here can "
            "be had: generic, avx2, avx512, and auto, which takes the fastest");
    refuses(KERNEL_SET_AVX512, AVX512 & ~(uint32_t)KEEPS_512_BITS,
            "cpu_kernels is 'avx512', and this processor lacks an operating system that "
            "keeps 512-bit registers; here can be had: generic, avx2, and auto, which "
            "takes the fastest");
}

/* What it announces and does not do: by `auto` it computes with avx512. */
static void test_choice__sees_through_a_processor_that_lies(void **state)
{
    (void)state;
    static const struct {
        uint32_t lacking;
        const char *words;
    } lies[] = {
        {KEEPS_TILES | GRANTS_TILES | MULTIPLIES_TILES,
         "an operating system that keeps tiles"},
        {GRANTS_TILES | MULTIPLIES_TILES,
         "the operating system's permission to use tiles"},
        {MULTIPLIES_TILES, "a tile unit that multiplies right: a trial failed"},
    };
    char words[KERNEL_SET_WORDS_BYTES];
    for (size_t i = 0; i < ARRAY_LEN(lies); i++) {
        uint32_t facts = AMX & ~lies[i].lacking;
        struct error err;
        assert_true(kernel_set_lies(facts, words));
        assert_string_equal(words, lies[i].words);
        assert_int_equal(kernel_set_for(KERNEL_SET_AUTO, facts, DTYPE_BF16),
                         KERNEL_SET_AVX512);
        assert_int_equal(kernel_set_check(KERNEL_SET_AMX, facts, &err), -1);
        assert_non_null(strstr(err.text, lies[i].words));
    }
    assert_false(kernel_set_lies(AMX, words));
    assert_false(kernel_set_lies(AVX512, words));
    assert_false(kernel_set_lies(0, words));
}

#else

static void test_choice__is_generic_on_other_processors(void **state)
{
    (void)state;
    struct error err;
    assert_int_equal(kernel_set_for(KERNEL_SET_AUTO, processor_facts(), DTYPE_BF16),
                     KERNEL_SET_GENERIC);
    assert_int_equal(kernel_set_check(KERNEL_SET_AVX2, AVX2, &err), -1);
    assert_string_equal(err.text,
                        "cpu_kernels is 'avx2', and this processor lacks the "
                        "instructions of x86-64; here can be had: generic, and auto, "
                        "which takes the fastest");
}

#endif

static void on_signal(int number)
{
    (void)number;
}

/* Also where there is no such unit: whatever the trial raises is caught, and who handled
 * those signals before does so again. */
static void test_trial__leaves_signals_as_they_were(void **state)
{
    (void)state;
    struct sigaction mine = {.sa_handler = on_signal}, now;
    uint32_t facts = processor_facts();
    sigemptyset(&mine.sa_mask);
    sigaction(SIGILL, &mine, NULL);
    sigaction(SIGSEGV, &mine, NULL);
    bool is_right = tile_trial_is_right();
    sigaction(SIGILL, NULL, &now);
    assert_ptr_equal(now.sa_handler, on_signal);
    sigaction(SIGSEGV, NULL, &now);
    assert_ptr_equal(now.sa_handler, on_signal);
#ifdef __x86_64__
    assert_int_equal(is_right, (facts & MULTIPLIES_TILES) != 0);
#else
    assert_true(is_right); // by the twin
    assert_int_equal(facts, 0);
#endif
}

static void test_use__changes_the_devices_there_are(void **state)
{
    (void)state;
    struct error err;
    const struct kernels *tables[16];
    int n = kernels_list(tables, 16);
    const struct device *dev = device_cpu(DTYPE_F32);
    for (int set = KERNEL_SET_GENERIC, i = 1; i < n && set < KERNEL_SET_AMX; set++, i++) {
        assert_ok(kernels_use((enum kernel_set)set, &err), err);
        assert_ptr_equal(dev->k, tables[i]);
        assert_ptr_equal(device_cpu(DTYPE_BF16)->k, tables[i]);
        assert_string_equal(dev->k->name, kernel_set_name((enum kernel_set)set));
    }
    assert_ok(kernels_use(KERNEL_SET_AUTO, &err), err);
    char words[KERNEL_SET_WORDS_BYTES];
    kernels_words(words);
    assert_int_equal(strncmp(words, dev->k->name, strlen(dev->k->name)), 0);
}

static void test_name__is_read_back(void **state)
{
    (void)state;
    struct error err;
    enum kernel_set set;
    for (int i = 0; i < N_KERNEL_SETS; i++) {
        assert_ok(kernel_set_parse(&set, kernel_set_name((enum kernel_set)i), &err), err);
        assert_int_equal(set, i);
    }
    assert_int_equal(kernel_set_parse(&set, "sse", &err), -1);
    assert_string_equal(err.text,
                        "--cpu_kernels is 'sse'; it must be one of auto generic "
                        "avx2 avx512 amx");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#ifdef __x86_64__
        cmocka_unit_test(test_choice__is_the_fastest_that_runs),
        cmocka_unit_test(test_choice__follows_what_is_wanted),
        cmocka_unit_test(test_choice__of_what_is_lacking_is_refused),
        cmocka_unit_test(test_choice__sees_through_a_processor_that_lies),
#else
        cmocka_unit_test(test_choice__is_generic_on_other_processors),
#endif
        cmocka_unit_test(test_trial__leaves_signals_as_they_were),
        cmocka_unit_test(test_use__changes_the_devices_there_are),
        cmocka_unit_test(test_name__is_read_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/*
 * How the plug-in for GPUs is found and refused: fake ones (fake_plugin.c), and the real
 * one where it was built, on a machine without a driver.
 */
#include "test.h"

#include "base/clock.h"
#include "device/plugin.h"

#include <unistd.h>

#define REMEDY "; -o device=cpu trains on the processor"

static void use_directory(const char *name)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", TEST_PLUGINS, name);
    assert_int_equal(setenv("TREFOIL_PLUGIN_DIR", path, 1), 0);
}

/* The sentence has these words, ends with what to do, and is told at once. */
static void assert_refused(const char *words)
{
    struct error err;
    double start = clock_seconds();
    assert_int_equal(plugin_check_gpu(1, DTYPE_F32, &err), -1);
    assert_true(clock_seconds() - start < 1);
    if (!strstr(err.text, words))
        fail_msg("'%s' does not say '%s'", err.text, words);
    size_t n = strlen(err.text), end = strlen(REMEDY);
    if (n < end || strcmp(err.text + n - end, REMEDY) != 0)
        fail_msg("'%s' does not say what to do", err.text);
    assert_int_equal(error_exit_code(&err), 2);
}

static void test_plugin__that_is_not_there(void **state)
{
    (void)state;
    char words[4096];
    use_directory("nowhere");
    assert_refused("needs a plug-in that is not there: '" TEST_PLUGINS
                   "/nowhere/libtrefoil_cuda.so'; `make cuda` builds it");
    plugin_words(words, sizeof words);
    assert_string_equal(words, "none");
}

/* Beside the program and in the place where installations have it. */
static void test_plugin__is_looked_for_around_the_program(void **state)
{
    (void)state;
    char program[4096], place[16384];
    ssize_t n = readlink("/proc/self/exe", program, sizeof program - 1);
    assert_true(n > 0);
    program[n] = '\0';
    *strrchr(program, '/') = '\0';
    assert_int_equal(unsetenv("TREFOIL_PLUGIN_DIR"), 0);
    snprintf(place, sizeof place,
             "'%s/libtrefoil_cuda.so', nor '%s/../lib/trefoil/libtrefoil_cuda.so'; ",
             program, program);
    assert_refused(place);
}

static void test_plugin__that_is_no_library(void **state)
{
    (void)state;
    char *directory = test_make_directory(), path[8192];
    snprintf(path, sizeof path, "%s/libtrefoil_cuda.so", directory);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    for (int i = 0; i < 64; i++)
        fputs("This is a text, not a library.\n", file);
    fclose(file);
    assert_int_equal(setenv("TREFOIL_PLUGIN_DIR", directory, 1), 0);
    assert_refused("libtrefoil_cuda.so: invalid ELF header");
    assert_int_equal(remove(path), 0);
    assert_int_equal(rmdir(directory), 0);
    free(directory);
}

static void test_plugin__that_lacks_a_library(void **state)
{
    (void)state;
    use_directory("needs");
    assert_refused("libfake_needed.so: cannot open shared object file");
}

static void test_plugin__without_the_symbol(void **state)
{
    (void)state;
    use_directory("empty");
    assert_refused("is no plug-in of Trefoil: it has no symbol 'trefoil_plugin'");
}

static void test_plugin__of_another_version(void **state)
{
    (void)state;
    use_directory("version");
    assert_refused("is of version 0.9.1, and this program of " TREFOIL_VERSION);
}

static void test_plugin__of_other_sources(void **state)
{
    (void)state;
    use_directory("abi");
    assert_refused("was built from other sources than this program");
}

#ifdef TEST_REAL_PLUGIN
/* Of the machine it is said why there is no GPU for us. */
static void test_plugin__of_this_build(void **state)
{
    (void)state;
    struct error err;
    assert_int_equal(setenv("TREFOIL_PLUGIN_DIR", TEST_REAL_PLUGIN, 1), 0);
    if (access("/proc/driver/nvidia/version", F_OK) == 0)
        skip();
    assert_refused("device: gpu needs NVIDIA's driver, and this machine has none");
    struct device dev = {.name = "gpu"};
    struct device_request request = {.local_rank = 0, .n_local = 1};
    assert_int_equal(plugin_open_gpu(&dev, &request, &err), -1);
    assert_non_null(strstr(err.text, "needs NVIDIA's driver"));
}
#endif

static void test_plugin__that_fits(void **state)
{
    (void)state;
    struct error err;
    struct device dev = {.name = "gpu"};
    struct device_request request = {.local_rank = 0, .n_local = 1};
    use_directory("good");
    assert_int_equal(plugin_check_gpu(3, DTYPE_BF16, &err), -1);
    assert_string_equal(err.text, "the fake plug-in was asked for 3 of bfloat16");
    assert_int_equal(plugin_open_gpu(&dev, &request, &err), -1);
    assert_string_equal(err.text, "the fake plug-in opens nothing");
}

int main(int argc, char **argv)
{
    // a plug-in that was opened stays: each that fits is a process of its own
    const struct CMUnitTest refused[] = {
        cmocka_unit_test(test_plugin__that_is_not_there),
        cmocka_unit_test(test_plugin__is_looked_for_around_the_program),
        cmocka_unit_test(test_plugin__that_is_no_library),
        cmocka_unit_test(test_plugin__that_lacks_a_library),
        cmocka_unit_test(test_plugin__without_the_symbol),
        cmocka_unit_test(test_plugin__of_another_version),
        cmocka_unit_test(test_plugin__of_other_sources),
        cmocka_unit_test(test_plugin__that_fits),
    };
#ifdef TEST_REAL_PLUGIN
    const struct CMUnitTest real[] = {cmocka_unit_test(test_plugin__of_this_build)};
    if (argc > 1 && strcmp(argv[1], "real") == 0)
        return cmocka_run_group_tests(real, NULL, NULL);
#else
    (void)argc;
    (void)argv;
#endif
    return cmocka_run_group_tests(refused, NULL, NULL);
}

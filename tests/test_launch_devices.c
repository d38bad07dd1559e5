/* The list of launch --devices. */
#include "test.h"

#include "launch/launch_devices.h"

#include <string.h>

static void test_launch_devices__are_indices_that_come_once(void **state)
{
    (void)state;
    static const struct {
        const char *devices;
        int64_t n;
        const char *words; // of the error
    } cases[] = {
        {"0", 1, NULL},
        {"0,1,2,3", 4, NULL},
        {"0, 1", 2, NULL},
        {"1", 1, NULL},
        {"1,3", 2, NULL},
        {" 3 ,1", 2, NULL},
        {"99999", 1, NULL},
        {"", -1, "number 1 of the list, '', is not an index"},
        {"0,,1", -1, "number 2 of the list, '', is not an index"},
        {"0,0", -1, "number 2 of the list, '0', is there twice"},
        {"1,3,01", -1, "number 3 of the list, '01', is there twice"},
        {"0,", -1, "number 2 of the list, '', is not an index"},
        {"0 1", -1, "'0 1', is not an index"},
        {"0,x", -1, "'x', is not an index"},
        {"0,-1", -1, "'-1', is not an index"},
        {"0;1", -1, "'0;1', is not an index"},
        {"100000", -1, "'100000', is not an index from 0 to 99999"},
        {"0,99999999999999999999", -1, "is not an index"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct error err;
        assert_int_equal(launch_devices_count(cases[i].devices, &err), cases[i].n);
        if (cases[i].words)
            assert_non_null(strstr(err.text, cases[i].words));
    }
}

static void test_launch_devices__count_among_those_that_are_visible(void **state)
{
    (void)state;
    static const struct {
        const char *devices, *visible, *list; // NULL: an error
    } cases[] = {
        {"0,1", NULL, "0,1"},    {" 3 , 1", NULL, "3,1"},
        {"1,0", "4,5,6", "5,4"}, {"2", "GPU-a, GPU-b ,MIG-c", "MIG-c"},
        {"1,3", "4,5,6", NULL},  {"0", "", NULL},
        {"1", "0,,2", NULL},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct error err;
        char list[64];
        int rc = launch_devices_visible(cases[i].devices, cases[i].visible, list,
                                        sizeof list, &err);
        assert_int_equal(rc, cases[i].list ? 0 : -1);
        if (cases[i].list)
            assert_string_equal(list, cases[i].list);
        else
            assert_non_null(strstr(err.text, "CUDA_VISIBLE_DEVICES is '"));
    }
    struct error err;
    char small[4];
    assert_int_equal(launch_devices_visible("10,11", NULL, small, sizeof small, &err),
                     -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_launch_devices__are_indices_that_come_once),
        cmocka_unit_test(test_launch_devices__count_among_those_that_are_visible),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

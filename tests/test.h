/*
 * test - what the test programs share, on top of cmocka.
 *
 * A test is a function test_subject__sentence(void **state); main() runs a list of them.
 */
#ifndef TESTS_TEST_H
#define TESTS_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka.h needs the four above before it. */
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Fails with both values and the allowed difference when |a - b| > allowed. */
#define assert_close(a, b, allowed)                                                      \
    do {                                                                                 \
        double a_ = (double)(a), b_ = (double)(b), d_ = (double)(allowed);               \
        if (!(fabs(a_ - b_) <= d_))                                                      \
            fail_msg("%s = %.9g, %s = %.9g, differ by %.3g, allowed %.3g", #a, a_, #b,   \
                     b_, fabs(a_ - b_), d_);                                             \
    } while (0)

/* Fails with err.text unless call returned 0. */
#define assert_ok(call, err)                                                             \
    do {                                                                                 \
        if ((call) != 0)                                                                 \
            fail_msg("%s: %s", #call, (err).text);                                       \
    } while (0)

/* A fresh directory below the system's temporary one; the caller frees the name after
 * test_remove_directory(). */
static inline char *test_make_directory(void)
{
    const char *tmp = getenv("TMPDIR");
    char *path = malloc(4096);
    assert_non_null(path);
    snprintf(path, 4096, "%s/trefoil-test-XXXXXX", tmp ? tmp : "/tmp");
    assert_non_null(mkdtemp(path));
    return path;
}

#endif

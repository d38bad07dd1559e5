/* Streams, events and memory of the emulated device: late, and closed to the host. */
#include "emulated/emulated_test.h"

#include <pthread.h>

static const char *const policies[] = {"eager",       "late",     "prefer:compute",
                                       "prefer:comm", "random:1", "random:2",
                                       "prefer:copy"};

#define N_FLOATS 64
static const struct launch_of doubling = {"gpu_test_double", gpu_test_double, 1, 64, 0};

static void launch_double(enum stream_name s, float *y, const float *x)
{
    struct vector_args a = {y, x, N_FLOATS};
    launch_on(s, doubling, &a, sizeof a);
}

/* x on the host, 2 x on one stream, 4 x on another, back on a third. */
static void test_streams__events_order_streams_whatever_the_policy(void **state)
{
    float *host = gpu_alloc_host(N_FLOATS * sizeof *host),
          *x = device_floats(NULL, N_FLOATS);
    float *y = device_floats(NULL, N_FLOATS), *z = device_floats(NULL, N_FLOATS);
    void *doubled = gpu_event_make(), *again = gpu_event_make();
    (void)state;
    for (size_t p = 0; p < ARRAY_LEN(policies); p++)
        for (int turn = 0; turn < 3; turn++) {
            assert_int_equal(emulated_streams(policies[p]), 0);
            for (int i = 0; i < N_FLOATS; i++)
                host[i] = (float)(i + turn);
            gpu_copy(STREAM_COMPUTE, x, host, N_FLOATS * sizeof *x, COPY_TO_DEVICE);
            launch_double(STREAM_COMPUTE, y, x);
            gpu_record(doubled, STREAM_COMPUTE);
            gpu_wait(STREAM_COMM, doubled);
            launch_double(STREAM_COMM, z, y);
            gpu_record(again, STREAM_COMM);
            gpu_wait(STREAM_COPY, again);
            gpu_copy(STREAM_COPY, host, z, N_FLOATS * sizeof *z, COPY_TO_HOST);
            gpu_synchronize(STREAM_COPY);
            for (int i = 0; i < N_FLOATS; i++)
                assert_close(host[i], 4 * (i + turn), 0);
        }
    gpu_event_free(doubled);
    gpu_event_free(again);
    gpu_free(x, N_FLOATS * sizeof *x);
    gpu_free(y, N_FLOATS * sizeof *y);
    gpu_free(z, N_FLOATS * sizeof *z);
    gpu_free_host(host, N_FLOATS * sizeof *host);
}

/* Without the event some policy finds it out. */
static void test_streams__a_missing_event_shows_in_the_results(void **state)
{
    float *host = gpu_alloc_host(N_FLOATS * sizeof *host),
          *x = device_floats(NULL, N_FLOATS);
    float *y = device_floats(NULL, N_FLOATS);
    int n_wrong = 0;
    (void)state;
    for (size_t p = 0; p < ARRAY_LEN(policies); p++) {
        assert_int_equal(emulated_streams(policies[p]), 0);
        for (int i = 0; i < N_FLOATS; i++)
            host[i] = (float)(i + 1 + (int)p);
        gpu_copy(STREAM_COMPUTE, x, host, N_FLOATS * sizeof *x, COPY_TO_DEVICE);
        gpu_synchronize(STREAM_COMPUTE);
        launch_double(STREAM_COMM, y, x);
        gpu_copy(STREAM_COPY, host, y, N_FLOATS * sizeof *y, COPY_TO_HOST);
        gpu_synchronize(STREAM_COPY);
        n_wrong += !(host[0] == 2 * (1 + (float)p));
        gpu_synchronize(STREAM_COMM);
    }
    assert_in_range(n_wrong, 2, ARRAY_LEN(policies) - 1);
    gpu_free(x, N_FLOATS * sizeof *x);
    gpu_free(y, N_FLOATS * sizeof *y);
    gpu_free_host(host, N_FLOATS * sizeof *host);
}

/* The wait is for what had been recorded then, not for what is recorded later. */
static void test_streams__an_event_is_recorded_again(void **state)
{
    float one = 1, two = 2, *x = device_floats(NULL, 1), *y = device_floats(NULL, 1);
    float result;
    void *event = gpu_event_make();
    (void)state;
    for (size_t p = 0; p < ARRAY_LEN(policies); p++) {
        assert_int_equal(emulated_streams(policies[p]), 0);
        gpu_fill(STREAM_COMPUTE, y, 0, sizeof *y);
        gpu_copy(STREAM_COMPUTE, x, &one, sizeof one, COPY_TO_DEVICE);
        gpu_record(event, STREAM_COMPUTE);
        gpu_wait(STREAM_COMM, event);
        gpu_copy(STREAM_COMM, y, x, sizeof *x, COPY_ON_DEVICE);
        gpu_record(event, STREAM_COMM);
        gpu_wait(STREAM_COMPUTE, event);
        gpu_copy(STREAM_COMPUTE, x, &two, sizeof two, COPY_TO_DEVICE);
        while (!gpu_happened(event))
            ;
        read_device(&result, y, sizeof result);
        assert_close(result, 1, 0);
    }
    gpu_event_free(event);
    gpu_free(x, sizeof *x);
    gpu_free(y, sizeof *y);
}

/* A host that changes pinned memory before the copy was made changes the copy; other
 * memory has been read. */
static void test_streams__pinned_memory_is_read_late(void **state)
{
    float *host = gpu_alloc_host(sizeof *host), other = 1, result;
    float *x = device_floats(NULL, 1);
    (void)state;
    assert_int_equal(emulated_streams("late"), 0);
    host[0] = 1;
    gpu_copy(STREAM_COMPUTE, x, host, sizeof *x, COPY_TO_DEVICE);
    host[0] = 2;
    read_device(&result, x, sizeof result);
    assert_close(result, 2, 0);
    gpu_copy(STREAM_COMPUTE, x, &other, sizeof *x, COPY_TO_DEVICE);
    other = 2;
    read_device(&result, x, sizeof result);
    assert_close(result, 1, 0);

    // what is to come is not there yet, nor what was there before; unless it is still
    // to be read
    gpu_copy(STREAM_COMPUTE, host, x, sizeof *x, COPY_TO_HOST);
    assert_true(isnan(host[0]));
    gpu_synchronize(STREAM_COMPUTE);
    assert_close(host[0], 1, 0);
    host[0] = 7;
    gpu_copy(STREAM_COMPUTE, x, host, sizeof *x, COPY_TO_DEVICE);
    gpu_copy(STREAM_COMPUTE, host, x, sizeof *x, COPY_TO_HOST);
    gpu_synchronize(STREAM_COMPUTE);
    assert_close(host[0], 7, 0);
    gpu_free(x, sizeof *x);
    gpu_free_host(host, sizeof *host);
}

static void test_streams__what_was_done_is_counted(void **state)
{
    struct gpu_counters before, after;
    float *x = device_floats(NULL, N_FLOATS), host[N_FLOATS] = {0};
    (void)state;
    gpu_counters(&before);
    gpu_copy(STREAM_COMPUTE, x, host, sizeof host, COPY_TO_DEVICE);
    launch_double(STREAM_COMPUTE, x, x);
    gpu_synchronize(STREAM_COMPUTE);
    read_device(host, x, sizeof host);
    gpu_counters(&after);
    assert_int_equal(after.launches - before.launches, 1);
    assert_int_equal(after.synchronisations - before.synchronisations, 2);
    assert_int_equal(after.bytes_to_device - before.bytes_to_device, sizeof host);
    assert_int_equal(after.bytes_to_host - before.bytes_to_host, sizeof host);
    gpu_free(x, N_FLOATS * sizeof *x);
}

/* A product in bfloat16, its weight changed by the host at once. */
static void test_streams__products_run_late_with_what_they_were_given(void **state)
{
    enum { ROWS = 3, I = 5, O = 4 };
    float wide[ROWS * I], result[ROWS * O], bias[O] = {1, 2, 3, 4};
    uint16_t x[ROWS * I], w[O * I];
    (void)state;
    for (int i = 0; i < ROWS * I; i++)
        x[i] = f32_to_bf16(wide[i] = (float)(i % 7) - 3);
    for (int i = 0; i < O * I; i++)
        w[i] = f32_to_bf16((float)(i % 5) / 2);
    void *dx = gpu_alloc(sizeof x), *dw = gpu_alloc(sizeof w);
    float *y = device_floats(NULL, ROWS * O), *db = device_floats(bias, O);
    gpu_copy(STREAM_COMPUTE, dx, x, sizeof x, COPY_TO_DEVICE);
    gpu_copy(STREAM_COMPUTE, dw, w, sizeof w, COPY_TO_DEVICE);
    struct weight weight = {.data = dw, .dtype = DTYPE_BF16, .rows = O, .cols = I};
    struct linear l = {
        .w = &weight, .x = dx, .y = y, .y_dtype = DTYPE_F32, .bias = db, .N = ROWS};
    gpu_linear_fwd(STREAM_COMPUTE, DTYPE_BF16, &l);
    weight.data = NULL;
    read_device(result, y, sizeof result);
    for (int r = 0; r < ROWS; r++)
        for (int o = 0; o < O; o++) {
            float sum = bias[o];
            for (int i = 0; i < I; i++)
                sum += wide[r * I + i] * ((float)((o * I + i) % 5) / 2);
            assert_close(result[r * O + o], sum, 0);
        }
    gpu_free(dx, sizeof x);
    gpu_free(dw, sizeof w);
    gpu_free(y, ROWS * O * sizeof *y);
    gpu_free(db, sizeof bias);
}

/* -- two threads --------------------------------------------------------------------- */

struct saver {
    const float *x;
    float *host;
    int n_wrong;
};

static void *save(void *context)
{
    struct saver *s = context;
    for (int i = 0; i < 200; i++) {
        gpu_copy(STREAM_COPY, s->host, s->x, N_FLOATS * sizeof *s->x, COPY_TO_HOST);
        gpu_synchronize(STREAM_COPY);
        s->n_wrong += !(s->host[N_FLOATS - 1] == 5);
    }
    return NULL;
}

static void test_streams__another_thread_copies_meanwhile(void **state)
{
    float fives[N_FLOATS], *host = gpu_alloc_host(N_FLOATS * sizeof *host),
                           *y = device_floats(NULL, N_FLOATS);
    (void)state;
    for (int i = 0; i < N_FLOATS; i++)
        fives[i] = 5;
    float *x = device_floats(fives, N_FLOATS);
    gpu_synchronize(STREAM_COMPUTE);
    assert_int_equal(emulated_streams("random:4"), 0);
    struct saver s = {x, host, 0};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, save, &s), 0);
    for (int i = 0; i < 200; i++) {
        launch_double(STREAM_COMPUTE, y, x);
        if (i % 3 == 0)
            gpu_synchronize(STREAM_COMPUTE);
    }
    pthread_join(thread, NULL);
    assert_int_equal(s.n_wrong, 0);
    gpu_free(x, N_FLOATS * sizeof *x);
    gpu_free(y, N_FLOATS * sizeof *y);
    gpu_free_host(host, N_FLOATS * sizeof *host);
}

/* -- what is told -------------------------------------------------------------------- */

static void touch_device(void)
{
    float *x = device_floats(NULL, N_FLOATS);
    gpu_fill(STREAM_COMPUTE, x, 0, N_FLOATS * sizeof *x);
    gpu_synchronize(STREAM_COMPUTE);
    *(volatile float *)(x + 3) = 1;
}

static void wait_for_nothing(void)
{
    gpu_wait(STREAM_COMM, gpu_event_make());
}

static void copy_too_much(void)
{
    float *x = device_floats(NULL, N_FLOATS), host[2 * N_FLOATS];
    read_device(host, x, sizeof host);
}

static void copy_wrong_way(void)
{
    float *x = device_floats(NULL, N_FLOATS), host[N_FLOATS];
    gpu_copy(STREAM_COMPUTE, host, x, sizeof host, COPY_TO_DEVICE);
}

static void run_past_pinned(void)
{
    float *host = gpu_alloc_host(256);
    volatile float *end = host + 64;
    *end = 1;
}

static void test_streams__what_is_wrong_is_told(void **state)
{
    (void)state;
    assert_dies(touch_device, "the host: byte 12 of 256 bytes of device memory was "
                              "touched outside of an operation");
    assert_dies(wait_for_nothing,
                "stream comm is to wait for an event that was never recorded");
    assert_dies(copy_too_much, "a copy from the device reads 512 bytes at ");
    assert_dies(copy_wrong_way, "a copy to the device writes 256 bytes at ");
    assert_dies(run_past_pinned, "");
}

/* -- options ------------------------------------------------------------------------- */

static int start_with(const char *options, int n_local, struct error *err)
{
    struct gpu_facts facts;
    setenv("TREFOIL_EMULATED", options, 1);
    int rc = gpu_start(0, n_local, &facts, err);
    unsetenv("TREFOIL_EMULATED");
    return rc;
}

static void test_streams__options_are_taken_or_refused(void **state)
{
    static const char *const bad[] = {"order=sideways", "streams=prefer:gemm",
                                      "memory=0",       "capability=new",
                                      "order",          "colour=blue"};
    struct error err;
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        assert_int_equal(start_with(bad[i], 1, &err), -1);
        assert_non_null(strstr(err.text, bad[i]));
    }
    assert_int_equal(start_with("gpus=2", 3, &err), -1);
    assert_non_null(strstr(err.text, "3 processes on this machine want a GPU each"));
    assert_ok(start_with("memory=1,gpus=2,order=reverse", 2, &err), err);
    assert_int_equal(gpu_memory_left(), 1000000);
    assert_null(gpu_alloc(1000001));
    float *x = gpu_alloc(400000);
    assert_non_null(x);
    assert_int_equal(gpu_memory_left(), 600000);
    gpu_free(x, 400000);
    assert_ok(start_with("gpus=2", 2, &err), err);
}

static void test_streams__counters_become_a_line(void **state)
{
    char *directory = test_make_directory(), path[4200], options[4300], line[512];
    struct error err;
    (void)state;
    snprintf(path, sizeof path, "%s/counters", directory);
    snprintf(options, sizeof options, "counters=%s", path);
    assert_ok(start_with(options, 1, &err), err);
    gpu_synchronize(STREAM_COMPUTE);
    gpu_stop();
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    assert_non_null(fgets(line, sizeof line, f));
    fclose(f);
    assert_non_null(strstr(line, "{\"local_rank\": 0, \"gpu\": 0, \"launches\": "));
    assert_non_null(strstr(line, "\"synchronisations\": "));
    unlink(path);
    rmdir(directory);
    free(directory);
    assert_ok(start_with("", 1, &err), err);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_streams__events_order_streams_whatever_the_policy),
        cmocka_unit_test(test_streams__a_missing_event_shows_in_the_results),
        cmocka_unit_test(test_streams__an_event_is_recorded_again),
        cmocka_unit_test(test_streams__pinned_memory_is_read_late),
        cmocka_unit_test(test_streams__what_was_done_is_counted),
        cmocka_unit_test(test_streams__products_run_late_with_what_they_were_given),
        cmocka_unit_test(test_streams__another_thread_copies_meanwhile),
        cmocka_unit_test(test_streams__what_is_wrong_is_told),
        cmocka_unit_test(test_streams__options_are_taken_or_refused),
        cmocka_unit_test(test_streams__counters_become_a_line),
    };
    return cmocka_run_group_tests(tests, start_device, stop_device);
}

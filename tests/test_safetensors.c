/* safetensors: round trips, conversions, and a table of files that must be refused. */
#include "test.h"

#include "base/fs.h"
#include "ckpt/safetensors.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

/* An unnamed file with the given header text, announced as `n_claimed` bytes (-1: as
 * many as there are), and n_data zero bytes after it. */
static int make_file(const char *json, int64_t n_claimed, size_t n_data)
{
    static const uint8_t zeros[4096];
    uint64_t n = n_claimed < 0 ? strlen(json) : (uint64_t)n_claimed;
    uint8_t length[8];
    for (int i = 0; i < 8; i++)
        length[i] = (uint8_t)(n >> (8 * i));
    int fd = memfd_create("safetensors", 0);
    assert_true(fd >= 0 && n_data <= sizeof zeros);
    assert_int_equal(fs_write_exact(fd, length, sizeof length), 0);
    assert_int_equal(fs_write_exact(fd, json, strlen(json)), 0);
    assert_int_equal(fs_write_exact(fd, zeros, n_data), 0);
    return fd;
}

static int open_header(struct safetensors *st, int fd, struct error *err)
{
    return safetensors_read_header(st, fd, "file", NULL, err);
}

static void test_safetensors__files_that_break_a_rule_are_refused(void **state)
{
    (void)state;
#define T(dtype, shape, offsets)                                                         \
    "{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}"
    static const struct {
        const char *json;
        int64_t n_claimed;
        size_t n_data;
        const char *says;
    } cases[] = {
        {"", 0, 0, "does not start"},
        {"", 1, 0, "claims 1 bytes"},
        {"{}", 3, 0, "claims 3 bytes"},
        {"{}", 100000001, 0, "claims 100000001"},
        {"{}", INT64_MAX, 0, "claims"},
        {" {}", -1, 0, "does not start"},
        {"[]", -1, 0, "does not start"},
        {"{", -1, 0, "byte"},
        {"{}x", -1, 0, "byte"},
        {"{}", -1, 1, "its tensors end at byte 0 of the data, which has 1"},
        {"{\"a\":1}", -1, 0, "object"},
        {"{\"a\":{}}", -1, 0, "dtype"},
        {"{\"a\":" T("F33", "[1]", "[0,4]") "}", -1, 4, "dtype"},
        {"{\"a\":{\"dtype\":7,\"shape\":[1],\"data_offsets\":[0,4]}}", -1, 4, "dtype"},
        {"{\"a\":" T("F32", "1", "[0,4]") "}", -1, 4, "shape"},
        {"{\"a\":" T("F32", "[-1]", "[0,4]") "}", -1, 4, "shape"},
        {"{\"a\":" T("F32", "[1.0]", "[0,4]") "}", -1, 4, "shape"},
        {"{\"a\":" T("F32", "[1,1,1,1,1,1,1,1,1]", "[0,4]") "}", -1, 4, "shape"},
        {"{\"a\":" T("F32", "[18446744073709551616]", "[0,4]") "}", -1, 4, "byte"},
        {"{\"a\":" T("F32", "[4294967296,4294967296]", "[0,0]") "}", -1, 0, "fit"},
        {"{\"a\":" T("F32", "[9223372036854775807]", "[0,4]") "}", -1, 4, "fit"},
        {"{\"a\":" T("F32", "[2]", "[0,4]") "}", -1, 4, "fit"},
        {"{\"a\":" T("F4", "[3]", "[0,1]") "}", -1, 1, "fit"},
        {"{\"a\":" T("F32", "[1]", "[0]") "}", -1, 4, "data_offsets"},
        {"{\"a\":" T("F32", "[1]", "[0,4,4]") "}", -1, 4, "data_offsets"},
        {"{\"a\":" T("F32", "[1]", "[4,0]") "}", -1, 4, "data_offsets"},
        {"{\"a\":" T("F32", "[1]", "[-4,0]") "}", -1, 4, "data_offsets"},
        {"{\"a\":" T("F32", "[1]", "[0,4.0]") "}", -1, 4, "data_offsets"},
        {"{\"a\":" T("F32", "[1]", "{\"0\":0,\"1\":4}") "}", -1, 4, "data_offsets"},
        {"{\"a\":" T("F32", "[1]", "[0,4]") "}", -1, 3, "which has 3"},
        {"{\"a\":" T("F32", "[1]", "[0,4]") "}", -1, 5, "which has 5"},
        {"{\"a\":" T("F32", "[1]", "[4,8]") "}", -1, 8, "hole"},
        {"{\"a\":" T("F32", "[1]", "[0,4]") ",\"b\":" T("F32", "[1]", "[8,12]") "}", -1,
         12, "hole"},
        {"{\"a\":" T("F32", "[2]", "[0,8]") ",\"b\":" T("F32", "[1]", "[4,8]") "}", -1, 8,
         "overlaps"},
        {"{\"a\":" T("F32", "[1]", "[0,4]") ",\"b\":" T("F32", "[1]", "[0,4]") "}", -1, 4,
         "overlaps"},
        {"{\"a\":" T("F32", "[1]", "[0,4]") ",\"a\":" T("F32", "[1]", "[4,8]") "}", -1, 8,
         "duplicate"},
        {"{\"a\\u0000b\":" T("F32", "[1]", "[0,4]") "}", -1, 4, "byte"},
        {"{\"__metadata__\":[]}", -1, 0, "not an object"},
        {"{\"__metadata__\":{\"a\":1}}", -1, 0, "not a string"},
    };
#undef T
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct safetensors st;
        struct error err = {.text = ""};
        int fd = make_file(cases[i].json, cases[i].n_claimed, cases[i].n_data);
        if (open_header(&st, fd, &err) == 0)
            fail_msg("case %zu '%s' was accepted", i, cases[i].json);
        if (!strstr(err.text, cases[i].says))
            fail_msg("case %zu: '%s' does not say '%s'", i, err.text, cases[i].says);
        assert_null(st.tensors);
        close(fd);
    }
}

static void
test_safetensors__short_and_overlong_files_and_directories_are_refused(void **state)
{
    (void)state;
    struct safetensors st;
    struct error err;
    int fd = memfd_create("short", 0);
    for (int n = 0; n < 8; n++) {
        assert_int_equal(open_header(&st, fd, &err), -1);
        assert_int_equal(fs_write_exact(fd, "", 1), 0);
    }
    close(fd);
    fd = make_file("{}", SAFETENSORS_MAX_HEADER_BYTES + 1, 0); // and all of it there
    assert_int_equal(ftruncate(fd, 2 * (off_t)SAFETENSORS_MAX_HEADER_BYTES), 0);
    assert_int_equal(open_header(&st, fd, &err), -1);
    assert_non_null(strstr(err.text, "the limit is"));
    close(fd);
    fd = open("/", O_RDONLY | O_DIRECTORY);
    assert_int_equal(open_header(&st, fd, &err), -1);
    assert_non_null(strstr(err.text, "not a regular file"));
    close(fd);
}

static void test_safetensors__odd_but_valid_files_are_read(void **state)
{
    (void)state;
    struct safetensors st;
    struct error err;
    /* N % 8 = 1, tensors out of order, a scalar, an empty one, packed 4-bit elements. */
    const char *json = "{\"z\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[9,13]},"
                       "\"e\":{\"dtype\":\"I64\",\"shape\":[3,0],\"data_offsets\":[9,9]},"
                       "\"a\":{\"dtype\":\"I64\",\"shape\":[1],\"data_offsets\":[1,9]},"
                       "\"__metadata__\":{\"format\":\"pt\"},"
                       "\"f\":{\"dtype\":\"F4\",\"shape\":[2],\"data_offsets\":[0,1]}}  ";
    int fd = make_file(json, -1, 13);
    assert_ok(open_header(&st, fd, &err), err);
    assert_int_equal(st.n_tensors, 4);
    assert_string_equal(st.tensors[0].name, "f");
    assert_string_equal(st.tensors[3].name, "z");
    const struct safetensors_tensor *z = safetensors_find(&st, "z");
    assert_non_null(z);
    assert_int_equal(z->n_dims, 0);
    assert_int_equal(z->n_elements, 1);
    assert_int_equal(safetensors_offset(&st, z), (int64_t)strlen(json) + 8 + 9);
    assert_null(safetensors_find(&st, "__metadata__"));
    float value = 1;
    assert_ok(safetensors_read_f32(&st, z, fd, "file", 0, 1, &value, &err), err);
    assert_true(value == 0);
    assert_int_equal(safetensors_read_f32(&st, safetensors_find(&st, "a"), fd, "f", 0, 1,
                                          &value, &err),
                     -1);
    assert_non_null(strstr(err.text, "I64"));
    assert_int_equal(safetensors_read_f32(&st, z, fd, "f", 1, 1, &value, &err), -1);
    safetensors_release(&st);
    close(fd);
}

static void test_safetensors__round_trip_is_bitwise(void **state)
{
    (void)state;
    enum { N = 300001 }; // more than one block of reading
    float *src = malloc(N * sizeof *src), *dst = malloc(N * sizeof *dst);
    for (int i = 0; i < N; i++) {
        uint32_t bits = (uint32_t)i * 2654435761u; // NaN payloads and infinities too
        memcpy(src + i, &bits, sizeof bits);
    }
    struct safetensors out = {0}, in;
    struct error err;
    char *header, *seen;
    assert_ok(safetensors_append(&out, "one", SAFETENSORS_F32, 1, (int64_t[]){1}, &err),
              err);
    assert_ok(safetensors_append(&out, "a \"b\" \xc3\xa9", SAFETENSORS_F32, 2,
                                 (int64_t[]){N - 1, 1}, &err),
              err);
    assert_ok(safetensors_encode_header(&out, &header, &err), err);
    assert_int_equal(out.header_bytes % 8, 0);
    assert_int_equal(out.data_bytes, N * 4);

    int fd = memfd_create("safetensors", 0);
    assert_int_equal(fs_write_exact(fd, header, (size_t)out.header_bytes), 0);
    assert_int_equal(fs_write_exact(fd, src, (size_t)out.data_bytes), 0);
    assert_ok(safetensors_read_header(&in, fd, "file", &seen, &err), err);
    assert_int_equal(in.header_bytes, out.header_bytes);
    assert_memory_equal(header, seen, (size_t)in.header_bytes);
    assert_int_equal(in.n_tensors, 2);
    assert_string_equal(in.tensors[1].name, "a \"b\" \xc3\xa9");
    assert_int_equal(in.tensors[1].shape[0], N - 1);
    assert_ok(
        safetensors_read_f32(&in, &in.tensors[1], fd, "file", 0, N - 1, dst + 1, &err),
        err);
    assert_memory_equal(dst + 1, src + 1, (N - 1) * sizeof *src);
    assert_ok(safetensors_read_f32(&in, &in.tensors[1], fd, "file", 17, 3, dst, &err),
              err);
    assert_memory_equal(dst, src + 18, 3 * sizeof *src);

    close(fd);
    safetensors_release(&in);
    safetensors_release(&out);
    free(header);
    free(seen);
    free(src);
    free(dst);
}

/* The definition of binary16, in double. */
static double half_value(unsigned bits)
{
    unsigned exponent = bits >> 10 & 31, fraction = bits & 1023;
    double magnitude =
        exponent == 0 ? ldexp(fraction, -24) : ldexp(1024 + fraction, (int)exponent - 25);
    return bits >> 15 ? -magnitude : magnitude;
}

enum { N_HALVES = 65536 };

/* All halves as a tensor of this type, read back. */
static void read_halves(enum safetensors_dtype dtype, float *dst)
{
    struct safetensors out = {0}, in;
    struct error err;
    char *header;
    uint16_t halves[N_HALVES];
    for (unsigned bits = 0; bits < N_HALVES; bits++)
        halves[bits] = (uint16_t)bits;
    int fd = memfd_create("halves", 0);
    assert_ok(safetensors_append(&out, "x", dtype, 1, (int64_t[]){N_HALVES}, &err), err);
    assert_ok(safetensors_encode_header(&out, &header, &err), err);
    assert_int_equal(fs_write_exact(fd, header, (size_t)out.header_bytes), 0);
    assert_int_equal(fs_write_exact(fd, halves, sizeof halves), 0);
    assert_ok(safetensors_read_header(&in, fd, "file", NULL, &err), err);
    assert_ok(safetensors_read_f32(&in, in.tensors, fd, "file", 0, N_HALVES, dst, &err),
              err);
    close(fd);
    safetensors_release(&in);
    safetensors_release(&out);
    free(header);
}

static void test_safetensors__every_half_and_bfloat_is_converted_exactly(void **state)
{
    (void)state;
    static float halves[N_HALVES], bfloats[N_HALVES];
    read_halves(SAFETENSORS_F16, halves);
    read_halves(SAFETENSORS_BF16, bfloats);
    for (unsigned bits = 0; bits < N_HALVES; bits++) {
        float half = halves[bits];
        uint32_t word;
        memcpy(&word, &bfloats[bits], sizeof word);
        assert_int_equal(word, bits << 16);
        memcpy(&word, &half, sizeof word);
        assert_int_equal(word >> 31, bits >> 15);
        if ((bits >> 10 & 31) < 31)
            assert_true((double)half == half_value(bits));
        else if ((bits & 1023) == 0)
            assert_true(isinf(half));
        else
            assert_true(isnan(half));
    }
}

static void test_safetensors__finds_each_of_many(void **state)
{
    (void)state;
    enum { N = 5000 };
    struct safetensors st;
    struct error err;
    size_t room = (size_t)N * 100 + 16, used = 1;
    char *json = malloc(room), name[32];
    json[0] = '{';
    for (int i = 0; i < N; i++) // in no order that sorts
        used += (size_t)snprintf(json + used, room - used,
                                 "%s\"t%d\":{\"dtype\":\"U8\",\"shape\":[1],"
                                 "\"data_offsets\":[%d,%d]}",
                                 i ? "," : "", i * 7919 % N, i, i + 1);
    json[used++] = '}';
    assert_ok(safetensors_parse(&st, json, used, N, "f", &err), err);
    for (int i = 0; i < N; i++) {
        snprintf(name, sizeof name, "t%d", i * 7919 % N);
        assert_ptr_equal(safetensors_find(&st, name), &st.tensors[i]);
    }
    assert_null(safetensors_find(&st, "t"));
    assert_null(safetensors_find(&st, "zzz"));
    safetensors_release(&st);
    free(json);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_safetensors__finds_each_of_many),
        cmocka_unit_test(test_safetensors__files_that_break_a_rule_are_refused),
        cmocka_unit_test(
            test_safetensors__short_and_overlong_files_and_directories_are_refused),
        cmocka_unit_test(test_safetensors__odd_but_valid_files_are_read),
        cmocka_unit_test(test_safetensors__round_trip_is_bitwise),
        cmocka_unit_test(test_safetensors__every_half_and_bfloat_is_converted_exactly),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#include "data/formats/dataset_index.h"
#include "data/samples/corpus.h"

#include "data_fixture.h"

static const int64_t lengths[] = {5, 1, 0, 7, 3};
enum { N_DOCS = ARRAY_LEN(lengths) };

static void check_documents(const struct corpus *c, int64_t n_docs)
{
    struct error err;
    int32_t tokens[16];
    assert_int_equal(corpus_n_documents(c), n_docs);
    for (int64_t d = 0; d < n_docs; d++) {
        int64_t n = lengths[d % N_DOCS];
        assert_int_equal(corpus_document_tokens(c, d), n);
        assert_ok(corpus_read(c, d, 0, n, tokens, &err), err);
        for (int64_t i = 0; i < n; i++)
            assert_int_equal(tokens[i], test_token(d, i));
        if (n > 2) {
            assert_ok(corpus_read(c, d, 2, 1, tokens, &err), err);
            assert_int_equal(tokens[0], test_token(d, 2));
        }
    }
}

static void test_corpus__a_directory_is_all_its_datasets_sorted(void **state)
{
    struct corpus *c;
    struct error err;
    test_write_dataset(test_path(*state, "b"), DATASET_MEGATRON, lengths, N_DOCS, N_DOCS);
    test_write_dataset(test_path(*state, "a"), DATASET_FLEETX, lengths, N_DOCS, 0);
    test_write_dataset(test_path(*state, "c"), DATASET_FLEETX, lengths, N_DOCS,
                       2 * N_DOCS);
    test_write_file(test_path(*state, "unrelated.txt"), "x", 1);
    assert_ok(corpus_open(&c, *state, &err), err);
    assert_int_equal(corpus_n_tokens(c), 48);
    check_documents(c, 3 * N_DOCS);
    corpus_close(c);
}

static void test_corpus__a_prefix_or_a_file_names_one_dataset(void **state)
{
    static const char *const names[] = {"m", "m.bin",     "m.idx",
                                        "f", "f_ids.npy", "f_idx.npz"};
    struct corpus *c;
    struct error err;
    test_write_dataset(test_path(*state, "m"), DATASET_MEGATRON, lengths, N_DOCS, 0);
    test_write_dataset(test_path(*state, "f"), DATASET_FLEETX, lengths, N_DOCS, 0);
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        assert_ok(corpus_open(&c, test_path(*state, names[i]), &err), err);
        check_documents(c, N_DOCS);
        corpus_close(c);
    }
}

static void copy_file(const char *from, const char *to)
{
    char *data;
    size_t n;
    struct error err;
    assert_ok(fs_read_all(from, 1 << 20, &data, &n, &err), err);
    test_write_file(to, data, n);
    free(data);
}

static void test_corpus__what_is_ambiguous_or_missing_is_refused(void **state)
{
    struct corpus *c;
    struct error err;
    const char *dir = *state;
    assert_int_equal(corpus_open(&c, "", &err), -1);
    assert_says(err, "input_dir is empty");
    assert_int_equal(corpus_open(&c, dir, &err), -1);
    assert_says(err, "no dataset in the directory");
    assert_says(err, "trefoil prepare");
    assert_int_equal(corpus_open(&c, test_path(dir, "nothing"), &err), -1);
    assert_says(err, "nothing_ids.npy");
    assert_says(err, "trefoil prepare");
    assert_int_equal(err.kind, ERROR_INPUT);

    test_write_dataset(test_path(dir, "x"), DATASET_MEGATRON, lengths, N_DOCS, 0);
    test_write_dataset(test_path(dir, "y"), DATASET_FLEETX, lengths, N_DOCS, 0);
    copy_file(test_path(dir, "y_ids.npy"), test_path(dir, "x_ids.npy"));
    assert_int_equal(corpus_open(&c, dir, &err), -1);
    assert_says(err, "half a dataset");
    copy_file(test_path(dir, "y_idx.npz"), test_path(dir, "x_idx.npz"));
    assert_int_equal(corpus_open(&c, dir, &err), -1);
    assert_says(err, "two formats");
    assert_int_equal(corpus_open(&c, test_path(dir, "x"), &err), -1);
    assert_says(err, "two formats");
    assert_ok(corpus_open(&c, test_path(dir, "x.bin"), &err), err); // no longer ambiguous
    corpus_close(c);
}

static void test_megatron__damage_is_refused_with_file_and_place(void **state)
{
    static const struct {
        const char *file;
        int64_t offset; // patch `n` bytes here, or
        int64_t cut_to; // cut the file to this size (negative: from its end)
        const char *bytes;
        size_t n;
        const char *says;
    } cases[] = {
        {"x.bin", 0, 0, NULL, 0, "ends at byte 0, after 0 tokens"},
        {"x.bin", 0, 31, NULL, 0, "31 bytes"},
        {"x.bin", 0, 30, NULL, 0, "ends at byte 30, after 15 tokens"},
        {"x.idx", 0, 0, NULL, 0, "does not start with"},
        {"x.idx", 0, 33, NULL, 0, "does not start with"},
        {"x.idx", 0, 34, NULL, 0, "truncated"},
        {"x.idx", 0, -1, NULL, 0, "truncated"},
        {"x.idx", 0, 0, "TNTIDX\0\0", 8, "TNTIDX"},
        {"x.idx", 8, 0, "\1", 1, "does not start with"},
        {"x.idx", 9, 0, "\2", 1, "version 2 at byte 9"},
        {"x.idx", 17, 0, "\7", 1, "floating point"},
        {"x.idx", 17, 0, "\77", 1, "byte 17 is 63"},
        {"x.idx", 17, 0, "\4", 1, "int32 tokens"},
        {"x.idx", 18, 0, "\6", 1, "bytes 18 and 26"},
        {"x.idx", 25, 0, "\377", 1, "truncated"},
        {"x.idx", 26, 0, "\0", 1, "byte 26 is 0"},
        {"x.idx", 33, 0, "\377", 1, "truncated"},
        {"x.idx", 34, 0, "\6", 1, "17 uint16 tokens"},
        {"x.idx", 37, 0, "\200", 1, "at byte 34"},
        {"x.idx", 34, 0, "\1\0\0\0\5", 5, "at byte 62"}, // two lengths exchanged
        {"x.idx", 54, 0, "\1", 1, "at byte 54"},         // first pointer not 0
        {"x.idx", 62, 0, "\377\377\377\377", 4, "at byte 62"},
        {"x.idx", 94, 0, "\1", 1, "at byte 94"},   // first boundary not 0
        {"x.idx", 134, 0, "\4", 1, "at byte 134"}, // last is not the count
        {"x.idx", 134, 0, "\6", 1, "at byte 134"},
        {"x.idx", 110, 0, "\0", 1, "at byte 110"}, // going down
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct corpus *c;
        struct error err = {.text = ""};
        const char *path = test_path(*state, cases[i].file);
        test_write_dataset(test_path(*state, "x"), DATASET_MEGATRON, lengths, N_DOCS, 0);
        if (cases[i].n > 0)
            test_patch(path, cases[i].offset, cases[i].bytes, cases[i].n);
        else
            assert_int_equal(truncate(path, cases[i].cut_to >= 0 ? cases[i].cut_to
                                                                 : test_file_bytes(path) +
                                                                       cases[i].cut_to),
                             0);
        if (corpus_open(&c, test_path(*state, "x"), &err) == 0)
            fail_msg("case %zu was accepted", i);
        assert_says(err, cases[i].says);
        assert_says(err, cases[i].file);
        assert_int_equal(err.kind, ERROR_INPUT);
    }
}

static void test_megatron__a_multimodal_index_is_refused(void **state)
{
    struct corpus *c;
    struct error err;
    test_write_dataset(test_path(*state, "x"), DATASET_MEGATRON, lengths, N_DOCS, 0);
    const char *path = test_path(*state, "x.idx");
    test_patch(path, test_file_bytes(path), "\0\0\0\0\0", N_DOCS);
    assert_int_equal(corpus_open(&c, test_path(*state, "x"), &err), -1);
    assert_says(err, "multimodal");
}

/* Two sentences a document: the document is the unit. */
static void test_megatron__sentences_of_a_document_stay_together(void **state)
{
    uint8_t file[MEGATRON_HEADER_BYTES + 2 * 12 + 2 * 8], bin[] = {7, 8, 9};
    struct corpus *c;
    struct error err;
    int32_t tokens[3];
    megatron_index_header(file, DISK_U8, 2, 1);
    disk_put_u32(file + 34, 1);
    disk_put_u32(file + 38, 2);
    disk_put_u64(file + 42, 0);
    disk_put_u64(file + 50, 1);
    disk_put_u64(file + 58, 0);
    disk_put_u64(file + 66, 2);
    test_write_file(test_path(*state, "x.idx"), file, sizeof file);
    test_write_file(test_path(*state, "x.bin"), bin, sizeof bin);
    assert_ok(corpus_open(&c, *state, &err), err);
    assert_int_equal(corpus_n_documents(c), 1);
    assert_ok(corpus_read(c, 0, 0, 3, tokens, &err), err);
    assert_int_equal(tokens[0], 7);
    assert_int_equal(tokens[2], 9);
    corpus_close(c);
}

static void test_fleetx__lengths_that_do_not_add_up_are_refused(void **state)
{
    static const int64_t others[] = {5, 1, 0, 7, 4};
    struct corpus *c;
    struct error err;
    test_write_dataset(test_path(*state, "x"), DATASET_FLEETX, lengths, N_DOCS, 0);
    test_write_dataset(test_path(*state, "y"), DATASET_FLEETX, others, N_DOCS, 0);
    copy_file(test_path(*state, "y_ids.npy"), test_path(*state, "x_ids.npy"));
    assert_int_equal(corpus_open(&c, test_path(*state, "x"), &err), -1);
    assert_says(err, "add up to 16");
    assert_says(err, "17 ids");
    for (int64_t size = 0; size < test_file_bytes(test_path(*state, "y_ids.npy"));
         size++) {
        copy_file(test_path(*state, "y_ids.npy"), test_path(*state, "x_ids.npy"));
        assert_int_equal(truncate(test_path(*state, "x_ids.npy"), size), 0);
        assert_int_equal(corpus_open(&c, test_path(*state, "x"), &err), -1);
        assert_says(err, "x_ids.npy");
    }
}

static void test_dataset_writer__small_vocabularies_take_16_bits(void **state)
{
    static const struct {
        int64_t vocab_size, token_bytes;
    } cases[] = {{257, 2}, {65499, 2}, {65500, 4}, {100000, 4}};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct dataset_writer *w;
        struct corpus *c;
        struct error err;
        struct dataset_meta meta = {.tokenizer = "other",
                                    .vocab_size = cases[i].vocab_size};
        int32_t token = (int32_t)cases[i].vocab_size - 1, back;
        const char *prefix = test_path(*state, "x");
        assert_ok(
            dataset_writer_open(&w, prefix, DATASET_MEGATRON, cases[i].vocab_size, &err),
            err);
        assert_ok(dataset_writer_append(w, &token, 1, &err), err);
        assert_ok(dataset_writer_end_document(w, &err), err);
        assert_ok(dataset_writer_commit(w, &meta, &err), err);
        dataset_writer_close(w);
        assert_int_equal(test_file_bytes(test_path(*state, "x.bin")),
                         cases[i].token_bytes);
        assert_ok(corpus_open(&c, prefix, &err), err);
        assert_ok(corpus_read(c, 0, 0, 1, &back, &err), err);
        assert_int_equal(back, token);
        corpus_close(c);
    }
}

static void test_corpus__a_token_outside_the_vocabulary_is_found(void **state)
{
    struct corpus *c;
    struct error err;
    const char *prefix = test_path(*state, "x");
    test_write_dataset(prefix, DATASET_MEGATRON, lengths, N_DOCS, 0);
    test_patch(test_path(*state, "x.bin"), 20, "\x2c\x01", 2); // token 10 := 300
    assert_ok(corpus_open(&c, prefix, &err), err);
    for (int round = 0; round < 2; round++) { // the second time from the cache
        assert_ok(corpus_check_tokens(c, 301, NULL, &err), err);
        assert_int_equal(corpus_check_tokens(c, 300, NULL, &err), -1);
        assert_says(err, "token 10 (at byte 20) has the id 300");
        assert_says(err, "x.bin");
        assert_int_equal(err.kind, ERROR_INPUT);
    }
    assert_true(fs_is_directory(test_path(*state, ".trefoil_cache")));
    corpus_close(c);
}

/* Every integer type: the largest id is found, and a negative one is outside. */
static void test_corpus__all_token_types_are_scanned(void **state)
{
    for (int type = 0; type < N_DISK_INTS; type++) {
        uint8_t index[MEGATRON_HEADER_BYTES + 12 + 16], bin[3 * 8] = {0};
        size_t size = disk_int_bytes((enum disk_int)type);
        struct corpus *c;
        struct error err;
        int32_t tokens[3];
        bin[0] = 3;
        bin[size] = 100;
        bin[2 * size] = 99;
        megatron_index_header(index, (enum disk_int)type, 1, 1);
        disk_put_u32(index + 34, 3);
        disk_put_u64(index + 38, 0);
        disk_put_u64(index + 46, 0);
        disk_put_u64(index + 54, 1);
        test_write_file(test_path(*state, "x.idx"), index, sizeof index);
        test_write_file(test_path(*state, "x.bin"), bin, 3 * size);
        assert_ok(corpus_open(&c, *state, &err), err);
        assert_ok(corpus_read(c, 0, 0, 3, tokens, &err), err);
        assert_int_equal(tokens[1], 100);
        assert_ok(corpus_check_tokens(c, 101, NULL, &err), err);
        assert_int_equal(corpus_check_tokens(c, 100, NULL, &err), -1);
        assert_says(err, "token 1");
        corpus_close(c);
        memset(bin + 2 * size, 0xFF, size);
        test_write_file(test_path(*state, "x.bin"), bin, 3 * size);
        assert_ok(corpus_open(&c, *state, &err), err);
        assert_int_equal(corpus_check_tokens(c, 200, NULL, &err), -1);
        assert_says(err, "token 2");
        corpus_close(c);
    }
}

/* The check is made once; a file that changes later is found where it is read. */
static void test_corpus__an_id_that_came_later_is_found_when_it_is_read(void **state)
{
    struct corpus *c;
    struct error err;
    int32_t tokens[16];
    test_write_dataset(test_path(*state, "x"), DATASET_MEGATRON, lengths, N_DOCS, 0);
    assert_ok(corpus_open(&c, *state, &err), err);
    assert_ok(corpus_check_tokens(c, 257, NULL, &err), err);
    assert_ok(corpus_read(c, 3, 0, 7, tokens, &err), err);
    int64_t at = corpus_range_tokens(c, 0, 3) + 4;
    test_patch(test_path(*state, "x.bin"), 2 * at, "\x01\x01", 2); // 257
    assert_ok(corpus_read(c, 3, 0, 4, tokens, &err), err);
    assert_int_equal(corpus_read(c, 3, 2, 5, tokens, &err), -1);
    char expected[64];
    snprintf(expected, sizeof expected, "token %lld (at byte %lld) has the id 257",
             (long long)at, (long long)(2 * at));
    assert_says(err, "x.bin'");
    assert_says(err, expected);
    assert_says(err, "prepare the text again");
    assert_int_equal(err.kind, ERROR_INPUT);
    corpus_close(c);
}

static void test_corpus__a_file_cut_while_in_use_is_an_error(void **state)
{
    struct corpus *c;
    struct error err;
    int32_t tokens[8];
    test_write_dataset(test_path(*state, "x"), DATASET_MEGATRON, lengths, N_DOCS, 0);
    assert_ok(corpus_open(&c, *state, &err), err);
    assert_int_equal(truncate(test_path(*state, "x.bin"), 14), 0);
    assert_int_equal(corpus_read(c, 3, 0, 7, tokens, &err), -1);
    assert_says(err, "cut short while in use");
    assert_int_equal(err.kind, ERROR_RUNTIME);
    corpus_close(c);
}

static void test_corpus__eos_of_meta_and_config_must_agree(void **state)
{
    struct corpus *c;
    struct error err;
    int64_t eos;
    test_write_dataset(test_path(*state, "x"), DATASET_MEGATRON, lengths, N_DOCS, 0);
    assert_ok(corpus_open(&c, *state, &err), err);
    assert_ok(corpus_resolve_eos(c, -1, &eos, &err), err);
    assert_int_equal(eos, 256);
    assert_ok(corpus_resolve_eos(c, 256, &eos, &err), err);
    assert_int_equal(corpus_resolve_eos(c, 50256, &eos, &err), -1);
    assert_says(err, "50256");
    corpus_close(c);
    assert_int_equal(unlink(test_path(*state, "x.meta.json")), 0);
    assert_ok(corpus_open(&c, *state, &err), err);
    assert_ok(corpus_resolve_eos(c, -1, &eos, &err), err);
    assert_int_equal(eos, -1);
    assert_ok(corpus_resolve_eos(c, 50256, &eos, &err), err);
    assert_int_equal(eos, 50256);
    corpus_close(c);
}

static void test_corpus__a_meta_file_of_another_dataset_is_refused(void **state)
{
    struct corpus *c;
    struct error err;
    const char *path = test_path(*state, "x.meta.json");
    test_write_dataset(test_path(*state, "x"), DATASET_MEGATRON, lengths, N_DOCS, 0);
    static const char other[] =
        "{\"tokenizer\": \"bytes\", \"vocab_size\": 257, "
        "\"eos_token_id\": 256, \"documents\": 4, \"tokens\": 16}";
    test_write_file(path, other, sizeof other - 1);
    assert_int_equal(corpus_open(&c, *state, &err), -1);
    assert_says(err, "describes 4 documents");
    static const char large[] =
        "{\"tokenizer\": \"bytes\", \"vocab_size\": 257, \"eos_token_id\": "
        "9223372036854775807, \"documents\": 5, \"tokens\": 16}";
    test_write_file(path, large, sizeof large - 1);
    assert_int_equal(corpus_open(&c, *state, &err), -1);
    assert_says(err,
                "\"eos_token_id\" must be there and be an integer from 0 to 2147483647");
    test_write_file(path, "{\"tokenizer\": ", 14);
    assert_int_equal(corpus_open(&c, *state, &err), -1);
    assert_says(err, "x.meta.json':1");
}

static void test_corpus__the_fingerprint_follows_the_content(void **state)
{
    static const int64_t others[] = {5, 1, 1, 6, 3};
    char a[CORPUS_FINGERPRINT_BYTES], b[CORPUS_FINGERPRINT_BYTES];
    struct corpus *c;
    struct error err;
    for (int i = 0; i < 3; i++) {
        test_write_dataset(test_path(*state, "x"), DATASET_MEGATRON,
                           i < 2 ? lengths : others, N_DOCS, 0);
        assert_ok(corpus_open(&c, *state, &err), err);
        corpus_fingerprint(c, i == 0 ? a : b);
        corpus_close(c);
        if (i == 1)
            assert_string_equal(a, b);
    }
    assert_string_not_equal(a, b);
    assert_int_equal(strlen(a), 32);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        data_test(test_corpus__a_directory_is_all_its_datasets_sorted),
        data_test(test_corpus__a_prefix_or_a_file_names_one_dataset),
        data_test(test_corpus__what_is_ambiguous_or_missing_is_refused),
        data_test(test_megatron__damage_is_refused_with_file_and_place),
        data_test(test_megatron__a_multimodal_index_is_refused),
        data_test(test_megatron__sentences_of_a_document_stay_together),
        data_test(test_fleetx__lengths_that_do_not_add_up_are_refused),
        data_test(test_dataset_writer__small_vocabularies_take_16_bits),
        data_test(test_corpus__a_token_outside_the_vocabulary_is_found),
        data_test(test_corpus__all_token_types_are_scanned),
        data_test(test_corpus__an_id_that_came_later_is_found_when_it_is_read),
        data_test(test_corpus__a_file_cut_while_in_use_is_an_error),
        data_test(test_corpus__eos_of_meta_and_config_must_agree),
        data_test(test_corpus__a_meta_file_of_another_dataset_is_refused),
        data_test(test_corpus__the_fingerprint_follows_the_content),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

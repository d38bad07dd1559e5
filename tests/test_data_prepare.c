#include "cli/cmd.h"

#include "data_fixture.h"

#include <signal.h>
#include <stdarg.h>
#include <sys/file.h>
#include <sys/wait.h>

enum { BYTES_EOS = 256 }; // of the tokenizer that is used when none is named

/* cmd_prepare with the given words, up to NULL. */
static int prepare(const char *word, ...)
{
    char *argv[24] = {(char *)(uintptr_t) "prepare"};
    int argc = 1;
    va_list words;
    va_start(words, word);
    for (const char *w = word; w; w = va_arg(words, const char *))
        argv[argc++] = (char *)(uintptr_t)w;
    va_end(words);
    return cmd_prepare(argc, argv);
}

static void write_text(const char *path, const char *text)
{
    test_write_file(path, text, strlen(text));
}

/* The documents of the dataset are exactly these texts, each with eos after it. */
static void check_documents(const char *input, const char *const *texts, int64_t n)
{
    struct corpus *c;
    struct error err;
    int64_t eos;
    assert_ok(corpus_open(&c, input, &err), err);
    assert_ok(corpus_resolve_eos(c, -1, &eos, &err), err);
    assert_int_equal(eos, BYTES_EOS);
    assert_ok(corpus_check_tokens(c, BYTES_EOS + 1, NULL, &err), err);
    assert_int_equal(corpus_n_documents(c), n);
    for (int64_t d = 0; d < n; d++) {
        int32_t tokens[64];
        char text[64];
        int64_t n_tokens = corpus_document_tokens(c, d);
        assert_int_equal(n_tokens, strlen(texts[d]) + 1);
        assert_ok(corpus_read(c, d, 0, n_tokens, tokens, &err), err);
        assert_int_equal(tokens[n_tokens - 1], eos);
        for (int64_t i = 0; i < n_tokens - 1; i++)
            text[i] = (char)tokens[i];
        assert_memory_equal(text, texts[d], strlen(texts[d]));
    }
    corpus_close(c);
}

static void check_no_files_left(const char *dir, int64_t n_expected)
{
    struct fs_names names;
    struct error err;
    assert_ok(fs_list(dir, &names, &err), err);
    if (names.n_names != n_expected)
        fail_msg("%lld files in '%s', the first is '%s'", (long long)names.n_names, dir,
                 names.names[0]);
    fs_names_release(&names);
}

static void test_prepare__blank_lines_separate_documents(void **state)
{
    static const struct {
        const char *text;
        const char *documents[4];
        int64_t n;
    } cases[] = {
        {"a\nb\n\nc\n", {"a\nb", "c"}, 2},
        {"\n\n  a  \n \t\r\n\n\nb", {"  a  ", "b"}, 2},
        {"a\r\nb\r\n\r\nc\r\n", {"a\r\nb\r", "c\r"}, 2},
        {"one", {"one"}, 1},
        {"a\n  \n", {"a"}, 1},
        {"a\n  ", {"a"}, 1},
        {"  \xff\xfe\n", {"  \xff\xfe"}, 1},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const char *in = test_path(*state, "in.txt"), *out = test_path(*state, "out/x");
        write_text(in, cases[i].text);
        assert_int_equal(prepare("--input", in, "--output", out, "--force", "--encoding",
                                 "bytes", NULL),
                         0);
        check_documents(out, cases[i].documents, cases[i].n);
    }
}

/* A line of more white space than is held back, and text over several chunks. */
static void test_prepare__long_lines_are_kept_whole(void **state)
{
    enum { N = 3000000 };
    struct corpus *c;
    struct error err;
    const char *in = test_path(*state, "in.txt"), *out = test_path(*state, "x");
    char *text = malloc(N);
    memset(text, 'x', N);
    memset(text, ' ', 10000);
    text[N - 2] = '\n';
    text[N - 1] = '\n';
    test_write_file(in, text, N);
    assert_int_equal(prepare("--input", in, "--output", out, NULL), 0);
    assert_ok(corpus_open(&c, out, &err), err);
    assert_int_equal(corpus_n_documents(c), 1);
    assert_int_equal(corpus_n_tokens(c), N - 2 + 1);
    corpus_close(c);
    free(text);
}

static void test_prepare__both_formats_hold_the_same(void **state)
{
    static const char *const texts[] = {"first", "second\nline", "third"};
    const char *a = test_path(*state, "in/a.txt"), *b = test_path(*state, "in/b.jsonl");
    struct error err;
    assert_ok(fs_make_directories(test_path(*state, "in/below"), &err), err);
    write_text(a, "first\n\nsecond\nline\n");
    write_text(b, "{\"text\": \"third\", \"big\": 123456789012345678901234567890}\n\n");
    const char *m = test_path(*state, "m/x"), *f = test_path(*state, "f/x");
    const char *dir = test_path(*state, "in");
    assert_int_equal(prepare("--input", a, b, "--output", m, NULL), 0);
    assert_int_equal(prepare("--input", dir, "--output", f, "--format", "fleetx", NULL),
                     0);
    check_documents(m, texts, 3);
    check_documents(f, texts, 3);
    check_no_files_left(test_path(*state, "m"), 4); // .bin .idx .meta.json, the cache
    check_no_files_left(test_path(*state, "f"), 4);
    assert_int_equal(prepare("--input", a, "--output", m, "--format", "fleetx", NULL), 2);
}

/* The output may lie among the inputs: a second run does not read the first one's. */
static void test_prepare__its_own_output_is_no_input(void **state)
{
    static const char *const texts[] = {"text"};
    const char *dir = *state, *out = test_path(*state, "x");
    write_text(test_path(*state, "in.txt"), "text");
    for (int i = 0; i < 2; i++) {
        assert_int_equal(prepare("--input", dir, "--output", out, "--force", NULL), 0);
        check_documents(out, texts, 1);
    }
    const char *other = test_path(*state, "y");
    assert_int_equal(prepare("--input", dir, "--output", other, NULL), 2);
}

static void test_prepare__a_file_can_be_one_document(void **state)
{
    static const char *const texts[] = {"a\n\nb\n", "c"};
    const char *a = test_path(*state, "a"), *b = test_path(*state, "b");
    const char *e = test_path(*state, "empty"), *out = test_path(*state, "out/x");
    write_text(a, texts[0]);
    write_text(b, texts[1]);
    write_text(e, "");
    assert_int_equal(prepare("--input", a, "--input", e, "--input", b, "--output", out,
                             "--doc_separator", "file", NULL),
                     0);
    check_documents(out, texts, 2);
}

static void test_prepare__bad_json_lines_are_skipped_or_fatal(void **state)
{
    static const char *const texts[] = {"good", "last\\"};
    const char *in = test_path(*state, "in.txt"), *out = test_path(*state, "out/x");
    write_text(in, "{\"t\": \"good\"}\n"
                   "not json\n"
                   "[1]\n"
                   "{\"other\": \"x\"}\n"
                   "{\"t\": 5}\n"
                   "{\"t\": \"\"}\n"
                   "{\"t\": \"\xff\"}\n"
                   "{\"t\": \"a\", \"t\": \"b\"}\n"
                   "{\"t\": \"last\\\\\"}");
    log_set_level(LOG_ERROR);
    assert_int_equal(
        prepare("--input", in, "--output", out, "--json", "--json_key", "t", NULL), 0);
    check_documents(out, texts, 2);
    const char *strict = test_path(*state, "strict/x");
    assert_int_equal(prepare("--input", in, "--output", strict, "--json", "--json_key",
                             "t", "--strict", NULL),
                     2);
    check_no_files_left(test_path(*state, "strict"), 0);
}

static void test_prepare__wrong_usage_is_refused_and_leaves_nothing(void **state)
{
    const char *in = test_path(*state, "in.txt"), *out = test_path(*state, "out/x");
    const char *npy = test_path(*state, "in.npy"), *dir = test_path(*state, "out/");
    write_text(in, "\n \n");
    write_text(npy, "x");
    assert_int_equal(prepare("--output", out, NULL), 2);
    assert_int_equal(prepare("--input", in, NULL), 2);
    assert_int_equal(prepare("--input", npy, "--output", out, NULL), 2);
    assert_int_equal(prepare("--input", "/nonexistent", "--output", out, NULL), 2);
    assert_int_equal(prepare("--input", in, "--output", dir, NULL), 2);
    assert_int_equal(
        prepare("--input", in, "--output", out, "--tokenizer", "words", NULL), 2);
    assert_int_equal(prepare("--input", in, "--output", out, "--format", "x", NULL), 2);
    assert_int_equal(prepare("--input", in, "--output", out, "--sttrict", NULL), 2);
    assert_int_equal(prepare("--input", in, "--output", out, "--threads", "-1", NULL), 2);
    assert_int_equal(prepare("--input", in, "--output", out, NULL), 2); // no documents
    check_no_files_left(test_path(*state, "out"), 0);
}

/* A stopped or failed run leaves the previous dataset as it was. */
static void test_prepare__a_dataset_is_replaced_only_by_force(void **state)
{
    const char *in = test_path(*state, "in.txt"), *out = test_path(*state, "x");
    const char *index = test_path(*state, "x.idx");
    test_write_file(in, "a\n", 2);
    assert_int_equal(prepare("--input", in, "--output", out, NULL), 0);
    test_write_file(in, "a\n\nb\n", 5);
    assert_int_equal(prepare("--input", in, "--output", out, NULL), 2);
    assert_int_equal(test_file_bytes(index), 34 + 4 + 8 + 16);
    assert_int_equal(prepare("--input", in, "--output", out, "--force", NULL), 0);
    assert_int_equal(test_file_bytes(index), 34 + 8 + 16 + 24);
}

static void test_prepare__a_stop_leaves_the_old_dataset(void **state)
{
    static const char *const texts[] = {"old"};
    const char *in = test_path(*state, "in.txt"), *out = test_path(*state, "out/x");
    const char *fifo = test_path(*state, "fifo");
    write_text(in, "old\n");
    assert_int_equal(prepare("--input", in, "--output", out, NULL), 0);
    check_documents(out, texts, 1);
    assert_int_equal(mkfifo(fifo, 0600), 0);
    int fd = open(fifo, O_RDWR); // so that the reader finds it open, and empty
    pid_t child = fork();
    if (child == 0)
        _exit(prepare("--input", in, fifo, "--output", out, "--force", NULL));
    const char *tmp = test_path(*state, "out/x.bin.tmp");
    while (!fs_exists(tmp)) // written only after signals are watched
        usleep(1000);
    kill(child, SIGINT);
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 3);
    close(fd);
    check_documents(out, texts, 1);
    check_no_files_left(test_path(*state, "out"), 4);
}

static void test_prepare__two_at_once_are_refused_and_leftovers_are_reused(void **state)
{
    static const char *const texts[] = {"new"};
    struct error err;
    const char *in = test_path(*state, "in.txt"), *out = test_path(*state, "out/x");
    const char *tmp = test_path(*state, "out/x.bin.tmp");
    write_text(in, "new\n");
    assert_ok(fs_make_directories(test_path(*state, "out"), &err), err);
    write_text(tmp, "left by a run that was killed");
    int fd = open(tmp, O_RDWR);
    assert_int_equal(flock(fd, LOCK_EX), 0);
    assert_int_equal(prepare("--input", in, "--output", out, "--force", NULL), 3);
    assert_true(fs_exists(tmp));
    close(fd);
    assert_int_equal(prepare("--input", in, "--output", out, NULL), 0);
    check_documents(out, texts, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        data_test(test_prepare__blank_lines_separate_documents),
        data_test(test_prepare__long_lines_are_kept_whole),
        data_test(test_prepare__both_formats_hold_the_same),
        data_test(test_prepare__its_own_output_is_no_input),
        data_test(test_prepare__a_file_can_be_one_document),
        data_test(test_prepare__bad_json_lines_are_skipped_or_fatal),
        data_test(test_prepare__wrong_usage_is_refused_and_leaves_nothing),
        data_test(test_prepare__a_dataset_is_replaced_only_by_force),
        data_test(test_prepare__a_stop_leaves_the_old_dataset),
        data_test(test_prepare__two_at_once_are_refused_and_leftovers_are_reused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* data_fixture - datasets for the tests of src/data. */
#ifndef TESTS_DATA_FIXTURE_H
#define TESTS_DATA_FIXTURE_H

#include "base/fs.h"
#include "base/log.h"
#include "config/config.h"
#include "data/formats/dataset_writer.h"
#include "data/samples/corpus.h"

#include "test.h"

#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

/* Each test gets a directory in *state, and its lines stay out of the log. */
static inline int test_data_setup(void **state)
{
    log_set_level(LOG_ERROR);
    *state = test_make_directory();
    return 0;
}

static inline int test_data_teardown(void **state)
{
    struct error err;
    int rc = fs_remove_tree(*state, &err);
    free(*state);
    return rc;
}

#define data_test(f)                                                                     \
    cmocka_unit_test_setup_teardown(f, test_data_setup, test_data_teardown)

/* "dir/name" in one of a few buffers that are reused in turn. */
static inline const char *test_path(const char *dir, const char *name)
{
    static char buffers[8][PATH_MAX];
    static int next;
    char *buf = buffers[next++ % 8];
    snprintf(buf, PATH_MAX, "%s/%s", dir, name);
    return buf;
}

/* Token i of document d: a function, so that tests can say what they expect. */
static inline int32_t test_token(int64_t d, int64_t i)
{
    return (int32_t)((d * 7919 + i * 31 + 1) % 250);
}

/* A dataset of documents first_doc, first_doc + 1, ... with the given lengths. */
static inline void test_write_dataset(const char *prefix, enum dataset_format format,
                                      const int64_t *lengths, int64_t n_docs,
                                      int64_t first_doc)
{
    struct dataset_writer *w;
    struct error err;
    struct dataset_meta meta = {
        .tokenizer = "bytes", .vocab_size = 257, .eos_token_id = 256};
    assert_ok(dataset_writer_open(&w, prefix, format, 257, &err), err);
    for (int64_t d = 0; d < n_docs; d++) {
        for (int64_t i = 0; i < lengths[d]; i++) {
            int32_t token = test_token(first_doc + d, i);
            assert_ok(dataset_writer_append(w, &token, 1, &err), err);
        }
        assert_ok(dataset_writer_end_document(w, &err), err);
    }
    assert_ok(dataset_writer_commit(w, &meta, &err), err);
    dataset_writer_close(w);
}

/* A configuration of which src/data uses something: all documents are for training, and
 * there is no input yet. */
static inline void test_data_config(struct config *cfg, int64_t S)
{
    *cfg = (struct config){
        .seed = 1024,
        .model.vocab_size = 257,
        .dataset = {.split = {1, 0, 0}, .max_seq_len = S, .eos_token_id = -1}};
}

static inline void test_add_input(struct config *cfg, const char *path)
{
    struct config_paths *list = &cfg->dataset.input_dir;
    size_t used = 0;
    for (int64_t i = 0; i < list->n_paths; i++)
        used += strlen(list->bytes + used) + 1;
    snprintf(list->bytes + used, sizeof list->bytes - used, "%s", path);
    list->n_paths++;
}

static inline void test_write_file(const char *path, const void *data, size_t n)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    assert_true(fd >= 0);
    assert_int_equal(fs_write_exact(fd, data, n), 0);
    close(fd);
}

static inline int64_t test_file_bytes(const char *path)
{
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    return st.st_size;
}

/* Overwrite n bytes at `offset`. */
static inline void test_patch(const char *path, int64_t offset, const void *data,
                              size_t n)
{
    int fd = open(path, O_WRONLY);
    assert_true(fd >= 0);
    assert_int_equal(fs_pwrite_exact(fd, data, n, offset), 0);
    close(fd);
}

/* Flip one bit of the file: a change whatever the byte was. */
static inline void test_flip(const char *path, int64_t offset)
{
    unsigned char byte;
    int fd = open(path, O_RDWR);
    assert_true(fd >= 0);
    assert_int_equal(fs_pread_exact(fd, &byte, 1, offset), 0);
    byte ^= 0x10;
    assert_int_equal(fs_pwrite_exact(fd, &byte, 1, offset), 0);
    close(fd);
}

/* Fails unless the sentence has `part` in it. */
#define assert_says(err, part)                                                           \
    do {                                                                                 \
        if (!strstr((err).text, (part)))                                                 \
            fail_msg("'%s' expected in: %s", (part), (err).text);                        \
    } while (0)

#endif

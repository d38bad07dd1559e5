/*
 * input_files - which text files a command reads, in which order.
 *
 * Inputs are taken in the order given. A directory stands for the regular files in it and
 * in the directories below, names in bytewise order at each level, so the order is the
 * same on every machine. Left out: names that begin with a dot, links to directories, and
 * what an earlier run of `trefoil prepare` with the same output has written. "-" is
 * standard input, once.
 */
#ifndef CLI_INPUT_FILES_H
#define CLI_INPUT_FILES_H

#include "base/error.h"
#include "base/fs.h"

struct input_files {
    struct fs_names files;
    double total_bytes; // of all files, as they are on disk
    bool has_pipes;     // so the total is not all there is to read
};

/* `output` is a dataset's prefix, or NULL. */
MUST_CHECK int input_files_init(struct input_files *f, char *const *inputs, int n_inputs,
                                const char *output, struct error *err);
void input_files_release(struct input_files *f); // all zero is fine

/* Does the name, without .gz or .zst, say JSON lines? */
bool input_files_is_json(const char *path);

/* Refuse what several processes cannot all read: standard input, pipes. */
MUST_CHECK int input_files_check_shared(const char *path, int n_processes,
                                        struct error *err);

/* How --help tells of --encoding, which is as data/text_encoding.h says. */
#define INPUT_FILES_ENCODING_HELP                                                        \
    "The encoding of texts that are not UTF-8, by iconv's name (GBK, BIG5, UTF-16, "     \
    "...); bytes: take them as they are."

#endif

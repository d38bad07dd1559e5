/*
 * text_files - which files of text a command reads, in which order.
 *
 * Inputs are taken in the order given. A directory stands for the regular files in it and
 * in the directories below, names in bytewise order at each level, so the order is the
 * same on every machine. Left out: names that begin with a dot, links to directories, and
 * what an earlier run of `trefoil prepare` with the same output has written. "-" is
 * standard input, once.
 */
#ifndef DATA_TEXT_TEXT_FILES_H
#define DATA_TEXT_TEXT_FILES_H

#include "base/error.h"
#include "base/fs.h"

struct text_files {
    struct fs_names files;
    double total_bytes; // of all files, as they are on disk
    bool has_pipes;     // so the total is not all there is to read
};

/* `output` is a dataset's prefix, or NULL. */
MUST_CHECK int text_files_init(struct text_files *f, char *const *inputs, int n_inputs,
                               const char *output, struct error *err);
void text_files_release(struct text_files *f); // all zero is fine

/* "'words.txt'", or "the 3 files from 'words.txt' on": for a sentence about all of them. */
void text_files_say(const struct text_files *f, char *buf, size_t size);

/* Does the name, without .gz or .zst, say JSON lines? */
bool text_files_is_json(const char *path);

/* Refuse what several processes cannot all read: standard input, pipes. */
MUST_CHECK int text_files_check_shared(const char *path, int n_processes,
                                       struct error *err);

/* Part of the name of a dataset that was made from a file of text. Such files are skipped
 * when a directory is read. */
#define TEXT_DATASET_MARK ".trefoil-"

/* How --help describes --encoding, which is as text_encoding.h says. */
#define TEXT_FILES_ENCODING_HELP                                                         \
    "The encoding of texts that are not UTF-8, by iconv's name (GBK, BIG5, UTF-16, "     \
    "...); bytes: use them as they are."

#endif

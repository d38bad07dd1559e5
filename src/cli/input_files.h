/*
 * input_files - which text files a command reads, in which order.
 *
 * Inputs are taken in the order given. A directory stands for the regular files in it and
 * in the directories below, names in bytewise order at each level, so the order is the
 * same on every machine. Left out: names that begin with a dot, links to directories, and
 * what an earlier run of `trefoil prepare` with the same output has written.
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

#endif

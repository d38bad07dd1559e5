/*
 * hf_files - the tensors of a Hugging Face model directory, in one file or several.
 */
#ifndef HUB_HF_FILES_H
#define HUB_HF_FILES_H

#include "base/error.h"
#include "ckpt/safetensors.h"
#include "hub/hf_names.h"

#include <limits.h>

struct hf_file {
    char path[PATH_MAX];
    int fd;
    struct safetensors st;
};

struct hf_files {
    char dir[PATH_MAX];
    struct hf_file *files; // owned
    int n_files;
    const char *prefix; // HF_PREFIX or "": what the names of GPT-2 begin with here
};

/* Open model.safetensors, or the files that model.safetensors.index.json lists, and check
 * their headers. hf_files_close() is to be called after a failure too. */
MUST_CHECK int hf_files_open(struct hf_files *hf, const char *dir, struct error *err);
void hf_files_close(struct hf_files *hf);

/* The tensor that `row` is, with its file in *file; NULL: there is none. */
const struct safetensors_tensor *hf_files_find(const struct hf_files *hf,
                                               const struct param *row,
                                               const struct hf_file **file);

/* The head that transformers keeps beside the embedding it is tied to; NULL: none. */
const struct safetensors_tensor *hf_files_find_head(const struct hf_files *hf,
                                                    const struct hf_file **file);

/* 0 if there is each parameter of `whole`, once, as floats of the right shape, and
 * nothing else but buffers and a head that is tied to the embedding. */
MUST_CHECK int hf_files_check(const struct hf_files *hf, const struct param_table *whole,
                              struct error *err);

#endif

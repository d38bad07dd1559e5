/*
 * dataset_list - which datasets `dataset.input_dir` means (see corpus.h for the rules).
 *
 * Only names are looked at. Half a dataset and one prefix in two formats are errors: to
 * skip either silently would train on something else than was meant.
 */
#ifndef DATA_FORMATS_DATASET_LIST_H
#define DATA_FORMATS_DATASET_LIST_H

#include "base/base.h"
#include "base/error.h"
#include "config/config.h"
#include "data/formats/dataset.h"

/* Part of the name of a dataset that `pretrain` made from a file of text beside it. Listing a
 * directory leaves such datasets out: the file was named for the run that made them. */
#define DATASET_OF_TEXT_MARK ".trefoil-"

struct dataset_list {
    struct dataset_list_entry {
        char *prefix; // with its directory
        enum dataset_format format;
        bool has_data, has_index;
    } * entries; // sorted by prefix, bytewise
    int64_t n_entries;
};

MUST_CHECK int dataset_list_find(struct dataset_list *list, const char *input,
                                 struct error *err);
void dataset_list_release(struct dataset_list *list);

/* Is a file of this name, with or without its directory, one of a dataset? */
bool dataset_list_is_file(const char *path);

/* Which tokenizer the data of a run was prepared with: its name or the full path of its
 * files, for tokenizer_open(), to `name`; "" when no
 * dataset of `inputs` says, or is on this machine any more. Several are an error. */
MUST_CHECK int dataset_list_tokenizer(const struct config_paths *inputs, char *name,
                                      size_t size, struct error *err);

/* The hash of that tokenizer when the data was prepared; "" when a dataset with a meta file
 * does not record it, or records another one than the first. */
MUST_CHECK int dataset_list_tokenizer_hash(const struct config_paths *inputs,
                                           char hash[DATASET_HASH_BYTES],
                                           struct error *err);

/* How large the vocabulary is and which token ends a document, by the meta files of a
 * run's data: a config_look_fn. */
MUST_CHECK int dataset_list_facts(const struct config_dataset *data,
                                  struct config_data_facts *facts, struct error *err);

#endif

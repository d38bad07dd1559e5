/*
 * text_dataset - files of JSON lines as the data of a run.
 *
 * A JSON-lines file in dataset.input_dir is turned into a dataset once, beside it or in
 * dataset.cache_dir, named FILE.trefoil-HASH. HASH is that of the tokenizer (and of the
 * place of the file, in cache_dir): datasets of several tokenizers do not replace each
 * other. The size and time of the file are recorded in the dataset, which is made again
 * when they have changed. One process at a time does this; others wait for it and use its
 * result.
 *
 * The tokenizer is dataset.tokenizer, or the directory gpt2 beside the file, or the
 * tokenizer's files beside it.
 */
#ifndef DATA_TEXT_TEXT_DATASET_H
#define DATA_TEXT_TEXT_DATASET_H

#include "base/base.h"
#include "base/error.h"
#include "config/config.h"

/* Facts of the data (config_look_fn). Files of JSON lines are prepared first where
 * necessary, and data->datasets names what the run reads. */
MUST_CHECK int text_dataset_prepare(struct config_dataset *data,
                                    struct config_data_facts *facts, struct error *err);

/* The same without writing anything: a file whose dataset is not there or out of date
 * stays in data->datasets, and a line of the log reports it. */
MUST_CHECK int text_dataset_look(struct config_dataset *data,
                                 struct config_data_facts *facts, struct error *err);

/* After text_dataset_look(): is a file still to be prepared? */
bool text_dataset_is_coming(const struct config_dataset *data);

#endif

/* dataset_tokenizer - which tokenizer the data of a run was prepared with. */
#ifndef DATA_FORMATS_DATASET_TOKENIZER_H
#define DATA_FORMATS_DATASET_TOKENIZER_H

#include "base/error.h"
#include "config/config.h"

/* Its name or the full path of its files, for tokenizer_open(), to `name`; "" when no
 * dataset of `inputs` says, or is on this machine any more. Several are an error. */
MUST_CHECK int dataset_tokenizer_find(const struct config_paths *inputs, char *name,
                                      size_t size, struct error *err);

#endif

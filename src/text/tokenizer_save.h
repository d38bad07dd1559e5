/* tokenizer_save - a tokenizer as the files of Hugging Face. */
#ifndef TEXT_TOKENIZER_SAVE_H
#define TEXT_TOKENIZER_SAVE_H

#include "text/tokenizer.h"

/* Write tokenizer.json, vocab.json, merges.txt, special_tokens_map.json and
 * tokenizer_config.json into the directory, which exists. */
MUST_CHECK int tokenizer_save(const struct tokenizer *t, const char *dir,
                              struct error *err);

#endif

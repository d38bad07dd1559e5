/*
 * eval_data - what `trefoil eval --data` names, as one stream of tokens: all documents of
 * token files one after the other; of a file of JSON the tokens that `trefoil prepare`
 * would write for it, so that both score the same; or the tokens of a text.
 */
#ifndef CLI_EVAL_DATA_H
#define CLI_EVAL_DATA_H

#include "base/base.h"
#include "base/error.h"
#include "data/samples/corpus.h"
#include "text/encoder.h"
#include "train/offline_eval.h"

struct eval_data_form {   // how a file that is not tokens is read
    const char *encoding; // as data/text_encoding.h says; NULL: UTF-8
    const char *json_key; // not NULL: it is JSON, whatever its name
};

struct eval_data {
    const char *name;         // borrowed
    struct corpus *corpus;    // NULL: a text or JSON
    struct token_list tokens; // of these
    int64_t n_words; // of a text, counted as the original does: between spaces; else 0
};

/* A file that is no part of a dataset by its name. */
bool eval_data_is_text(const char *name);

/* `tokenizer` is for texts. eval_data_close() is to be called after a failure too. */
MUST_CHECK int eval_data_open(struct eval_data *data, const char *name,
                              const struct eval_data_form *form,
                              const struct tokenizer *tokenizer, struct error *err);
void eval_data_close(struct eval_data *data);

/* Borrows `data`. */
struct eval_stream eval_data_stream(struct eval_data *data);

#endif

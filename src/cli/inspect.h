/*
 * inspect - what `trefoil inspect` finds, as JSON objects: one for each kind of thing.
 *
 * The text for people is printed from the same objects (inspect_print.c), so it cannot
 * say anything else than --json does. A file that cannot be read is an error; what is
 * merely worth knowing is a string in the object's "notes".
 *
 * Local to src/cli. Every returned object is the caller's, and NULL means *err is filled.
 */
#ifndef CLI_INSPECT_H
#define CLI_INSPECT_H

#include "base/base.h"
#include "base/error.h"

#include <jansson.h>
#include <stdio.h>

/* The state of a checkpoint; that of a damaged one is a sentence. */
#define INSPECT_WHOLE "whole"             // every byte was read
#define INSPECT_UNVERIFIED "not verified" // only what is cheap was looked at

struct inspect_options {
    const char *tokenizer; // decodes samples; NULL: the one the dataset names
    int64_t n_samples;     // documents shown of a dataset, tokens of a tokenizer
    int64_t n_tokens;      // shown of a document
    bool verifies;         // reads every byte of a checkpoint
};

/* -- kinds of things ------------------------------------------------------------------
 */

/* An array of the datasets that `input` means, by the rules of data/corpus.h. */
json_t *inspect_datasets(const char *input, const struct inspect_options *opt,
                         struct error *err);
/* The checkpoint in the directory `dir`. One that is damaged is an error that says so. */
json_t *inspect_checkpoint(const char *dir, const struct inspect_options *opt,
                           struct error *err);
/* *rows := an array with a row for each checkpoint in the directory `dir`, by name, empty
 * when there is none; *newest := the one of the highest step that is not damaged, or
 * NULL. With opt->verifies *n_damaged counts those that a run could be continued from
 * otherwise (NAME.damaged was set aside already); one that cannot be read now is an
 * error. */
MUST_CHECK int inspect_checkpoints(const char *dir, const struct inspect_options *opt,
                                   json_t **rows, json_t **newest, int64_t *n_damaged,
                                   struct error *err);
/* A file of tensors. */
json_t *inspect_safetensors(const char *path, struct error *err);
/* A GGUF file: what it says of itself, and its tensors. */
json_t *inspect_gguf(const char *path, struct error *err);
/* The tokenizer that `name` means to tokenizer_open(). */
json_t *inspect_tokenizer(const char *name, const struct inspect_options *opt,
                          struct error *err);

/* -- shared ---------------------------------------------------------------------------
 */

/* n bytes as a JSON string; what is not UTF-8 becomes U+FFFD. */
json_t *inspect_text(const char *bytes, size_t n);
/* Add a sentence to object["notes"]. */
void inspect_note(json_t *object, const char *fmt, ...) PRINTF_LIKE(2, 3);
/* object[key] := value, which is taken over. */
void inspect_set(json_t *object, const char *key, json_t *value);
void inspect_set_int(json_t *object, const char *key, int64_t value);
void inspect_append(json_t *array, json_t *value);

/* The report for people: names and values, and a table for each array of objects. */
void inspect_print(const json_t *report, FILE *out);

#endif

#include "data/formats/dataset_meta.h"

#include "base/fs.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_META_BYTES 65536

static int get_count(const json_t *root, const char *path, const char *key,
                     int64_t *value, struct error *err)
{
    const json_t *v = json_object_get(root, key);
    if (!json_is_integer(v) || json_integer_value(v) < 0)
        return error_set(err, ERROR_INPUT,
                         "'%s': \"%s\" must be there and be an integer, not negative; "
                         "remove the file if it does not belong to the dataset",
                         path, key);
    *value = json_integer_value(v);
    return 0;
}

static int take_fields(const json_t *root, const char *path, struct dataset_meta *meta,
                       struct error *err)
{
    const char *tokenizer = json_string_value(json_object_get(root, "tokenizer"));
    if (!tokenizer || strlen(tokenizer) >= sizeof meta->tokenizer)
        return error_set(err, ERROR_INPUT,
                         "'%s': \"tokenizer\" must be there and be a short string", path);
    snprintf(meta->tokenizer, sizeof meta->tokenizer, "%s", tokenizer);
    if (get_count(root, path, "vocab_size", &meta->vocab_size, err) ||
        get_count(root, path, "eos_token_id", &meta->eos_token_id, err) ||
        get_count(root, path, "documents", &meta->n_documents, err) ||
        get_count(root, path, "tokens", &meta->n_tokens, err))
        return -1;
    return 0;
}

int dataset_meta_read(const char *path, struct dataset_meta *meta, bool *is_there,
                      struct error *err)
{
    char *text = NULL;
    size_t n;
    json_error_t json_err;
    enum fs_type type;
    *meta = (struct dataset_meta){0};
    *is_there = false;
    if (fs_look(path, &type, err))
        return -1;
    if (type == FS_NOTHING)
        return 0;
    *is_there = true;
    if (fs_read_regular(path, MAX_META_BYTES, &text, &n, err))
        return -1;
    json_t *root = json_loadb(text, n, JSON_REJECT_DUPLICATES, &json_err);
    free(text);
    if (!root)
        return error_set(err, ERROR_INPUT, "'%s':%d:%d: %s", path, json_err.line,
                         json_err.column, json_err.text);
    int rc = take_fields(root, path, meta, err);
    json_decref(root);
    return rc;
}

int dataset_meta_write(const char *path, const struct dataset_meta *meta,
                       struct error *err)
{
    json_t *root = json_pack(
        "{s:s, s:I, s:I, s:I, s:I}", "tokenizer", meta->tokenizer, "vocab_size",
        (json_int_t)meta->vocab_size, "eos_token_id", (json_int_t)meta->eos_token_id,
        "documents", (json_int_t)meta->n_documents, "tokens", (json_int_t)meta->n_tokens);
    if (!root)
        return error_set(err, ERROR_INPUT,
                         "cannot write '%s': the path of the tokenizer, '%s', is not "
                         "UTF-8; rename it",
                         path, meta->tokenizer);
    char *text = json_dumps(root, JSON_PRESERVE_ORDER);
    char *line = NULL;
    int n = text ? asprintf(&line, "%s\n", text) : -1;
    int rc = n < 0 ? error_set(err, ERROR_RUNTIME, "out of memory")
                   : fs_write_atomic(path, line, (size_t)n, err);
    if (n >= 0)
        free(line);
    free(text);
    json_decref(root);
    return rc;
}

#include "cli/eval_data.h"

#include "base/fs.h"
#include "base/log.h"
#include "cli/input_files.h"
#include "data/formats/dataset_list.h"
#include "data/text/encode_pipeline.h"
#include "data/text/text_documents.h"

#include <stdlib.h>
#include <string.h>

bool eval_data_is_text(const char *name)
{
    if (strcmp(name, TEXT_STANDARD_INPUT) == 0)
        return true;
    return fs_exists(name) && !fs_is_directory(name) && !dataset_list_is_part(name);
}

/* -- texts --------------------------------------------------------------------------- */

/* Pieces between single spaces, white space at the ends left out. */
static int64_t count_words(const char *text, size_t n)
{
    static const char spaces[] = " \t\n\v\f\r";
    int64_t n_words = 1;
    while (n > 0 && memchr(spaces, text[n - 1], sizeof spaces - 1))
        n--;
    while (n > 0 && memchr(spaces, text[0], sizeof spaces - 1)) {
        text++;
        n--;
    }
    for (size_t i = 0; i < n; i++)
        n_words += text[i] == ' ';
    return n > 0 ? n_words : 0;
}

static int open_text(struct eval_data *data, const struct eval_data_form *form,
                     const struct tokenizer *tokenizer, struct error *err)
{
    struct text_list list = {0};
    struct encoder *encoder = NULL;
    int rc = -1;
    if (text_list_read(&list, data->name, TEXT_LIST_WHOLE, form->encoding, NULL, err) ||
        encoder_open(&encoder, tokenizer, err))
        goto done;
    const struct text_list_item *whole = &list.items[0];
    data->n_words = count_words(whole->text, whole->n);
    rc = encoder_encode(encoder, whole->text, whole->n, false, &data->tokens, err);
done:
    encoder_close(encoder);
    text_list_release(&list);
    return rc;
}

/* -- JSON: what prepare would write -------------------------------------------------- */

static int open_json(struct eval_data *data, const struct eval_data_form *form,
                     const struct tokenizer *tokenizer, struct error *err)
{
    struct token_sink sink = {.list = &data->tokens, .eos = tokenizer_eos(tokenizer)};
    struct bad_lines bad_lines = {.n = 0};
    const struct encode_settings settings = {
        .tokenizer = tokenizer,
        .json_key = form->json_key ? form->json_key : "text",
        .encoding = form->encoding,
        .n_threads = 1,
        .sink = &sink,
        .bad_lines = &bad_lines,
    };
    struct encode_pipeline *pipeline = NULL;
    if (sink.eos < 0)
        return error_set(err, ERROR_INPUT,
                         "the tokenizer '%s' has no token <|endoftext|>, which is to "
                         "stand between the documents of '%s'",
                         tokenizer_name(tokenizer), data->name);
    int rc = -1;
    if (encode_pipeline_open(&pipeline, &settings, err) ||
        encode_pipeline_read(pipeline, data->name, TEXT_JSON_LINES, err) ||
        encode_pipeline_finish(pipeline, err))
        goto done;
    rc = 0;
    if (data->tokens.n == 0)
        rc = error_set(err, ERROR_INPUT,
                       "'%s' has no documents (%lld bad lines); --json_key names the key "
                       "of the text",
                       text_source_name(data->name), (long long)bad_lines.n);
done:
    encode_pipeline_close(pipeline);
    return rc;
}

static int read_text(void *context, int64_t first, int64_t n, int32_t *tokens,
                     struct error *err)
{
    const struct eval_data *data = context;
    (void)err;
    memcpy(tokens, data->tokens.ids + first, (size_t)n * sizeof *tokens);
    return 0;
}

/* -- token files --------------------------------------------------------------------- */

/* The document that holds token `at` of all. */
static int64_t find_document(const struct corpus *c, int64_t at)
{
    int64_t low = 0, high = corpus_n_documents(c); // starts at or before, starts after
    while (high - low > 1) {
        int64_t middle = low + (high - low) / 2;
        if (corpus_range_tokens(c, 0, middle) <= at)
            low = middle;
        else
            high = middle;
    }
    return low;
}

static int read_corpus(void *context, int64_t first, int64_t n, int32_t *tokens,
                       struct error *err)
{
    const struct corpus *c = ((const struct eval_data *)context)->corpus;
    int64_t doc = find_document(c, first);
    int64_t offset = first - corpus_range_tokens(c, 0, doc);
    for (int64_t done = 0; done < n; doc++, offset = 0) {
        int64_t part = i64_min(n - done, corpus_document_tokens(c, doc) - offset);
        if (part > 0 && corpus_read(c, doc, offset, part, tokens + done, err))
            return -1;
        done += part;
    }
    return 0;
}

/* -- either -------------------------------------------------------------------------- */

int eval_data_open(struct eval_data *data, const char *name,
                   const struct eval_data_form *form, const struct tokenizer *tokenizer,
                   struct error *err)
{
    *data = (struct eval_data){.name = name};
    if (!eval_data_is_text(name))
        return corpus_open(&data->corpus, name, err);
    return form->json_key || input_files_is_json(name)
               ? open_json(data, form, tokenizer, err)
               : open_text(data, form, tokenizer, err);
}

void eval_data_close(struct eval_data *data)
{
    corpus_close(data->corpus);
    token_list_release(&data->tokens);
    *data = (struct eval_data){.name = NULL};
}

struct eval_stream eval_data_stream(struct eval_data *data)
{
    return (struct eval_stream){
        .name = data->name,
        .n_tokens = data->corpus ? corpus_n_tokens(data->corpus) : data->tokens.n,
        .read = data->corpus ? read_corpus : read_text,
        .context = data,
    };
}

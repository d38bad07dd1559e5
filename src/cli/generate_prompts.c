#include "cli/generate_prompts.h"

#include "cli/input_files.h"
#include "text/encoder.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int generate_prompts_open(struct generate_prompts *p, struct error *err)
{
    int n_given = (p->text != NULL) + (p->ids != NULL) + (p->path != NULL);
    if (n_given != 1)
        return error_set(err, ERROR_INPUT,
                         "trefoil generate: give one of --prompt and --prompt_ids, "
                         "or --prompts FILE");
    p->n_prompts = 1;
    if (!p->path)
        return 0;
    if (text_list_read(&p->list, p->path,
                       input_files_is_json(p->path) ? TEXT_LIST_JSON : TEXT_LIST_LINES,
                       p->encoding, "text", err))
        return -1;
    p->n_prompts = p->list.n_items;
    return 0;
}

void generate_prompts_release(struct generate_prompts *p)
{
    for (int64_t i = 0; i < p->n_texts; i++)
        free(p->texts[i].tokens);
    free(p->texts);
    text_list_release(&p->list);
    *p = (struct generate_prompts){.n_prompts = 0};
}

const char *generate_prompts_at(const struct generate_prompts *p, int64_t i, size_t *n)
{
    const char *one = p->text ? p->text : p->ids;
    *n = p->path ? p->list.items[i].n : strlen(one);
    return p->path ? p->list.items[i].text : one;
}

/* -- tokens -------------------------------------------------------------------------- */

/* Room for n ids in an empty list. */
static int reserve(struct token_list *list, int64_t n, struct error *err)
{
    list->ids = malloc((size_t)n * sizeof *list->ids);
    if (!list->ids)
        return error_set(err, ERROR_RUNTIME, "out of memory for %lld tokens",
                         (long long)n);
    list->capacity = n;
    return 0;
}

/* *list := the ids written in text; commas and blanks separate. */
static int parse_ids(struct token_list *list, const char *text, int64_t vocab_size,
                     struct error *err)
{
    if (reserve(list, (int64_t)strlen(text) + 1, err)) // an id has a digit
        return -1;
    while (*text) {
        char *end;
        if (strchr(" ,\t\n", *text)) {
            text++;
            continue;
        }
        errno = 0;
        long id = strtol(text, &end, 10);
        if (end == text || errno || id < 0 || id >= vocab_size)
            return error_set(
                err, ERROR_INPUT,
                "--prompt_ids: '%.20s' is no token id below the vocabulary's "
                "size %lld",
                text, (long long)vocab_size);
        list->ids[list->n++] = (int32_t)id;
        text = end;
    }
    if (list->n == 0)
        return error_set(err, ERROR_INPUT, "--prompt_ids holds no token id");
    return 0;
}

/* *list := the ids of the text; for an empty one, of what may stand before a document. */
static int encode_text(struct token_list *list, const char *text, size_t n,
                       struct encoder *encoder, const struct tokenizer *tokenizer,
                       int32_t eos, struct error *err)
{
    if (encoder_encode(encoder, text, n, false, list, err))
        return -1;
    if (list->n > 0)
        return 0;
    if (eos < 0)
        return error_set(err, ERROR_INPUT,
                         "a prompt is empty, and the tokenizer '%s' has no token that "
                         "could stand before a text; give a word to begin with",
                         tokenizer_name(tokenizer));
    token_list_release(list);
    *list = (struct token_list){.n = 0};
    if (reserve(list, 1, err))
        return -1;
    list->ids[list->n++] = eos;
    return 0;
}

int generate_prompts_encode(struct generate_prompts *p, int64_t data_rank,
                            int64_t data_size, const struct tokenizer *tokenizer,
                            int32_t eos, int64_t vocab_size, struct error *err)
{
    struct encoder *encoder = NULL;
    size_t n_most = (size_t)(p->n_prompts / data_size + 1);
    int rc = -1;
    p->texts = calloc(n_most, sizeof *p->texts);
    if (!p->texts)
        return error_set(err, ERROR_RUNTIME, "out of memory for %lld prompts",
                         (long long)p->n_prompts);
    if (tokenizer && encoder_open(&encoder, tokenizer, err))
        return -1;
    for (int64_t i = data_rank; i < p->n_prompts; i += data_size) {
        struct token_list list = {.n = 0};
        size_t n;
        const char *text = generate_prompts_at(p, i, &n);
        int failed = tokenizer ? encode_text(&list, text, n, encoder, tokenizer, eos, err)
                               : parse_ids(&list, text, vocab_size, err);
        p->texts[p->n_texts++] = (struct gpt_text){.index = i,
                                                   .tokens = list.ids,
                                                   .n_tokens = list.n,
                                                   .capacity = list.capacity,
                                                   .n_prompt = list.n};
        if (failed && p->path)
            error_prefix(err, "prompt %lld of '%s'", (long long)i + 1, p->path);
        if (failed)
            goto done;
    }
    rc = 0;
done:
    encoder_close(encoder);
    return rc;
}

#include "train/cloze_eval.h"

#include "base/log.h"

#include <stdlib.h>
#include <string.h>

/* -- words --------------------------------------------------------------------------- */

static bool is_space(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

bool cloze_split(const char *text, size_t n, size_t *context_first, size_t *context_n,
                 size_t *word_first, size_t *word_n)
{
    size_t end = n, first = 0;
    while (end > 0 && is_space(text[end - 1]))
        end--;
    size_t word = end;
    while (word > 0 && !is_space(text[word - 1]))
        word--;
    *word_first = word;
    *word_n = end - word;
    while (word > 0 && is_space(text[word - 1]))
        word--;
    while (first < word && is_space(text[first]))
        first++;
    *context_first = first;
    *context_n = word - first;
    return *word_n > 0 && *context_n > 0;
}

/* -- one text ------------------------------------------------------------------------ */

struct cloze {
    struct gpt_decoder *dec;
    struct encoder *encoder;
    struct token_list context, word;
};

static int encode(struct cloze *c, const struct text_list *list, int64_t i,
                  struct error *err)
{
    size_t context_first, context_n, word_first, word_n;
    const struct text_list_item *t = &list->items[i];
    c->context.n = c->word.n = 0;
    if (!cloze_split(t->text, t->n, &context_first, &context_n, &word_first, &word_n))
        return error_set(err, ERROR_INPUT,
                         "text %lld to complete has no word with another before it",
                         (long long)i + 1);
    char *word = malloc(word_n + 1);
    if (!word)
        return error_set(err, ERROR_RUNTIME, "out of memory for a word");
    word[0] = ' ';
    memcpy(word + 1, t->text + word_first, word_n);
    int rc = encoder_encode(c->encoder, t->text + context_first, context_n, false,
                            &c->context, err);
    if (rc == 0)
        rc = encoder_encode(c->encoder, word, word_n + 1, false, &c->word, err);
    free(word);
    if (rc == 0 && c->word.n > c->dec->gpt->dims.S)
        rc = error_set(err, ERROR_INPUT,
                       "the last word of text %lld has %lld tokens, more than the model "
                       "sees at once",
                       (long long)i + 1, (long long)c->word.n);
    return rc;
}

static int32_t likeliest(const float *logits, int64_t V)
{
    int64_t best = 0;
    for (int64_t i = 1; i < V; i++)
        if (logits[i] > logits[best])
            best = i;
    return (int32_t)best;
}

static bool is_right(struct cloze *c)
{
    struct gpt_decoder *dec = c->dec;
    int64_t room = dec->gpt->dims.S - (c->word.n - 1), V = dec->gpt->dims.V;
    int64_t n = i64_min(c->context.n, room);
    gpt_decoder_reset(dec);
    const float *logits = gpt_decoder_feed(dec, c->context.ids + c->context.n - n, n);
    for (int64_t i = 0; i < c->word.n; i++) {
        if (likeliest(logits, V) != c->word.ids[i])
            return false;
        if (i + 1 < c->word.n)
            logits = gpt_decoder_feed(dec, c->word.ids + i, 1);
    }
    return true;
}

/* -- all texts ----------------------------------------------------------------------- */

/* Every comm_size()-th text, so that long and short ones are shared out. */
static int run(struct cloze *c, const struct text_list *list, const struct comm *world,
               int64_t *n_correct, struct error *err)
{
    for (int64_t i = comm_rank(world); i < list->n_items; i += comm_size(world)) {
        if (encode(c, list, i, err))
            return -1;
        *n_correct += is_right(c);
        if (comm_rank(world) == 0)
            log_status("completed %lld of %lld texts", (long long)i + 1,
                       (long long)list->n_items);
    }
    log_status_clear();
    return 0;
}

int cloze_eval(int64_t *n_correct, struct gpt_decoder *dec,
               const struct tokenizer *tokenizer, const struct text_list *list,
               struct comm *world, struct error *err)
{
    struct cloze c = {.dec = dec};
    *n_correct = 0;
    int rc = encoder_open(&c.encoder, tokenizer, err);
    if (rc == 0)
        rc = run(&c, list, world, n_correct, err);
    encoder_close(c.encoder);
    token_list_release(&c.context);
    token_list_release(&c.word);
    if (comm_agree(world, rc, err))
        return -1;
    return comm_sum_i64(world, n_correct, 1, err);
}

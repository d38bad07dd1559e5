#include "train/cloze_eval.h"

#include "base/log.h"
#include "text/encoder.h"

#include <math.h>
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

/* -- texts as tokens ----------------------------------------------------------------- */

struct cloze_text { // tokens of the pool
    int64_t first;  // of the context that the model is given
    int64_t n;      // given to it: context, and the word but for its last token
    int64_t n_word; // that it must expect: the last n_word - 1 of these, and one more
};

struct cloze {
    struct runner *r;
    struct encoder *encoder;
    struct token_list context, word; // of the text at hand
    struct token_list pool;          // of all texts of this data rank
    struct cloze_text *texts;
    int64_t n_texts;

    int64_t n_pass;                        // texts of one pass
    int32_t *tokens, *targets, *likeliest; // (n_pass, S)
    float *loss_mask;                      // (n_pass, S)
    double *loss_sums;                     // (n_pass)
    bool has_nan;                          // a loss that is no number
};

static int encode_text(struct cloze *c, const struct text_list_item *t, int64_t number,
                       struct error *err)
{
    size_t context_first, context_n, word_first, word_n;
    c->context.n = c->word.n = 0;
    if (!cloze_split(t->text, t->n, &context_first, &context_n, &word_first, &word_n))
        return error_set(err, ERROR_INPUT,
                         "text %lld has no word with another before it: remove it",
                         (long long)number);
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
    return rc;
}

static int pool_append(struct token_list *pool, const int32_t *ids, int64_t n,
                       struct error *err)
{
    if (pool->n + n > pool->capacity) {
        int64_t wanted = 2 * (pool->n + n);
        int32_t *larger = realloc(pool->ids, (size_t)wanted * sizeof *larger);
        if (!larger)
            return error_set(err, ERROR_RUNTIME, "out of memory for %lld tokens of texts",
                             (long long)wanted);
        pool->ids = larger;
        pool->capacity = wanted;
    }
    memcpy(pool->ids + pool->n, ids, (size_t)n * sizeof *ids);
    pool->n += n;
    return 0;
}

/* Keep of text `number` what the model will be given, and its word. */
static int keep_text(struct cloze *c, int64_t number, struct error *err)
{
    int64_t S = c->r->gpt.dims.S, n_word = c->word.n;
    if (n_word > S)
        return error_set(err, ERROR_INPUT,
                         "the last word of text %lld has %lld tokens, more than the %lld "
                         "that the model sees at once: remove it",
                         (long long)number, (long long)n_word, (long long)S);
    if (c->context.n == 0 || n_word == 0)
        return error_set(err, ERROR_INPUT,
                         "text %lld gives no tokens before its last word, or none of it: "
                         "remove it",
                         (long long)number);
    int64_t n_context = i64_min(c->context.n, S - (n_word - 1));
    c->texts[c->n_texts++] = (struct cloze_text){
        .first = c->pool.n, .n = n_context + n_word - 1, .n_word = n_word};
    if (pool_append(&c->pool, c->context.ids + c->context.n - n_context, n_context, err))
        return -1;
    return pool_append(&c->pool, c->word.ids, n_word, err);
}

static int by_length(const void *a, const void *b)
{
    const struct cloze_text *x = a, *y = b;
    if (x->n != y->n)
        return x->n < y->n ? -1 : 1;
    return (x->first > y->first) - (x->first < y->first);
}

/* Every data_size-th text is this data rank's; short ones come first. */
static int encode(struct cloze *c, const struct tokenizer *tokenizer,
                  const struct text_list *list, struct error *err)
{
    const struct grid *grid = c->r->grid;
    c->texts = calloc((size_t)(list->n_items / grid->data_size) + 1, sizeof *c->texts);
    if (!c->texts)
        return error_set(err, ERROR_RUNTIME, "out of memory for %lld texts",
                         (long long)list->n_items);
    if (encoder_open(&c->encoder, tokenizer, err))
        return -1;
    for (int64_t i = grid->data_rank; i < list->n_items; i += grid->data_size)
        if (encode_text(c, &list->items[i], i + 1, err) || keep_text(c, i + 1, err))
            return -1;
    qsort(c->texts, (size_t)c->n_texts, sizeof *c->texts, by_length);
    return 0;
}

/* -- passes -------------------------------------------------------------------------- */

static int take_room(struct cloze *c, struct error *err)
{
    c->n_pass = i64_min(runner_full_pass(c->r), i64_max(c->n_texts, 1));
    size_t n = (size_t)(c->n_pass * c->r->gpt.dims.S);
    c->tokens = malloc(n * sizeof *c->tokens);
    c->targets = malloc(n * sizeof *c->targets);
    c->likeliest = malloc(n * sizeof *c->likeliest);
    c->loss_mask = malloc(n * sizeof *c->loss_mask);
    c->loss_sums = calloc((size_t)c->n_pass, sizeof *c->loss_sums);
    if (!c->tokens || !c->targets || !c->likeliest || !c->loss_mask || !c->loss_sums)
        return error_set(err, ERROR_RUNTIME, "out of memory for %lld texts at a time",
                         (long long)c->n_pass);
    return 0;
}

/* Row b of a pass of S tokens a row; what lies past the text is token 0, which nothing
 * that counts can see. */
static void fill(struct cloze *c, int64_t b, int64_t S, const struct cloze_text *t)
{
    const int32_t *ids = c->pool.ids + t->first;
    for (int64_t s = 0; s < S; s++) {
        int64_t at = b * S + s;
        bool is_there = s < t->n;
        c->tokens[at] = is_there ? ids[s] : 0;
        c->targets[at] = is_there ? ids[s + 1] : 0;
        c->loss_mask[at] = is_there && s >= t->n - t->n_word ? 1.0F : 0.0F;
    }
}

static bool is_right(const struct cloze *c, int64_t b, int64_t S)
{
    for (int64_t at = b * S; at < (b + 1) * S; at++)
        if (c->loss_mask[at] > 0 && c->likeliest[at] != c->targets[at])
            return false;
    return true;
}

/* Texts [first, first + n), the longest last. Returns how many are right, 0 where that is
 * not known. */
static int run_pass(struct cloze *c, int64_t first, int64_t n, int64_t *n_correct,
                    struct error *err)
{
    int64_t S = c->texts[first + n - 1].n;
    struct batch batch = {.B = n,
                          .S = S,
                          .tokens = c->tokens,
                          .targets = c->targets,
                          .loss_mask = c->loss_mask,
                          .loss_sums = c->loss_sums,
                          .likeliest = c->likeliest};
    for (int64_t b = 0; b < n; b++)
        fill(c, b, S, &c->texts[first + b]);
    if (runner_forward(c->r, &batch, err))
        return -1;
    for (int64_t b = 0; b < n && runner_knows_losses(c->r); b++) {
        c->has_nan = c->has_nan || !isfinite(c->loss_sums[b]);
        *n_correct += is_right(c, b, S);
    }
    return 0;
}

static int run(struct cloze *c, int64_t *n_correct, struct error *err)
{
    int rc = 0;
    for (int64_t i = 0; i < c->n_texts && rc == 0; i += c->n_pass) {
        int64_t n = i64_min(c->n_pass, c->n_texts - i);
        rc = run_pass(c, i, n, n_correct, err);
        if (comm_rank(c->r->grid->world) == 0)
            log_status("completed %lld of %lld texts", (long long)(i + n),
                       (long long)c->n_texts);
    }
    log_status_clear();
    if (rc == 0 && c->has_nan)
        rc = error_set(err, ERROR_RUNTIME,
                       "the losses of last words are no numbers; was the model's "
                       "training ended by an overflow?");
    return rc;
}

static void release(struct cloze *c)
{
    encoder_close(c->encoder);
    token_list_release(&c->context);
    token_list_release(&c->word);
    token_list_release(&c->pool);
    free(c->texts);
    free(c->tokens);
    free(c->targets);
    free(c->likeliest);
    free(c->loss_mask);
    free(c->loss_sums);
}

int cloze_eval(int64_t *n_correct, struct runner *r, const struct tokenizer *tokenizer,
               const struct text_list *list, struct error *err)
{
    struct cloze c = {.r = r};
    struct comm *world = r->grid->world;
    *n_correct = 0;
    int rc = encode(&c, tokenizer, list, err);
    if (rc == 0)
        rc = take_room(&c, err);
    rc = comm_agree(world, rc, err);
    if (rc == 0)
        rc = comm_agree(world, run(&c, n_correct, err), err);
    if (rc == 0)
        rc = comm_sum_i64(world, n_correct, 1, err);
    release(&c);
    return rc;
}

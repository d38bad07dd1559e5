#include "train/evaluation.h"

#include "base/log.h"
#include "text/encoder.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct pass { // samples that go forward together
    int64_t n;
    int32_t *tokens, *targets; // (n, S)
    float *loss_mask;          // (n, S)
};

/* -1: out of memory. pass_close() takes a half-opened one, and one of zeros. */
static int pass_open(struct pass *p, int64_t n, int64_t S)
{
    size_t n_tokens = (size_t)(n * S);
    p->n = n;
    p->tokens = malloc(n_tokens * sizeof *p->tokens);
    p->targets = malloc(n_tokens * sizeof *p->targets);
    p->loss_mask = malloc(n_tokens * sizeof *p->loss_mask);
    return p->tokens && p->targets && p->loss_mask ? 0 : -1;
}

static void pass_close(struct pass *p)
{
    free(p->tokens);
    free(p->targets);
    free(p->loss_mask);
}

/* -- the loss on a stream ------------------------------------------------------------ */

struct evaluation {
    struct runner *r;
    const struct eval_stream *stream;
    int64_t S, V, stride;
    struct pass pass; // of windows
    int32_t *read;    // (S + 1) a window as it is read
    double *sums;     // (n_windows)
    int64_t *bounds;  // (data ranks + 1) of the windows of each
    int64_t n_windows;
};

int64_t offline_eval_windows(int64_t n_tokens, int64_t S, int64_t stride)
{
    int64_t rest = n_tokens - 1 - S; // targets after the first window's
    return 1 + (rest > 0 ? (rest + stride - 1) / stride : 0);
}

/* -- windows ------------------------------------------------------------------------- */

static int check_token(const struct evaluation *ev, int64_t at, int32_t id,
                       struct error *err)
{
    if (id >= 0 && id < ev->V)
        return 0;
    return error_set(
        err, ERROR_INPUT,
        "'%s': token %lld is %ld, outside of the model's vocabulary of %lld; "
        "it was made with another tokenizer",
        ev->stream->name, (long long)at, (long)id, (long long)ev->V);
}

/* Row b of the pass := window w. What lies past the stream is token 0, which counts for
 * nothing and, attention being causal, is seen by nothing that counts. */
static int fill_window(struct evaluation *ev, int64_t b, int64_t w, struct error *err)
{
    int64_t S = ev->S, first = w * ev->stride;
    int64_t n = i64_min(S + 1, ev->stream->n_tokens - first);
    int64_t scored = w == 0 ? 0 : S - ev->stride;
    if (ev->stream->read(ev->stream->context, first, n, ev->read, err))
        return -1;
    for (int64_t i = 0; i < n; i++)
        if (check_token(ev, first + i, ev->read[i], err))
            return -1;
    for (int64_t s = 0; s < S; s++) {
        int64_t at = b * S + s;
        bool is_there = s + 1 < n;
        ev->pass.tokens[at] = s < n ? ev->read[s] : 0;
        ev->pass.targets[at] = is_there ? ev->read[s + 1] : 0;
        ev->pass.loss_mask[at] = is_there && s >= scored ? 1.0F : 0.0F;
    }
    return 0;
}

/* Windows [w, w + n). All ranks that share a model read them; *is_failed is true on all
 * of them when one could not, which alone returns -1. */
static int fill_windows(struct evaluation *ev, int64_t w, int64_t n, bool *is_failed,
                        struct error *err)
{
    int rc = 0;
    for (int64_t b = 0; b < n && rc == 0; b++)
        rc = fill_window(ev, b, w + b, err);
    int64_t any = rc != 0;
    if (comm_max_i64(ev->r->grid->replica, &any, 1, err))
        rc = -1;
    *is_failed = rc || any;
    return rc;
}

/* The windows of this data rank. A rank stops with 0 when another one failed. */
static int run_windows(struct evaluation *ev, struct error *err)
{
    const struct grid *grid = ev->r->grid;
    int64_t first = ev->bounds[grid->data_rank], end = ev->bounds[grid->data_rank + 1];
    int rc = 0;
    bool is_failed = false;
    for (int64_t w = first; w < end && rc == 0; w += ev->pass.n) {
        struct batch batch = {.B = i64_min(ev->pass.n, end - w),
                              .S = ev->S,
                              .tokens = ev->pass.tokens,
                              .targets = ev->pass.targets,
                              .loss_mask = ev->pass.loss_mask,
                              .first_sample = w,
                              .loss_sums = ev->sums + w};
        rc = fill_windows(ev, w, batch.B, &is_failed, err);
        if (is_failed)
            break;
        rc = runner_forward(ev->r, &batch, err);
        if (comm_rank(grid->world) == 0)
            log_status("evaluated %lld of %lld windows", (long long)(w + batch.B - first),
                       (long long)(end - first));
    }
    log_status_clear();
    return rc;
}

/* -- memory -------------------------------------------------------------------------- */

static int open_windows(struct evaluation *ev, struct error *err)
{
    int n_ranks = ev->r->grid->data_size;
    if (ev->stream->n_tokens < 2) {
        error_set(err, ERROR_INPUT, "'%s' has %lld tokens; a loss needs at least two",
                  ev->stream->name, (long long)ev->stream->n_tokens);
        return -1;
    }
    ev->n_windows = offline_eval_windows(ev->stream->n_tokens, ev->S, ev->stride);
    ev->read = malloc((size_t)(ev->S + 1) * sizeof *ev->read);
    ev->sums = calloc((size_t)ev->n_windows, sizeof *ev->sums);
    ev->bounds = calloc((size_t)n_ranks + 1, sizeof *ev->bounds);
    if (!ev->read || !ev->sums || !ev->bounds ||
        pass_open(&ev->pass, runner_full_pass(ev->r), ev->S)) {
        error_set(err, ERROR_RUNTIME, "out of memory for the sums of %lld windows",
                  (long long)ev->n_windows);
        return -1;
    }
    comm_even_bounds(ev->n_windows, n_ranks, ev->bounds);
    return 0;
}

static void close_windows(struct evaluation *ev)
{
    free(ev->read);
    pass_close(&ev->pass);
    free(ev->sums);
    free(ev->bounds);
}

/* -- the whole ----------------------------------------------------------------------- */

int offline_eval(struct eval_result *result, struct runner *r, int64_t vocab_size,
                 int64_t stride, const struct eval_stream *stream, struct error *err)
{
    struct evaluation ev = {
        .r = r, .stream = stream, .S = r->gpt.dims.S, .V = vocab_size, .stride = stride};
    struct comm *world = r->grid->world;
    int64_t n_scored = stream->n_tokens - 1;
    double sum = 0;
    int rc = open_windows(&ev, err);
    if (comm_agree(world, rc, err))
        rc = -1;
    if (rc == 0)
        rc = comm_agree(world, run_windows(&ev, err), err);
    if (rc == 0)
        rc = runner_sum_losses(r, ev.sums, ev.n_windows, 0, &sum, err);
    if (rc)
        goto done;
    *result = (struct eval_result){.loss = runner_mean_loss(sum, n_scored),
                                   .n_scored = n_scored,
                                   .n_windows = ev.n_windows};
    if (!isfinite(result->loss))
        rc = error_set(err, ERROR_RUNTIME,
                       "the loss on '%s' is %g: the model gives no numbers; was its "
                       "training ended by an overflow?",
                       stream->name, result->loss);
done:
    close_windows(&ev);
    return rc;
}

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

    struct pass pass;   // of texts
    int32_t *likeliest; // (pass.n, S)
    double *loss_sums;  // (pass.n)
    bool has_nan;       // a loss that is no number
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

/* Add to the pool what the model will be given of text `number`, and its word. */
static int append_text(struct cloze *c, int64_t number, struct error *err)
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
static int encode_texts(struct cloze *c, const struct tokenizer *tokenizer,
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
        if (encode_text(c, &list->items[i], i + 1, err) || append_text(c, i + 1, err))
            return -1;
    qsort(c->texts, (size_t)c->n_texts, sizeof *c->texts, by_length);
    return 0;
}

/* -- passes -------------------------------------------------------------------------- */

static int open_texts(struct cloze *c, struct error *err)
{
    int64_t S = c->r->gpt.dims.S;
    int64_t n = i64_min(runner_full_pass(c->r), i64_max(c->n_texts, 1));
    c->likeliest = malloc((size_t)(n * S) * sizeof *c->likeliest);
    c->loss_sums = calloc((size_t)n, sizeof *c->loss_sums);
    if (!c->likeliest || !c->loss_sums || pass_open(&c->pass, n, S))
        return error_set(err, ERROR_RUNTIME, "out of memory for %lld texts at a time",
                         (long long)n);
    return 0;
}

/* Row b of a pass of S tokens per row; what lies past the text is token 0, which nothing
 * that counts can see. */
static void fill_text(struct cloze *c, int64_t b, int64_t S, const struct cloze_text *t)
{
    const int32_t *ids = c->pool.ids + t->first;
    for (int64_t s = 0; s < S; s++) {
        int64_t at = b * S + s;
        bool is_there = s < t->n;
        c->pass.tokens[at] = is_there ? ids[s] : 0;
        c->pass.targets[at] = is_there ? ids[s + 1] : 0;
        c->pass.loss_mask[at] = is_there && s >= t->n - t->n_word ? 1.0F : 0.0F;
    }
}

static bool is_right(const struct cloze *c, int64_t b, int64_t S)
{
    for (int64_t at = b * S; at < (b + 1) * S; at++)
        if (c->pass.loss_mask[at] > 0 && c->likeliest[at] != c->pass.targets[at])
            return false;
    return true;
}

/* Texts [first, first + n), the longest last. Returns how many are right, 0 where that is
 * not known. */
static int run_some(struct cloze *c, int64_t first, int64_t n, int64_t *n_correct,
                    struct error *err)
{
    int64_t S = c->texts[first + n - 1].n;
    struct batch batch = {.B = n,
                          .S = S,
                          .tokens = c->pass.tokens,
                          .targets = c->pass.targets,
                          .loss_mask = c->pass.loss_mask,
                          .loss_sums = c->loss_sums,
                          .likeliest = c->likeliest};
    for (int64_t b = 0; b < n; b++)
        fill_text(c, b, S, &c->texts[first + b]);
    if (runner_forward(c->r, &batch, err))
        return -1;
    for (int64_t b = 0; b < n && runner_knows_losses(c->r); b++) {
        c->has_nan = c->has_nan || !isfinite(c->loss_sums[b]);
        *n_correct += is_right(c, b, S);
    }
    return 0;
}

static int run_texts(struct cloze *c, int64_t *n_correct, struct error *err)
{
    int rc = 0;
    for (int64_t i = 0; i < c->n_texts && rc == 0; i += c->pass.n) {
        int64_t n = i64_min(c->pass.n, c->n_texts - i);
        rc = run_some(c, i, n, n_correct, err);
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

static void close_texts(struct cloze *c)
{
    encoder_close(c->encoder);
    token_list_release(&c->context);
    token_list_release(&c->word);
    token_list_release(&c->pool);
    free(c->texts);
    pass_close(&c->pass);
    free(c->likeliest);
    free(c->loss_sums);
}

int cloze_eval(int64_t *n_correct, struct runner *r, const struct tokenizer *tokenizer,
               const struct text_list *list, struct error *err)
{
    struct cloze c = {.r = r};
    struct comm *world = r->grid->world;
    *n_correct = 0;
    int rc = encode_texts(&c, tokenizer, list, err);
    if (rc == 0)
        rc = open_texts(&c, err);
    rc = comm_agree(world, rc, err);
    if (rc == 0)
        rc = comm_agree(world, run_texts(&c, n_correct, err), err);
    if (rc == 0)
        rc = comm_sum_i64(world, n_correct, 1, err);
    close_texts(&c);
    return rc;
}

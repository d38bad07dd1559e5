/*
 * All distinct words lie in one list of symbols. A merge visits the places of its pair,
 * from left to right, and corrects the counts of the pairs beside it; nothing is counted
 * twice, so learning takes about as many steps as there are merges of symbols.
 *
 * A pair with a new token in it can only come up while that token is made. So its places
 * are ascending as they come, and once queued it only becomes rarer, as pair_count asks.
 */
#include "text/bpe_trainer.h"

#include "text/byte_level.h"
#include "text/pair_count.h"
#include "text/tokenizer_internal.h"
#include "text/word_count.h"
#include "text/word_split.h"

#include <stdlib.h>
#include <string.h>

#define N_BYTES 256

struct bpe_trainer {
    struct word_splitter *splitter;
    struct word_counts words;
};

struct symbol {
    int32_t id;            // -1: merged into the one before
    int32_t before, after; // in its word; -1: none
    int32_t word;
};

struct learning { // the state of bpe_trainer_learn()
    const struct word_counts *words;
    struct symbol *symbols;
    struct pair_counts pairs;
    struct tokenizer *tokenizer;
};

int bpe_trainer_open(struct bpe_trainer **out, struct error *err)
{
    struct bpe_trainer *tr = calloc(1, sizeof *tr);
    *out = NULL;
    if (!tr)
        return error_set(err, ERROR_RUNTIME, "out of memory for learning a tokenizer");
    if (word_splitter_open(&tr->splitter, err)) {
        bpe_trainer_close(tr);
        return -1;
    }
    *out = tr;
    return 0;
}

void bpe_trainer_close(struct bpe_trainer *tr)
{
    if (!tr)
        return;
    word_splitter_close(tr->splitter);
    word_counts_release(&tr->words);
    free(tr);
}

int bpe_trainer_add(struct bpe_trainer *tr, const char *text, size_t n, struct error *err)
{
    for (size_t at = 0; at < n;) {
        size_t n_word = word_split_next(tr->splitter, text + at, n - at);
        if (word_counts_add(&tr->words, text + at, n_word, err))
            return -1;
        at += n_word;
    }
    return 0;
}

int64_t bpe_trainer_n_words(const struct bpe_trainer *tr)
{
    return tr->words.n_words;
}

/* -- learning ------------------------------------------------------------------------ */

static int64_t weight(const struct learning *l, int32_t at)
{
    return l->words->words[l->symbols[at].word].count;
}

/* Count the pair of the symbol at `at` and the one after it, if there is one. */
static int count_pair(struct learning *l, int32_t at, struct error *err)
{
    const struct symbol *s = &l->symbols[at];
    if (s->after < 0)
        return 0;
    return pair_counts_add(&l->pairs, s->id, l->symbols[s->after].id, weight(l, at), at,
                           err);
}

static void uncount_pair(struct learning *l, int32_t at)
{
    const struct symbol *s = &l->symbols[at];
    if (s->after >= 0)
        pair_counts_subtract(&l->pairs, s->id, l->symbols[s->after].id, weight(l, at));
}

/* All words as bytes, and the pairs in them. */
static int spread_words(struct learning *l, struct error *err)
{
    const struct word_counts *words = l->words;
    int32_t at = 0;
    if (words->pool_used > INT32_MAX)
        return error_set(err, ERROR_INPUT,
                         "the distinct words have %lld bytes in all, more than can be "
                         "learned from (%d); give less text",
                         (long long)words->pool_used, INT32_MAX);
    l->symbols = malloc((size_t)words->pool_used * sizeof *l->symbols + 1);
    if (!l->symbols)
        return error_set(err, ERROR_RUNTIME, "out of memory for %lld bytes of words",
                         (long long)words->pool_used);
    for (int64_t w = 0; w < words->n_words; w++)
        for (int64_t i = 0, n = words->words[w].n_bytes; i < n; i++, at++)
            l->symbols[at] = (struct symbol){
                byte_level_place((uint8_t)words->pool[words->words[w].at + i]),
                i > 0 ? at - 1 : -1, i + 1 < n ? at + 1 : -1, (int32_t)w};
    for (int32_t i = 0; i < at; i++)
        if (count_pair(l, i, err))
            return -1;
    return pair_counts_queue(&l->pairs, 0, err);
}

/* Merge the symbol at `at` with the one after it. */
static int merge_place(struct learning *l, int32_t at, int32_t merged, struct error *err)
{
    struct symbol *s = &l->symbols[at], *gone = &l->symbols[s->after];
    if (s->before >= 0)
        uncount_pair(l, s->before);
    uncount_pair(l, at);
    uncount_pair(l, s->after);
    s->id = merged;
    s->after = gone->after;
    gone->id = -1;
    if (s->after >= 0)
        l->symbols[s->after].before = at;
    if (s->before >= 0 && count_pair(l, s->before, err))
        return -1;
    return count_pair(l, at, err);
}

static int merge_everywhere(struct learning *l, int64_t pair, int32_t merged,
                            struct error *err)
{
    int64_t n_before = l->pairs.n_pairs, n_places = l->pairs.pairs[pair].n_places;
    int32_t left = l->pairs.pairs[pair].left, right = l->pairs.pairs[pair].right;
    int32_t *places = l->pairs.pairs[pair].places; // ours: the table may move
    l->pairs.pairs[pair].places = NULL;
    l->pairs.pairs[pair].n_places = l->pairs.pairs[pair].places_capacity = 0;
    int rc = 0;
    for (int64_t i = 0; i < n_places && rc == 0; i++) {
        const struct symbol *s = &l->symbols[places[i]];
        if (s->id == left && s->after >= 0 && l->symbols[s->after].id == right)
            rc = merge_place(l, places[i], merged, err);
    }
    free(places);
    return rc ? -1 : pair_counts_queue(&l->pairs, n_before, err);
}

/* The token that a merge makes. */
static int add_token(struct tokenizer *t, int32_t left, int32_t right, int32_t merged,
                     struct error *err)
{
    size_t n_left, n_right;
    const char *left_bytes = vocab_bytes(&t->vocab, left, &n_left);
    const char *right_bytes = vocab_bytes(&t->vocab, right, &n_right);
    char *bytes = malloc(n_left + n_right);
    if (!bytes)
        return error_set(err, ERROR_RUNTIME, "out of memory for a vocabulary");
    memcpy(bytes, left_bytes, n_left);
    memcpy(bytes + n_left, right_bytes, n_right);
    int rc = vocab_add(&t->vocab, merged, bytes, n_left + n_right, VOCAB_TEXT, err);
    free(bytes);
    return rc ? -1 : merge_table_add(&t->merges, left, right, merged, err);
}

static int add_bytes(struct tokenizer *t, struct error *err)
{
    for (int byte = 0; byte < N_BYTES; byte++) {
        char c = (char)(uint8_t)byte;
        if (vocab_add(&t->vocab, byte_level_place((uint8_t)byte), &c, 1, VOCAB_TEXT, err))
            return -1;
    }
    return 0;
}

static int learn_merges(struct learning *l, int64_t vocab_size, int64_t min_count,
                        struct error *err)
{
    for (int64_t id = N_BYTES; id < vocab_size - 1; id++) {
        int64_t pair = pair_counts_pop(&l->pairs, min_count);
        if (pair < 0)
            return 0;
        if (add_token(l->tokenizer, l->pairs.pairs[pair].left, l->pairs.pairs[pair].right,
                      (int32_t)id, err) ||
            merge_everywhere(l, pair, (int32_t)id, err))
            return -1;
    }
    return 0;
}

int bpe_trainer_learn(const struct bpe_trainer *tr, int64_t vocab_size, int64_t min_count,
                      const char *name, struct tokenizer **out, struct error *err)
{
    struct learning l = {.words = &tr->words};
    int rc = -1;
    CHECK(min_count > 0, "%lld", (long long)min_count);
    *out = NULL;
    if (vocab_size < BPE_TRAINER_LEAST_VOCAB || vocab_size > INT32_MAX)
        return error_set(err, ERROR_INPUT,
                         "a vocabulary of %lld tokens cannot be learned: it has at least "
                         "%d, the bytes and the end of a document",
                         (long long)vocab_size, BPE_TRAINER_LEAST_VOCAB);
    if (tokenizer_new(&l.tokenizer, name, err) || add_bytes(l.tokenizer, err) ||
        spread_words(&l, err) || learn_merges(&l, vocab_size, min_count, err))
        goto done;
    if (vocab_add(&l.tokenizer->vocab, l.tokenizer->vocab.n_ids, TOKENIZER_EOS_TEXT,
                  strlen(TOKENIZER_EOS_TEXT), VOCAB_ADDED | VOCAB_SPECIAL, err) ||
        tokenizer_finish(l.tokenizer, err))
        goto done;
    *out = l.tokenizer;
    l.tokenizer = NULL;
    rc = 0;
done:
    tokenizer_close(l.tokenizer);
    pair_counts_release(&l.pairs);
    free(l.symbols);
    return rc;
}

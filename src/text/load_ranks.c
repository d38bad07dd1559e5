/*
 * tiktoken's files hold tokens and ranks, "base64 rank" a line, and no merges: there, any
 * two neighbours merge that make a token, the token of lowest rank first. The same ids
 * come from a list of merges, one a token, when each token is what its own bytes become:
 * the merges of lower ranks leave two parts of them, and these two make it. (A token can
 * only form in a text where no merge has crossed its ends, so there the same happened as
 * in its bytes alone.) A file where some token is not like that is refused.
 *
 * The files do not hold the end of a document either; it has the first id that is free,
 * as in GPT-2's (50256 after 0 to 50255) and its successor's.
 */
#include "text/bpe.h"
#include "text/grow.h"
#include "text/tokenizer_internal.h"

#include <stdlib.h>
#include <string.h>

/* -- lines --------------------------------------------------------------------------- */

static int base64_digit(char c)
{
    static const char digits[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const char *at = c ? strchr(digits, c) : NULL;
    return at ? (int)(at - digits) : -1;
}

/* `out` has room for n bytes. False when this is no base64. */
static bool base64_read(const char *text, size_t n, char *out, size_t *n_out)
{
    size_t n_digits = n, used = 0;
    uint32_t bits = 0;
    if (n == 0 || n % 4 != 0)
        return false;
    while (n - n_digits < 2 && text[n_digits - 1] == '=')
        n_digits--;
    for (size_t i = 0; i < n_digits; i++) {
        int digit = base64_digit(text[i]);
        if (digit < 0)
            return false;
        bits = bits << 6 | (uint32_t)digit;
        if (i % 4 != 0)
            out[used++] = (char)(uint8_t)(bits >> (6 - 2 * (i % 4)));
    }
    *n_out = used;
    return true;
}

/* A number of at most 10 digits and nothing else; -1. */
static int64_t read_rank(const char *text, size_t n)
{
    int64_t rank = 0;
    if (n == 0 || n > 10)
        return -1;
    for (size_t i = 0; i < n; i++) {
        if (text[i] < '0' || text[i] > '9')
            return -1;
        rank = rank * 10 + (text[i] - '0');
    }
    return rank;
}

/* `bytes` has room for n. */
static int read_line(struct tokenizer *t, const char *line, size_t n, int64_t number,
                     char *bytes, struct error *err)
{
    const char *space = memchr(line, ' ', n);
    size_t n_text = space ? (size_t)(space - line) : n, n_bytes = 0;
    int64_t rank = space ? read_rank(space + 1, n - n_text - 1) : -1;
    if (rank < 0 || !base64_read(line, n_text, bytes, &n_bytes))
        return error_set(err, ERROR_INPUT,
                         "line %lld, '%.*s', is not a token in base64 and its rank",
                         (long long)number, (int)(n < 60 ? n : 60), line);
    if (vocab_add(&t->vocab, rank, bytes, n_bytes, VOCAB_TEXT, err))
        return error_prefix(err, "line %lld", (long long)number);
    return 0;
}

static int read_lines(struct tokenizer *t, const char *text, size_t n, struct error *err)
{
    const char *end = text + n;
    int64_t number = 1;
    int rc = 0;
    char *bytes = malloc(n + 1); // room for any line
    if (!bytes)
        return error_set(err, ERROR_RUNTIME, "out of memory for a vocabulary");
    for (const char *line = text; line < end && rc == 0; number++) {
        const char *newline = memchr(line, '\n', (size_t)(end - line));
        size_t n_line = (size_t)((newline ? newline : end) - line);
        const char *next = newline ? newline + 1 : end;
        if (n_line > 0 && line[n_line - 1] == '\r')
            n_line--;
        if (n_line > 0 || next < end)
            rc = read_line(t, line, n_line, number, bytes, err);
        line = next;
    }
    free(bytes);
    return rc;
}

/* -- merges -------------------------------------------------------------------------- */

struct parts { // of a token, and what finding them needs
    int32_t *ids;
    int64_t capacity;
    struct bpe_scratch scratch;
};

/* The merge that makes a token, given those of all lower ranks. */
static int recover_merge(struct tokenizer *t, int32_t id, struct parts *p,
                         struct error *err)
{
    size_t n;
    int64_t n_left;
    const char *bytes = vocab_bytes(&t->vocab, id, &n);
    if (n == 1)
        return 0;
    int32_t *ids = grow_array(p->ids, &p->capacity, (int64_t)n, sizeof *ids);
    if (!ids)
        return error_set(err, ERROR_RUNTIME, "out of memory for merges");
    p->ids = ids;
    for (size_t i = 0; i < n; i++) {
        ids[i] = vocab_find(&t->vocab, bytes + i, 1);
        if (ids[i] < 0)
            return error_set(err, ERROR_INPUT,
                             "the byte 0x%02X of token %d is no token itself",
                             (uint8_t)bytes[i], id);
    }
    if (bpe_merge(&t->merges, &p->scratch, ids, (int64_t)n, &n_left, err))
        return -1;
    if (n_left != 2)
        return error_set(
            err, ERROR_INPUT,
            "the tokens of lower ranks leave %lld parts of token %d, '%.*s', "
            "not two: these are not the ranks of a BPE",
            (long long)n_left, id, (int)(n < 60 ? n : 60), bytes);
    return merge_table_add(&t->merges, ids[0], ids[1], id, err);
}

static int recover_merges(struct tokenizer *t, struct error *err)
{
    struct parts p = {0};
    int rc = 0;
    for (int64_t id = 0; id < t->vocab.n_ids && rc == 0; id++)
        if (vocab_flags(&t->vocab, id))
            rc = recover_merge(t, (int32_t)id, &p, err);
    free(p.ids);
    bpe_scratch_release(&p.scratch);
    return rc;
}

int tokenizer_load_ranks(struct tokenizer *t, const char *text, size_t n,
                         struct error *err)
{
    if (read_lines(t, text, n, err) || recover_merges(t, err) ||
        tokenizer_check_words(t, err))
        return -1;
    int64_t eos = 0;
    while (vocab_flags(&t->vocab, eos))
        eos++;
    if (t->vocab.n_tokens > 0 &&
        vocab_add(&t->vocab, eos, TOKENIZER_EOS_TEXT, strlen(TOKENIZER_EOS_TEXT),
                  VOCAB_ADDED | VOCAB_SPECIAL, err))
        return -1;
    return tokenizer_finish(t, err);
}

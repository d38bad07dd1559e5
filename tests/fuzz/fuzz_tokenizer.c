/*
 * Any bytes as the files of a tokenizer: with a NUL in it, vocab.json and merges.txt on
 * both sides of the first; from '{' on, tokenizer.json; otherwise ranks. Whatever loads
 * must keep the promises of tokenizer.h, with the input itself as text.
 */
#include "text/encoder.h"
#include "text/tokenizer_load.h"

#include <stdlib.h>
#include <string.h>

#define MOST_TEXT_BYTES 4096

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int load(struct tokenizer *t, const char *text, size_t n, struct error *err)
{
    const char *nul = memchr(text, 0, n);
    if (nul)
        return tokenizer_load_pair(t, text, (size_t)(nul - text), nul + 1,
                                   (size_t)(text + n - nul - 1), err);
    return n > 0 && text[0] == '{' ? tokenizer_load_json(t, text, n, err)
                                   : tokenizer_load_ranks(t, text, n, err);
}

/* A merge makes the bytes of its parts, one after the other. */
static void check_merges(const struct tokenizer *t)
{
    for (int64_t rank = 0; rank < tokenizer_n_merges(t); rank++) {
        const struct merge *m = &t->merges.list[rank];
        size_t n_left, n_right, n;
        const char *l = tokenizer_token_bytes(t, m->left, &n_left);
        const char *r = tokenizer_token_bytes(t, m->right, &n_right);
        const char *merged = tokenizer_token_bytes(t, m->merged, &n);
        CHECK(l && r && merged && n == n_left + n_right, "merge %lld", (long long)rank);
        CHECK(memcmp(merged, l, n_left) == 0 && memcmp(merged + n_left, r, n_right) == 0,
              "merge %lld", (long long)rank);
    }
}

static void check_text(const struct tokenizer *t, const char *text, size_t n,
                       bool with_special)
{
    struct error err = {.text = ""};
    struct encoder *e = NULL;
    struct token_list list = {0};
    char back[MOST_TEXT_BYTES];
    CHECK(encoder_open(&e, t, &err) == 0, "%s", err.text);
    if (encoder_encode(e, text, n, with_special, &list, &err)) {
        CHECK(err.kind == ERROR_INPUT && strstr(err.text, "has no token"), "%s",
              err.text);
    } else if (!t->adds_prefix_space) {
        size_t n_back = tokenizer_decode(t, list.ids, list.n, back, sizeof back);
        CHECK(n_back == n && memcmp(back, text, n) == 0, "%zu bytes became %zu", n,
              n_back);
    }
    token_list_release(&list);
    encoder_close(e);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct error err = {.text = ""};
    struct tokenizer *t = NULL;
    const char *text = (const char *)data;
    size_t n_text = size < MOST_TEXT_BYTES ? size : MOST_TEXT_BYTES;
    CHECK(tokenizer_new(&t, "input", &err) == 0, "%s", err.text);
    if (load(t, text, size, &err)) {
        CHECK(err.kind == ERROR_INPUT && err.text[0], "an error without a sentence");
    } else {
        check_merges(t);
        check_text(t, text, n_text, false);
        check_text(t, text, n_text, true);
    }
    tokenizer_close(t);
    return 0;
}

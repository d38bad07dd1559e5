/*
 * A "gpt2" tokenizer of a GGUF: tokens spelled in GPT-2's symbols, and merges. It always
 * cuts a text as GPT-2 does, which changes nothing where there are no merges: so the
 * bytes fit in too.
 */
#include "hub/gguf_export.h"
#include "text/tokenizer_build.h"
#include "text/vocab.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum token_type { // llama.cpp's
    TOKEN_NORMAL = 1,
    TOKEN_CONTROL = 3,
    TOKEN_USER_DEFINED = 4,
    TOKEN_UNUSED = 5,
};

static int check(const struct tokenizer *t, struct error *err)
{
    const char *what = NULL;
    if (!t->is_cut_into_words && t->merges.n > 0)
        what = "does not cut a text into words before it merges";
    else if (t->adds_prefix_space)
        what = "adds a space before a text";
    else if (t->takes_whole_words)
        what = "takes words that are tokens whole, whatever the merges";
    if (!what)
        return 0;
    return error_set(err, ERROR_INPUT,
                     "the tokenizer '%s' %s, which a GGUF cannot say; export to hf "
                     "instead",
                     tokenizer_name(t), what);
}

static enum token_type type_of(const struct tokenizer *t, int64_t id)
{
    uint32_t flags = vocab_flags(&t->vocab, id);
    return flags == 0              ? TOKEN_UNUSED
           : flags & VOCAB_SPECIAL ? TOKEN_CONTROL
           : flags & VOCAB_ADDED   ? TOKEN_USER_DEFINED
                                   : TOKEN_NORMAL;
}

/* The longest token in symbols, or the name of an unused one. */
static size_t most_spelled(const struct tokenizer *t)
{
    size_t most = 32;
    for (int64_t id = 0; id < t->vocab.n_ids; id++) {
        size_t n = BYTE_LEVEL_SYMBOL_BYTES * (size_t)t->vocab.tokens[id].n_bytes;
        most = n > most ? n : most;
    }
    return most;
}

/* Writes the token as the file spells it to `out`; returns its length. */
static size_t spell(const struct tokenizer *t, int64_t id, char *out)
{
    size_t n;
    uint32_t flags = vocab_flags(&t->vocab, id);
    if (flags == 0)
        return (size_t)sprintf(out, "[PAD%lld]", (long long)id);
    const char *bytes = vocab_bytes(&t->vocab, id, &n);
    if (!(flags & VOCAB_ADDED))
        return byte_level_spell(bytes, n, out);
    memcpy(out, bytes, n);
    return n;
}

static void add_tokens(struct gguf_header *h, const struct tokenizer *t, int64_t V,
                       char *room)
{
    gguf_add_array(h, "tokenizer.ggml.tokens", GGUF_TEXT, (uint64_t)V);
    for (int64_t id = 0; id < V; id++)
        gguf_append_text(h, room, spell(t, id, room));
    gguf_add_array(h, "tokenizer.ggml.token_type", GGUF_I32, (uint64_t)V);
    for (int64_t id = 0; id < V; id++)
        gguf_append_i32(h, (int32_t)type_of(t, id));
}

static void add_merges(struct gguf_header *h, const struct tokenizer *t, char *room)
{
    gguf_add_array(h, "tokenizer.ggml.merges", GGUF_TEXT, (uint64_t)t->merges.n);
    for (int64_t rank = 0; rank < t->merges.n; rank++) {
        const struct merge *m = &t->merges.list[rank];
        size_t n = spell(t, m->left, room);
        room[n++] = ' ';
        n += spell(t, m->right, room + n);
        gguf_append_text(h, room, n);
    }
}

int gguf_add_tokenizer(struct gguf_header *h, const struct tokenizer *t, int64_t V,
                       struct error *err)
{
    if (check(t, err))
        return -1;
    char *room = malloc(2 * most_spelled(t) + 2);
    if (!room)
        return error_set(err, ERROR_RUNTIME, "out of memory for a token");
    gguf_add_text(h, "tokenizer.ggml.model", "gpt2");
    gguf_add_text(h, "tokenizer.ggml.pre", "gpt-2");
    add_tokens(h, t, V, room);
    add_merges(h, t, room);
    if (t->eos >= 0) {
        gguf_add_u32(h, "tokenizer.ggml.bos_token_id", (uint32_t)t->eos);
        gguf_add_u32(h, "tokenizer.ggml.eos_token_id", (uint32_t)t->eos);
    }
    gguf_add_bool(h, "tokenizer.ggml.add_bos_token", false);
    free(room);
    return 0;
}

#include "cli/inspect.h"
#include "text/tokenizer.h"

#include <string.h>

#define MOST_SPECIALS 64 // listed

static json_t *describe_token(const struct tokenizer *t, int32_t id)
{
    size_t n = 0;
    const char *bytes = tokenizer_token_bytes(t, id, &n);
    json_t *object = json_object();
    inspect_set_int(object, "id", id);
    inspect_set_int(object, "bytes", (int64_t)n);
    inspect_set(object, "text", inspect_text(bytes ? bytes : "", n));
    return object;
}

/* Counts over all ids; special tokens are listed on the way. */
static void add_counts(json_t *object, const struct tokenizer *t)
{
    int64_t n_tokens = 0, n_special = 0, longest = -1;
    size_t most = 0, n;
    json_t *specials = json_array();
    for (int64_t id = 0; id < tokenizer_vocab_size(t); id++) {
        if (!tokenizer_token_bytes(t, (int32_t)id, &n))
            continue;
        bool is_special = tokenizer_is_special(t, (int32_t)id);
        n_tokens++;
        n_special += is_special;
        if (is_special && n_special <= MOST_SPECIALS)
            inspect_append(specials, describe_token(t, (int32_t)id));
        if (!is_special && n > most) {
            most = n;
            longest = id;
        }
    }
    inspect_set_int(object, "tokens", n_tokens);
    inspect_set_int(object, "merges", tokenizer_n_merges(t));
    inspect_set_int(object, "special_tokens", n_special);
    inspect_set(object, "eos_token_id",
                tokenizer_eos(t) >= 0 ? json_integer(tokenizer_eos(t)) : json_null());
    inspect_set(object, "specials", specials);
    if (longest >= 0) {
        json_t *rows = json_array();
        inspect_append(rows, describe_token(t, (int32_t)longest));
        inspect_set(object, "longest", rows);
    }
    if (n_special > MOST_SPECIALS)
        inspect_note(object, "only the first %d special tokens are listed",
                     MOST_SPECIALS);
    if (tokenizer_eos(t) < 0)
        inspect_note(object, "no token ends a document");
}

/* A few tokens spread over the vocabulary; where an id is no token, the next one. */
static void add_samples(json_t *object, const struct tokenizer *t, int64_t n_samples)
{
    json_t *samples = json_array();
    int64_t V = tokenizer_vocab_size(t), next = 0;
    n_samples = i64_min(n_samples, V);
    for (int64_t i = 0; i < n_samples; i++) {
        size_t n;
        int64_t id = i64_max(next, V / n_samples * i + V % n_samples * i / n_samples);
        while (id < V && !tokenizer_token_bytes(t, (int32_t)id, &n))
            id++;
        if (id == V)
            break;
        inspect_append(samples, describe_token(t, (int32_t)id));
        next = id + 1;
    }
    inspect_set(object, "samples", samples);
}

json_t *inspect_tokenizer(const char *name, const struct inspect_options *opt,
                          struct error *err)
{
    struct tokenizer *t;
    if (tokenizer_open(&t, name, err))
        return NULL;
    json_t *object = json_object();
    inspect_set(object, "name", inspect_text(name, strlen(name)));
    inspect_set_int(object, "vocab_size", tokenizer_vocab_size(t));
    add_counts(object, t);
    add_samples(object, t, opt->n_samples);
    tokenizer_close(t);
    return object;
}

/*
 * The datasets' documents are numbered through. `ends` is the running sum of tokens over
 * all of them, so that a document's length and place are two subtractions; `first_doc`
 * and `first_token` say where each dataset starts in the common numbering.
 */
#include "data/samples/corpus.h"

#include "base/log.h"
#include "data/formats/dataset.h"
#include "data/formats/dataset_list.h"
#include "data/samples/index_cache.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECKS_KEPT 1024 // results of checks in the cache, some bytes each

struct member { // one dataset in the common numbering
    struct dataset dataset;
    int64_t first_doc;
    int64_t first_token;
};

struct corpus {
    char *input;
    char cache_dir[PATH_MAX];
    struct member *members;
    int64_t n_members;
    int64_t n_documents;
    int64_t n_tokens;
    int64_t *ends;      // (n_documents) tokens up to the end of each document
    int64_t vocab_size; // that all ids were checked against; 0: they were not
};

static int make_cache_dir_name(struct corpus *c, const char *prefix, struct error *err)
{
    const char *slash = strrchr(prefix, '/');
    int dir_bytes = slash ? (int)(slash - prefix) + 1 : 0;
    if (snprintf(c->cache_dir, sizeof c->cache_dir, "%.*s.trefoil_cache", dir_bytes,
                 prefix) >= (int)sizeof c->cache_dir)
        return error_set(err, ERROR_INPUT, "path too long: '%s'", prefix);
    return 0;
}

/* Append every dataset of the list. */
static int open_members(struct corpus *c, const struct dataset_list *list,
                        struct error *err)
{
    size_t n_members = (size_t)(c->n_members + list->n_entries);
    struct member *larger = realloc(c->members, n_members * sizeof *c->members);
    if (!larger)
        return error_set(err, ERROR_RUNTIME, "out of memory");
    c->members = larger;
    for (int64_t i = 0; i < list->n_entries; i++) {
        struct member *p = &c->members[c->n_members];
        if (dataset_open(&p->dataset, list->entries[i].prefix, list->entries[i].format,
                         err))
            return -1;
        c->n_members++;
        p->first_doc = c->n_documents;
        p->first_token = c->n_tokens;
        c->n_documents += p->dataset.n_documents;
        if (__builtin_add_overflow(c->n_tokens, p->dataset.n_tokens, &c->n_tokens))
            return error_set(err, ERROR_INPUT, "'%s' has 2^63 tokens or more", c->input);
    }
    return 0;
}

static int open_input(struct corpus *c, const char *input, struct error *err)
{
    struct dataset_list list;
    if (dataset_list_find(&list, input, err))
        return -1;
    int rc = 0;
    if (c->n_members == 0) // caches lie beside the first dataset
        rc = make_cache_dir_name(c, list.entries[0].prefix, err);
    if (rc == 0)
        rc = open_members(c, &list, err);
    dataset_list_release(&list);
    return rc;
}

/* Join the datasets' document ends; afterwards the common array is the only one. */
static int join_ends(struct corpus *c, struct error *err)
{
    c->ends = malloc(((size_t)c->n_documents + 1) * sizeof *c->ends);
    if (!c->ends)
        return error_set(err, ERROR_RUNTIME,
                         "no memory for the lengths of %lld documents",
                         (long long)c->n_documents);
    for (int64_t i = 0; i < c->n_members; i++) {
        struct member *p = &c->members[i];
        for (int64_t d = 0; d < p->dataset.n_documents; d++)
            c->ends[p->first_doc + d] = p->first_token + p->dataset.document_ends[d];
        free(p->dataset.document_ends);
        p->dataset.document_ends = NULL;
    }
    return 0;
}

/* "a, b, c", malloc'ed. */
static char *join_names(const char *const *inputs, int64_t n)
{
    size_t n_bytes = 1;
    for (int64_t i = 0; i < n; i++)
        n_bytes += strlen(inputs[i]) + 2;
    char *text = calloc(1, n_bytes), *at = text;
    for (int64_t i = 0; i < n && text; i++) {
        at = stpcpy(at, i ? ", " : "");
        at = stpcpy(at, inputs[i]);
    }
    return text;
}

int corpus_open_list(struct corpus **out, const char *const *inputs, int64_t n_inputs,
                     struct error *err)
{
    int rc = -1;
    struct corpus *c = calloc(1, sizeof *c);
    *out = NULL;
    if (!c || !(c->input = join_names(inputs, n_inputs))) {
        error_set(err, ERROR_RUNTIME, "out of memory");
        goto done;
    }
    for (int64_t i = 0; i < n_inputs; i++)
        if (open_input(c, inputs[i], err))
            goto done;
    if (join_ends(c, err))
        goto done;
    *out = c;
    rc = 0;
done:
    if (rc)
        corpus_close(c);
    return rc;
}

int corpus_open(struct corpus **out, const char *input, struct error *err)
{
    return corpus_open_list(out, &input, 1, err);
}

void corpus_close(struct corpus *c)
{
    if (!c)
        return;
    for (int64_t i = 0; i < c->n_members; i++)
        dataset_close(&c->members[i].dataset);
    free(c->members);
    free(c->ends);
    free(c->input);
    free(c);
}

/* -- facts --------------------------------------------------------------------------- */

int64_t corpus_n_documents(const struct corpus *c)
{
    return c->n_documents;
}

static int64_t document_start(const struct corpus *c, int64_t doc)
{
    return doc == 0 ? 0 : c->ends[doc - 1];
}

int64_t corpus_n_tokens(const struct corpus *c)
{
    return c->n_tokens;
}

int64_t corpus_range_tokens(const struct corpus *c, int64_t begin, int64_t end)
{
    return document_start(c, end) - document_start(c, begin);
}

int64_t corpus_document_tokens(const struct corpus *c, int64_t doc)
{
    return corpus_range_tokens(c, doc, doc + 1);
}

const char *corpus_input(const struct corpus *c)
{
    return c->input;
}

const char *corpus_default_cache_dir(const struct corpus *c)
{
    return c->cache_dir;
}

/* -- identity ------------------------------------------------------------------------ */

void corpus_fingerprint(const struct corpus *c, char hex[CORPUS_FINGERPRINT_BYTES])
{
    struct cache_key key;
    struct error err;
    CHECK(cache_key_init(&key, &err) == 0, "%s", err.text);
    for (int64_t i = 0; i < c->n_members; i++) {
        const struct dataset *d = &c->members[i].dataset;
        const char *slash = strrchr(d->data_path, '/');
        cache_key_mix_string(&key, slash ? slash + 1 : d->data_path);
        cache_key_mix_i64(&key, d->data_stat.st_size);
        cache_key_mix_i64(&key, d->index_stat.st_size);
    }
    cache_key_mix_array(&key, c->ends, c->n_documents);
    cache_key_hex(&key, hex);
    cache_key_release(&key);
}

static void mix_file(struct cache_key *key, const char *path, const struct stat *st)
{
    char *full = realpath(path, NULL);
    cache_key_mix_string(key, full ? full : path);
    free(full);
    cache_key_mix_i64(key, st->st_size);
    cache_key_mix_i64(key, st->st_mtim.tv_sec);
    cache_key_mix_i64(key, st->st_mtim.tv_nsec);
}

void corpus_mix_key(const struct corpus *c, struct cache_key *key)
{
    cache_key_mix_i64(key, c->n_members);
    for (int64_t i = 0; i < c->n_members; i++) {
        const struct dataset *d = &c->members[i].dataset;
        mix_file(key, d->data_path, &d->data_stat);
        mix_file(key, d->index_path, &d->index_stat);
    }
    cache_key_mix_i64(key, c->n_documents);
    cache_key_mix_array(key, c->ends, c->n_documents);
}

/* -- end of document ----------------------------------------------------------------- */

int corpus_resolve_eos(const struct corpus *c, int64_t configured, int64_t *eos,
                       struct error *err)
{
    const char *source = "dataset.eos_token_id";
    int64_t known = configured;
    for (int64_t i = 0; i < c->n_members; i++) {
        const struct dataset *d = &c->members[i].dataset;
        if (!d->has_meta)
            continue;
        if (known >= 0 && known != d->meta.eos_token_id)
            return error_set(
                err, ERROR_INPUT,
                "two different ends of document: %lld by %s, but %lld by the "
                ".meta.json of '%s'; %suse datasets made with one tokenizer",
                (long long)known, source, (long long)d->meta.eos_token_id, d->data_path,
                configured < 0 ? "" : "leave dataset.eos_token_id empty, or ");
        if (known < 0)
            source = d->data_path;
        known = d->meta.eos_token_id;
    }
    *eos = known;
    return 0;
}

/* -- tokens -------------------------------------------------------------------------- */

/* The largest id of each dataset, as unsigned, from the cache or by reading all. */
static int find_max_tokens(const struct corpus *c, const char *cache_dir,
                           int64_t **max_tokens, struct error *err)
{
    struct cache_key key;
    int64_t n = 0;
    int rc = -1;
    if (cache_key_init(&key, err))
        return -1;
    corpus_mix_key(c, &key);
    index_cache_load(cache_dir, "tokens", &key, max_tokens, &n);
    if (*max_tokens && n == c->n_members) {
        rc = 0;
        goto done;
    }
    free(*max_tokens);
    *max_tokens = malloc((size_t)c->n_members * sizeof **max_tokens);
    if (!*max_tokens) {
        error_set(err, ERROR_RUNTIME, "out of memory");
        goto done;
    }
    for (int64_t i = 0; i < c->n_members; i++) {
        uint64_t max;
        log_status("checking the token ids of '%s'", c->members[i].dataset.data_path);
        if (dataset_max_token(&c->members[i].dataset, &max, err))
            goto done;
        (*max_tokens)[i] = (int64_t)max;
    }
    index_cache_store(cache_dir, "tokens", &key, *max_tokens, c->n_members, CHECKS_KEPT);
    rc = 0;
done:
    log_status_clear();
    cache_key_release(&key);
    return rc;
}

static int bad_token(const struct dataset *d, int64_t position, int64_t id,
                     int64_t vocab_size, const char *remedy, struct error *err)
{
    return error_set(
        err, ERROR_INPUT,
        "'%s': token %lld (at byte %lld) has the id %lld, outside the vocabulary of "
        "%lld; %s",
        d->data_path, (long long)position,
        (long long)(d->data_offset + position * (int64_t)disk_int_bytes(d->type)),
        (long long)id, (long long)vocab_size, remedy);
}

/* Before training: the vocabulary is too small, or the data another's. */
static void refuse_token(const struct dataset *d, int64_t position, int64_t id,
                         int64_t vocab_size, struct error *err)
{
    char remedy[256];
    bool is_known = d->has_meta && d->meta.vocab_size > vocab_size;
    if (is_known)
        snprintf(remedy, sizeof remedy,
                 "set Model.vocab_size to %lld, the size of its tokenizer by its "
                 ".meta.json, or use the tokenizer that the model is for",
                 (long long)d->meta.vocab_size);
    bad_token(d, position, id, vocab_size,
              is_known ? remedy
                       : "set Model.vocab_size above the largest id, or use the "
                         "tokenizer that the model is for",
              err);
}

int corpus_check_tokens(struct corpus *c, int64_t vocab_size, const char *cache_dir,
                        struct error *err)
{
    int64_t *max_tokens = NULL, position, id;
    bool is_found;
    int rc = -1;
    if (!cache_dir || cache_dir[0] == 0)
        cache_dir = c->cache_dir;
    if (find_max_tokens(c, cache_dir, &max_tokens, err))
        goto done;
    for (int64_t i = 0; i < c->n_members; i++) {
        const struct dataset *d = &c->members[i].dataset;
        if ((uint64_t)max_tokens[i] < (uint64_t)vocab_size)
            continue;
        if (dataset_find_bad_token(d, vocab_size, &position, &id, &is_found, err))
            goto done;
        if (!is_found)
            continue;
        refuse_token(d, position, id, vocab_size, err);
        goto done;
    }
    c->vocab_size = vocab_size;
    rc = 0;
done:
    free(max_tokens);
    return rc;
}

/* The dataset that holds document `doc`: the last one that starts at or before it. An
 * empty dataset starts where the next one does, and the last of equals is taken. */
static const struct member *member_of(const struct corpus *c, int64_t doc)
{
    int64_t low = 0, high = c->n_members - 1;
    while (low < high) {
        int64_t middle = (low + high + 1) / 2;
        if (c->members[middle].first_doc <= doc)
            low = middle;
        else
            high = middle - 1;
    }
    return &c->members[low];
}

/* Ids were good when the file was checked: one that is not now was written since. */
static int check_as_read(const struct corpus *c, const struct dataset *d, int64_t first,
                         int64_t n, const int32_t *tokens, struct error *err)
{
    uint32_t most = 0;
    for (int64_t i = 0; i < n; i++)
        most = (uint32_t)tokens[i] > most ? (uint32_t)tokens[i] : most;
    if (c->vocab_size == 0 || n == 0 || (int64_t)most < c->vocab_size)
        return 0;
    int64_t bad = 0;
    while (tokens[bad] >= 0 && tokens[bad] < c->vocab_size)
        bad++;
    return bad_token(
        d, first + bad, tokens[bad], c->vocab_size,
        "it had none such when it was checked, so it has changed or its disk "
        "fails: restore the file, or prepare the text again",
        err);
}

int corpus_read(const struct corpus *c, int64_t doc, int64_t offset, int64_t n,
                int32_t *tokens, struct error *err)
{
    CHECK(doc >= 0 && doc < c->n_documents, "document %lld of %lld", (long long)doc,
          (long long)c->n_documents);
    CHECK(offset >= 0 && n >= 0 && n <= corpus_document_tokens(c, doc) - offset,
          "tokens %lld + %lld of %lld", (long long)offset, (long long)n,
          (long long)corpus_document_tokens(c, doc));
    const struct member *p = member_of(c, doc);
    int64_t first = document_start(c, doc) - p->first_token + offset;
    if (dataset_read(&p->dataset, first, n, tokens, err))
        return -1;
    return check_as_read(c, &p->dataset, first, n, tokens, err);
}

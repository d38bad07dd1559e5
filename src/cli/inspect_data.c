/*
 * A dataset's index is read whole and its tokens once, for the largest id; of its
 * documents and of a vocabulary a few are shown, spread evenly.
 */
#include "cli/inspect_data.h"

#include "base/log.h"
#include "cli/report.h"
#include "data/formats/dataset_list.h"
#include "text/tokenizer.h"

#include <stdlib.h>
#include <string.h>

#define MOST_SPECIALS 64 // special tokens that are listed

/* -- datasets ------------------------------------------------------------------------ */

static int64_t document_start(const struct dataset *d, int64_t doc)
{
    return doc == 0 ? 0 : d->document_ends[doc - 1];
}

static int64_t document_tokens(const struct dataset *d, int64_t doc)
{
    return d->document_ends[doc] - document_start(d, doc);
}

static json_t *describe_lengths(const struct dataset *d)
{
    int64_t least = INT64_MAX, most = 0, n_empty = 0;
    for (int64_t doc = 0; doc < d->n_documents; doc++) {
        int64_t n = document_tokens(d, doc);
        least = i64_min(least, n);
        most = i64_max(most, n);
        n_empty += n == 0;
    }
    json_t *lengths = json_object();
    report_set_int(lengths, "least", d->n_documents ? least : 0);
    report_set(
        lengths, "mean",
        json_real(d->n_documents ? (double)d->n_tokens / (double)d->n_documents : 0.0));
    report_set_int(lengths, "most", most);
    report_set_int(lengths, "empty_documents", n_empty);
    return lengths;
}

static json_t *describe_meta(const struct dataset_meta *meta)
{
    json_t *object = json_object();
    report_set_text(object, "tokenizer", meta->tokenizer);
    report_set_int(object, "vocab_size", meta->vocab_size);
    report_set_int(object, "eos_token_id", meta->eos_token_id);
    return object;
}

/* The largest id, by reading all tokens; a negative one is the largest as unsigned. */
static int add_largest_id(json_t *object, const struct dataset *d, struct error *err)
{
    uint64_t max;
    log_status("reading '%s'", d->data_path);
    int rc = dataset_max_token(d, &max, err);
    log_status_clear();
    if (rc)
        return -1;
    if (max > INT64_MAX) {
        report_set(object, "largest_id", json_null());
        report_note(object,
                    "there are negative ids, %lld for one: no model can train "
                    "on this dataset",
                    (long long)max);
        return 0;
    }
    report_set(object, "largest_id",
               d->n_tokens ? json_integer((json_int_t)max) : json_null());
    if (d->has_meta && d->n_tokens && max >= (uint64_t)d->meta.vocab_size)
        report_note(object, "the largest id is not below the vocab_size of .meta.json");
    return 0;
}

/* -- samples ------------------------------------------------------------------------- */

/* NULL in *t when the dataset names no tokenizer, or one that cannot be opened. */
static int open_dataset_tokenizer(json_t *object, const struct dataset *d,
                                  const struct inspect_options *opt, struct tokenizer **t,
                                  struct error *err)
{
    struct error why;
    *t = NULL;
    if (opt->tokenizer)
        return tokenizer_open(t, opt->tokenizer, err);
    if (!d->has_meta)
        report_note(object, "no .meta.json names the tokenizer; --tokenizer decodes");
    else if (tokenizer_open(t, d->meta.tokenizer, &why))
        report_note(object, "not decoded: %s; --tokenizer names another", why.text);
    return 0;
}

static json_t *decode_sample(const struct tokenizer *t, const int32_t *ids, int64_t n)
{
    size_t n_bytes = tokenizer_decode(t, ids, n, NULL, 0);
    char *bytes = malloc(n_bytes + 1);
    CHECK(bytes, "out of memory");
    tokenizer_decode(t, ids, n, bytes, n_bytes);
    json_t *text = report_text(bytes, n_bytes);
    free(bytes);
    return text;
}

static json_t *list_ids(const int32_t *ids, int64_t n)
{
    json_t *list = json_array();
    for (int64_t i = 0; i < n; i++)
        report_append(list, json_integer(ids[i]));
    return list;
}

static int add_sample_documents(json_t *object, const struct dataset *d,
                                const struct inspect_options *opt, struct error *err)
{
    struct tokenizer *t = NULL;
    int64_t n_samples = i64_min(opt->n_samples, d->n_documents);
    int32_t *ids = malloc((size_t)opt->n_tokens * sizeof *ids + 1);
    json_t *samples = json_array();
    int rc = -1;
    report_set(object, "samples", samples);
    if (!ids) {
        error_set(err, ERROR_RUNTIME, "no memory for %lld tokens",
                  (long long)opt->n_tokens);
        goto done;
    }
    if (n_samples > 0 && open_dataset_tokenizer(object, d, opt, &t, err))
        goto done;
    for (int64_t i = 0; i < n_samples; i++) {
        // spread evenly; the product is kept small by dividing first
        int64_t doc =
            d->n_documents / n_samples * i + d->n_documents % n_samples * i / n_samples;
        int64_t n = i64_min(opt->n_tokens, document_tokens(d, doc));
        if (dataset_read(d, document_start(d, doc), n, ids, err))
            goto done;
        json_t *sample = json_object();
        report_set_int(sample, "document", doc);
        report_set_int(sample, "tokens", document_tokens(d, doc));
        report_set_int(sample, "shown", n);
        report_set(sample, t ? "text" : "ids",
                   t ? decode_sample(t, ids, n) : list_ids(ids, n));
        report_append(samples, sample);
    }
    rc = 0;
done:
    tokenizer_close(t);
    free(ids);
    return rc;
}

/* -- one dataset --------------------------------------------------------------------- */

static json_t *describe_dataset(const struct dataset *d,
                                const struct inspect_options *opt, struct error *err)
{
    json_t *object = json_object();
    bool has_two_files = strcmp(d->data_path, d->index_path) != 0;
    report_set_text(object, "data_file", d->data_path);
    report_set_text(object, "index_file", d->index_path);
    report_set(object, "format", json_string(dataset_formats[d->format].name));
    report_set_int(object, "bytes",
                   d->data_stat.st_size + (has_two_files ? d->index_stat.st_size : 0));
    report_set_int(object, "documents", d->n_documents);
    report_set_int(object, "tokens", d->n_tokens);
    report_set(object, "token_type", json_string(disk_int_name(d->type)));
    report_set(object, "document_tokens", describe_lengths(d));
    report_set(object, "meta", d->has_meta ? describe_meta(&d->meta) : json_null());
    if (add_largest_id(object, d, err) == 0 &&
        add_sample_documents(object, d, opt, err) == 0)
        return object;
    json_decref(object);
    return NULL;
}

json_t *inspect_datasets(const char *input, const struct inspect_options *opt,
                         struct error *err)
{
    struct dataset_list list;
    json_t *datasets = json_array();
    int rc = -1;
    if (dataset_list_find(&list, input, err))
        goto done;
    for (int64_t i = 0; i < list.n_entries; i++) {
        struct dataset d;
        if (dataset_open(&d, list.entries[i].prefix, list.entries[i].format, err))
            goto done;
        json_t *object = describe_dataset(&d, opt, err);
        dataset_close(&d);
        if (!object)
            goto done;
        report_append(datasets, object);
    }
    rc = 0;
done:
    dataset_list_release(&list);
    if (rc) {
        json_decref(datasets);
        return NULL;
    }
    return datasets;
}

/* -- tokenizers ---------------------------------------------------------------------- */

static json_t *describe_token(const struct tokenizer *t, int32_t id)
{
    size_t n = 0;
    const char *bytes = tokenizer_token_bytes(t, id, &n);
    json_t *object = json_object();
    report_set_int(object, "id", id);
    report_set_int(object, "bytes", (int64_t)n);
    report_set(object, "text", report_text(bytes ? bytes : "", n));
    return object;
}

/* Counts over all ids; special tokens are listed on the way. */
static void count_tokens(json_t *object, const struct tokenizer *t)
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
            report_append(specials, describe_token(t, (int32_t)id));
        if (!is_special && n > most) {
            most = n;
            longest = id;
        }
    }
    report_set_int(object, "tokens", n_tokens);
    report_set_int(object, "merges", tokenizer_n_merges(t));
    report_set_int(object, "special_tokens", n_special);
    report_set(object, "eos_token_id",
               tokenizer_eos(t) >= 0 ? json_integer(tokenizer_eos(t)) : json_null());
    report_set(object, "specials", specials);
    if (longest >= 0) {
        json_t *rows = json_array();
        report_append(rows, describe_token(t, (int32_t)longest));
        report_set(object, "longest", rows);
    }
    if (n_special > MOST_SPECIALS)
        report_note(object, "only the first %d special tokens are listed", MOST_SPECIALS);
    if (tokenizer_eos(t) < 0)
        report_note(object, "no token ends a document");
}

/* A few tokens spread over the vocabulary; where an id is no token, the next one. */
static void add_sample_tokens(json_t *object, const struct tokenizer *t,
                              int64_t n_samples)
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
        report_append(samples, describe_token(t, (int32_t)id));
        next = id + 1;
    }
    report_set(object, "samples", samples);
}

json_t *inspect_tokenizer(const char *name, const struct inspect_options *opt,
                          struct error *err)
{
    struct tokenizer *t;
    if (tokenizer_open(&t, name, err))
        return NULL;
    json_t *object = json_object();
    report_set_text(object, "name", name);
    report_set_int(object, "vocab_size", tokenizer_vocab_size(t));
    count_tokens(object, t);
    add_sample_tokens(object, t, opt->n_samples);
    tokenizer_close(t);
    return object;
}

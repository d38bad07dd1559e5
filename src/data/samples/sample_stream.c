#include "data/samples/sample_stream.h"

#include "base/grow.h"
#include "base/log.h"
#include "data/formats/dataset_list.h"
#include "data/samples/document_hash.h"
#include "data/samples/index_cache.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

/* -- every dataset once -------------------------------------------------------------- */

struct data_file { // of one dataset
    dev_t device;
    ino_t inode;
    int64_t input; // which element of the list names it
    char *path;
};

struct data_files {
    struct data_file *files;
    int64_t n_files, capacity;
};

/* The data files that input number `input` stands for. */
static int add_files(struct data_files *all, int64_t input, const char *path,
                     struct error *err)
{
    struct dataset_list list;
    int rc = dataset_list_find(&list, path, err);
    for (int64_t i = 0; i < list.n_entries && rc == 0; i++) {
        const struct dataset_list_entry *e = &list.entries[i];
        struct data_file f = {.input = input};
        struct stat st;
        if (grow_array(&all->files, &all->capacity, all->n_files + 1,
                       sizeof *all->files) ||
            asprintf(&f.path, "%s%s", e->prefix, dataset_formats[e->format].data_suffix) <
                0) {
            rc = error_set(err, ERROR_RUNTIME, "out of memory");
            break;
        }
        if (stat(f.path, &st) == 0) { // opening it reports what cannot be read
            f.device = st.st_dev;
            f.inode = st.st_ino;
        }
        all->files[all->n_files++] = f;
    }
    dataset_list_release(&list);
    return rc;
}

static int compare_files(const void *a, const void *b)
{
    const struct data_file *x = a, *y = b;
    if (x->device != y->device)
        return x->device < y->device ? -1 : 1;
    if (x->inode != y->inode)
        return x->inode < y->inode ? -1 : 1;
    return x->input < y->input ? -1 : x->input > y->input;
}

/* A dataset that is in two inputs would count twice by mistake. */
static int check_distinct(const char *const *paths, int64_t n, struct error *err)
{
    struct data_files all = {0};
    int rc = 0;
    for (int64_t i = 0; i < n && n > 1 && rc == 0; i++)
        rc = add_files(&all, i, paths[i], err);
    if (all.n_files > 1)
        qsort(all.files, (size_t)all.n_files, sizeof *all.files, compare_files);
    for (int64_t i = 1; i < all.n_files && rc == 0; i++) {
        const struct data_file *f = &all.files[i], *before = f - 1;
        if (f->inode != 0 && f->device == before->device && f->inode == before->inode &&
            f->input != before->input)
            rc = error_set(err, ERROR_INPUT,
                           "dataset.input_dir: '%s' and '%s' both mean the dataset "
                           "'%s'; name it once, and set dataset.weights to have more "
                           "of it",
                           paths[before->input], paths[f->input], before->path);
    }
    for (int64_t i = 0; i < all.n_files; i++)
        free(all.files[i].path);
    free(all.files);
    return rc;
}

/* -- inputs -------------------------------------------------------------------------- */

static int open_corpora(struct input_set *set, const char *const *paths, int64_t n_paths,
                        bool is_blend, struct error *err)
{
    int64_t n = is_blend ? n_paths : 1;
    set->corpora = calloc((size_t)n, sizeof(struct corpus *));
    if (!set->corpora)
        return error_set(err, ERROR_RUNTIME, "out of memory");
    for (int64_t i = 0; i < n; i++) {
        if (corpus_open_list(&set->corpora[i], paths + i, is_blend ? 1 : n_paths, err))
            return -1;
        set->n_corpora++;
    }
    return 0;
}

/* Every corpus agrees with the configuration; they must with each other too. */
static int resolve_eos(struct input_set *set, int64_t configured, struct error *err)
{
    const char *source = NULL;
    set->eos = -1;
    for (int64_t i = 0; i < set->n_corpora; i++) {
        int64_t eos;
        if (corpus_resolve_eos(set->corpora[i], configured, &eos, err))
            return -1;
        if (eos >= 0 && set->eos >= 0 && eos != set->eos)
            return error_set(err, ERROR_INPUT,
                             "two different ends of document: %lld by the .meta.json of "
                             "'%s', but %lld by that of '%s'; use datasets made with one "
                             "tokenizer",
                             (long long)set->eos, source, (long long)eos,
                             corpus_input(set->corpora[i]));
        if (eos >= 0 && set->eos < 0) {
            set->eos = eos;
            source = corpus_input(set->corpora[i]);
        }
    }
    return 0;
}

static bool has_pad_loss(const struct config_dataset *d)
{
    return d->pad_loss && d->mode == SAMPLES_PADDED;
}

static int check_eos(struct input_set *set, const struct config *cfg, struct error *err)
{
    const struct config_dataset *d = &cfg->dataset;
    if (resolve_eos(set, d->eos_token_id, err))
        return -1;
    if (set->eos >= cfg->model.vocab_size)
        return error_set(err, ERROR_INPUT,
                         "the end-of-document token %lld, which the .meta.json of the "
                         "dataset names, is not below Model.vocab_size %lld; set that to "
                         "at least %lld",
                         (long long)set->eos, (long long)cfg->model.vocab_size,
                         (long long)set->eos + 1);
    if (d->eod_mask_loss && set->eos < 0)
        return error_set(err, ERROR_INPUT,
                         "dataset.eod_mask_loss needs to know the end-of-document token: "
                         "set dataset.eos_token_id (GPT-2: 50256)");
    if (has_pad_loss(d) && set->eos < 0)
        return error_set(
            err, ERROR_INPUT,
            "dataset.pad_loss needs to know the end-of-document token, which "
            "is the padding: set dataset.eos_token_id (GPT-2: 50256), or set "
            "dataset.pad_loss to False");
    return 0;
}

/* They stay open: where they cannot be cached, the other processes of the machine find them
 * in shared memory as long as one has them. */
static int open_hashes(struct input_set *set, const char *cache_dir, struct error *err)
{
    set->hashes = calloc((size_t)set->n_corpora, sizeof *set->hashes);
    if (!set->hashes)
        return error_set(err, ERROR_RUNTIME, "out of memory");
    for (int64_t i = 0; i < set->n_corpora; i++)
        if (document_hash_open(&set->hashes[i], set->corpora[i], cache_dir, err))
            return -1;
    return 0;
}

/* Whether some document of n tokens does not end in the token that ends documents. */
static int look_for_other_end(const struct input_set *set, int64_t n, bool *is_found,
                              struct error *err)
{
    *is_found = false;
    for (int64_t i = 0; i < set->n_corpora; i++) {
        const struct corpus *c = set->corpora[i];
        for (int64_t doc = 0; doc < corpus_n_documents(c) && !*is_found; doc++) {
            int32_t last;
            if (corpus_document_tokens(c, doc) != n)
                continue;
            if (corpus_read(c, doc, n - 1, 1, &last, err))
                return -1;
            *is_found = last != set->eos;
        }
    }
    return 0;
}

/* The longest document without the token that ends it, S tokens at most. */
static int find_padded_len(struct input_set *set, int64_t S, bool reads_tokens,
                           struct error *err)
{
    int64_t longest = 1;
    bool is_text = true; // the last token of the longest
    for (int64_t i = 0; i < set->n_corpora; i++)
        for (int64_t doc = 0; doc < corpus_n_documents(set->corpora[i]); doc++)
            longest = i64_max(longest, corpus_document_tokens(set->corpora[i], doc));
    if (longest > 1 && longest <= S && set->eos >= 0 && reads_tokens &&
        look_for_other_end(set, longest, &is_text, err))
        return -1;
    set->padded_len = i64_min(S, is_text ? longest : longest - 1);
    if (set->padded_len < 2)
        return error_set(err, ERROR_INPUT,
                         "dataset.pad_loss: no document of '%s' has a second token that "
                         "could be predicted; prepare longer texts, or raise "
                         "dataset.max_seq_len above 1",
                         corpus_input(set->corpora[0]));
    return 0;
}

static int open_set(struct input_set *set, const struct config *cfg, bool reads_tokens,
                    struct error *err)
{
    const struct config_dataset *d = &cfg->dataset;
    const struct config_paths *inputs = config_datasets(d);
    int64_t n_paths = inputs->n_paths;
    int rc = -1;
    *set = (struct input_set){.weights = d->weights.values, .eos = -1};
    const char **paths = malloc((size_t)(n_paths + 1) * sizeof *paths);
    if (!paths)
        return error_set(err, ERROR_RUNTIME, "out of memory");
    for (int64_t i = 0; i < n_paths; i++)
        paths[i] = config_path_at(inputs, i);
    if (check_distinct(paths, n_paths, err) ||
        open_corpora(set, paths, n_paths, d->weights.n_values > 0, err))
        goto done;
    for (int64_t i = 0; i < set->n_corpora && reads_tokens; i++)
        if (corpus_check_tokens(set->corpora[i], cfg->model.vocab_size, d->cache_dir,
                                err))
            goto done;
    if (check_eos(set, cfg, err) ||
        (d->split_by == SPLIT_BY_DOCUMENT && open_hashes(set, d->cache_dir, err)))
        goto done;
    set->options = (struct sample_index_options){
        .split = {d->split[0], d->split[1], d->split[2]},
        .split_by = d->split_by,
        .seq_len = d->max_seq_len,
        .seed = cfg->seed,
        .cache_dir = d->cache_dir,
        .mode = d->mode,
        .pad_loss = has_pad_loss(d),
        .eos = set->eos,
        .pad = set->eos >= 0 ? (int32_t)set->eos : 0,
    };
    if (has_pad_loss(d) && find_padded_len(set, d->max_seq_len, reads_tokens, err))
        goto done;
    // one document per sample: there is no border to cross
    set->has_document_start = d->reset_attention_mask && d->mode == SAMPLES_PACKED;
    set->whole_batch = d->drop_last ? cfg->batch_size.global_batch_size : 0;
    rc = 0;
done:
    free(paths);
    if (rc)
        input_set_close(set);
    return rc;
}

int input_set_open(struct input_set *set, const struct config *cfg, struct error *err)
{
    return open_set(set, cfg, true, err);
}

int input_set_open_unread(struct input_set *set, const struct config *cfg,
                          struct error *err)
{
    return open_set(set, cfg, false, err);
}

int64_t input_set_bytes(const struct input_set *set)
{
    int64_t n_documents = 0;
    for (int64_t i = 0; i < set->n_corpora; i++)
        n_documents += corpus_n_documents(set->corpora[i]);
    return n_documents * (int64_t)sizeof(int64_t);
}

int64_t input_set_hash_bytes(const struct input_set *set)
{
    return set->hashes ? input_set_bytes(set) : 0; // one number per document, too
}

void input_set_close(struct input_set *set)
{
    for (int64_t i = 0; set->hashes && i < set->n_corpora; i++)
        index_map_close(&set->hashes[i]);
    free(set->hashes);
    for (int64_t i = 0; i < set->n_corpora; i++)
        corpus_close(set->corpora[i]);
    free(set->corpora);
    *set = (struct input_set){.eos = -1};
}

void input_set_fingerprint(const struct input_set *set,
                           char hex[CORPUS_FINGERPRINT_BYTES])
{
    struct cache_key key;
    struct error err;
    if (set->n_corpora == 1) {
        corpus_fingerprint(set->corpora[0], hex);
        return;
    }
    CHECK(cache_key_init(&key, &err) == 0, "%s", err.text);
    for (int64_t i = 0; i < set->n_corpora; i++) {
        corpus_fingerprint(set->corpora[i], hex);
        cache_key_mix_string(&key, hex);
        cache_key_mix_f64(&key, set->weights[i]);
    }
    cache_key_hex(&key, hex);
    cache_key_release(&key);
}

/* -- samples ------------------------------------------------------------------------- */

/* Of the first n positions of a blend, those that index i gives at most. */
static int64_t positions_of(const struct sample_stream *stream, int64_t i, int64_t n)
{
    return stream->n_indexes == 1 ? n : blend_most(&stream->blend, i, n);
}

static int open_indexes(struct sample_stream *stream, const struct input_set *set,
                        enum split_part part, int64_t n_samples, struct error *err)
{
    for (int64_t i = 0; i < stream->n_indexes; i++) {
        struct sample_index_options opt = set->options;
        opt.part = part;
        opt.hashes = set->hashes ? &set->hashes[i] : NULL;
        opt.n_samples = positions_of(stream, i, n_samples);
        if (sample_index_open(&stream->indexes[i], set->corpora[i], &opt, err))
            return -1;
    }
    return 0;
}

/* The first position of an epoch in the full order, before anything is dropped. */
static int64_t order_start(const struct sample_stream *stream, int64_t epoch)
{
    int64_t sum = 0;
    for (int64_t i = 0; i < stream->n_indexes; i++)
        if (__builtin_add_overflow(
                sum, sample_epochs_before(&stream->indexes[i].epochs, epoch), &sum))
            return INT64_MAX;
    return sum;
}

/* The place of a position in the full order; INT64_MAX when it would overflow. */
static int64_t order_at(const struct sample_stream *stream, int64_t pos)
{
    int64_t used = stream->epoch_used, at;
    if (used == 0)
        return pos;
    if (__builtin_add_overflow(order_start(stream, pos / used), pos % used, &at))
        return INT64_MAX;
    return at;
}

/* Every epoch has batches of `batch` samples only. */
static int use_whole_batches(struct sample_stream *stream, int64_t batch,
                             int64_t n_samples, struct error *err)
{
    int64_t each = order_start(stream, 1);
    stream->epoch_used = each / batch * batch;
    if (stream->epoch_used == 0)
        return error_set(err, ERROR_INPUT,
                         "dataset.drop_last: an epoch of the training part has %lld "
                         "samples, fewer than one global batch of %lld; lower "
                         "batch_size.global_batch_size, or set dataset.drop_last to "
                         "False",
                         (long long)each, (long long)batch);
    int64_t last = order_at(stream, n_samples - 1);
    for (int64_t i = 0; i < stream->n_indexes; i++)
        if (sample_index_need(&stream->indexes[i],
                              positions_of(stream, i, last < INT64_MAX ? last + 1 : last),
                              err))
            return -1;
    return 0;
}

void sample_stream_log(const struct sample_stream *stream, int64_t n_samples)
{
    if (stream->epoch_used > 0)
        log_info("dataset.drop_last: every epoch uses %lld of its %lld samples",
                 (long long)stream->epoch_used, (long long)order_start(stream, 1));
    for (int64_t i = 0; i < stream->n_indexes; i++) {
        const struct sample_index *index = &stream->indexes[i];
        if (stream->n_indexes > 1)
            log_info("%s samples from '%s': %.0f of %lld", split_part_name(index->part),
                     corpus_input(index->epochs.corpus),
                     stream->blend.shares[i] * (double)n_samples, (long long)n_samples);
        else
            log_info("%s samples: %lld in %lld epochs of %lld tokens",
                     split_part_name(index->part), (long long)n_samples,
                     (long long)index->n_epochs, (long long)index->epochs.n_tokens);
    }
}

int sample_stream_open(struct sample_stream *stream, const struct input_set *set,
                       enum split_part part, int64_t n_samples, struct error *err)
{
    int rc = -1;
    *stream = (struct sample_stream){
        .seq_len = set->options.seq_len,
        .has_document_start = set->has_document_start,
        .padded_len = set->padded_len,
        .indexes = calloc((size_t)set->n_corpora, sizeof(struct sample_index)),
    };
    if (!stream->indexes)
        return error_set(err, ERROR_RUNTIME, "out of memory");
    stream->n_indexes = set->n_corpora;
    pthread_mutex_init(&stream->reading, NULL);
    const char *dir = set->options.cache_dir; // or beside the first corpus
    if (stream->n_indexes > 1 &&
        blend_init(&stream->blend, set->weights, set->n_corpora,
                   dir && dir[0] ? dir : corpus_default_cache_dir(set->corpora[0]), err))
        goto done;
    if (open_indexes(stream, set, part, n_samples, err))
        goto done;
    stream->n_samples = stream->n_indexes > 1 ? n_samples : stream->indexes[0].n_samples;
    if (part == SPLIT_TRAIN && set->whole_batch > 0) {
        stream->n_samples = n_samples;
        if (use_whole_batches(stream, set->whole_batch, n_samples, err))
            goto done;
    }
    rc = 0;
done:
    if (rc)
        sample_stream_close(stream);
    return rc;
}

void sample_stream_close(struct sample_stream *stream)
{
    for (int64_t i = 0; i < stream->n_indexes; i++)
        sample_index_close(&stream->indexes[i]);
    if (stream->indexes)
        pthread_mutex_destroy(&stream->reading);
    free(stream->indexes);
    blend_release(&stream->blend);
    *stream = (struct sample_stream){0};
}

int64_t sample_stream_epoch_start(const struct sample_stream *stream, int64_t epoch)
{
    int64_t start;
    if (stream->epoch_used == 0)
        return order_start(stream, epoch);
    return __builtin_mul_overflow(epoch, stream->epoch_used, &start) ? INT64_MAX : start;
}

int64_t sample_stream_epoch_of(const struct sample_stream *stream, int64_t pos)
{
    if (stream->epoch_used > 0)
        return pos / stream->epoch_used;
    if (stream->n_indexes == 1)
        return sample_epochs_of(&stream->indexes[0].epochs, pos);
    // the last epoch that starts at or before pos; at `high` one starts after it
    int64_t low = 0, high = 1;
    while (sample_stream_epoch_start(stream, high) <= pos && high < INT64_MAX / 2)
        high *= 2;
    while (high - low > 1) {
        int64_t middle = low + (high - low) / 2;
        if (sample_stream_epoch_start(stream, middle) <= pos)
            low = middle;
        else
            high = middle;
    }
    return low;
}

double sample_stream_bytes(const struct sample_stream *stream)
{
    double total = 0;
    for (int64_t i = 0; i < stream->n_indexes; i++)
        total += sample_index_bytes(&stream->indexes[i]);
    return total;
}

double sample_stream_making_bytes(const struct sample_stream *stream)
{
    double most = 0;
    for (int64_t i = 0; i < stream->n_indexes; i++)
        most = fmax(most, sample_index_making_bytes(&stream->indexes[i]));
    return most;
}

double sample_stream_list_bytes(const struct sample_stream *stream)
{
    double total = 0;
    for (int64_t i = 0; i < stream->n_indexes; i++)
        total += sample_index_list_bytes(&stream->indexes[i]);
    return total;
}

int sample_stream_read(struct sample_stream *stream, int64_t pos, struct sample *out,
                       struct error *err)
{
    int64_t at = order_at(stream, pos);
    struct blend_turn turn = {.dataset = 0, .sample = at};
    pthread_mutex_lock(&stream->reading);
    if (stream->n_indexes > 1)
        turn = blend_at(&stream->blend, at);
    int rc = sample_index_read(&stream->indexes[turn.dataset], turn.sample, out, err);
    pthread_mutex_unlock(&stream->reading);
    return rc;
}

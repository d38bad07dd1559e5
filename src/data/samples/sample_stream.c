#include "data/samples/sample_stream.h"

#include "base/log.h"

#include <math.h>
#include <stdlib.h>

/* Beside the first corpus, as its own index. */
static int open_blend(struct sample_stream *stream, const struct input_set *set,
                      struct error *err)
{
    const char *dir = set->options.cache_dir;
    if (!dir || dir[0] == 0)
        dir = corpus_default_cache_dir(set->corpora[0]);
    return blend_init(&stream->blend, set->weights, set->n_corpora, dir, err);
}

static int open_indexes(struct sample_stream *stream, const struct input_set *set,
                        enum split_part part, int64_t n_samples, struct error *err)
{
    for (int64_t i = 0; i < stream->n_indexes; i++) {
        struct sample_index_options opt = set->options;
        opt.part = part;
        opt.n_samples =
            stream->n_indexes == 1 ? n_samples : blend_most(&stream->blend, i, n_samples);
        if (sample_index_open(&stream->indexes[i], set->corpora[i], &opt, err))
            return -1;
    }
    return 0;
}

void sample_stream_log(const struct sample_stream *stream, int64_t n_samples)
{
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
        .indexes = calloc((size_t)set->n_corpora, sizeof(struct sample_index)),
    };
    if (!stream->indexes)
        return error_set(err, ERROR_RUNTIME, "out of memory");
    stream->n_indexes = set->n_corpora;
    pthread_mutex_init(&stream->reading, NULL);
    if (stream->n_indexes > 1 && open_blend(stream, set, err))
        goto done;
    if (open_indexes(stream, set, part, n_samples, err))
        goto done;
    stream->n_samples = stream->n_indexes > 1 ? n_samples : stream->indexes[0].n_samples;
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
    int64_t sum = 0;
    for (int64_t i = 0; i < stream->n_indexes; i++)
        if (__builtin_add_overflow(
                sum, sample_index_epoch_start(&stream->indexes[i], epoch), &sum))
            return INT64_MAX;
    return sum;
}

int64_t sample_stream_epoch_of(const struct sample_stream *stream, int64_t pos)
{
    if (stream->n_indexes == 1)
        return sample_index_epoch_of(&stream->indexes[0], pos);
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

int sample_stream_read(struct sample_stream *stream, int64_t pos, struct sample *out,
                       struct error *err)
{
    struct blend_turn turn = {.dataset = 0, .sample = pos};
    pthread_mutex_lock(&stream->reading);
    if (stream->n_indexes > 1)
        turn = blend_at(&stream->blend, pos);
    int rc = sample_index_read(&stream->indexes[turn.dataset], turn.sample, out, err);
    pthread_mutex_unlock(&stream->reading);
    return rc;
}

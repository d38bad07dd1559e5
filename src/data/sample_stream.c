#include "data/sample_stream.h"

#include "base/log.h"

#include <stdlib.h>

static int open_blend(struct sample_stream *stream, const struct input_set *set,
                      enum split_part part, int64_t n_samples, struct error *err)
{
    if (blend_init(&stream->blend, set->weights, set->n_corpora, n_samples, err))
        return -1;
    // one sample is asked for by who wants to know the sizes only
    for (int64_t i = 0; i < set->n_corpora && n_samples > 1; i++)
        log_info("%s samples from '%s': %lld of %lld", split_part_name(part),
                 corpus_input(set->corpora[i]), (long long)stream->blend.totals[i],
                 (long long)n_samples);
    return 0;
}

/* A corpus whose weight is too small for its first turn still must be sound. */
static int64_t samples_of(const struct sample_stream *stream, int64_t i,
                          int64_t n_samples)
{
    return stream->n_indexes == 1 ? n_samples : i64_max(1, stream->blend.totals[i]);
}

static int open_indexes(struct sample_stream *stream, const struct input_set *set,
                        enum split_part part, int64_t n_samples, struct error *err)
{
    for (int64_t i = 0; i < stream->n_indexes; i++) {
        struct sample_index_options opt = set->options;
        opt.part = part;
        opt.n_samples = samples_of(stream, i, n_samples);
        if (sample_index_open(&stream->indexes[i], set->corpora[i], &opt, err))
            return -1;
    }
    return 0;
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
    if (stream->n_indexes > 1 && open_blend(stream, set, part, n_samples, err))
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
    while (sample_stream_epoch_start(stream, high) <= pos)
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

int sample_stream_read(const struct sample_stream *stream, int64_t pos,
                       struct sample *out, struct error *err)
{
    if (stream->n_indexes == 1)
        return sample_index_read(&stream->indexes[0], pos, out, err);
    struct blend_turn turn = blend_at(&stream->blend, pos);
    return sample_index_read(&stream->indexes[turn.dataset], turn.sample, out, err);
}

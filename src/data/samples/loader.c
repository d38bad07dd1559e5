/*
 * The ring: slot (step - first_step) % N_SLOTS. `n_filled` counts slots the reader has
 * finished, `n_released` those the consumer is done with; the reader may be N_SLOTS ahead
 * of the latter. Both only grow, under one mutex. A slot is touched by the reader while
 * it is neither filled nor unreleased, by the consumer otherwise; so the data itself
 * needs no lock.
 *
 * The reader ends by itself after an error; the consumer finds out when it asks for the
 * step that it belongs to.
 */
#include "data/samples/loader.h"

#include "base/arena.h"
#include "base/beat.h"
#include "base/process.h"
#include "base/thread.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define N_SLOTS 4

struct ring { // the arrays of all slots' batches, (N_SLOTS, local_batch, S)
    int32_t *tokens, *targets;
    float *loss_mask;
    int32_t *document_start; // NULL: documents do not matter
    int32_t *key_end;        // (N_SLOTS, local_batch); NULL: padding does not count
    int32_t *window;         // (S + 1) the sample at hand
};

struct loader {
    struct loader_options opt;
    struct sample_stream *stream;
    struct arena arena;
    struct ring ring;
    struct batch slots[N_SLOTS]; // what is in the ring
    pthread_t thread;
    bool has_thread;

    pthread_mutex_t lock;
    pthread_cond_t changed; // any of the following
    int64_t n_filled;
    int64_t n_released;
    bool is_stopping; // the consumer wants the reader to end
    bool is_failed;   // the reader ended with `failure`
    struct error failure;
    int64_t n_asked; // calls of loader_next; the consumer's own
};

static void layout_ring(struct ring *r, struct arena *ar, int64_t local_batch,
                        const struct sample_stream *stream)
{
    int64_t n = N_SLOTS * local_batch * stream->seq_len;
    r->tokens = arena_i32(ar, n);
    r->targets = arena_i32(ar, n);
    r->loss_mask = arena_f32(ar, n);
    if (stream->has_document_start)
        r->document_start = arena_i32(ar, n);
    if (stream->padded_len > 0)
        r->key_end = arena_i32(ar, N_SLOTS * local_batch);
    r->window = arena_i32(ar, stream->seq_len + 1);
}

static void place_slots(struct loader *l)
{
    int64_t B = l->opt.local_batch, S = l->stream->seq_len;
    const struct ring *r = &l->ring;
    for (int i = 0; i < N_SLOTS; i++) {
        int64_t at = i * B * S;
        l->slots[i] = (struct batch){
            .B = B,
            .S = S,
            .tokens = r->tokens + at,
            .targets = r->targets + at,
            .loss_mask = r->loss_mask + at,
            .document_start = r->document_start ? r->document_start + at : NULL,
            .key_end = r->key_end ? r->key_end + i * B : NULL,
            .first_sample = l->opt.data_rank * B,
        };
    }
}

/* Split the window into input, target and mask, from element `at` of the ring on; the
 * tokens that count. Where padding counts, the last token of a sample has no target. */
static int64_t place_sample(struct loader *l, int64_t at, int64_t n_real)
{
    int64_t S = l->stream->seq_len, n_counted = 0;
    int64_t end = l->stream->padded_len > 0 ? l->stream->padded_len : n_real;
    const struct ring *r = &l->ring;
    memcpy(r->tokens + at, r->window, (size_t)S * sizeof *r->tokens);
    memcpy(r->targets + at, r->window + 1, (size_t)S * sizeof *r->targets);
    for (int64_t s = 0; s < S; s++) {
        bool is_eos = s < n_real && r->window[s] == l->opt.eos;
        bool counts = s + 1 < end && !(l->opt.eod_mask_loss && is_eos);
        r->loss_mask[at + s] = counts ? 1.0f : 0.0f;
        n_counted += counts;
    }
    return n_counted;
}

/* Padding is hidden. A sample of padding alone hides nothing: to hide every key would be
 * the same for softmax as to hide none. */
static int32_t key_end_of(const struct loader *l, int64_t n_real)
{
    int64_t S = l->stream->seq_len;
    return (int32_t)(n_real > 0 ? i64_min(n_real, S) : S);
}

static int fill_slot(struct loader *l, int slot, int64_t step, struct error *err)
{
    int64_t first, S = l->stream->seq_len;
    struct batch *batch = &l->slots[slot];
    const struct ring *r = &l->ring;
    if (__builtin_mul_overflow(step + 1, l->opt.global_batch, &first))
        return error_set(err, ERROR_INPUT,
                         "step %lld of the data is past counting; is the checkpoint that "
                         "the run goes on from damaged?",
                         (long long)step);
    first += l->opt.data_rank * l->opt.local_batch - l->opt.global_batch;
    batch->step = step;
    batch->n_counted = 0;
    for (int64_t b = 0; b < l->opt.local_batch; b++) {
        struct sample sample = {.window = r->window};
        int64_t pos = first + b, at = (slot * batch->B + b) * S;
        if (r->document_start)
            sample.document_start = r->document_start + at;
        if (l->opt.wraps)
            pos %= l->stream->n_samples;
        if (sample_stream_read(l->stream, pos, &sample, err))
            return error_prefix(err, "step %lld, sample %lld", (long long)step,
                                (long long)pos);
        batch->n_counted += place_sample(l, at, sample.n_real);
        if (r->key_end)
            r->key_end[slot * batch->B + b] = key_end_of(l, sample.n_real);
        beat_aside();
    }
    return 0;
}

/* Wait for a slot to fill; false when the reader is to end. */
static bool wait_for_room(struct loader *l)
{
    pthread_mutex_lock(&l->lock);
    while (!l->is_stopping && l->n_filled - l->n_released == N_SLOTS)
        pthread_cond_wait(&l->changed, &l->lock);
    bool goes_on = !l->is_stopping;
    pthread_mutex_unlock(&l->lock);
    return goes_on;
}

static void *reader_main(void *arg)
{
    struct loader *l = arg;
    bool is_done = false;
    for (int64_t i = 0; !is_done && wait_for_room(l); i++) {
        struct error err;
        int64_t step = l->opt.first_step + i;
        int rc = fill_slot(l, (int)(i % N_SLOTS), step, &err);
        is_done = rc != 0;
        pthread_mutex_lock(&l->lock);
        l->is_failed = rc != 0;
        if (rc)
            l->failure = err;
        if (!is_done)
            l->n_filled++;
        pthread_cond_broadcast(&l->changed);
        pthread_mutex_unlock(&l->lock);
    }
    return NULL;
}

static int start_reader(struct loader *l, struct error *err)
{
    int rc = thread_start(&l->thread, reader_main, l);
    l->has_thread = rc == 0;
    if (rc)
        return process_fork_failed(err, "the reader thread", rc);
    return 0;
}

static void check_options(const struct loader_options *o)
{
    CHECK(o->local_batch > 0 && o->n_data_ranks > 0 && o->data_rank >= 0 &&
              o->data_rank < o->n_data_ranks &&
              o->global_batch == o->local_batch * o->n_data_ranks && o->first_step >= 0,
          "global %lld, local %lld, rank %d of %d, first step %lld",
          (long long)o->global_batch, (long long)o->local_batch, o->data_rank,
          o->n_data_ranks, (long long)o->first_step);
}

size_t loader_bytes(int64_t local_batch, const struct sample_stream *stream)
{
    struct arena measure;
    struct ring ring = {0};
    arena_measure(&measure);
    layout_ring(&ring, &measure, local_batch, stream);
    return measure.used_bytes;
}

int loader_open(struct loader **out, struct sample_stream *stream,
                const struct loader_options *opt, struct error *err)
{
    int rc = -1;
    *out = NULL;
    check_options(opt);
    struct loader *l = calloc(1, sizeof *l);
    if (!l)
        return error_set(err, ERROR_RUNTIME, "out of memory");
    l->opt = *opt;
    l->stream = stream;
    pthread_mutex_init(&l->lock, NULL);
    pthread_cond_init(&l->changed, NULL);
    if (arena_open(&l->arena, loader_bytes(opt->local_batch, stream), "the data loader",
                   err))
        goto done;
    layout_ring(&l->ring, &l->arena, opt->local_batch, stream);
    place_slots(l);
    if (start_reader(l, err))
        goto done;
    *out = l;
    rc = 0;
done:
    if (rc)
        loader_close(l);
    return rc;
}

int loader_next(struct loader *l, struct batch *b, struct error *err)
{
    pthread_mutex_lock(&l->lock);
    l->n_released = l->n_asked; // the batch of the previous call goes back
    pthread_cond_broadcast(&l->changed);
    while (l->n_filled <= l->n_asked && !l->is_failed)
        pthread_cond_wait(&l->changed, &l->lock);
    bool is_filled = l->n_filled > l->n_asked;
    pthread_mutex_unlock(&l->lock);
    if (!is_filled) {
        *err = l->failure;
        return -1;
    }
    *b = l->slots[l->n_asked++ % N_SLOTS];
    return 0;
}

void loader_close(struct loader *l)
{
    if (!l)
        return;
    if (l->has_thread) {
        pthread_mutex_lock(&l->lock);
        l->is_stopping = true;
        pthread_cond_broadcast(&l->changed);
        pthread_mutex_unlock(&l->lock);
        pthread_join(l->thread, NULL);
    }
    pthread_cond_destroy(&l->changed);
    pthread_mutex_destroy(&l->lock);
    arena_close(&l->arena);
    free(l);
}

/*
 * A ring of batches under one lock. Batch number i lives in slot i % n_slots, and
 *
 *     n_written <= n_taken <= n_filled <= n_written + n_slots
 *
 * count the batches that have left the ring, that an encoder has taken, and that the
 * reader has put in. A batch in the ring belongs to the reader's side until it is counted
 * in n_filled, then to the encoder that counts it in n_taken, then, once it is encoded
 * and its turn comes, to the writer. A batch is some hundredth of a second of work, so
 * one condition, signalled at every change, is enough.
 */
#include "data/text/encode_pipeline.h"

#include "base/process.h"
#include "base/thread.h"
#include "data/text/encode_batch.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define BATCH_BYTES (1u << 18) // a batch of so much text is encoded,
#define BATCH_RECORDS 16384    // or one of so many documents
#define SLOTS_PER_THREAD 4
#define WAIT_NANOSECONDS 100000000

struct encode_thread { // a thread that encodes, and what it encodes with
    struct encode_pipeline *pipeline;
    struct encoder *encoder;
    pthread_t thread;
    bool is_running;
};

struct encode_pipeline {
    struct encode_settings set;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct encode_thread *threads; // (set.n_threads)
    pthread_t writer_thread;
    bool has_writer;

    struct encode_batch *slots;
    int n_slots;
    int64_t n_filled, n_taken, n_written;
    size_t bytes_in_flight, most_bytes_in_flight;
    bool is_stopped; // threads end
    bool has_failed; // as `failure` says; nothing is handed to the sink any more
    struct error failure;

    struct encode_counts counts; // bytes: of the files before this one
    int64_t document_tokens; // the writer's own: of the document that is being written

    /* The reader's own. */
    struct encode_batch filling;
    struct text_input *input; // or NULL between files
    const char *file, *path;  // as it was given, and for people
    enum text_kind kind;
    struct encoder *cutter; // knows where a text may be cut
    size_t n_searched;      // bytes of the open record in which there is no such place
};

static struct encode_batch *batch_at(struct encode_pipeline *p, int64_t number)
{
    return &p->slots[number % p->n_slots];
}

/* -- encoders and the writer --------------------------------------------------------- */

static void *run_encoder(void *thread)
{
    struct encode_thread *e = thread;
    struct encode_pipeline *p = e->pipeline;
    pthread_mutex_lock(&p->lock);
    for (;;) {
        while (p->n_taken == p->n_filled && !p->is_stopped)
            pthread_cond_wait(&p->changed, &p->lock);
        if (p->is_stopped)
            break;
        struct encode_batch *b = batch_at(p, p->n_taken++);
        pthread_mutex_unlock(&p->lock);
        encode_batch_encode(b, e->encoder, p->set.json_key, p->set.with_special);
        pthread_mutex_lock(&p->lock);
        b->is_encoded = true;
        pthread_cond_broadcast(&p->changed);
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

static int write_record(struct encode_pipeline *p, const struct encode_record *r,
                        const int32_t *tokens, int64_t n, struct encode_counts *counts,
                        struct error *err)
{
    if (r->kind == RECORD_BLANK)
        return 0;
    if (r->kind == RECORD_BAD) {
        counts->n_bad_lines++;
        return bad_lines_add(p->set.bad_lines, r->path, r->line, r->reason, err);
    }
    if (n > 0 && token_sink_append(p->set.sink, tokens, n, err))
        return -1;
    counts->n_tokens += n;
    p->document_tokens += n;
    if (r->kind == RECORD_STRETCH)
        return 0;
    bool is_empty = p->document_tokens == 0;
    p->document_tokens = 0;
    if (is_empty) {
        counts->n_empty++;
        return 0;
    }
    counts->n_documents++;
    return token_sink_end_document(p->set.sink, err);
}

static int write_batch(struct encode_pipeline *p, const struct encode_batch *b,
                       struct encode_counts *counts, struct error *err)
{
    int64_t begin = 0;
    for (int64_t i = 0; i < b->n_encoded; i++) {
        const struct encode_record *r = &b->records[i];
        if (write_record(p, r, b->tokens.ids + begin, r->tokens_end - begin, counts, err))
            return -1;
        begin = r->tokens_end;
    }
    if (b->has_failed) {
        *err = b->failure;
        return -1;
    }
    return 0;
}

static void *run_writer(void *pipeline)
{
    struct encode_pipeline *p = pipeline;
    pthread_mutex_lock(&p->lock);
    for (;;) {
        struct encode_batch *b = batch_at(p, p->n_written);
        while (!(p->n_written < p->n_taken && b->is_encoded) && !p->is_stopped)
            pthread_cond_wait(&p->changed, &p->lock);
        if (p->is_stopped)
            break;
        struct encode_counts counts = {0};
        struct error err;
        pthread_mutex_unlock(&p->lock);
        int rc = p->has_failed ? 0 : write_batch(p, b, &counts, &err);
        size_t n_bytes = b->n_bytes;
        encode_batch_reset(b);
        pthread_mutex_lock(&p->lock);
        if (rc) {
            p->has_failed = true;
            p->failure = err;
        }
        p->counts.n_documents += counts.n_documents;
        p->counts.n_tokens += counts.n_tokens;
        p->counts.n_empty += counts.n_empty;
        p->counts.n_bad_lines += counts.n_bad_lines;
        p->bytes_in_flight -= n_bytes;
        p->n_written++;
        pthread_cond_broadcast(&p->changed);
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

/* -- the reader ---------------------------------------------------------------------- */

static int check_pipeline(void *pipeline, struct error *err)
{
    struct encode_pipeline *p = pipeline;
    pthread_mutex_lock(&p->lock);
    bool has_failed = p->has_failed;
    if (has_failed)
        *err = p->failure;
    pthread_mutex_unlock(&p->lock);
    if (has_failed || !p->set.watch.tick)
        return has_failed ? -1 : 0;
    return p->set.watch.tick(p->set.watch.context, err);
}

/* With the lock held: wait for a change, but not for long, and look in on the watch. */
static int wait_a_little(struct encode_pipeline *p, struct error *err)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += WAIT_NANOSECONDS;
    if (until.tv_nsec >= 1000000000) {
        until.tv_nsec -= 1000000000;
        until.tv_sec++;
    }
    pthread_cond_timedwait(&p->changed, &p->lock, &until);
    pthread_mutex_unlock(&p->lock);
    int rc = check_pipeline(p, err);
    pthread_mutex_lock(&p->lock);
    return rc;
}

/* A batch larger than all that may be in flight goes alone. */
static int wait_for_slot(struct encode_pipeline *p, size_t n_bytes, struct error *err)
{
    int rc = 0;
    pthread_mutex_lock(&p->lock);
    while (rc == 0 && p->n_filled > p->n_written &&
           (p->n_filled - p->n_written == p->n_slots ||
            p->bytes_in_flight + n_bytes > p->most_bytes_in_flight))
        rc = wait_a_little(p, err);
    pthread_mutex_unlock(&p->lock);
    return rc;
}

/* Send the closed records of p->filling on their way; the open one stays. */
static int push_batch(struct encode_pipeline *p, struct error *err)
{
    if (p->filling.n_records == 0)
        return 0;
    if (wait_for_slot(p, p->filling.n_bytes, err))
        return -1;
    struct encode_batch *b = batch_at(p, p->n_filled);
    if (encode_batch_move_open(b, &p->filling, err))
        return -1;
    struct encode_batch filled = p->filling;
    p->filling = *b;
    *b = filled;
    pthread_mutex_lock(&p->lock);
    p->bytes_in_flight += b->n_bytes;
    p->n_filled++;
    pthread_cond_broadcast(&p->changed);
    pthread_mutex_unlock(&p->lock);
    return 0;
}

/* Send a long document on its way up to the last place where it can be cut. */
static int cut_long_document(struct encode_pipeline *p, struct error *err)
{
    struct encode_batch *b = &p->filling;
    if (p->kind == TEXT_JSON_LINES || b->n_bytes < BATCH_BYTES)
        return 0;
    if (b->n_records > 0)
        return push_batch(p, err);
    size_t from = p->n_searched;
    size_t n_cut = encoder_last_cut(p->cutter, b->bytes + from, b->n_bytes - from,
                                    p->set.with_special);
    if (n_cut == 0) {
        p->n_searched = b->n_bytes - 1;
        if (b->n_bytes > TEXT_MAX_LINE_BYTES && p->kind != TEXT_RAW_FILE)
            return error_set(
                err, ERROR_INPUT,
                "'%s': up to byte %lld of its text there are more than %u "
                "MiB in which the tokenizer finds no space between two words "
                "to begin a new piece at; is it text? Break it into lines or "
                "leave the file out",
                p->path, (long long)text_input_text_bytes(p->input),
                TEXT_MAX_LINE_BYTES >> 20);
        return 0;
    }
    p->n_searched = 0;
    if (encode_batch_close_record(b, from + n_cut, RECORD_STRETCH, p->path, 0, err))
        return -1;
    return push_batch(p, err);
}

static int append_to_batch(void *pipeline, const char *bytes, size_t n, struct error *err)
{
    struct encode_pipeline *p = pipeline;
    return encode_batch_append(&p->filling, bytes, n, err) || cut_long_document(p, err)
               ? -1
               : 0;
}

static int push_if_full(struct encode_pipeline *p, struct error *err)
{
    p->n_searched = 0;
    if (p->filling.n_bytes < BATCH_BYTES && p->filling.n_records < BATCH_RECORDS)
        return 0;
    return push_batch(p, err);
}

static int close_batch_record(void *pipeline, int64_t line, struct error *err)
{
    struct encode_pipeline *p = pipeline;
    struct encode_batch *b = &p->filling;
    enum encode_record_kind kind =
        p->kind == TEXT_JSON_LINES ? RECORD_JSON : RECORD_DOCUMENT;
    if (encode_batch_close_record(b, encode_batch_open_bytes(b), kind, p->path, line,
                                  err))
        return -1;
    return push_if_full(p, err);
}

static int add_bad_line(void *pipeline, int64_t line, const char *reason,
                        struct error *err)
{
    struct encode_pipeline *p = pipeline;
    if (encode_batch_bad_line(&p->filling, p->path, line, reason, err))
        return -1;
    return push_if_full(p, err);
}

static int read_file(struct encode_pipeline *p, struct error *err)
{
    const struct text_watch watch = {.tick = check_pipeline, .context = p};
    const struct text_form form = {
        .kind = p->kind, .encoding = p->set.encoding, .json_key = p->set.json_key};
    const struct text_record_sink sink = {append_to_batch, close_batch_record,
                                          add_bad_line, p};
    if (text_input_open(&p->input, p->file, &form, &watch, err))
        return -1;
    int rc = text_records_read(p->input, &sink, err);
    pthread_mutex_lock(&p->lock);
    p->counts.n_file_bytes += text_input_file_bytes(p->input);
    p->counts.n_text_bytes += text_input_text_bytes(p->input);
    pthread_mutex_unlock(&p->lock);
    text_input_close(p->input);
    p->input = NULL;
    return rc;
}

/* A file that cannot be read fails the run, but what was wrong before it comes first. */
int encode_pipeline_read(struct encode_pipeline *p, const char *path, enum text_kind kind,
                         struct error *err)
{
    struct error earlier;
    p->path = text_source_name(path);
    p->file = path;
    p->kind = kind;
    if (read_file(p, err) == 0)
        return 0;
    if (err->kind != ERROR_UNSAVED && encode_pipeline_finish(p, &earlier))
        *err = earlier;
    return -1;
}

int encode_pipeline_finish(struct encode_pipeline *p, struct error *err)
{
    int rc = push_batch(p, err);
    pthread_mutex_lock(&p->lock);
    while (rc == 0 && p->n_written < p->n_filled)
        rc = wait_a_little(p, err);
    if (rc == 0 && p->has_failed) {
        *err = p->failure;
        rc = -1;
    }
    pthread_mutex_unlock(&p->lock);
    return rc;
}

void encode_pipeline_counts(struct encode_pipeline *p, struct encode_counts *counts)
{
    pthread_mutex_lock(&p->lock);
    *counts = p->counts;
    pthread_mutex_unlock(&p->lock);
    if (p->input) {
        counts->n_file_bytes += text_input_file_bytes(p->input);
        counts->n_text_bytes += text_input_text_bytes(p->input);
    }
}

/* -- life ---------------------------------------------------------------------------- */

static int start_encoder(struct encode_thread *e, struct encode_pipeline *p,
                         struct error *err)
{
    e->pipeline = p;
    if (encoder_open(&e->encoder, p->set.tokenizer, err))
        return -1;
    int code = thread_start(&e->thread, run_encoder, e);
    if (code)
        return process_fork_failed(err, "a thread that encodes", code);
    e->is_running = true;
    return 0;
}

static int start_threads(struct encode_pipeline *p, struct error *err)
{
    for (int i = 0; i < p->set.n_threads; i++)
        if (start_encoder(&p->threads[i], p, err))
            return -1;
    if (encoder_open(&p->cutter, p->set.tokenizer, err))
        return -1;
    int code = thread_start(&p->writer_thread, run_writer, p);
    if (code)
        return process_fork_failed(err, "the thread that writes", code);
    p->has_writer = true;
    return 0;
}

int encode_pipeline_open(struct encode_pipeline **out,
                         const struct encode_settings *settings, struct error *err)
{
    int n_threads = settings->n_threads, rc = -1;
    pthread_condattr_t attributes;
    *out = NULL;
    CHECK(n_threads >= 1 && n_threads <= ENCODE_MAX_THREADS, "%d threads", n_threads);
    struct encode_pipeline *p = calloc(1, sizeof *p);
    if (!p)
        return error_set(err, ERROR_RUNTIME, "out of memory");
    p->set = *settings;
    p->n_slots = SLOTS_PER_THREAD * n_threads + 2;
    p->most_bytes_in_flight = (size_t)p->n_slots * 2 * BATCH_BYTES;
    pthread_mutex_init(&p->lock, NULL);
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&p->changed, &attributes);
    pthread_condattr_destroy(&attributes);
    p->slots = calloc((size_t)p->n_slots, sizeof *p->slots);
    p->threads = calloc((size_t)n_threads, sizeof *p->threads);
    if (!p->slots || !p->threads) {
        error_set(err, ERROR_RUNTIME, "out of memory");
        goto done;
    }
    if (start_threads(p, err))
        goto done;
    *out = p;
    rc = 0;
done:
    if (rc)
        encode_pipeline_close(p);
    return rc;
}

void encode_pipeline_close(struct encode_pipeline *p)
{
    if (!p)
        return;
    pthread_mutex_lock(&p->lock);
    p->is_stopped = true;
    pthread_cond_broadcast(&p->changed);
    pthread_mutex_unlock(&p->lock);
    for (int i = 0; p->threads && i < p->set.n_threads; i++) {
        if (p->threads[i].is_running)
            pthread_join(p->threads[i].thread, NULL);
        encoder_close(p->threads[i].encoder);
    }
    if (p->has_writer)
        pthread_join(p->writer_thread, NULL);
    encoder_close(p->cutter);
    for (int i = 0; p->slots && i < p->n_slots; i++)
        encode_batch_release(&p->slots[i]);
    encode_batch_release(&p->filling);
    text_input_close(p->input);
    pthread_cond_destroy(&p->changed);
    pthread_mutex_destroy(&p->lock);
    free(p->slots);
    free(p->threads);
    free(p);
}

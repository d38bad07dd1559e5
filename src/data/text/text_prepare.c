#include "data/text/text_prepare.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/stop.h"
#include "base/thread.h"
#include "data/formats/dataset_writer.h"
#include "data/text/text_files.h"
#include "text/tokenizer.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STATUS_SECONDS 0.2 // between two status lines on a terminal
#define LINE_SECONDS 30.0  // between two lines of progress elsewhere

struct prepare {
    const struct text_prepare *set;
    int64_t n_threads;
    struct text_files inputs;
    struct tokenizer *tokenizer;
    struct dataset_writer *writer;
    struct token_sink sink;     // the writer and the end of a document
    struct bad_lines bad_lines; // used by the pipeline's thread, as the sink is
    struct encode_pipeline *pipeline;
    bool has_blank_lines; // documents of plain text end at blank lines
    double start_seconds, shown_seconds;
};

/* -- progress, and stopping ---------------------------------------------------------- */

/* "45 % of 123.4 MB, 0:12:34 left, 12.3 MB/s, 678 documents, 910 tokens" */
static void describe_progress(const struct prepare *p, const struct encode_counts *c,
                              double spent, char *text, size_t size)
{
    double total = p->inputs.total_bytes, done = (double)c->n_file_bytes;
    char how_far[64], left[64] = "";
    snprintf(how_far, sizeof how_far, "%.1f MB", done / 1e6);
    if (!p->inputs.has_pipes && total > 0 && done <= total) {
        snprintf(how_far, sizeof how_far, "%.0f %% of %.1f MB", 100 * done / total,
                 total / 1e6);
        if (done > 0 && spent > 1) {
            int64_t seconds = (int64_t)(spent * (total - done) / done + 0.5);
            snprintf(left, sizeof left, ", %lld:%02d:%02d left",
                     (long long)(seconds / 3600), (int)(seconds / 60 % 60),
                     (int)(seconds % 60));
        }
    }
    snprintf(text, size, "%s%s, %.1f MB/s, %lld documents, %lld tokens", how_far, left,
             (double)c->n_text_bytes / 1e6 / (spent > 0 ? spent : 1),
             (long long)c->n_documents, (long long)c->n_tokens);
}

static void show_progress(struct prepare *p)
{
    struct encode_counts counts;
    char text[256];
    bool is_terminal = log_is_terminal();
    double now = clock_seconds();
    if (!p->pipeline ||
        now - p->shown_seconds < (is_terminal ? STATUS_SECONDS : LINE_SECONDS))
        return;
    p->shown_seconds = now;
    encode_pipeline_counts(p->pipeline, &counts);
    describe_progress(p, &counts, now - p->start_seconds, text, sizeof text);
    if (is_terminal)
        log_status("prepare: %s", text);
    else
        log_info("prepare: %s", text);
}

static int watch_prepare(void *context, struct error *err)
{
    struct prepare *p = context;
    if (stop_check(err))
        return -1;
    show_progress(p);
    return 0;
}

/* -- the run ------------------------------------------------------------------------- */

static int open_tokenizer(struct prepare *p, struct error *err)
{
    if (tokenizer_open(&p->tokenizer, p->set->tokenizer, err))
        return -1;
    if (tokenizer_eos(p->tokenizer) < 0)
        return error_set(err, ERROR_INPUT,
                         "the tokenizer '%s' has no token <|endoftext|>, which is to end "
                         "each document; add it to the vocabulary",
                         p->set->tokenizer);
    return 0;
}

/* The tokenizer is recorded by its full path, so that it is found from anywhere. */
static int describe_dataset(const struct prepare *p, struct dataset_meta *meta,
                            struct error *err)
{
    char path[PATH_MAX];
    const char *name = p->set->tokenizer;
    if (strcmp(name, TOKENIZER_BYTES) != 0) {
        name = realpath(p->set->tokenizer, path);
        if (!name)
            return error_set(err, ERROR_INPUT, "cannot open '%s': %s", p->set->tokenizer,
                             strerror(errno));
    }
    *meta = (struct dataset_meta){.vocab_size = tokenizer_vocab_size(p->tokenizer),
                                  .eos_token_id = tokenizer_eos(p->tokenizer),
                                  .source = p->set->source};
    snprintf(meta->tokenizer, sizeof meta->tokenizer, "%s", name);
    tokenizer_hash(p->tokenizer, meta->tokenizer_hash);
    return 0;
}

static enum text_kind kind_of(struct prepare *p, const char *path)
{
    if (p->set->is_json || text_files_is_json(path))
        return TEXT_JSON_LINES;
    if (p->set->is_whole_file)
        return TEXT_WHOLE_FILE;
    p->has_blank_lines = true;
    return TEXT_BLANK_LINES;
}

static int encode_files(struct prepare *p, struct error *err)
{
    const struct encode_settings settings = {
        .tokenizer = p->tokenizer,
        .json_key = p->set->json_key,
        .encoding = p->set->encoding,
        .n_threads = (int)p->n_threads,
        .sink = &p->sink,
        .bad_lines = &p->bad_lines,
        .watch = {.tick = watch_prepare, .context = p},
    };
    const struct fs_names *files = &p->inputs.files;
    p->sink =
        (struct token_sink){.dataset = p->writer, .eos = tokenizer_eos(p->tokenizer)};
    p->bad_lines = (struct bad_lines){.is_strict = p->set->is_strict,
                                      .advice = "; --strict stops at the first"};
    if (encode_pipeline_open(&p->pipeline, &settings, err))
        return -1;
    for (int64_t i = 0; i < files->n_names; i++)
        if (encode_pipeline_read(p->pipeline, files->names[i],
                                 kind_of(p, files->names[i]), err))
            return -1;
    return encode_pipeline_finish(p->pipeline, err);
}

static int refuse_nothing(const struct prepare *p, const struct encode_counts *c,
                          struct error *err)
{
    char inputs[PATH_MAX + 64];
    if (c->n_documents > 0)
        return 0;
    text_files_say(&p->inputs, inputs, sizeof inputs);
    return error_set(err, ERROR_INPUT,
                     "there is no text in %s (%lld empty documents and %lld bad lines "
                     "skipped%s%s); nothing was written",
                     inputs, (long long)c->n_empty, (long long)c->n_bad_lines,
                     p->bad_lines.n ? ": first " : "", p->bad_lines.first);
}

static int run(struct prepare *p, struct text_prepared *done, struct error *err)
{
    const struct text_prepare *set = p->set;
    struct dataset_meta meta = {0};
    if (text_files_init(&p->inputs, set->inputs, set->n_inputs, set->output, err) ||
        open_tokenizer(p, err) || describe_dataset(p, &meta, err))
        return -1;
    p->start_seconds = p->shown_seconds = clock_seconds();
    if (dataset_writer_open(&p->writer, set->output, set->format, meta.vocab_size, err) ||
        encode_files(p, err))
        return -1;
    encode_pipeline_counts(p->pipeline, &done->counts);
    if (refuse_nothing(p, &done->counts, err) ||
        dataset_writer_commit(p->writer, &meta, err))
        return -1;
    done->n_tokens = dataset_writer_n_tokens(p->writer);
    done->vocab_size = meta.vocab_size;
    done->eos_token_id = meta.eos_token_id;
    done->n_threads = p->n_threads;
    done->seconds = clock_seconds() - p->start_seconds;
    done->has_blank_lines = p->has_blank_lines;
    return 0;
}

int text_prepare(const struct text_prepare *request, struct text_prepared *done,
                 struct error *err)
{
    struct prepare p = {.set = request, .n_threads = request->n_threads};
    *done = (struct text_prepared){0};
    if (p.n_threads == 0)
        p.n_threads = i64_min(thread_processors(), ENCODE_MAX_THREADS);
    int rc = run(&p, done, err);
    log_status_clear();
    encode_pipeline_close(p.pipeline); // first: its thread uses the writer
    dataset_writer_close(p.writer);
    tokenizer_close(p.tokenizer);
    text_files_release(&p.inputs);
    return rc;
}

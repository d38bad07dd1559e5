/*
 * trefoil eval - perplexity on tokens or text, and cloze accuracy, of a trained model.
 *
 * On one process or several: data ranks share the windows and texts, model and pipe ranks
 * the model; rank 0 reports.
 */
#include "base/base.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/log.h"
#include "ckpt/ckpt_tokenizer.h"
#include "cli/cmd.h"
#include "cli/options.h"
#include "cli/self_launch.h"
#include "data/formats/dataset_list.h"
#include "data/samples/corpus.h"
#include "data/text/encode_pipeline.h"
#include "data/text/text_documents.h"
#include "data/text/text_encoding.h"
#include "data/text/text_files.h"
#include "text/encoder.h"
#include "train/evaluation.h"
#include "train/trained_model.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DIGITS 9 // of the numbers that are printed: a float comes back with the same bits

/* -- what --data names, as one stream of tokens -------------------------------------- */

struct eval_data_form {   // how a file that is not tokens is read
    const char *encoding; // as data/text/text_encoding.h says; NULL: UTF-8
    const char *json_key; // not NULL: it is JSON, whatever its name
};

struct eval_data {
    const char *name;         // borrowed
    struct corpus *corpus;    // NULL: a text or JSON
    struct token_list tokens; // of these
    int64_t n_words; // of a text, counted as the original does: between spaces; else 0
};

/* A file that is no part of a dataset by its name. */
static bool is_text_file(const char *name)
{
    if (strcmp(name, TEXT_STANDARD_INPUT) == 0)
        return true;
    return fs_exists(name) && !fs_is_directory(name) && !dataset_list_is_file(name);
}

/* -- texts --------------------------------------------------------------------------- */

/* Words between single spaces, white space at the ends left out. */
static int64_t count_words(const char *text, size_t n)
{
    static const char spaces[] = " \t\n\v\f\r";
    int64_t n_words = 1;
    while (n > 0 && memchr(spaces, text[n - 1], sizeof spaces - 1))
        n--;
    while (n > 0 && memchr(spaces, text[0], sizeof spaces - 1)) {
        text++;
        n--;
    }
    for (size_t i = 0; i < n; i++)
        n_words += text[i] == ' ';
    return n > 0 ? n_words : 0;
}

static int open_text(struct eval_data *data, const struct eval_data_form *form,
                     const struct tokenizer *tokenizer, struct error *err)
{
    struct text_list list = {0};
    struct encoder *encoder = NULL;
    int rc = -1;
    if (text_list_read(&list, data->name, TEXT_LIST_WHOLE, form->encoding, NULL, err) ||
        encoder_open(&encoder, tokenizer, err))
        goto done;
    const struct text_list_item *whole = &list.items[0];
    data->n_words = count_words(whole->text, whole->n);
    rc = encoder_encode(encoder, whole->text, whole->n, false, &data->tokens, err);
done:
    encoder_close(encoder);
    text_list_release(&list);
    return rc;
}

/* -- JSON: what prepare would write -------------------------------------------------- */

/* The tokens that `trefoil prepare` would write, so that both score the same. */
static int open_json(struct eval_data *data, const struct eval_data_form *form,
                     const struct tokenizer *tokenizer, struct error *err)
{
    struct token_sink sink = {.list = &data->tokens, .eos = tokenizer_eos(tokenizer)};
    struct bad_lines bad_lines = {.n = 0};
    const struct encode_settings settings = {
        .tokenizer = tokenizer,
        .json_key = form->json_key ? form->json_key : "text",
        .encoding = form->encoding,
        .n_threads = 1,
        .sink = &sink,
        .bad_lines = &bad_lines,
    };
    struct encode_pipeline *pipeline = NULL;
    if (sink.eos < 0)
        return error_set(err, ERROR_INPUT,
                         "the tokenizer '%s' has no token <|endoftext|>, which is to "
                         "stand between the documents of '%s'",
                         tokenizer_name(tokenizer), data->name);
    int rc = -1;
    if (encode_pipeline_open(&pipeline, &settings, err) ||
        encode_pipeline_read(pipeline, data->name, TEXT_JSON_LINES, err) ||
        encode_pipeline_finish(pipeline, err))
        goto done;
    rc = 0;
    if (data->tokens.n == 0)
        rc = error_set(err, ERROR_INPUT,
                       "'%s' has no documents (%lld bad lines); --json_key names the key "
                       "of the text",
                       text_source_name(data->name), (long long)bad_lines.n);
done:
    encode_pipeline_close(pipeline);
    return rc;
}

static int read_text(void *context, int64_t first, int64_t n, int32_t *tokens,
                     struct error *err)
{
    const struct eval_data *data = context;
    (void)err;
    memcpy(tokens, data->tokens.ids + first, (size_t)n * sizeof *tokens);
    return 0;
}

/* -- token files --------------------------------------------------------------------- */

/* The document that holds token `at` of all. */
static int64_t find_document(const struct corpus *c, int64_t at)
{
    int64_t low = 0, high = corpus_n_documents(c); // starts at or before, starts after
    while (high - low > 1) {
        int64_t middle = low + (high - low) / 2;
        if (corpus_range_tokens(c, 0, middle) <= at)
            low = middle;
        else
            high = middle;
    }
    return low;
}

static int read_corpus(void *context, int64_t first, int64_t n, int32_t *tokens,
                       struct error *err)
{
    const struct corpus *c = ((const struct eval_data *)context)->corpus;
    int64_t doc = find_document(c, first);
    int64_t offset = first - corpus_range_tokens(c, 0, doc);
    for (int64_t done = 0; done < n; doc++, offset = 0) {
        int64_t n_read = i64_min(n - done, corpus_document_tokens(c, doc) - offset);
        if (n_read > 0 && corpus_read(c, doc, offset, n_read, tokens + done, err))
            return -1;
        done += n_read;
    }
    return 0;
}

/* -- either -------------------------------------------------------------------------- */

/* `tokenizer` is for texts. close_data() is to be called after a failure too. */
static int open_data(struct eval_data *data, const char *name,
                     const struct eval_data_form *form, const struct tokenizer *tokenizer,
                     struct error *err)
{
    *data = (struct eval_data){.name = name};
    if (!is_text_file(name))
        return corpus_open(&data->corpus, name, err);
    return form->json_key || text_files_is_json(name)
               ? open_json(data, form, tokenizer, err)
               : open_text(data, form, tokenizer, err);
}

static void close_data(struct eval_data *data)
{
    corpus_close(data->corpus);
    token_list_release(&data->tokens);
    *data = (struct eval_data){.name = NULL};
}

/* Borrows `data`. */
static struct eval_stream stream_of(struct eval_data *data)
{
    return (struct eval_stream){
        .name = data->name,
        .n_tokens = data->corpus ? corpus_n_tokens(data->corpus) : data->tokens.n,
        .read = data->corpus ? read_corpus : read_text,
        .context = data,
    };
}

/* -- the command --------------------------------------------------------------------- */

struct eval {
    const char *data_name, *cloze_path, *tokenizer_name, *cpu_kernels, *device;
    struct eval_data_form form;
    int64_t stride; // 0: the whole window
    int64_t num_threads;
    double hang_timeout;
    bool is_json, is_oversubscribed;
    struct trained_options layout;
    char **argv; // all words of the command

    struct trained_model model;
    struct tokenizer *tokenizer;
    struct eval_data data;
    struct text_list texts;

    struct eval_result result;
    int64_t n_correct;
};

/* -- opening ------------------------------------------------------------------------- */

static int check_options(const struct eval *ev, struct error *err)
{
    if (!ev->data_name && !ev->cloze_path)
        return error_set(err, ERROR_INPUT,
                         "trefoil eval: nothing to evaluate; give --data or --cloze");
    if (ev->layout.micro_batch_size < 1 || ev->num_threads < 0 || ev->stride < 0 ||
        ev->layout.max_seq_len < 0)
        return error_set(err, ERROR_INPUT,
                         "trefoil eval: --batch_size must be at least 1; "
                         "--overlapping_eval, --max_seq_len and --num_threads must not "
                         "be negative");
    return text_encoding_check(ev->form.encoding, err);
}

static int choose_stride(struct eval *ev, struct error *err)
{
    int64_t S = ev->model.cfg.dataset.max_seq_len;
    if (ev->stride > S)
        return error_set(err, ERROR_INPUT,
                         "--overlapping_eval %lld is more than a window, which has %lld "
                         "tokens; tokens would be left out",
                         (long long)ev->stride, (long long)S);
    if (ev->stride == 0)
        ev->stride = S;
    return 0;
}

/* Token files must have been made with the checkpoint's tokenizer, where both record
 * one. */
static int check_data_tokenizer(const struct eval *ev, struct error *err)
{
    const char *hash = ev->model.tokenizer_hash;
    char found[TOKENIZER_HASH_BYTES];
    struct config_paths input = {.n_paths = 1};
    struct error ignored; // the files of the data's tokenizer may be gone
    if (!hash[0] || snprintf(input.bytes, sizeof input.bytes, "%s", ev->data_name) >=
                        (int)sizeof input.bytes)
        return 0;
    if (ckpt_tokenizer_hash_of(&input, found, &ignored) || !found[0] ||
        strcmp(found, hash) == 0)
        return 0;
    return error_set(err, ERROR_INPUT,
                     "the data '%.600s' was prepared with another tokenizer (hash %s) "
                     "than checkpoint '%.600s' was trained with (hash %s); prepare the "
                     "text with the checkpoint's",
                     ev->data_name, found, ev->model.path, hash);
}

static int open_inputs(struct eval *ev, struct error *err)
{
    bool is_text = ev->data_name && is_text_file(ev->data_name);
    int n_processes = comm_size(ev->model.grid.world);
    if ((is_text && text_files_check_shared(ev->data_name, n_processes, err)) ||
        (ev->cloze_path && text_files_check_shared(ev->cloze_path, n_processes, err)))
        return -1;
    if ((is_text || ev->cloze_path) &&
        ckpt_tokenizer_open(&ev->tokenizer, ev->tokenizer_name, ev->model.path,
                            ev->model.tokenizer_hash, &ev->model.cfg, false, err))
        return -1;
    if (ev->data_name && !is_text && check_data_tokenizer(ev, err))
        return -1;
    if (ev->data_name &&
        open_data(&ev->data, ev->data_name, &ev->form, ev->tokenizer, err))
        return -1;
    return ev->cloze_path
               ? text_list_read(&ev->texts, ev->cloze_path, TEXT_LIST_CLOZE,
                                ev->form.encoding,
                                ev->form.json_key ? ev->form.json_key : "text", err)
               : 0;
}

/* -- reporting ----------------------------------------------------------------------- */

/* As the original: what the perplexity would be if words were tokens. */
static double adjusted_ppl(const struct eval *ev)
{
    return exp(ev->result.loss * (double)ev->result.n_scored /
               (double)(ev->data.n_words - 1));
}

static void set_real(json_t *object, const char *key, double value)
{
    if (isfinite(value)) // the perplexity of a loss over 709 is not
        json_object_set_new(object, key, json_real(value));
    else
        json_object_set_new(object, key, json_null());
}

static void print_json(const struct eval *ev)
{
    json_t *object = json_pack("{s:s, s:I}", "ckpt", ev->model.path, "step",
                               (json_int_t)ev->model.step);
    if (ev->data_name) {
        set_real(object, "loss", ev->result.loss);
        set_real(object, "ppl", exp(ev->result.loss));
        json_object_set_new(object, "tokens", json_integer(ev->result.n_scored));
        json_object_set_new(object, "windows", json_integer(ev->result.n_windows));
        json_object_set_new(object, "max_seq_len",
                            json_integer(ev->model.cfg.dataset.max_seq_len));
        json_object_set_new(object, "overlapping_eval", json_integer(ev->stride));
    }
    if (ev->data.n_words > 1) {
        json_object_set_new(object, "words", json_integer(ev->data.n_words));
        set_real(object, "adjusted_ppl", adjusted_ppl(ev));
    }
    if (ev->cloze_path) {
        int64_t n = ev->texts.n_items;
        set_real(object, "cloze_accuracy", (double)ev->n_correct / (double)n);
        json_object_set_new(object, "cloze_correct", json_integer(ev->n_correct));
        json_object_set_new(object, "cloze_texts", json_integer(n));
    }
    json_dumpf(object, stdout, JSON_COMPACT | JSON_REAL_PRECISION(DIGITS));
    putchar('\n');
    json_decref(object);
}

static void print_text(const struct eval *ev)
{
    const struct eval_result *r = &ev->result;
    printf("checkpoint %s, step %lld\n", ev->model.path, (long long)ev->model.step);
    if (ev->data_name)
        printf("loss %.9g nats a token, perplexity %.9g: %lld tokens in %lld windows of "
               "%lld, a new one every %lld\n",
               r->loss, exp(r->loss), (long long)r->n_scored, (long long)r->n_windows,
               (long long)ev->model.cfg.dataset.max_seq_len, (long long)ev->stride);
    if (ev->data.n_words > 1)
        printf("perplexity by words %.9g: %lld words\n", adjusted_ppl(ev),
               (long long)ev->data.n_words);
    if (ev->cloze_path)
        printf("last words right %.4f: %lld of %lld texts\n",
               (double)ev->n_correct / (double)ev->texts.n_items,
               (long long)ev->n_correct, (long long)ev->texts.n_items);
}

/* -- the command --------------------------------------------------------------------- */

static int evaluate(struct eval *ev, struct error *err)
{
    struct runner *r = &ev->model.runner;
    if (ev->data_name) {
        struct eval_stream stream = stream_of(&ev->data);
        if (offline_eval(&ev->result, r, ev->model.cfg.model.vocab_size, ev->stride,
                         &stream, err))
            return -1;
    }
    if (ev->cloze_path && cloze_eval(&ev->n_correct, r, ev->tokenizer, &ev->texts, err) &&
        error_prefix(err, "'%s'", ev->cloze_path))
        return -1;
    if (comm_rank(r->grid->world) == 0) {
        (ev->is_json ? print_json : print_text)(ev);
        return print_check("the result", err);
    }
    return 0;
}

static int plan_eval(void *context, int64_t n_processes, struct self_launch_plan *job,
                     struct error *err)
{
    struct eval *ev = context;
    *job = (struct self_launch_plan){.num_threads = ev->num_threads,
                                     .hang_timeout = ev->hang_timeout,
                                     .has_output = true,
                                     .is_oversubscribed = ev->is_oversubscribed};
    if (check_options(ev, err) ||
        kernel_set_parse(&job->cpu_kernels, ev->cpu_kernels, err) ||
        device_kind_parse(&ev->layout.device, ev->device, err))
        return -1;
    // ranks that join a job agree on it later
    return n_processes > 0 ? 0
                           : trained_model_check(&ev->layout, 0, &job->n_processes, err);
}

static int run_eval(void *context, struct comm *world, struct error *err)
{
    struct eval *ev = context;
    int rc = trained_model_open(&ev->model, &ev->layout, world, err);
    if (rc == 0)
        rc = choose_stride(ev, err);
    if (rc == 0)
        rc = comm_agree(world, open_inputs(ev, err), err);
    if (rc == 0)
        rc = evaluate(ev, err);
    text_list_release(&ev->texts);
    close_data(&ev->data);
    tokenizer_close(ev->tokenizer);
    trained_model_close(&ev->model);
    return rc;
}

int cmd_eval(int argc, char **argv)
{
    struct eval ev = {
        .argv = argv,
        .cpu_kernels = "auto",
        .layout = {.mp_degree = 1,
                   .pp_degree = 1,
                   .micro_batch_size = 8,
                   .use = LAYOUT_EVALUATE},
    };
    const struct option_spec options[] = {
        {"ckpt", 0, OPTION_TEXT, &ev.layout.ckpt, true, "DIR",
         "A checkpoint, or a directory of them (the one saved last that is valid)."},
        {"data", 0, OPTION_TEXT, &ev.data_name, false, "PATH",
         "Measure perplexity on this: a prefix or directory of token files; a text; or "
         "JSON (*.jsonl, *.json), tokenized as by prepare. - is standard input."},
        {"json_key", 0, OPTION_TEXT, &ev.form.json_key, false, "KEY",
         "The JSON key that holds the text (text); if given, any file is read as JSON."},
        {"encoding", 0, OPTION_TEXT, &ev.form.encoding, false, "NAME",
         TEXT_FILES_ENCODING_HELP},
        {"overlapping_eval", 0, OPTION_INT, &ev.stride, false, "N",
         "Start a window every N tokens and score its last N (0: no overlap)."},
        {"cloze", 0, OPTION_TEXT, &ev.cloze_path, false, "FILE",
         "Measure last-word accuracy on JSON lines of {\"text\": ...}, such as LAMBADA, "
         "or "
         "{\"context\": ..., \"continuation\": ...}."},
        {"tokenizer", 0, OPTION_TEXT, &ev.tokenizer_name, false, "DIR",
         "The tokenizer the model was trained with, if it cannot be found from the "
         "data."},
        {"max_seq_len", 0, OPTION_INT, &ev.layout.max_seq_len, false, "N",
         "Tokens per window (0: as in training)."},
        {"batch_size", 0, OPTION_INT, &ev.layout.micro_batch_size, false, "N",
         "Windows processed at a time (8); does not change results."},
        {"dp_degree", 0, OPTION_INT, &ev.layout.dp_degree, false, "N",
         "Data parallelism: windows and texts are split over N processes (0: those left "
         "over, or 1)."},
        {"mp_degree", 0, OPTION_INT, &ev.layout.mp_degree, false, "N",
         "Tensor parallelism: each layer is split over N processes (1)."},
        {"pp_degree", 0, OPTION_INT, &ev.layout.pp_degree, false, "N",
         "Pipeline parallelism: layers are split over N processes (1)."},
        {"json", 0, OPTION_FLAG, &ev.is_json, false, NULL, "Print one JSON object."},
        {"hang_timeout", 0, OPTION_NUMBER, &ev.hang_timeout, false, "SECONDS",
         "End a job of several processes after this long without progress (0: only when "
         "a "
         "process is frozen)."},
        {"oversubscribe", 0, OPTION_FLAG, &ev.is_oversubscribed, false, NULL,
         "Allow more than 4 processes per processor."},
        {"num_threads", 0, OPTION_INT, &ev.num_threads, false, "N",
         "Threads per process (0: all cores)."},
        {"device", 0, OPTION_TEXT, &ev.device, false, "KIND",
         "Where the arithmetic runs: cpu, gpu or emulated; cpu unless given."},
        {"cpu_kernels", 0, OPTION_TEXT, &ev.cpu_kernels, false, "SET",
         "Instructions to compute with: auto, generic, avx2, avx512 or amx (auto)."},
    };
    const struct command cmd = {
        "trefoil eval",
        "Measure perplexity and cloze accuracy of a trained model. The "
        "processes of a parallel layout are started automatically, "
        "unless mpirun, srun or trefoil launch already did.",
        options, ARRAY_LEN(options)};
    struct error err;
    int rc = options_parse(&cmd, argc, argv, &err);
    if (rc == 0)
        return self_launch(&(struct self_launch){
            .argv = ev.argv, .context = &ev, .plan = plan_eval, .run = run_eval});
    if (rc > 0)
        return 0;
    log_error("%s", err.text);
    return error_exit_code(&err);
}

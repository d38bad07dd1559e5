/*
 * trefoil generate - continue texts with a trained model, printing as it goes.
 *
 * On one process or several: data ranks share the prompts, model and pipe ranks the
 * model; rank 0 prints. What is drawn depends on the seed and on the place of a prompt
 * among all, on nothing else.
 */
#include "base/log.h"
#include "ckpt/ckpt_tokenizer.h"
#include "cli/cmd.h"
#include "cli/options.h"
#include "cli/report.h"
#include "cli/self_launch.h"
#include "data/text/text_documents.h"
#include "data/text/text_encoding.h"
#include "data/text/text_files.h"
#include "launch/worker.h"
#include "text/encoder.h"
#include "text/tokenizer.h"
#include "train/text_gather.h"
#include "train/trained_model.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct prompts { // zero-initialised is empty
    /* One of these is given, by the user. */
    const char *text, *ids, *path;
    const char
        *encoding; // of the file at `path` (data/text/text_encoding.h); NULL: UTF-8
    struct text_list list; // of the file at `path`
    int64_t n_all;         // of all data ranks

    struct gpt_text *texts; // (n_texts) prompt data_rank + i * data_size is texts[i]
    int64_t n_texts;
};

struct generate {
    const char *tokenizer_name; // NULL: not given
    const char *cpu_kernels, *device;
    int64_t max_tokens, batch_size, num_threads, seed;
    double hang_timeout;
    bool is_greedy, is_json, is_oversubscribed;
    struct trained_options layout;
    struct sampler sampler;
    struct prompts prompts;

    struct trained_model model;
    struct gpt_decoder decoder;
    struct tokenizer *tokenizer;      // NULL when it is not known, which ids allow
    const struct tokenizer *printing; // borrowed; NULL: ids are printed
    bool is_streamed;                 // one prompt, printed token by token
    int32_t eos;                      // -1: unknown
    struct text_gather gather;
};

/* -- prompts ------------------------------------------------------------------------- */

/* Find the prompts; with a path, read the file. To be released after a failure too. */
static int prompts_open(struct prompts *p, struct error *err)
{
    int n_given = (p->text != NULL) + (p->ids != NULL) + (p->path != NULL);
    if (n_given != 1)
        return error_set(err, ERROR_INPUT,
                         "trefoil generate: give one of --prompt and --prompt_ids, "
                         "or --prompts FILE");
    p->n_all = 1;
    if (!p->path)
        return 0;
    if (text_list_read(&p->list, p->path,
                       text_files_is_json(p->path) ? TEXT_LIST_JSON : TEXT_LIST_LINES,
                       p->encoding, "text", err))
        return -1;
    p->n_all = p->list.n_items;
    return 0;
}

static void prompts_release(struct prompts *p)
{
    for (int64_t i = 0; i < p->n_texts; i++)
        free(p->texts[i].tokens);
    free(p->texts);
    text_list_release(&p->list);
    *p = (struct prompts){.n_all = 0};
}

/* Prompt i as it was given. */
static const char *prompts_at(const struct prompts *p, int64_t i, size_t *n)
{
    const char *one = p->text ? p->text : p->ids;
    *n = p->path ? p->list.items[i].n : strlen(one);
    return p->path ? p->list.items[i].text : one;
}

/* -- prompts as tokens --------------------------------------------------------------- */

/* *list := the ids written in text; commas and blanks separate. */
static int parse_ids(struct token_list *list, const char *text, int64_t vocab_size,
                     struct error *err)
{
    while (*text) {
        char *end;
        if (strchr(" ,\t\n", *text)) {
            text++;
            continue;
        }
        errno = 0;
        long id = strtol(text, &end, 10);
        if (end == text || errno || id < 0 || id >= vocab_size)
            return error_set(
                err, ERROR_INPUT,
                "--prompt_ids: '%.20s' is no token id below the vocabulary's "
                "size %lld",
                text, (long long)vocab_size);
        if (token_list_append(list, &(int32_t){(int32_t)id}, 1, err))
            return -1;
        text = end;
    }
    if (list->n == 0)
        return error_set(err, ERROR_INPUT, "--prompt_ids holds no token id");
    return 0;
}

/* *list := the ids of the text; for an empty one, of what may stand before a document. */
static int encode_text(struct token_list *list, const char *text, size_t n,
                       struct encoder *encoder, const struct tokenizer *tokenizer,
                       int32_t eos, struct error *err)
{
    if (encoder_encode(encoder, text, n, false, list, err))
        return -1;
    if (list->n > 0)
        return 0;
    if (eos < 0)
        return error_set(err, ERROR_INPUT,
                         "a prompt is empty, and the tokenizer '%s' has no token that "
                         "could stand before a text; give a word to begin with",
                         tokenizer_name(tokenizer));
    return token_list_append(list, &eos, 1, err);
}

/* Fill p->texts with every data_size-th prompt from number data_rank on. `tokenizer` is
 * NULL for ids, which must be below `vocab_size`. An empty text becomes the token that
 * ends a document, `eos`, since that may stand before one. */
static int prompts_encode(struct prompts *p, int64_t data_rank, int64_t data_size,
                          const struct tokenizer *tokenizer, int32_t eos,
                          int64_t vocab_size, struct error *err)
{
    struct encoder *encoder = NULL;
    size_t n_most = (size_t)(p->n_all / data_size + 1);
    int rc = -1;
    p->texts = calloc(n_most, sizeof *p->texts);
    if (!p->texts)
        return error_set(err, ERROR_RUNTIME, "out of memory for %lld prompts",
                         (long long)p->n_all);
    if (tokenizer && encoder_open(&encoder, tokenizer, err))
        return -1;
    for (int64_t i = data_rank; i < p->n_all; i += data_size) {
        struct token_list list = {.n = 0};
        size_t n;
        const char *text = prompts_at(p, i, &n);
        int failed = tokenizer ? encode_text(&list, text, n, encoder, tokenizer, eos, err)
                               : parse_ids(&list, text, vocab_size, err);
        p->texts[p->n_texts++] = (struct gpt_text){.index = i,
                                                   .tokens = list.ids,
                                                   .n_tokens = list.n,
                                                   .capacity = list.capacity,
                                                   .n_prompt = list.n};
        if (failed && p->path)
            error_prefix(err, "prompt %lld of '%s'", (long long)i + 1, p->path);
        if (failed)
            goto done;
    }
    rc = 0;
done:
    encoder_close(encoder);
    return rc;
}

/* -- checks -------------------------------------------------------------------------- */

static int check_options(const struct generate *gen, struct error *err)
{
    const struct sampler *s = &gen->sampler;
    if (s->temperature < 0)
        return error_set(err, ERROR_INPUT, "--temperature must not be negative; it is %g",
                         s->temperature);
    if (s->top_p <= 0 || s->top_p > 1)
        return error_set(err, ERROR_INPUT, "--top_p must be in (0, 1]; it is %g",
                         s->top_p);
    if (s->top_k < 0 || gen->max_tokens < 1 || gen->max_tokens > INT32_MAX ||
        gen->num_threads < 0)
        return error_set(err, ERROR_INPUT,
                         "--top_k must not be negative, --max_tokens must be at least 1 "
                         "and at most %d, --num_threads must not be negative",
                         INT32_MAX);
    if (gen->batch_size < 1)
        return error_set(err, ERROR_INPUT, "--batch_size must be at least 1; it is %lld",
                         (long long)gen->batch_size);
    return 0;
}

static int plan_generate(void *context, int64_t n_processes, struct self_launch_plan *job,
                         struct error *err)
{
    struct generate *gen = context;
    *job = (struct self_launch_plan){.num_threads = gen->num_threads,
                                     .hang_timeout = gen->hang_timeout,
                                     .has_output = true,
                                     .is_oversubscribed = gen->is_oversubscribed};
    if (check_options(gen, err) ||
        kernel_set_parse(&job->cpu_kernels, gen->cpu_kernels, err) ||
        device_kind_parse(&gen->layout.device, gen->device, err) ||
        text_encoding_check(gen->prompts.encoding, err))
        return -1;
    // ranks that join a job agree on it later
    if (n_processes == 0 && trained_model_check(&gen->layout, 0, &job->n_processes, err))
        return -1;
    int64_t n = n_processes > 0 ? n_processes : job->n_processes;
    if (gen->prompts.path && text_files_check_shared(gen->prompts.path, (int)n, err))
        return -1;
    return prompts_open(&gen->prompts, err);
}

/* -- printing ------------------------------------------------------------------------ */

static void print_id(const struct generate *gen, int32_t id)
{
    size_t n = 0;
    if (!gen->printing) {
        printf("%d ", id);
    } else if (!tokenizer_is_special(gen->printing, id)) {
        const char *bytes = tokenizer_token_bytes(gen->printing, id, &n);
        if (bytes)
            fwrite(bytes, 1, n, stdout);
    }
}

/* Prompts that are ids are not repeated. */
static void print_prompt(const struct generate *gen, int64_t i)
{
    size_t n;
    const char *prompt = prompts_at(&gen->prompts, i, &n);
    if (i > 0)
        putchar('\n');
    if (gen->printing)
        fwrite(prompt, 1, n, stdout);
}

/* What follows the prompt, as text; NULL: out of memory. */
static json_t *completion_text(const struct generate *gen,
                               const struct text_completion *c)
{
    size_t n = tokenizer_decode(gen->printing, c->ids, c->n, NULL, 0);
    char *bytes = malloc(n + 1);
    if (!bytes)
        return NULL;
    tokenizer_decode(gen->printing, c->ids, c->n, bytes, n);
    json_t *text = report_text(bytes, n);
    free(bytes);
    return text;
}

static int print_json(const struct generate *gen, int64_t i,
                      const struct text_completion *c, struct error *err)
{
    size_t n;
    const char *prompt = prompts_at(&gen->prompts, i, &n);
    json_t *text = gen->printing ? completion_text(gen, c) : json_null();
    if (!text)
        return error_set(err, ERROR_RUNTIME, "out of memory for a continuation");
    json_t *object = json_object(), *ids = json_array();
    for (int64_t k = 0; k < c->n; k++)
        report_append(ids, json_integer(c->ids[k]));
    report_set_int(object, "index", i);
    report_set(object, "prompt", report_text(prompt, n));
    report_set(object, "completion", text);
    report_set(object, "ids", ids);
    report_set(object, "stop", json_string(c->is_ended ? "eos" : "length"));
    json_dumpf(object, stdout, JSON_COMPACT);
    putchar('\n');
    json_decref(object);
    return 0;
}

static int print_completion(void *context, int64_t i, const struct text_completion *c,
                            struct error *err)
{
    const struct generate *gen = context;
    if (gen->is_json) {
        if (print_json(gen, i, c, err))
            return -1;
    } else {
        if (!gen->is_streamed)
            print_prompt(gen, i);
        for (int64_t k = 0; k < c->n && !gen->is_streamed; k++)
            print_id(gen, c->ids[k]);
        putchar('\n');
    }
    return print_check("to standard output", err);
}

/* -- what gpt_generate() calls ------------------------------------------------------- */

static int on_token(void *context, const struct gpt_text *text, int32_t id,
                    struct error *err)
{
    struct generate *gen = context;
    (void)text;
    if (!gen->is_streamed)
        return text_gather_advance(&gen->gather, err);
    if (!text_gather_is_first(&gen->gather))
        return 0;
    print_id(gen, id);
    return print_check("to standard output", err);
}

static int on_text_end(void *context, const struct gpt_text *text, struct error *err)
{
    struct generate *gen = context;
    return text_gather_add(&gen->gather, text, err);
}

/* -- opening ------------------------------------------------------------------------- */

/* Ids need no tokenizer; one that is found says which id ends a document. */
static int open_tokenizer(struct generate *gen, struct error *err)
{
    const struct config *cfg = &gen->model.cfg;
    bool is_needed = !gen->prompts.ids || gen->tokenizer_name;
    gen->eos = (int32_t)cfg->dataset.eos_token_id;
    if (ckpt_tokenizer_open(&gen->tokenizer, gen->tokenizer_name, gen->model.path,
                            gen->model.tokenizer_hash, cfg, !is_needed, err)) {
        if (is_needed)
            return -1;
        log_warning("no end of a document is known beyond dataset.eos_token_id: %s",
                    err->text);
    }
    if (gen->tokenizer && (tokenizer_eos(gen->tokenizer) >= 0 || !gen->prompts.ids))
        gen->eos = tokenizer_eos(gen->tokenizer);
    gen->printing = gen->prompts.ids ? NULL : gen->tokenizer;
    return 0;
}

static int open_sampler(struct generate *gen, struct error *err)
{
    // ids past the tokenizer's, which round a vocabulary up, stand for nothing
    int64_t V = gen->tokenizer ? tokenizer_vocab_size(gen->tokenizer)
                               : gen->model.cfg.model.vocab_size;
    if (gen->is_greedy)
        gen->sampler.temperature = 0;
    gen->sampler.seed = (uint64_t)gen->seed;
    return sampler_init(&gen->sampler, V, err);
}

static int open_decoder(struct generate *gen, struct error *err)
{
    int64_t n_slots = i64_max(1, i64_min(gen->batch_size, gen->prompts.n_texts));
    return gpt_decoder_open(&gen->decoder, &gen->model.runner.gpt, n_slots,
                            gen->model.grid.pipe, err);
}

/* What needs no other process. */
static int open_rest(struct generate *gen, struct error *err)
{
    const struct grid *grid = &gen->model.grid;
    if (open_tokenizer(gen, err) || open_sampler(gen, err) ||
        prompts_encode(&gen->prompts, grid->data_rank, grid->data_size, gen->printing,
                       gen->eos, gen->model.cfg.model.vocab_size, err) ||
        open_decoder(gen, err))
        return -1;
    gen->gather = (struct text_gather){.texts = gen->prompts.texts,
                                       .n_texts = gen->prompts.n_texts,
                                       .n_all = gen->prompts.n_all,
                                       .on_text = print_completion,
                                       .context = gen};
    return text_gather_open(&gen->gather, grid, err);
}

/* -- the command --------------------------------------------------------------------- */

static int generate(struct generate *gen, struct error *err)
{
    const struct grid_shape *shape = &gen->model.grid.shape;
    struct gpt_generate job = {
        .decoder = &gen->decoder,
        .sampler = &gen->sampler,
        .replica = gen->model.grid.replica,
        .sampling_rank = (shape->pp - 1) * shape->mp, // the first with the head
        .max_tokens = gen->max_tokens,
        .eos = gen->eos,
        .context = gen,
        .on_token = on_token,
        .on_end = on_text_end,
    };
    if (text_gather_is_first(&gen->gather) && gen->is_streamed) {
        print_prompt(gen, 0);
        fflush(stdout);
    }
    if (gpt_generate(&job, gen->prompts.texts, gen->prompts.n_texts, err))
        return -1;
    return text_gather_finish(&gen->gather, err);
}

static void release(struct generate *gen)
{
    text_gather_close(&gen->gather);
    sampler_release(&gen->sampler);
    gpt_decoder_close(&gen->decoder);
    tokenizer_close(gen->tokenizer);
    prompts_release(&gen->prompts);
    trained_model_close(&gen->model);
}

static int run_generate(void *context, struct comm *world, struct error *err)
{
    struct generate *gen = context;
    int rc = trained_model_open(&gen->model, &gen->layout, world, err);
    if (rc == 0)
        rc = comm_agree(world, open_rest(gen, err), err);
    if (rc == 0) {
        rc = generate(gen, err);
        if (rc && comm_size(world) > 1) { // the others may be waiting for this one
            worker_report_failure(err);
            comm_abort(world, error_exit_code(err));
        }
    }
    release(gen);
    return rc;
}

static int parse(struct generate *gen, int argc, char **argv, struct error *err)
{
    const struct option_spec options[] = {
        {"ckpt", 0, OPTION_TEXT, &gen->layout.ckpt, true, "DIR",
         "A checkpoint, or a directory of them (the one saved last that is valid)."},
        {"prompt", 0, OPTION_TEXT, &gen->prompts.text, false, "TEXT",
         "A prompt to continue."},
        {"prompts", 0, OPTION_TEXT, &gen->prompts.path, false, "FILE",
         "Prompts to continue: one per line, or *.jsonl with {\"text\": ...} per line."},
        {"encoding", 0, OPTION_TEXT, &gen->prompts.encoding, false, "NAME",
         TEXT_FILES_ENCODING_HELP},
        {"prompt_ids", 0, OPTION_TEXT, &gen->prompts.ids, false, "IDS",
         "A prompt given as token ids; the output is token ids too."},
        {"tokenizer", 0, OPTION_TEXT, &gen->tokenizer_name, false, "DIR",
         "The tokenizer the model was trained with, if it cannot be found from the "
         "data."},
        {"max_tokens", 0, OPTION_INT, &gen->max_tokens, false, "N",
         "Generate at most N tokens (200); stops early at the end of a document."},
        {"greedy", 0, OPTION_FLAG, &gen->is_greedy, false, NULL,
         "Always pick the most likely token; same as --temperature 0."},
        {"temperature", 0, OPTION_NUMBER, &gen->sampler.temperature, false, "T",
         "Divide the logits by T (1.0)."},
        {"top_k", 0, OPTION_INT, &gen->sampler.top_k, false, "K",
         "Sample from the K most likely tokens (0: all)."},
        {"top_p", 0, OPTION_NUMBER, &gen->sampler.top_p, false, "P",
         "Sample from the most likely tokens with total probability P (1.0)."},
        {"seed", 0, OPTION_INT, &gen->seed, false, "N", "Random seed (1024)."},
        {"json", 0, OPTION_FLAG, &gen->is_json, false, NULL,
         "Print one JSON object per prompt."},
        {"batch_size", 0, OPTION_INT, &gen->batch_size, false, "N",
         "Prompts processed at a time (8); does not change results."},
        {"dp_degree", 0, OPTION_INT, &gen->layout.dp_degree, false, "N",
         "Data parallelism: prompts are split over N processes (0: those left over, or "
         "1)."},
        {"mp_degree", 0, OPTION_INT, &gen->layout.mp_degree, false, "N",
         "Tensor parallelism: each layer is split over N processes (1)."},
        {"pp_degree", 0, OPTION_INT, &gen->layout.pp_degree, false, "N",
         "Pipeline parallelism: layers are split over N processes (1)."},
        {"hang_timeout", 0, OPTION_NUMBER, &gen->hang_timeout, false, "SECONDS",
         "End a job of several processes after this long without progress (0: only when "
         "a "
         "process is frozen)."},
        {"oversubscribe", 0, OPTION_FLAG, &gen->is_oversubscribed, false, NULL,
         "Allow more than 4 processes per processor."},
        {"num_threads", 0, OPTION_INT, &gen->num_threads, false, "N",
         "Threads per process (0: all cores)."},
        {"device", 0, OPTION_TEXT, &gen->device, false, "KIND",
         "Where the arithmetic runs: cpu, gpu or emulated; cpu unless given."},
        {"cpu_kernels", 0, OPTION_TEXT, &gen->cpu_kernels, false, "SET",
         "Instructions to compute with: auto, generic, avx2, avx512 or amx (auto)."},
    };
    const struct command cmd = {
        "trefoil generate",
        "Sample text from a trained model. The processes of a parallel layout are "
        "started automatically, unless mpirun, srun or trefoil launch already did.",
        options, ARRAY_LEN(options)};
    return options_parse(&cmd, argc, argv, err);
}

int cmd_generate(int argc, char **argv)
{
    struct generate gen = {
        .cpu_kernels = "auto",
        .max_tokens = 200,
        .batch_size = 8,
        .seed = 1024,
        .sampler = {.temperature = 1.0, .top_p = 1.0},
        .layout = {.mp_degree = 1,
                   .pp_degree = 1,
                   .micro_batch_size = 1,
                   .use = LAYOUT_DECODE},
    };
    struct error err;
    int rc = parse(&gen, argc, argv, &err);
    gen.is_streamed = !gen.prompts.path && !gen.is_json;
    if (rc == 0) {
        int code = self_launch(&(struct self_launch){
            .argv = argv, .context = &gen, .plan = plan_generate, .run = run_generate});
        prompts_release(&gen.prompts); // if nothing was run here
        return code;
    }
    if (rc > 0)
        return 0;
    log_error("%s", err.text);
    return error_exit_code(&err);
}

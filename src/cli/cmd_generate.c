/*
 * trefoil generate - continue texts with a trained model, printing as it goes.
 *
 * On one process or several: data ranks share the prompts, model and pipe ranks the
 * model; rank 0 prints. What is drawn depends on the seed and on the place of a prompt
 * among all, on nothing else.
 */
#include "base/log.h"
#include "cli/ckpt_tokenizer.h"
#include "cli/cmd.h"
#include "cli/generate_output.h"
#include "cli/generate_prompts.h"
#include "cli/input_files.h"
#include "cli/options.h"
#include "cli/self_launch.h"
#include "data/text/text_encoding.h"
#include "launch/worker.h"
#include "train/trained_model.h"

#include <stdio.h>
#include <stdlib.h>

struct generate {
    const char *tokenizer_name; // NULL: not given
    int64_t max_tokens, batch_size, num_threads, seed;
    double hang_timeout;
    bool is_greedy, is_json, is_oversubscribed;
    struct trained_options layout;
    struct sampler sampler;
    struct generate_prompts prompts;

    struct trained_model model;
    struct gpt_decoder decoder;
    struct tokenizer *tokenizer; // NULL when it is not known, which ids allow
    int32_t eos;                 // -1: unknown
    struct generate_output output;
};

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

static int plan(void *context, int64_t n_processes, struct self_launch_plan *job,
                struct error *err)
{
    struct generate *gen = context;
    *job = (struct self_launch_plan){.num_threads = gen->num_threads,
                                     .hang_timeout = gen->hang_timeout,
                                     .has_output = true,
                                     .is_oversubscribed = gen->is_oversubscribed};
    if (check_options(gen, err) || text_encoding_check(gen->prompts.encoding, err))
        return -1;
    // ranks that meet will find out together
    if (n_processes == 0 && trained_model_check(&gen->layout, 0, &job->n_processes, err))
        return -1;
    int64_t n = n_processes > 0 ? n_processes : job->n_processes;
    if (gen->prompts.path && input_files_check_shared(gen->prompts.path, (int)n, err))
        return -1;
    return generate_prompts_open(&gen->prompts, err);
}

/* -- opening ------------------------------------------------------------------------- */

/* Ids need no tokenizer; one that is found tells which of them ends a document. */
static int open_tokenizer(struct generate *gen, struct error *err)
{
    const struct config *cfg = &gen->model.cfg;
    bool is_needed = !gen->prompts.ids || gen->tokenizer_name;
    gen->eos = (int32_t)cfg->dataset.eos_token_id;
    if (ckpt_tokenizer_open(&gen->tokenizer, gen->tokenizer_name, gen->model.path, cfg,
                            !is_needed, err)) {
        if (is_needed)
            return -1;
        log_warning("no end of a document is known beyond dataset.eos_token_id: %s",
                    err->text);
    }
    if (gen->tokenizer && (tokenizer_eos(gen->tokenizer) >= 0 || !gen->prompts.ids))
        gen->eos = tokenizer_eos(gen->tokenizer);
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
    return gpt_decoder_open(&gen->decoder, &gen->model.gpt, n_slots, gen->model.grid.pipe,
                            err);
}

/* What needs no other process. */
static int open_rest(struct generate *gen, struct error *err)
{
    const struct grid *grid = &gen->model.grid;
    if (open_tokenizer(gen, err) || open_sampler(gen, err) ||
        generate_prompts_encode(&gen->prompts, grid->data_rank, grid->data_size,
                                gen->prompts.ids ? NULL : gen->tokenizer, gen->eos,
                                gen->model.cfg.model.vocab_size, err) ||
        open_decoder(gen, err))
        return -1;
    gen->output =
        (struct generate_output){.prompts = &gen->prompts,
                                 .tokenizer = gen->prompts.ids ? NULL : gen->tokenizer,
                                 .is_json = gen->is_json,
                                 .is_streamed = !gen->prompts.path && !gen->is_json};
    return generate_output_open(&gen->output, grid, err);
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
        .context = &gen->output,
        .on_token = generate_output_token,
        .on_end = generate_output_text,
    };
    generate_output_begin(&gen->output);
    if (gpt_generate(&job, gen->prompts.texts, gen->prompts.n_texts, err))
        return -1;
    return generate_output_finish(&gen->output, err);
}

static void release(struct generate *gen)
{
    generate_output_close(&gen->output);
    sampler_release(&gen->sampler);
    gpt_decoder_close(&gen->decoder);
    tokenizer_close(gen->tokenizer);
    generate_prompts_release(&gen->prompts);
    trained_model_close(&gen->model);
}

static int run(void *context, struct comm *world, struct error *err)
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
         "A checkpoint, or a directory of them (the newest valid one)."},
        {"prompt", 0, OPTION_TEXT, &gen->prompts.text, false, "TEXT",
         "The text to continue."},
        {"prompts", 0, OPTION_TEXT, &gen->prompts.path, false, "FILE",
         "Texts to continue: one per line, or *.jsonl with {\"text\": ...} per line."},
        {"encoding", 0, OPTION_TEXT, &gen->prompts.encoding, false, "NAME",
         INPUT_FILES_ENCODING_HELP},
        {"prompt_ids", 0, OPTION_TEXT, &gen->prompts.ids, false, "IDS",
         "A prompt as token ids; then ids are printed."},
        {"tokenizer", 0, OPTION_TEXT, &gen->tokenizer_name, false, "DIR",
         "The tokenizer the model was trained with, where its data does not tell."},
        {"max_tokens", 0, OPTION_INT, &gen->max_tokens, false, "N",
         "Tokens to generate at most (200); the end of a document stops earlier."},
        {"greedy", 0, OPTION_FLAG, &gen->is_greedy, false, NULL,
         "Always take the likeliest token; the same as --temperature 0."},
        {"temperature", 0, OPTION_NUMBER, &gen->sampler.temperature, false, "T",
         "Divide the logits by T (1.0)."},
        {"top_k", 0, OPTION_INT, &gen->sampler.top_k, false, "K",
         "Keep the K likeliest tokens (0: all)."},
        {"top_p", 0, OPTION_NUMBER, &gen->sampler.top_p, false, "P",
         "Keep the likeliest tokens that reach probability P (1.0)."},
        {"seed", 0, OPTION_INT, &gen->seed, false, "N", "Seed of the draws (1024)."},
        {"json", 0, OPTION_FLAG, &gen->is_json, false, NULL,
         "Print one JSON object a prompt, when it is complete."},
        {"batch_size", 0, OPTION_INT, &gen->batch_size, false, "N",
         "Prompts continued at a time (8); changes no result."},
        {"dp_degree", 0, OPTION_INT, &gen->layout.dp_degree, false, "N",
         "Processes that share the prompts (0: those that are left, or 1)."},
        {"mp_degree", 0, OPTION_INT, &gen->layout.mp_degree, false, "N",
         "Processes that share each layer (1)."},
        {"pp_degree", 0, OPTION_INT, &gen->layout.pp_degree, false, "N",
         "Processes that share the layers (1)."},
        {"hang_timeout", 0, OPTION_NUMBER, &gen->hang_timeout, false, "SECONDS",
         "End a job of several processes that makes no progress for so long (0: when a "
         "process is frozen)."},
        {"oversubscribe", 0, OPTION_FLAG, &gen->is_oversubscribed, false, NULL,
         "Allow more than 4 processes per processor."},
        {"num_threads", 0, OPTION_INT, &gen->num_threads, false, "N",
         "Threads (0: all cores)."},
    };
    const struct command cmd = {
        "trefoil generate",
        "Continue texts with a trained model. A layout of several "
        "processes is started by itself, or joined under mpirun, "
        "srun or trefoil launch.",
        options, ARRAY_LEN(options)};
    return options_parse(&cmd, argc, argv, err);
}

int cmd_generate(int argc, char **argv)
{
    struct generate gen = {
        .max_tokens = 200,
        .batch_size = 8,
        .seed = 1024,
        .sampler = {.temperature = 1.0, .top_p = 1.0},
        .layout = {.mp_degree = 1,
                   .pp_degree = 1,
                   .micro_batch_size = 1,
                   .is_for_decoding = true},
    };
    struct error err;
    int rc = parse(&gen, argc, argv, &err);
    if (rc == 0) {
        int code = self_launch(&(struct self_launch){
            .argv = argv, .context = &gen, .plan = plan, .run = run});
        generate_prompts_release(&gen.prompts); // if nothing was run here
        return code;
    }
    if (rc > 0)
        return 0;
    log_error("%s", err.text);
    return error_exit_code(&err);
}

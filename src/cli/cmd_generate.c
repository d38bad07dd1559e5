/*
 * trefoil generate - continue texts with a trained model, printing as it goes.
 *
 * When the context is full, the newest half of it is read again as a new prompt. What is
 * drawn depends on the seed and on the place of a prompt among all, on nothing else.
 */
#include "base/log.h"
#include "ckpt/ckpt.h"
#include "cli/ckpt_tokenizer.h"
#include "cli/cmd.h"
#include "cli/inspect.h"
#include "cli/options.h"
#include "config/config.h"
#include "data/text_list.h"
#include "model/gpt_decode.h"
#include "model/sampler.h"
#include "token/tokenizer.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct generate {
    const char *ckpt, *prompt, *prompt_ids, *prompts_path;
    const char *tokenizer_name; // NULL: not given
    int64_t max_tokens, num_threads, seed;
    bool is_greedy, is_json;
    struct sampler sampler;

    char path[PATH_MAX]; // of the checkpoint
    struct config cfg;
    struct comm *alone;
    struct gpt gpt;
    struct gpt_decoder decoder;
    struct tokenizer *tokenizer; // NULL when the prompt is ids
    struct encoder *encoder;
    struct text_list prompts; // of a file
    int32_t eos;              // -1: unknown

    struct token_list tokens; // of the prompt at hand, and what was generated
    int64_t n_prompt;         // of these, the prompt's
};

/* -- checks -------------------------------------------------------------------------- */

static int check_options(const struct generate *gen, struct error *err)
{
    const struct sampler *s = &gen->sampler;
    int n_given =
        (gen->prompt != NULL) + (gen->prompt_ids != NULL) + (gen->prompts_path != NULL);
    if (n_given != 1)
        return error_set(err, ERROR_INPUT,
                         "trefoil generate: give one of --prompt and --prompt_ids, "
                         "or --prompts FILE");
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
    return 0;
}

/* -- opening ------------------------------------------------------------------------- */

static int open_model(struct generate *gen, struct error *err)
{
    struct ckpt_info info;
    if (ckpt_resolve(gen->ckpt, gen->path, sizeof gen->path, err) ||
        ckpt_read_info(gen->path, &info, err))
        return -1;
    int rc = config_from_json(&gen->cfg, info.config_json, err);
    ckpt_info_release(&info);
    if (rc)
        return error_prefix(err, "checkpoint '%s'", gen->path);
    gen->cfg.dataset.max_seq_len = gen->cfg.model.max_position_embeddings;
    if (comm_world_open(&gen->alone, err) ||
        gpt_open(&gen->gpt, &gen->cfg, 1, false, gen->alone, err) ||
        ckpt_load_params(gen->path, &gen->gpt.table, gen->gpt.params, err) ||
        gpt_decoder_open(&gen->decoder, &gen->gpt, err))
        return -1;
    return 0;
}

static int open_tokenizer(struct generate *gen, struct error *err)
{
    gen->eos = (int32_t)gen->cfg.dataset.eos_token_id;
    if (gen->prompt_ids)
        return 0;
    if (ckpt_tokenizer_open(&gen->tokenizer, gen->tokenizer_name, gen->path, &gen->cfg,
                            false, err) ||
        encoder_open(&gen->encoder, gen->tokenizer, err))
        return -1;
    gen->eos = tokenizer_eos(gen->tokenizer);
    return 0;
}

static bool ends_with(const char *name, const char *suffix)
{
    size_t n = strlen(name), k = strlen(suffix);
    return n >= k && strcmp(name + n - k, suffix) == 0;
}

static int open_prompts(struct generate *gen, struct error *err)
{
    bool is_json = gen->prompts_path && ends_with(gen->prompts_path, ".jsonl");
    return gen->prompts_path
               ? text_list_read(&gen->prompts, gen->prompts_path,
                                is_json ? TEXT_LIST_JSON : TEXT_LIST_LINES, err)
               : 0;
}

static int open_sampler(struct generate *gen, struct error *err)
{
    // ids past the tokenizer's, which round a vocabulary up, stand for nothing
    int64_t V =
        gen->tokenizer ? tokenizer_vocab_size(gen->tokenizer) : gen->cfg.model.vocab_size;
    if (gen->is_greedy)
        gen->sampler.temperature = 0;
    gen->sampler.seed = (uint64_t)gen->seed;
    return sampler_init(&gen->sampler, V, err);
}

/* -- prompts ------------------------------------------------------------------------- */

/* Room for n more tokens than there are. */
static int reserve(struct token_list *list, int64_t n, struct error *err)
{
    int64_t wanted = list->n + n;
    if (wanted <= list->capacity)
        return 0;
    int32_t *larger = realloc(list->ids, (size_t)wanted * sizeof *larger);
    if (!larger)
        return error_set(err, ERROR_RUNTIME, "out of memory for %lld tokens",
                         (long long)wanted);
    list->ids = larger;
    list->capacity = wanted;
    return 0;
}

/* gen->tokens := the ids written in text; commas and blanks separate. */
static int parse_ids(struct generate *gen, const char *text, struct error *err)
{
    gen->tokens.n = 0;
    if (reserve(&gen->tokens, (int64_t)strlen(text), err)) // an id has a digit
        return -1;
    while (*text) {
        char *end;
        if (strchr(" ,\t\n", *text)) {
            text++;
            continue;
        }
        errno = 0;
        long id = strtol(text, &end, 10);
        if (end == text || errno || id < 0 || id >= gen->cfg.model.vocab_size)
            return error_set(
                err, ERROR_INPUT,
                "--prompt_ids: '%.20s' is no token id below the vocabulary's "
                "size %lld",
                text, (long long)gen->cfg.model.vocab_size);
        gen->tokens.ids[gen->tokens.n++] = (int32_t)id;
        text = end;
    }
    if (gen->tokens.n == 0)
        return error_set(err, ERROR_INPUT, "--prompt_ids holds no token id");
    return 0;
}

/* gen->tokens := the ids of the text; for an empty one, of what may stand before a
 * document. */
static int encode_prompt(struct generate *gen, const char *text, size_t n,
                         struct error *err)
{
    gen->tokens.n = 0;
    if (encoder_encode(gen->encoder, text, n, false, &gen->tokens, err))
        return -1;
    if (gen->tokens.n > 0)
        return 0;
    if (gen->eos < 0)
        return error_set(err, ERROR_INPUT,
                         "a prompt is empty, and the tokenizer '%s' has no token that "
                         "could stand before a text; give a word to begin with",
                         tokenizer_name(gen->tokenizer));
    if (reserve(&gen->tokens, 1, err))
        return -1;
    gen->tokens.ids[gen->tokens.n++] = gen->eos;
    return 0;
}

/* -- one continuation ---------------------------------------------------------------- */

static void print_token(const struct generate *gen, int32_t id)
{
    size_t n = 0;
    if (!gen->tokenizer) {
        printf("%d ", id);
    } else if (!tokenizer_is_special(gen->tokenizer, id)) {
        const char *bytes = tokenizer_token_bytes(gen->tokenizer, id, &n);
        if (bytes)
            fwrite(bytes, 1, n, stdout);
    }
    fflush(stdout);
}

/* The logits after the tokens so far; reads the newest half again when S is full. */
static const float *next_logits(struct generate *gen)
{
    const struct token_list *list = &gen->tokens;
    int64_t S = gen->gpt.dims.S, n = 1; // of the newest tokens
    if (gen->decoder.n_past == 0 || gen->decoder.n_past >= S) {
        n = list->n < S ? list->n : i64_max(1, S / 2);
        gpt_decoder_reset(&gen->decoder);
    }
    return gpt_decoder_feed(&gen->decoder, &list->ids[list->n - n], n);
}

/* Draw up to max_tokens after gen->tokens, which has room for them, of prompt number
 * `index`. True: ended by the token that ends a document, which is not kept. */
static bool continue_prompt(struct generate *gen, int64_t index)
{
    gpt_decoder_reset(&gen->decoder);
    for (int64_t i = 0; i < gen->max_tokens; i++) {
        int64_t draw = (int64_t)((uint64_t)index << 32 | (uint64_t)i);
        int32_t id = sampler_next(&gen->sampler, next_logits(gen), draw);
        if (id == gen->eos)
            return true;
        gen->tokens.ids[gen->tokens.n++] = id;
        if (!gen->is_json)
            print_token(gen, id);
    }
    return false;
}

/* What was generated, as text; NULL: out of memory. */
static json_t *completion_text(const struct generate *gen)
{
    const int32_t *ids = gen->tokens.ids + gen->n_prompt;
    int64_t n_ids = gen->tokens.n - gen->n_prompt;
    size_t n = tokenizer_decode(gen->tokenizer, ids, n_ids, NULL, 0);
    char *bytes = malloc(n + 1);
    if (!bytes)
        return NULL;
    tokenizer_decode(gen->tokenizer, ids, n_ids, bytes, n);
    json_t *text = inspect_text(bytes, n);
    free(bytes);
    return text;
}

static int print_json(const struct generate *gen, int64_t index, const char *prompt,
                      size_t n_prompt, bool is_ended, struct error *err)
{
    json_t *text = gen->tokenizer ? completion_text(gen) : json_null();
    if (!text)
        return error_set(err, ERROR_RUNTIME, "out of memory for a continuation");
    json_t *object = json_object(), *ids = json_array();
    for (int64_t i = gen->n_prompt; i < gen->tokens.n; i++)
        inspect_append(ids, json_integer(gen->tokens.ids[i]));
    inspect_set_int(object, "index", index);
    inspect_set(object, "prompt", inspect_text(prompt, n_prompt));
    inspect_set(object, "completion", text);
    inspect_set(object, "ids", ids);
    inspect_set(object, "stop", json_string(is_ended ? "eos" : "length"));
    json_dumpf(object, stdout, JSON_COMPACT);
    putchar('\n');
    fflush(stdout);
    json_decref(object);
    return 0;
}

static int run_one(struct generate *gen, int64_t index, const char *prompt,
                   size_t n_prompt, struct error *err)
{
    if (gen->prompt_ids ? parse_ids(gen, prompt, err)
                        : encode_prompt(gen, prompt, n_prompt, err))
        return -1;
    gen->n_prompt = gen->tokens.n;
    if (reserve(&gen->tokens, gen->max_tokens, err))
        return -1;
    if (!gen->is_json && index > 0)
        putchar('\n');
    if (!gen->is_json && gen->tokenizer)
        fwrite(prompt, 1, n_prompt, stdout);
    bool is_ended = continue_prompt(gen, index);
    if (gen->is_json)
        return print_json(gen, index, prompt, n_prompt, is_ended, err);
    putchar('\n');
    return 0;
}

/* -- the command --------------------------------------------------------------------- */

static int generate(struct generate *gen, struct error *err)
{
    if (check_options(gen, err))
        return -1;
    if (gen->num_threads > 0)
        kernels_set_threads((int)gen->num_threads);
    if (open_prompts(gen, err) || open_model(gen, err) || open_tokenizer(gen, err) ||
        open_sampler(gen, err))
        return -1;
    const char *one = gen->prompt ? gen->prompt : gen->prompt_ids;
    if (one)
        return run_one(gen, 0, one, strlen(one), err);
    for (int64_t i = 0; i < gen->prompts.n_items; i++) {
        const struct text_list_item *item = &gen->prompts.items[i];
        if (run_one(gen, i, item->text, item->n, err))
            return error_prefix(err, "prompt %lld of '%s'", (long long)i + 1,
                                gen->prompts_path);
    }
    return 0;
}

static void release(struct generate *gen)
{
    sampler_release(&gen->sampler);
    gpt_decoder_close(&gen->decoder);
    gpt_close(&gen->gpt);
    comm_world_close(gen->alone);
    encoder_close(gen->encoder);
    tokenizer_close(gen->tokenizer);
    text_list_release(&gen->prompts);
    token_list_release(&gen->tokens);
}

int cmd_generate(int argc, char **argv)
{
    struct generate gen = {
        .max_tokens = 200, .seed = 1024, .sampler = {.temperature = 1.0, .top_p = 1.0}};
    const struct option_spec options[] = {
        {"ckpt", 0, OPTION_TEXT, &gen.ckpt, true, "DIR",
         "A checkpoint, or a directory of them (the newest valid one)."},
        {"prompt", 0, OPTION_TEXT, &gen.prompt, false, "TEXT", "The text to continue."},
        {"prompts", 0, OPTION_TEXT, &gen.prompts_path, false, "FILE",
         "Texts to continue: one a line, or *.jsonl with {\"text\": ...} a line."},
        {"prompt_ids", 0, OPTION_TEXT, &gen.prompt_ids, false, "IDS",
         "A prompt as token ids; then ids are printed."},
        {"tokenizer", 0, OPTION_TEXT, &gen.tokenizer_name, false, "DIR",
         "The tokenizer the model was trained with, where its data does not tell."},
        {"max_tokens", 0, OPTION_INT, &gen.max_tokens, false, "N",
         "Tokens to generate at most (200); the end of a document stops earlier."},
        {"greedy", 0, OPTION_FLAG, &gen.is_greedy, false, NULL,
         "Always take the likeliest token; the same as --temperature 0."},
        {"temperature", 0, OPTION_NUMBER, &gen.sampler.temperature, false, "T",
         "Divide the logits by T (1.0)."},
        {"top_k", 0, OPTION_INT, &gen.sampler.top_k, false, "K",
         "Keep the K likeliest tokens (0: all)."},
        {"top_p", 0, OPTION_NUMBER, &gen.sampler.top_p, false, "P",
         "Keep the likeliest tokens that reach probability P (1.0)."},
        {"seed", 0, OPTION_INT, &gen.seed, false, "N", "Seed of the draws (1024)."},
        {"json", 0, OPTION_FLAG, &gen.is_json, false, NULL,
         "Print one JSON object a prompt, when it is complete."},
        {"num_threads", 0, OPTION_INT, &gen.num_threads, false, "N",
         "Threads (0: all cores)."},
    };
    const struct command cmd = {"trefoil generate",
                                "Continue texts with a trained model.", options,
                                ARRAY_LEN(options)};
    struct error err;
    int rc = options_parse(&cmd, argc, argv, &err);
    if (rc == 0)
        rc = generate(&gen, &err);
    release(&gen);
    if (rc >= 0)
        return 0;
    log_error("%s", err.text);
    return error_exit_code(&err);
}

/*
 * trefoil generate - continue a text with a trained model, printing as it goes.
 *
 * When the context is full, the newest half of it is read again as a new prompt.
 */
#include "base/log.h"
#include "ckpt/ckpt.h"
#include "cli/cmd.h"
#include "cli/options.h"
#include "config/config.h"
#include "model/gpt_decode.h"
#include "model/sampler.h"
#include "token/tokenizer.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct generate {
    const char *ckpt, *prompt, *prompt_ids;
    const char *tokenizer_name; // NULL: not given
    int64_t max_tokens, num_threads, seed;
    bool is_greedy;
    struct sampler sampler;

    struct config cfg;
    struct comm *alone;
    struct gpt gpt;
    struct gpt_decoder decoder;
    struct tokenizer *tokenizer; // NULL when the prompt is ids
    int32_t *tokens;             // prompt and what was generated
    int64_t n_tokens;
};

/* -- checks -------------------------------------------------------------------------- */

static int check_options(const struct generate *gen, struct error *err)
{
    const struct sampler *s = &gen->sampler;
    if ((gen->prompt != NULL) == (gen->prompt_ids != NULL))
        return error_set(err, ERROR_INPUT,
                         "trefoil generate: give one of --prompt and --prompt_ids");
    if (s->temperature < 0)
        return error_set(err, ERROR_INPUT, "--temperature must not be negative; it is %g",
                         s->temperature);
    if (s->top_p <= 0 || s->top_p > 1)
        return error_set(err, ERROR_INPUT, "--top_p must be in (0, 1]; it is %g",
                         s->top_p);
    if (s->top_k < 0 || gen->max_tokens < 1 || gen->num_threads < 0)
        return error_set(err, ERROR_INPUT,
                         "--top_k must not be negative, --max_tokens must be at least 1, "
                         "--num_threads must not be negative");
    return 0;
}

/* -- opening ------------------------------------------------------------------------- */

static int open_model(struct generate *gen, struct error *err)
{
    char path[PATH_MAX];
    struct ckpt_info info;
    if (ckpt_resolve(gen->ckpt, path, sizeof path, err) ||
        ckpt_read_info(path, &info, err))
        return -1;
    int rc = config_from_json(&gen->cfg, info.config_json, err);
    ckpt_info_release(&info);
    if (rc)
        return error_prefix(err, "checkpoint '%s'", path);
    gen->cfg.dataset.max_seq_len = gen->cfg.model.max_position_embeddings;
    if (comm_world_open(&gen->alone, err) ||
        gpt_open(&gen->gpt, &gen->cfg, 1, false, gen->alone, err) ||
        ckpt_load_params(path, &gen->gpt.table, gen->gpt.params, err) ||
        gpt_decoder_open(&gen->decoder, &gen->gpt, err))
        return -1;
    return 0;
}

/* The one that was named; else bytes, if the model's vocabulary can be theirs, rounded up
 * or not. */
static int open_tokenizer(struct generate *gen, struct error *err)
{
    const char *name = gen->tokenizer_name ? gen->tokenizer_name : TOKENIZER_BYTES;
    int64_t V = gen->cfg.model.vocab_size;
    if (!gen->prompt)
        return 0;
    if (tokenizer_open(&gen->tokenizer, name, err))
        return -1;
    int64_t n_ids = tokenizer_vocab_size(gen->tokenizer);
    if (!gen->tokenizer_name && (V < n_ids || V > i64_round_up(n_ids, 128)))
        return error_set(
            err, ERROR_INPUT,
            "checkpoint '%s' has a vocabulary of %lld tokens, which is not "
            "the byte-level one: name its tokenizer with --tokenizer DIR, or "
            "give the prompt as token ids with --prompt_ids \"1 2 3\"",
            gen->ckpt, (long long)V);
    if (n_ids > V)
        return error_set(err, ERROR_INPUT,
                         "the tokenizer '%s' has %lld tokens, but checkpoint '%s' only "
                         "%lld: name the tokenizer it was trained with",
                         name, (long long)n_ids, gen->ckpt, (long long)V);
    return 0;
}

/* gen->tokens := the ids written in text; commas and blanks separate. */
static int parse_ids(struct generate *gen, const char *text, struct error *err)
{
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
        gen->tokens[gen->n_tokens++] = (int32_t)id;
        text = end;
    }
    return 0;
}

/* gen->tokens := the ids of the text; for an empty one, of what may stand before a
 * document. */
static int encode_prompt(struct generate *gen, const char *text, struct error *err)
{
    struct encoder *encoder = NULL;
    struct token_list list = {0};
    int rc = -1;
    if (encoder_open(&encoder, gen->tokenizer, err) ||
        encoder_encode(encoder, text, strlen(text), false, &list, err))
        goto done;
    for (int64_t i = 0; i < list.n; i++) // at most one a byte, so there is room
        gen->tokens[gen->n_tokens++] = list.ids[i];
    if (list.n == 0 && tokenizer_eos(gen->tokenizer) < 0) {
        error_set(err, ERROR_INPUT,
                  "--prompt is empty, and the tokenizer '%s' has no token that could "
                  "stand before a text; give a word to begin with",
                  gen->tokenizer_name);
        goto done;
    }
    if (list.n == 0)
        gen->tokens[gen->n_tokens++] = tokenizer_eos(gen->tokenizer);
    rc = 0;
done:
    encoder_close(encoder);
    token_list_release(&list);
    return rc;
}

static int read_prompt(struct generate *gen, struct error *err)
{
    const char *text = gen->prompt ? gen->prompt : gen->prompt_ids;
    size_t room = strlen(text) + 2 + (size_t)gen->max_tokens; // 2: eos, a space added
    gen->tokens = malloc(room * sizeof *gen->tokens);
    if (!gen->tokens)
        return error_set(err, ERROR_RUNTIME, "out of memory for %zu tokens", room);
    if (gen->prompt)
        return encode_prompt(gen, text, err);
    if (parse_ids(gen, text, err))
        return -1;
    if (gen->n_tokens == 0)
        return error_set(err, ERROR_INPUT, "--prompt_ids holds no token id");
    return 0;
}

/* -- the loop ------------------------------------------------------------------------ */

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
    int64_t S = gen->gpt.dims.S, n = gen->n_tokens;
    if (gen->decoder.n_past > 0 && gen->decoder.n_past < S)
        return gpt_decoder_feed(&gen->decoder, gen->tokens + n - 1, 1);
    int64_t context = n < S ? n : i64_max(1, S / 2);
    gpt_decoder_reset(&gen->decoder);
    return gpt_decoder_feed(&gen->decoder, gen->tokens + n - context, context);
}

static void run(struct generate *gen)
{
    if (gen->prompt)
        fputs(gen->prompt, stdout);
    for (int64_t i = 0; i < gen->max_tokens; i++) {
        int32_t id = sampler_next(&gen->sampler, next_logits(gen), i);
        gen->tokens[gen->n_tokens++] = id;
        if (gen->tokenizer && id == tokenizer_eos(gen->tokenizer))
            break;
        print_token(gen, id);
    }
    putchar('\n');
}

static int generate(struct generate *gen, struct error *err)
{
    if (check_options(gen, err))
        return -1;
    if (gen->num_threads > 0)
        kernels_set_threads((int)gen->num_threads);
    if (open_model(gen, err) || open_tokenizer(gen, err) || read_prompt(gen, err))
        return -1;
    if (gen->is_greedy)
        gen->sampler.temperature = 0;
    gen->sampler.seed = (uint64_t)gen->seed;
    // ids past the tokenizer's, which round a vocabulary up, stand for nothing
    int64_t V =
        gen->tokenizer ? tokenizer_vocab_size(gen->tokenizer) : gen->cfg.model.vocab_size;
    if (sampler_init(&gen->sampler, V, err))
        return -1;
    run(gen);
    return 0;
}

static void release(struct generate *gen)
{
    sampler_release(&gen->sampler);
    gpt_decoder_close(&gen->decoder);
    gpt_close(&gen->gpt);
    comm_world_close(gen->alone);
    tokenizer_close(gen->tokenizer);
    free(gen->tokens);
}

int cmd_generate(int argc, char **argv)
{
    struct generate gen = {
        .max_tokens = 200, .seed = 1024, .sampler = {.temperature = 1.0, .top_p = 1.0}};
    const struct option_spec options[] = {
        {"ckpt", 0, OPTION_TEXT, &gen.ckpt, true, "DIR",
         "A checkpoint, or a directory of them (the newest valid one)."},
        {"prompt", 0, OPTION_TEXT, &gen.prompt, false, "TEXT", "The text to continue."},
        {"prompt_ids", 0, OPTION_TEXT, &gen.prompt_ids, false, "IDS",
         "The same as token ids; then ids are printed."},
        {"tokenizer", 0, OPTION_TEXT, &gen.tokenizer_name, false, "DIR",
         "The tokenizer the model was trained with; bytes when not given."},
        {"max_tokens", 0, OPTION_INT, &gen.max_tokens, false, "N",
         "Tokens to generate (200)."},
        {"greedy", 0, OPTION_FLAG, &gen.is_greedy, false, NULL,
         "Always take the likeliest token; the same as --temperature 0."},
        {"temperature", 0, OPTION_NUMBER, &gen.sampler.temperature, false, "T",
         "Divide the logits by T (1.0)."},
        {"top_k", 0, OPTION_INT, &gen.sampler.top_k, false, "K",
         "Keep the K likeliest tokens (0: all)."},
        {"top_p", 0, OPTION_NUMBER, &gen.sampler.top_p, false, "P",
         "Keep the likeliest tokens that reach probability P (1.0)."},
        {"seed", 0, OPTION_INT, &gen.seed, false, "N", "Seed of the draws (1024)."},
        {"num_threads", 0, OPTION_INT, &gen.num_threads, false, "N",
         "Threads (0: all cores)."},
    };
    const struct command cmd = {"trefoil generate",
                                "Continue a text with a trained model.", options,
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

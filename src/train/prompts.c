#include "train/prompts.h"

#include "base/beat.h"
#include "ckpt/ckpt_tokenizer.h"
#include "text/encoder.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TEMPERATURE 0.8
#define S_UNIT 16                   // passes are not made for every single length
#define TOKENS_MOST ((1 << 24) - 1) // that a draw can tell apart

/* -- opening ------------------------------------------------------------------------- */

static int get_memory(struct prompts *p, int64_t V, struct error *err)
{
    size_t n = (size_t)p->n, all = n * (size_t)p->S;
    p->n_prompt = calloc(n, sizeof *p->n_prompt);
    p->n_now = calloc(n, sizeof *p->n_now);
    p->tokens = calloc(all, sizeof *p->tokens);
    p->next = calloc(n, sizeof *p->next);
    p->pass = calloc(all, sizeof *p->pass);
    p->drawn = calloc(all, sizeof *p->drawn);
    p->targets = calloc(all, sizeof *p->targets);
    p->loss_mask = calloc(all, sizeof *p->loss_mask);
    p->row = calloc((size_t)V, sizeof *p->row);
    p->loss_sums = calloc(n, sizeof *p->loss_sums);
    if (p->n_prompt && p->n_now && p->tokens && p->next && p->pass && p->drawn &&
        p->targets && p->loss_mask && p->row && p->loss_sums)
        return 0;
    return error_set(err, ERROR_RUNTIME, "out of memory for %lld eval_prompts",
                     (long long)p->n);
}

static int open_tokenizer(struct prompts *p, const struct config *cfg, const char *hash,
                          struct error *err)
{
    char beside[CONFIG_PATH_BYTES + 16];
    const char *dir = cfg->save_load.output_dir;
    snprintf(beside, sizeof beside, "%s/checkpoint", dir);
    if (ckpt_tokenizer_open(&p->tokenizer, NULL, beside, hash, cfg, true, err))
        return error_prefix(err, "eval_prompts");
    if (!p->tokenizer)
        return error_set(err, ERROR_INPUT,
                         "eval_prompts: the data does not say which tokenizer made it; "
                         "put the tokenizer's files in '%s/" CKPT_TOKENIZER_DIR "', or "
                         "leave eval_prompts empty",
                         dir);
    p->eos = tokenizer_eos(p->tokenizer);
    p->n_ids = i64_min(tokenizer_vocab_size(p->tokenizer), cfg->model.vocab_size);
    return 0;
}

/* Prompt i as tokens, of which the last are kept; nothing becomes the token that ends a
 * document, since a text follows that. */
static int encode_prompt(struct prompts *p, struct encoder *encoder, const char *text,
                         int64_t i, struct error *err)
{
    struct token_list list = {.n = 0};
    int32_t eos = (int32_t)p->eos;
    int rc = encoder_encode(encoder, text, strlen(text), false, &list, err);
    if (rc == 0 && list.n == 0 && eos < 0)
        rc = error_set(err, ERROR_INPUT,
                       "a text is empty, and the tokenizer '%s' has no token that could "
                       "stand before one; give a word to begin with",
                       tokenizer_name(p->tokenizer));
    if (rc == 0 && list.n == 0)
        rc = token_list_append(&list, &eos, 1, err);
    if (rc == 0) {
        int64_t n = i64_min(list.n, i64_max(1, p->S / 2));
        memcpy(p->tokens + i * p->S, list.ids + list.n - n,
               (size_t)n * sizeof *p->tokens);
        p->n_prompt[i] = n;
    }
    token_list_release(&list);
    return rc ? error_prefix(err, "eval_prompts, text %lld", (long long)i + 1) : 0;
}

static int encode_prompts(struct prompts *p, const struct config *cfg, const char *hash,
                          struct error *err)
{
    struct encoder *encoder = NULL;
    if (open_tokenizer(p, cfg, hash, err) || encoder_open(&encoder, p->tokenizer, err))
        return -1;
    int rc = 0;
    for (int64_t i = 0; i < p->n && rc == 0; i++)
        rc = encode_prompt(p, encoder, config_path_at(&cfg->eval_prompts, i), i, err);
    encoder_close(encoder);
    return rc;
}

/* What rank 0 read, to all. */
static int spread_prompts(struct prompts *p, struct comm *world, struct error *err)
{
    int64_t facts[] = {p->eos, p->n_ids};
    int64_t n_bytes = p->n * p->S * (int64_t)sizeof *p->tokens;
    if (comm_bcast_bytes(world, facts, sizeof facts, 0, err) ||
        comm_bcast_bytes(world, p->n_prompt, p->n * (int64_t)sizeof *p->n_prompt, 0,
                         err) ||
        comm_bcast_bytes(world, p->tokens, n_bytes, 0, err))
        return -1;
    p->eos = facts[0];
    p->n_ids = facts[1];
    return 0;
}

int prompts_open(struct prompts *p, const struct config *cfg, const char *tokenizer_hash,
                 const struct grid *grid, struct error *err)
{
    int64_t S = cfg->dataset.max_seq_len;
    *p = (struct prompts){.n = cfg->eval_prompts.n_paths,
                          .S = S,
                          .S_unit = S_UNIT * cfg->distributed.mp_degree,
                          .n_most = i64_min(cfg->eval_prompt_tokens, TOKENS_MOST),
                          .replica = grid->replica,
                          .drawing_rank = (grid->shape.pp - 1) * grid->shape.sharding *
                                          grid->shape.mp};
    if (p->n == 0)
        return 0;
    int rc = get_memory(p, cfg->model.vocab_size, err);
    if (rc == 0 && comm_rank(grid->world) == 0)
        rc = encode_prompts(p, cfg, tokenizer_hash, err);
    if (comm_agree(grid->world, rc, err))
        return -1;
    return spread_prompts(p, grid->world, err);
}

void prompts_close(struct prompts *p)
{
    tokenizer_close(p->tokenizer);
    free(p->n_prompt);
    free(p->n_now);
    free(p->tokens);
    free(p->next);
    free(p->pass);
    free(p->drawn);
    free(p->targets);
    free(p->loss_mask);
    free(p->row);
    free(p->loss_sums);
    *p = (struct prompts){0};
}

/* -- drawing ------------------------------------------------------------------------- */

static bool is_ended(const struct prompts *p, int64_t i)
{
    return p->next[i] < 0 || p->n_now[i] == p->S ||
           p->n_now[i] - p->n_prompt[i] >= p->n_most;
}

/* The longest text that goes on, rounded up; 0: none does. */
static int64_t pass_length(const struct prompts *p)
{
    int64_t longest = 0;
    for (int64_t i = 0; i < p->n; i++)
        if (!is_ended(p, i))
            longest = i64_max(longest, p->n_now[i]);
    return i64_min(i64_round_up(longest, p->S_unit), p->S);
}

/* All texts, cut or filled up to S tokens; of those that go on the last token counts. */
static void fill_pass(struct prompts *p, int64_t S)
{
    for (int64_t i = 0; i < p->n; i++) {
        int64_t n = i64_min(p->n_now[i], S);
        int32_t *row = p->pass + i * S;
        memcpy(row, p->tokens + i * p->S, (size_t)n * sizeof *row);
        memset(row + n, 0, (size_t)(S - n) * sizeof *row);
        memset(p->loss_mask + i * S, 0, (size_t)S * sizeof *p->loss_mask);
        if (!is_ended(p, i))
            p->loss_mask[i * S + n - 1] = 1.0F;
    }
}

/* The texts take in what the pass has drawn. */
static void append_drawn(struct prompts *p)
{
    for (int64_t i = 0; i < p->n; i++) {
        if (is_ended(p, i))
            continue;
        if (p->next[i] >= 0 && p->next[i] != p->eos)
            p->tokens[i * p->S + p->n_now[i]++] = p->next[i];
        else
            p->next[i] = -1;
    }
}

static int draw_once(struct prompts *p, struct runner *r, const struct batch_draw *draw,
                     int64_t S, struct error *err)
{
    struct batch batch = {.B = p->n,
                          .S = S,
                          .tokens = p->pass,
                          .targets = p->targets,
                          .loss_mask = p->loss_mask,
                          .loss_sums = p->loss_sums,
                          .likeliest = p->drawn,
                          .draw = draw,
                          .step = draw->step};
    fill_pass(p, S);
    beat(BEAT_TOKEN, draw->token);
    if (runner_forward(r, &batch, err))
        return -1;
    int32_t *next = p->next;
    for (int64_t i = 0; i < p->n; i++)
        if (!is_ended(p, i))
            next[i] = r->gpt.part.has_head ? p->drawn[i * S + p->n_now[i] - 1] : 0;
    return comm_bcast_bytes(p->replica, next, p->n * (int64_t)sizeof *next,
                            p->drawing_rank, err);
}

int prompts_draw(struct prompts *p, struct runner *r, uint64_t seed, int64_t step,
                 struct error *err)
{
    struct batch_draw draw = {.seed = seed,
                              .step = step,
                              .temperature = TEMPERATURE,
                              .n_ids = p->n_ids,
                              .row = p->row};
    for (int64_t i = 0; i < p->n; i++) {
        p->n_now[i] = p->n_prompt[i];
        p->next[i] = 0;
    }
    for (int64_t S; (S = pass_length(p)) > 0; draw.token++) {
        if (draw_once(p, r, &draw, S, err))
            return -1;
        append_drawn(p);
    }
    return 0;
}

char *prompts_text(const struct prompts *p, int64_t i)
{
    const int32_t *ids = p->tokens + i * p->S + p->n_prompt[i];
    int64_t n_ids = p->n_now[i] - p->n_prompt[i];
    size_t n = tokenizer_decode(p->tokenizer, ids, n_ids, NULL, 0);
    char *text = malloc(n + 1);
    if (!text)
        return NULL;
    tokenizer_decode(p->tokenizer, ids, n_ids, text, n);
    text[n] = 0;
    return text;
}

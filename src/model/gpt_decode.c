#include "model/gpt_decode.h"

static void layout(struct gpt_decoder *dec, struct arena *ar, const struct gpt_dims *d)
{
    dec->cache = arena_f32(ar, d->L * d->S * 3 * d->H);
    dec->x = arena_f32(ar, d->H);
    dec->x_mid = arena_f32(ar, d->H);
    dec->att = arena_f32(ar, d->H);
    dec->out = arena_f32(ar, d->H);
    dec->wide = arena_f32(ar, d->F);
    dec->scores = arena_f32(ar, d->A * d->S);
    dec->logits = arena_f32(ar, d->V);
}

int gpt_decoder_open(struct gpt_decoder *dec, struct gpt *gpt, struct error *err)
{
    struct arena measure;
    *dec = (struct gpt_decoder){.gpt = gpt};
    arena_measure(&measure);
    layout(dec, &measure, &gpt->dims);
    if (arena_open(&dec->arena, measure.used_bytes, "the KV cache", err))
        return -1;
    layout(dec, &dec->arena, &gpt->dims);
    return 0;
}

void gpt_decoder_close(struct gpt_decoder *dec)
{
    arena_close(&dec->arena);
    *dec = (struct gpt_decoder){0};
}

void gpt_decoder_reset(struct gpt_decoder *dec)
{
    dec->n_past = 0;
}

static float *layer_cache(const struct gpt_decoder *dec, int64_t layer)
{
    const struct gpt_dims *d = &dec->gpt->dims;
    return dec->cache + (layer - 1) * d->S * 3 * d->H;
}

static const float *logits_of(struct gpt_decoder *dec, const float *x)
{
    struct gpt *g = dec->gpt;
    const struct gpt_dims *d = &g->dims;
    const struct layer_params *p = &g->p[d->L + 1];
    struct gpt_scratch *sc = &g->scratch;
    g->k->layernorm_fwd(sc->norm, sc->mean, sc->rstd, x, p->lnf_g, p->lnf_b, 1, d->H);
    g->k->matvec(dec->logits, g->p[0].wte, sc->norm, NULL, d->V, d->H);
    return dec->logits;
}

/* The prompt: the training forward, writing each layer's qkv into the cache. */
static const float *feed_prompt(struct gpt_decoder *dec, const int32_t *tokens, int64_t n)
{
    struct gpt *g = dec->gpt;
    int64_t H = g->dims.H;
    struct gpt_batch batch = {.B = 1, .S = n, .tokens = tokens};
    struct dropout none = dropout_none();
    struct block_stash st = g->stashes[0].blocks[0]; // shared by all layers
    for (int64_t i = 0; i < n; i++)
        g->scratch.positions[i] = (int32_t)i;
    g->k->embedding_fwd(st.x, g->p[0].wte, g->p[0].wpe, tokens, g->scratch.positions, 1,
                        n, H, &none);
    for (int64_t layer = 1; layer <= g->dims.L; layer++) {
        st.qkv = layer_cache(dec, layer);
        gpt_block_fwd(g, layer, &batch, &st, st.x, st.x);
    }
    dec->n_past = n;
    return logits_of(dec, (float *)st.x + (n - 1) * H);
}

static void block_one(struct gpt_decoder *dec, int64_t layer)
{
    struct gpt *g = dec->gpt;
    const struct kernels *k = g->k;
    const struct layer_params *p = &g->p[layer];
    struct gpt_scratch *sc = &g->scratch;
    int64_t H = g->dims.H, F = g->dims.F;
    struct dropout none = dropout_none();
    float *cache = layer_cache(dec, layer), *qkv = cache + dec->n_past * 3 * H;

    k->layernorm_fwd(sc->norm, sc->mean, sc->rstd, dec->x, p->ln1_g, p->ln1_b, 1, H);
    k->matvec(qkv, p->qkv_w, sc->norm, p->qkv_b, 3 * H, H);
    k->attention_decode(dec->att, qkv, cache + H, cache + 2 * H, dec->scores,
                        dec->n_past + 1, 3 * H, g->dims.A, g->dims.D);
    k->matvec(dec->out, p->proj_w, dec->att, NULL, H, H);
    k->bias_dropout_residual(dec->x_mid, dec->x, dec->out, p->proj_b, 1, 1, H, &none);

    k->layernorm_fwd(sc->norm, sc->mean, sc->rstd, dec->x_mid, p->ln2_g, p->ln2_b, 1, H);
    k->matvec(dec->wide, p->fc_w, sc->norm, NULL, F, H);
    k->bias_gelu_fwd(dec->wide, dec->wide, p->fc_b, 1, F);
    k->matvec(dec->out, p->fc2_w, dec->wide, NULL, H, F);
    k->bias_dropout_residual(dec->x, dec->x_mid, dec->out, p->fc2_b, 1, 1, H, &none);
}

static const float *feed_one(struct gpt_decoder *dec, int32_t token)
{
    struct gpt *g = dec->gpt;
    struct dropout none = dropout_none();
    int32_t position = (int32_t)dec->n_past;
    g->k->embedding_fwd(dec->x, g->p[0].wte, g->p[0].wpe, &token, &position, 1, 1,
                        g->dims.H, &none);
    for (int64_t layer = 1; layer <= g->dims.L; layer++)
        block_one(dec, layer);
    dec->n_past++;
    return logits_of(dec, dec->x);
}

const float *gpt_decoder_feed(struct gpt_decoder *dec, const int32_t *tokens, int64_t n)
{
    CHECK(n > 0 && dec->n_past + n <= dec->gpt->dims.S, "%lld tokens after %lld",
          (long long)n, (long long)dec->n_past);
    if (dec->n_past == 0)
        return feed_prompt(dec, tokens, n);
    const float *logits = NULL;
    for (int64_t i = 0; i < n; i++)
        logits = feed_one(dec, tokens[i]);
    return logits;
}

#include "model/gpt_generate.h"

#include <stdlib.h>

#define SLOT_FREE (-1)

struct run {
    const struct gpt_generate *gen;
    struct gpt_text *texts;
    int64_t n_texts, n_begun;
    int64_t *slots; // (n_slots) which text is in each; SLOT_FREE: none
    int64_t *rows;  // (n_slots) the slots of a step
    int32_t *ids;   // (n_slots) what they are fed, then what was drawn
};

/* NULL: the slot is free. */
static struct gpt_text *text_in(const struct run *run, int64_t slot)
{
    return run->slots[slot] == SLOT_FREE ? NULL : &run->texts[run->slots[slot]];
}

/* -- drawing ------------------------------------------------------------------------- */

/* ids[0, n) := what follows the rows of the decoder's last call, which are those of the
 * slots rows[0, n). */
static int draw_tokens(struct run *run, int64_t n, struct error *err)
{
    const struct gpt_generate *gen = run->gen;
    for (int64_t i = 0; i < n && comm_rank(gen->replica) == gen->sampling_rank; i++) {
        const struct gpt_text *text = text_in(run, run->rows[i]);
        uint64_t place = (uint64_t)(text->n_tokens - text->n_prompt);
        int64_t number = (int64_t)((uint64_t)text->index << 32 | place);
        run->ids[i] =
            sampler_next(gen->sampler, gpt_decoder_logits(gen->decoder, i), number);
    }
    if (comm_bcast_bytes(gen->replica, run->ids, n * (int64_t)sizeof *run->ids,
                         gen->sampling_rank, err))
        return -1;
    for (int64_t i = 0; i < n; i++)
        if (run->ids[i] == SAMPLER_NO_NUMBERS)
            return error_set(err, ERROR_RUNTIME,
                             "the model gives no numbers to choose a token by (NaN or "
                             "infinity); was its training ended by an overflow?");
    return 0;
}

static int append_token(struct gpt_text *text, int32_t id, struct error *err)
{
    if (text->n_tokens == text->capacity) {
        int64_t capacity = text->capacity + text->capacity / 2 + 64;
        int32_t *larger = realloc(text->tokens, (size_t)capacity * sizeof *larger);
        if (!larger)
            return error_set(err, ERROR_RUNTIME, "out of memory for %lld tokens",
                             (long long)capacity);
        text->tokens = larger;
        text->capacity = capacity;
    }
    text->tokens[text->n_tokens++] = id;
    return 0;
}

/* The text in the slot goes on with `id`, or ends. */
static int extend_text(struct run *run, int64_t slot, int32_t id, struct error *err)
{
    const struct gpt_generate *gen = run->gen;
    struct gpt_text *text = text_in(run, slot);
    text->is_ended = id == gen->eos;
    if (!text->is_ended) {
        if (append_token(text, id, err) ||
            (gen->on_token && gen->on_token(gen->context, text, id, err)))
            return -1;
        if (text->n_tokens - text->n_prompt < gen->max_tokens)
            return 0;
    }
    run->slots[slot] = SLOT_FREE;
    return gen->on_end ? gen->on_end(gen->context, text, err) : 0;
}

static int draw_and_extend(struct run *run, int64_t n, struct error *err)
{
    if (draw_tokens(run, n, err))
        return -1;
    for (int64_t i = 0; i < n; i++)
        if (extend_text(run, run->rows[i], run->ids[i], err))
            return -1;
    return 0;
}

/* -- advancing ----------------------------------------------------------------------- */

/* The slot reads its text: all of it, or, when that fills the slot, the newest half of
 * what fits. */
static int read_text(struct run *run, int64_t slot, struct error *err)
{
    struct gpt_decoder *dec = run->gen->decoder;
    const struct gpt_text *text = text_in(run, slot);
    int64_t S = dec->gpt->dims.S;
    int64_t n = text->n_tokens < S ? text->n_tokens : i64_max(1, S / 2);
    gpt_decoder_prompt(dec, slot, text->tokens + text->n_tokens - n, n);
    run->rows[0] = slot;
    return draw_and_extend(run, 1, err);
}

/* Begin texts until every slot has one that goes on, or there are no more. */
static int fill_slots(struct run *run, struct error *err)
{
    for (int64_t slot = 0; slot < run->gen->decoder->n_slots; slot++)
        while (!text_in(run, slot) && run->n_begun < run->n_texts) {
            run->slots[slot] = run->n_begun++;
            if (read_text(run, slot, err))
                return -1;
        }
    return 0;
}

/* One token for each text whose slot is not full; the others are read again. */
static int advance_texts(struct run *run, struct error *err)
{
    struct gpt_decoder *dec = run->gen->decoder;
    int64_t n = 0;
    for (int64_t slot = 0; slot < dec->n_slots; slot++)
        if (text_in(run, slot) && dec->n_past[slot] >= dec->gpt->dims.S &&
            read_text(run, slot, err))
            return -1;
    for (int64_t slot = 0; slot < dec->n_slots; slot++) {
        const struct gpt_text *text = text_in(run, slot);
        if (!text || dec->n_past[slot] >= dec->gpt->dims.S) // S can be 1
            continue;
        run->ids[n] = text->tokens[text->n_tokens - 1];
        run->rows[n++] = slot;
    }
    if (n == 0)
        return 0;
    gpt_decoder_step(dec, run->rows, run->ids, n);
    return draw_and_extend(run, n, err);
}

static bool has_any(const struct run *run)
{
    for (int64_t slot = 0; slot < run->gen->decoder->n_slots; slot++)
        if (text_in(run, slot))
            return true;
    return false;
}

int gpt_generate(const struct gpt_generate *gen, struct gpt_text *texts, int64_t n_texts,
                 struct error *err)
{
    struct run run = {.gen = gen, .texts = texts, .n_texts = n_texts};
    size_t n_slots = (size_t)gen->decoder->n_slots;
    int rc = -1;
    run.slots = calloc(n_slots, sizeof *run.slots);
    run.rows = calloc(n_slots, sizeof *run.rows);
    run.ids = calloc(n_slots, sizeof *run.ids);
    if (!run.slots || !run.rows || !run.ids) {
        error_set(err, ERROR_RUNTIME, "out of memory for %zu texts at a time", n_slots);
        goto done;
    }
    for (size_t i = 0; i < n_slots; i++)
        run.slots[i] = SLOT_FREE;
    rc = fill_slots(&run, err);
    while (rc == 0 && has_any(&run))
        rc = advance_texts(&run, err) || fill_slots(&run, err) ? -1 : 0;
done:
    free(run.slots);
    free(run.rows);
    free(run.ids);
    return rc;
}

#include "device/ref/ref.h"

void ref_embedding_fwd(struct stream *s, const struct embedding *e)
{
    int64_t H = e->H;
    for (int64_t n = 0; n < e->B * e->S; n++) {
        for (int64_t c = 0; c < H; c++) {
            double sum = 0;
            if (e->tokens[n] >= 0)
                sum = (double)ref_element(e->wte->data, e->wte->dtype,
                                          e->tokens[n] * H + c);
            if (e->wpe)
                sum += (double)ref_element(e->wpe->data, e->wpe->dtype,
                                           e->positions[n] * H + c);
            e->x[n * H + c] = (float)sum;
        }
    }
}

/* The one sum over rows that is kept in float: its order, that of n, is the contract. */
void ref_embedding_bwd(struct stream *s, const struct embedding_bwd *e)
{
    int64_t H = e->H;
    for (int64_t n = 0; n < e->B * e->S; n++) {
        for (int64_t c = 0; c < H; c++) {
            float d = ref_element(e->dx, s->dev->dtype, n * H + c);
            if (e->tokens[n] >= 0)
                e->dwte[e->tokens[n] * H + c] += d;
            e->dwpe[e->positions[n] * H + c] += d;
        }
    }
}

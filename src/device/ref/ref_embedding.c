#include "device/ref/ref.h"

void ref_embedding_fwd(float *x, const float *wte, const float *wpe,
                       const int32_t *tokens, const int32_t *positions, int64_t B,
                       int64_t S, int64_t H, const struct dropout *drop)
{
    for (int64_t b = 0; b < B; b++) {
        for (int64_t s = 0; s < S; s++) {
            int64_t n = b * S + s;
            for (int64_t c = 0; c < H; c++) {
                double sum = tokens[n] >= 0 ? (double)wte[tokens[n] * H + c] : 0.0;
                if (wpe)
                    sum += (double)wpe[positions[n] * H + c];
                double factor = (double)dropout_factor(drop, b, s, H, c);
                x[n * H + c] = (float)(sum * factor);
            }
        }
    }
}

/* The one sum over rows that is kept in float: its order, that of n, is the contract. */
void ref_embedding_bwd(float *dwte, float *dwpe, float *dx, const int32_t *tokens,
                       const int32_t *positions, int64_t B, int64_t S, int64_t H,
                       const struct dropout *drop)
{
    for (int64_t b = 0; b < B; b++) {
        for (int64_t s = 0; s < S; s++) {
            int64_t n = b * S + s;
            for (int64_t c = 0; c < H; c++) {
                float d = dx[n * H + c] * dropout_factor(drop, b, s, H, c);
                dx[n * H + c] = d;
                if (tokens[n] >= 0)
                    dwte[tokens[n] * H + c] += d;
                dwpe[positions[n] * H + c] += d;
            }
        }
    }
}

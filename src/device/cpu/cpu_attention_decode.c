/*
 * Attention of one query over a cache of keys and values, a head per thread.
 */
#include "device/cpu/cpu.h"

#include <math.h>
#include <string.h>

void K(attention_decode)(struct stream *s, const struct attention_decode *at)
{
    int64_t D = at->D, n_keys = at->n_keys;
    float scale = 1.0F / sqrtf((float)D);
#pragma omp parallel for schedule(static)
    for (int64_t h = 0; h < at->A; h++) {
        int64_t kv = h / (at->A / at->A_kv) * D;
        float *p = at->scores + h * n_keys;
        for (int64_t i = 0; i < n_keys; i++)
            p[i] = lanes_dot(at->q + h * D, at->keys + i * at->kv_row + kv, D);
        float top = lanes_max(p, n_keys) * scale;
        float inverse = 1.0F / lanes_exp(p, n_keys, scale, top);
        float *out_h = at->out + h * D;
        memset(out_h, 0, (size_t)D * sizeof *out_h);
        for (int64_t i = 0; i < n_keys; i++) {
            const float *v = at->values + i * at->kv_row + kv;
            for (int64_t d = 0; d < D; d++)
                out_h[d] = fused(p[i] * inverse, v[d], out_h[d]);
        }
    }
}

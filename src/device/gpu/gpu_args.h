/*
 * gpu_args - what kernels of a GPU take: one struct each, copied with the launch. Pointers
 * are the device's; "T" is the type that the kernel was compiled for, and kernels that
 * were compiled once are told types as enum dtype. For C and C++.
 */
#ifndef DEVICE_GPU_GPU_ARGS_H
#define DEVICE_GPU_GPU_ARGS_H

#include "device/kernels.h"

/* -- embedding ----------------------------------------------------------------------- */

struct gpu_embed {
    float *x;              // (N, H)
    const void *wte, *wpe; // of T; wpe NULL: no positions are added
    const int32_t *tokens; // (N); a negative one has no row here
    const int32_t *positions;
    int64_t N, H;
};

/* Row rows[i] of dw += the rows order[starts[i]] .. order[starts[i + 1] - 1] of dx. */
struct gpu_embed_bwd {
    float *dw;
    const void *dx; // (N, H) of T
    const int32_t *rows, *starts, *order;
    int64_t n_rows, H;
};

/* -- rows ---------------------------------------------------------------------------- */

struct gpu_norm {
    void *y; // (N, C) of T
    float *mean, *rstd;
    const void *x; // of T
    const float *g, *b;
    int64_t N, C;
    float epsilon;
};

struct gpu_norm_bwd {
    void *dx;           // (N, C) of T
    const void *dy, *x; // of T
    const float *g, *mean, *rstd;
    float *averages; // (N, 2): of h and of h * xhat
    float *partial;  // (chunks, 2, C)
    int64_t N, C;
};

struct gpu_partials { // out[c] += the chunks' sums
    float *out;
    const float *partial;
    int64_t n_chunks, stride, C;
};

struct gpu_bias_grad {
    float *partial; // (chunks, C)
    const void *dy; // (N, C) of T
    int64_t N, C;
};

struct gpu_activation {
    enum activation act;
    void *y;       // (N, C) of T
    const void *x; // of T
    const float *b;
    int64_t N, C;
};

struct gpu_activation_bwd {
    enum activation act;
    void *dx, *y;       // (N, C) of T; y may be NULL
    const void *dy, *x; // of T
    const float *b;
    float *partial; // (chunks, C)
    int64_t N, C;
};

struct gpu_residual {
    void *y;         // (N, C) of T
    const void *res; // of T
    const float *x, *b;
    int64_t N, S, C;
    struct dropout drop;
};

struct gpu_dropped { // y (N, C) of T = x times its factors
    void *y;
    const void *x; // of float forward, of T backward
    int64_t N, S, C;
    struct dropout drop;
};

/* -- loss ---------------------------------------------------------------------------- */

struct gpu_xent {
    float *logits; // (R, V)
    float *row_max, *row_sum, *target_logit;
    const int32_t *targets;
    const float *mask;
    float weight;
    int32_t *column; // of xent_top
    enum dtype dtype;
    int64_t V;
};

/* -- flat ranges --------------------------------------------------------------------- */

struct gpu_convert { // y = x, or y + x, rounded
    void *y;
    const void *x;
    int64_t n;
    enum dtype y_dtype, x_dtype;
    bool is_added;
};

struct gpu_fill {
    float *x;
    float value;
    int64_t n;
};

struct gpu_add_rows {
    float *x;
    const float *y;
    const int32_t *rows;
    int64_t n, C;
};

#define GPU_FEW_PARTS 64

struct gpu_reduce {
    void *x;
    const void *few[GPU_FEW_PARTS]; // parts, if they are not more
    const void *const *many;        // else this is not NULL: all of them
    int32_t n_parts;
    bool is_max;
    enum dtype dtype;
    int64_t n;
};

struct gpu_update {
    float *master, *exp_avg, *exp_avg_sq;
    void *param; // NULL: master is all there is
    const void *grad;
    enum dtype param_dtype, grad_dtype;
    int64_t n;
    float beta1, rest1, beta2, rest2, epsilon, grad_scale;
    float keep, decay; // of AdamW, and of Adam with the decay in the gradient
    float rate, root_bias2;
    bool is_l2;
};

struct gpu_squares {
    double *partial;
    const void *x;
    int64_t n;
    enum dtype dtype;
};

#endif

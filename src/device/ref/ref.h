/*
 * ref - the reference kernels: the definition of correct, against which the fast tables
 * are judged.
 *
 * Plain scalar loops, one thread. Every sum runs in double, in index order, and is
 * rounded to float once, where it is stored. Nothing is allocated. The contracts are
 * those of the members of the same name in kernels.h.
 */
#ifndef DEVICE_REF_REF_H
#define DEVICE_REF_REF_H

#include "device/kernels.h"

extern const struct kernels kernels_ref;

/* -- ref_embedding.c ----------------------------------------------------------------- */

void ref_embedding_fwd(float *x, const float *wte, const float *wpe,
                       const int32_t *tokens, const int32_t *positions, int64_t B,
                       int64_t S, int64_t H, const struct dropout *drop);
void ref_embedding_bwd(float *dwte, float *dwpe, float *dx, const int32_t *tokens,
                       const int32_t *positions, int64_t B, int64_t S, int64_t H,
                       const struct dropout *drop);

/* -- ref_norm.c ---------------------------------------------------------------------- */

void ref_layernorm_fwd(float *y, float *mean, float *rstd, const float *x, const float *g,
                       const float *b, int64_t N, int64_t C);
void ref_layernorm_again(float *y, const float *x, const float *mean, const float *rstd,
                         const float *g, const float *b, int64_t N, int64_t C);
void ref_layernorm_bwd(float *dx, float *dg, float *db, const float *dy, const float *x,
                       const float *g, const float *mean, const float *rstd,
                       float *partial, int64_t N, int64_t C);

/* -- ref_gemm.c ---------------------------------------------------------------------- */

void ref_gemm(const struct gemm *g);
void ref_linear_bias(const struct gemm *g, const float *bias);
void ref_linear_bias_gelu(const struct gemm *g, const float *bias, float *y);
void ref_matvec(float *y, const void *w, enum dtype dtype, const float *x, const float *b,
                int64_t R, int64_t O, int64_t I);

/* -- ref_activation.c ---------------------------------------------------------------- */

void ref_bias_add(float *x, const float *b, int64_t N, int64_t C);
void ref_bias_grad(float *db, const float *dy, float *partial, int64_t N, int64_t C);
void ref_bias_gelu_fwd(float *y, const float *x, const float *b, int64_t N, int64_t C);
void ref_bias_gelu_bwd(float *dx, float *y, float *db, const float *dy, const float *x,
                       const float *b, float *partial, int64_t N, int64_t C);
void ref_bias_dropout_residual(float *y, const float *res, const float *x, const float *b,
                               int64_t B, int64_t S, int64_t C,
                               const struct dropout *drop);
const float *ref_dropout_bwd(float *dx, const float *dy, int64_t B, int64_t S, int64_t C,
                             const struct dropout *drop);

/* -- ref_attention.c ----------------------------------------------------------------- */

void ref_attention_fwd(const struct attention *at);
void ref_attention_bwd(const struct attention_bwd *at);
void ref_attention_decode(float *out, const float *q, const float *keys,
                          const float *values, float *scores, int64_t n_keys,
                          int64_t stride, int64_t A, int64_t D);

/* -- ref_loss.c ---------------------------------------------------------------------- */

void ref_xent_max(float *row_max, const float *logits, int64_t R, int64_t V);
void ref_xent_exp(float *row_sum, float *target_logit, float *logits,
                  const float *row_max, const int32_t *targets, int64_t R, int64_t V);
void ref_xent_grad(float *logits, const float *row_sum, const int32_t *targets,
                   const float *weight, int64_t R, int64_t V);

/* -- ref_optim.c --------------------------------------------------------------------- */

void ref_adamw(const struct update *u, const struct adamw *a);
void ref_sum_squares(double *partial, const void *x, enum dtype dtype, int64_t n);
void ref_copy(float *x, const float *y, int64_t n);
void ref_add(float *x, const float *y, int64_t n);
void ref_fill(float *x, float value, int64_t n);

/* -- ref_convert.c ------------------------------------------------------------------- */

/* Element i of x, and of y := value rounded. */
float ref_element(const void *x, enum dtype dtype, int64_t i);
void ref_set_element(void *y, enum dtype dtype, int64_t i, float value);

void ref_load(float *y, const void *x, enum dtype dtype, int64_t n);
void ref_store(void *y, const float *x, enum dtype dtype, int64_t n);
void ref_store_rounded(void *y, float *x, enum dtype dtype, int64_t n);
void ref_store_add(void *y, const float *x, enum dtype dtype, int64_t n);
void ref_load_matrix(float *y, const void *x, enum dtype dtype, int64_t rows,
                     int64_t cols, int64_t x_stride);
void ref_store_matrix(void *y, const float *x, enum dtype dtype, bool accumulate,
                      int64_t rows, int64_t cols, int64_t y_stride);

#endif

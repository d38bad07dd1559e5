/*
 * ref - the reference kernels: the definition of correct, against which the fast tables
 * are judged.
 *
 * Plain scalar loops, one thread. Every sum runs in double, in index order, and is
 * rounded once, where it is stored; what is kept in 16 bits is rounded before anything
 * uses it. Nothing is allocated. The contracts are those of the members of the same name
 * in kernels.h.
 */
#ifndef DEVICE_REF_REF_H
#define DEVICE_REF_REF_H

#include "device/device.h"

extern const struct kernels kernels_ref;

/* Program order is the reference's stream. */
#pragma GCC diagnostic ignored "-Wunused-parameter"

void ref_embedding_fwd(struct stream *s, float *x, const struct embedding *e);
void ref_embedding_bwd(struct stream *s, const struct embedding_bwd *e);
void ref_layernorm_fwd(struct stream *s, const struct layernorm *ln);
void ref_layernorm_again(struct stream *s, const struct layernorm *ln);
void ref_layernorm_bwd(struct stream *s, const struct layernorm_bwd *ln);
void ref_gemm(struct stream *s, const struct gemm *g);
void ref_linear_fwd(struct stream *s, const struct linear *l);
void ref_linear_bwd_input(struct stream *s, const struct linear_bwd_input *l);
void ref_linear_bwd_weight(struct stream *s, const struct linear_bwd_weight *l);
void ref_matvec(struct stream *s, const struct matvec *m);
void ref_bias_grad(struct stream *s, float *db, const void *dy, float *partial, int64_t N,
                   int64_t C);
void ref_add_partials(struct stream *s, float *out, const float *partial, int64_t N,
                      int64_t stride, int64_t C);
void ref_activation_fwd(struct stream *s, const struct activation_fwd *a);
void ref_activation_bwd(struct stream *s, const struct activation_bwd *a);
void ref_bias_dropout_residual(struct stream *s, const struct residual *r);
void ref_dropout_fwd(struct stream *s, void *y, const float *x, int64_t B, int64_t S,
                     int64_t C, const struct dropout *drop);
const void *ref_dropout_bwd(struct stream *s, void *dx, const void *dy, int64_t B,
                            int64_t S, int64_t C, const struct dropout *drop);
void ref_attention_fwd(struct stream *s, const struct attention *at);
void ref_attention_bwd(struct stream *s, const struct attention_bwd *at);
void ref_attention_decode(struct stream *s, const struct attention_decode *at);
void ref_xent_max(struct stream *s, const struct xent *x);
void ref_xent_exp(struct stream *s, const struct xent *x);
void ref_xent_grad(struct stream *s, const struct xent *x);
void ref_reduce(struct stream *s, const struct reduction *r);
void ref_adamw(struct stream *s, const struct update *u, const struct adamw *a);
void ref_sum_squares(struct stream *s, double *partial, const void *x, enum dtype dtype,
                     int64_t n);
void ref_load(struct stream *s, float *y, const void *x, enum dtype dtype, int64_t n);
void ref_store(struct stream *s, void *y, const float *x, enum dtype dtype, int64_t n);
void ref_add_stored(struct stream *s, void *y, const void *x, enum dtype dtype,
                    int64_t n);
void ref_store_add(struct stream *s, void *y, const float *x, enum dtype dtype,
                   int64_t n);
void ref_copy(struct stream *s, float *x, const float *y, int64_t n);
void ref_add_rows(struct stream *s, float *x, const float *y, const int32_t *rows,
                  int64_t n, int64_t C);
void ref_xent_top(struct stream *s, int32_t *column, const struct xent *x);
void ref_add(struct stream *s, float *x, const float *y, int64_t n);
void ref_fill(struct stream *s, float *x, float value, int64_t n);

/* Zero what kernel_partials(N, C) counts. */
void ref_clear_partials(float *partial, int64_t N, int64_t C);

/* Element i of x, and of y := value rounded. */
float ref_element(const void *x, enum dtype dtype, int64_t i);
void ref_set_element(void *y, enum dtype dtype, int64_t i, float value);
/* The same of a tensor of the device's type. */
double ref_get(const struct stream *s, const void *x, int64_t i);
void ref_set(const struct stream *s, void *y, int64_t i, double value);
/* What is left of a number when the device's type has rounded it; with float itself it
 * stays as it is. */
double ref_rounded(const struct stream *s, double value);

#endif

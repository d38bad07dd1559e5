#include "device/cpu/cpu.h"

#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)

extern const struct kernels K(kernels_cpu);

const struct kernels K(kernels_cpu) = {
    .name = TEXT(KERNEL_ISA),
    .embedding_fwd = K(embedding_fwd),
    .embedding_bwd = K(embedding_bwd),
    .layernorm_fwd = K(layernorm_fwd),
    .layernorm_again = K(layernorm_again),
    .layernorm_bwd = K(layernorm_bwd),
    .gemm = K(gemm),
    .linear_fwd = K(linear_fwd),
    .linear_bwd_input = K(linear_bwd_input),
    .linear_bwd_weight = K(linear_bwd_weight),
    .matvec = K(matvec),
    .bias_grad = K(bias_grad),
    .add_partials = K(add_partials),
    .activation_fwd = K(activation_fwd),
    .activation_bwd = K(activation_bwd),
    .bias_dropout_residual = K(bias_dropout_residual),
    .dropout_fwd = K(dropout_fwd),
    .dropout_bwd = K(dropout_bwd),
    .attention_fwd = K(attention_fwd),
    .attention_bwd = K(attention_bwd),
    .attention_decode = K(attention_decode),
    .xent_top = K(xent_top),
    .xent_max = K(xent_max),
    .xent_exp = K(xent_exp),
    .xent_grad = K(xent_grad),
    .reduce = K(reduce),
    .adamw = K(adamw),
    .sum_squares = K(sum_squares),
    .load = K(load),
    .store = K(store),
    .add_stored = K(add_stored),
    .store_add = K(store_add),
    .copy = K(copy),
    .add_rows = K(add_rows),
    .add = K(add),
    .fill = K(fill),
};

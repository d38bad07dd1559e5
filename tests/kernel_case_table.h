/* The table of kernel_cases.h, which includes it. */
#ifndef TESTS_KERNEL_CASE_TABLE_H
#define TESTS_KERNEL_CASE_TABLE_H

/* What two float roundings may change. */
#define TWO_ROUNDINGS 1.3e-7

// clang-format off
static const struct kernel_case cases[] = {
    {"embedding_fwd", ROWS, run_embedding_fwd, NULL,
     {{OUT,     OF_FLOAT, PER_SAMPLE, SIZE_SC, BELL, TWO_ROUNDINGS, 0, 0},   // x
      {IN,      OF_T,     WHOLE,      SIZE_VC, BELL, 0, 0, 0},               // wte
      {IN,      OF_T,     WHOLE,      SIZE_SC, BELL, 0, 0, 0},               // wpe
      {IN,      OF_INT,   PER_SAMPLE, SIZE_S,  TOKENS, 0, 0, 0},
      {IN,      OF_INT,   PER_SAMPLE, SIZE_S,  POSITIONS, 0, 0, 0}}, 0, {{0}}},
    {"embedding_bwd", ROWS, run_embedding_bwd, NULL,
     {{UPDATED, OF_FLOAT, WHOLE,      SIZE_VC, BELL, 0, 0, 0},               // dwte: in order
      {UPDATED, OF_FLOAT, WHOLE,      SIZE_SC, BELL, 0, 0, 0},               // dwpe
      {IN,      OF_T,     PER_SAMPLE, SIZE_SC, BELL, 0, 0, 0},               // dx
      {IN,      OF_INT,   PER_SAMPLE, SIZE_S,  TOKENS, 0, 0, 0},
      {IN,      OF_INT,   PER_SAMPLE, SIZE_S,  POSITIONS, 0, 0, 0}}, 0, {{0}}},
    {"layernorm_fwd", ROWS, run_layernorm_fwd, NULL,
     {{OUT,     OF_T,     PER_SAMPLE, SIZE_SC, BELL, 1e-6, 0, 0},            // y
      {OUT,     OF_FLOAT, PER_SAMPLE, SIZE_S,  BELL, 1e-6, 1e-7, 0},         // mean: may cancel
      {OUT,     OF_FLOAT, PER_SAMPLE, SIZE_S,  BELL, 1e-6, 0, 0},            // rstd
      {IN,      OF_T,     PER_SAMPLE, SIZE_SC, BELL, 0, 0, 0},               // x
      {IN,      OF_FLOAT, WHOLE,      SIZE_C,  BELL, 0, 0, 0},               // g
      {IN,      OF_FLOAT, WHOLE,      SIZE_C,  BELL, 0, 0, 0}}, 0, {{0}}},   // b
    {"layernorm_again", ROWS, run_layernorm_again, prepare_layernorm_again,
     {{OUT,     OF_T,     PER_SAMPLE, SIZE_SC, BELL, 5e-7, 0, 0},            // y
      {IN,      OF_T,     PER_SAMPLE, SIZE_SC, BELL, 0, 0, 0},               // x
      {IN,      OF_FLOAT, PER_SAMPLE, SIZE_S,  BELL, 0, 0, 0},               // mean
      {IN,      OF_FLOAT, PER_SAMPLE, SIZE_S,  BELL, 0, 0, 0},               // rstd
      {IN,      OF_FLOAT, WHOLE,      SIZE_C,  BELL, 0, 0, 0},               // g
      {IN,      OF_FLOAT, WHOLE,      SIZE_C,  BELL, 0, 0, 0}}, 0, {{0}}},   // b
    {"layernorm_bwd", ROWS, run_layernorm_bwd, prepare_layernorm_bwd,
     {{UPDATED, OF_T,     PER_SAMPLE, SIZE_SC, BELL, 2e-6, 0, 0},            // dx
      {UPDATED, OF_FLOAT, WHOLE,      SIZE_C,  BELL, 1e-6, 1e-6, 0},         // dg
      {UPDATED, OF_FLOAT, WHOLE,      SIZE_C,  BELL, 1e-6, 1e-6, 0},         // db
      {IN,      OF_T,     PER_SAMPLE, SIZE_SC, BELL, 0, 0, 0},               // dy
      {IN,      OF_T,     PER_SAMPLE, SIZE_SC, BELL, 0, 0, 0},               // x
      {IN,      OF_FLOAT, WHOLE,      SIZE_C,  BELL, 0, 0, 0},               // g
      {IN,      OF_FLOAT, PER_SAMPLE, SIZE_S,  BELL, 0, 0, 0},               // mean
      {IN,      OF_FLOAT, PER_SAMPLE, SIZE_S,  BELL, 0, 0, 0},               // rstd
      {SCRATCH, OF_FLOAT, WHOLE,      SIZE_PARTIAL_2C, BELL, 0, 0, 0}}, 0, {{0}}},
    {"bias_grad", ROWS, run_bias_grad, NULL,
     {{UPDATED, OF_FLOAT, WHOLE,      SIZE_C,  BELL, 1e-6, 1e-6, 0},         // db: may cancel
      {IN,      OF_T,     PER_SAMPLE, SIZE_SC, BELL, 0, 0, 0},               // dy
      {SCRATCH, OF_FLOAT, WHOLE,      SIZE_PARTIAL_C, BELL, 0, 0, 0}}, 0, {{0}}},
    {"gelu_fwd", ROWS, run_gelu_fwd, NULL,
     {{OUT,     OF_T,     PER_SAMPLE, SIZE_SC, BELL, 1e-6, 0, 0},            // y
      {IN,      OF_T,     PER_SAMPLE, SIZE_SC, BELL, 0, 0, 0},               // x
      {IN,      OF_FLOAT, WHOLE,      SIZE_C,  BELL, 0, 0, 0}},              // b
     1, {{0, 1, false}}},
    {"gelu_bwd", ROWS, run_gelu_bwd, NULL,
     {{OUT,     OF_T,     PER_SAMPLE, SIZE_SC, BELL, 2e-6, 0, 0},            // dx
      {OUT,     OF_T,     PER_SAMPLE, SIZE_SC, BELL, 1e-6, 0, 0},            // y
      {UPDATED, OF_FLOAT, WHOLE,      SIZE_C,  BELL, 1e-6, 2e-5, 1},         // db: may cancel
      {IN,      OF_T,     PER_SAMPLE, SIZE_SC, BELL, 0, 0, 0},               // dy
      {IN,      OF_T,     PER_SAMPLE, SIZE_SC, BELL, 0, 0, 0},               // x
      {IN,      OF_FLOAT, WHOLE,      SIZE_C,  BELL, 0, 0, 0},               // b
      {SCRATCH, OF_FLOAT, WHOLE,      SIZE_PARTIAL_C, BELL, 0, 0, 0}},
     2, {{0, 3, false}, {1, 4, false}}},
    {"gelu_tanh_fwd", ROWS, run_gelu_tanh_fwd, NULL,
     {{OUT,     OF_T,     PER_SAMPLE, SIZE_SC, BELL, 1e-6, 0, 0},            // y
      {IN,      OF_T,     PER_SAMPLE, SIZE_SC, BELL, 0, 0, 0},               // x
      {IN,      OF_FLOAT, WHOLE,      SIZE_C,  BELL, 0, 0, 0}},              // b
     1, {{0, 1, false}}},
    {"gelu_tanh_bwd", ROWS, run_gelu_tanh_bwd, NULL,
     {{OUT,     OF_T,     PER_SAMPLE, SIZE_SC, BELL, 2e-6, 0, 0},            // dx
      {OUT,     OF_T,     PER_SAMPLE, SIZE_SC, BELL, 1e-6, 0, 0},            // y
      {UPDATED, OF_FLOAT, WHOLE,      SIZE_C,  BELL, 1e-6, 2e-5, 1},         // db: may cancel
      {IN,      OF_T,     PER_SAMPLE, SIZE_SC, BELL, 0, 0, 0},               // dy
      {IN,      OF_T,     PER_SAMPLE, SIZE_SC, BELL, 0, 0, 0},               // x
      {IN,      OF_FLOAT, WHOLE,      SIZE_C,  BELL, 0, 0, 0},               // b
      {SCRATCH, OF_FLOAT, WHOLE,      SIZE_PARTIAL_C, BELL, 0, 0, 0}},
     2, {{0, 3, false}, {1, 4, false}}},
    {"bias_dropout_residual", ROWS, run_bias_dropout_residual, NULL,
     {{OUT,     OF_T,     PER_SAMPLE, SIZE_SC, BELL, 2.5e-7, 0, 0},          // y
      {IN,      OF_T,     PER_SAMPLE, SIZE_SC, BELL, 0, 0, 0},               // res
      {IN,      OF_FLOAT, PER_SAMPLE, SIZE_SC, BELL, 0, 0, 0},               // x
      {IN,      OF_FLOAT, WHOLE,      SIZE_C,  BELL, 0, 0, 0}},              // b
     2, {{0, 1, false}, {0, 2, true}}},
    {"dropout_fwd", ROWS, run_dropout_fwd, NULL,
     {{OUT,     OF_T,     PER_SAMPLE, SIZE_SC, BELL, 0, 0, 0},               // y
      {IN,      OF_FLOAT, PER_SAMPLE, SIZE_SC, BELL, 0, 0, 0}},              // x
     1, {{0, 1, true}}},
    {"dropout_bwd", ROWS, run_dropout_bwd, NULL,
     {{OUT,     OF_T,     PER_SAMPLE, SIZE_SC, BELL, 0, 0, 0},               // dx
      {IN,      OF_T,     PER_SAMPLE, SIZE_SC, BELL, 0, 0, 0}}, 0, {{0}}},   // dy
    {"linear_fwd", PRODUCT, run_linear_fwd, NULL,
     {{OUT,     OF_T,     PER_SAMPLE, SIZE_D,  BELL, 3e-6, 1e-6, 0},         // y
      {IN,      OF_T,     PER_SAMPLE, SIZE_C,  BELL, 0, 0, 0},               // x
      {IN,      OF_T,     WHOLE,      SIZE_CD, BELL, 0, 0, 0},               // w
      {IN,      OF_FLOAT, WHOLE,      SIZE_D,  BELL, 0, 0, 0}}, 0, {{0}}},   // bias
    {"linear_fwd, a sum", PRODUCT, run_linear_sum, NULL,
     {{OUT,     OF_FLOAT, PER_SAMPLE, SIZE_D,  BELL, 3e-6, 1e-6, 0},         // y
      {IN,      OF_T,     PER_SAMPLE, SIZE_C,  BELL, 0, 0, 0},               // x
      {IN,      OF_T,     WHOLE,      SIZE_CD, BELL, 0, 0, 0},               // w
      {IN,      OF_FLOAT, WHOLE,      SIZE_D,  BELL, 0, 0, 0}}, 0, {{0}}},   // bias
    {"linear_fwd and GELU", PRODUCT, run_linear_gelu, NULL,
     {{OUT,     OF_T,     PER_SAMPLE, SIZE_D,  BELL, 3e-6, 1e-6, 0},         // y
      {OUT,     OF_T,     PER_SAMPLE, SIZE_D,  BELL, 5e-6, 1e-6, 1},         // act_y
      {IN,      OF_T,     PER_SAMPLE, SIZE_C,  BELL, 0, 0, 0},               // x
      {IN,      OF_T,     WHOLE,      SIZE_CD, BELL, 0, 0, 0},               // w
      {IN,      OF_FLOAT, WHOLE,      SIZE_D,  BELL, 0, 0, 0}}, 0, {{0}}},   // bias
    {"linear_bwd_input", PRODUCT, run_linear_bwd_input, NULL,
     {{OUT,     OF_T,     PER_SAMPLE, SIZE_C,  BELL, 3e-6, 1e-6, 0},         // dx
      {IN,      OF_T,     PER_SAMPLE, SIZE_DY_ROW, BELL, 0, 0, 0},           // dy
      {IN,      OF_T,     WHOLE,      SIZE_CD, BELL, 0, 0, 0}}, 0, {{0}}},   // w
    {"linear_bwd_input, a sum", PRODUCT, run_linear_bwd_sum, NULL,
     {{OUT,     OF_FLOAT, PER_SAMPLE, SIZE_C,  BELL, 3e-6, 1e-6, 0},         // dx
      {IN,      OF_T,     PER_SAMPLE, SIZE_DY_ROW, BELL, 0, 0, 0},           // dy
      {IN,      OF_T,     WHOLE,      SIZE_CD, BELL, 0, 0, 0}}, 0, {{0}}},   // w
    {"linear_bwd_weight", PRODUCT, run_weight_new, NULL,
     {{OUT,     OF_T,     WHOLE,      SIZE_CD, BELL, 3e-6, 1e-6, 0},         // dw
      {IN,      OF_T,     PER_SAMPLE, SIZE_DY_ROW, BELL, 0, 0, 0},           // dy
      {IN,      OF_T,     PER_SAMPLE, SIZE_C,  BELL, 0, 0, 0}}, 0, {{0}}},   // x
    {"linear_bwd_weight, added", PRODUCT, run_weight_added, NULL,
     {{UPDATED, OF_T,     WHOLE,      SIZE_CD, BELL, 3e-6, 1e-6, 0},         // dw
      {IN,      OF_T,     PER_SAMPLE, SIZE_DY_ROW, BELL, 0, 0, 0},           // dy
      {IN,      OF_T,     PER_SAMPLE, SIZE_C,  BELL, 0, 0, 0}}, 0, {{0}}},   // x
    {"linear_bwd_weight into floats", PRODUCT, run_weight_float, NULL,
     {{UPDATED, OF_FLOAT, WHOLE,      SIZE_CD, BELL, 3e-6, 1e-6, 0},         // dw
      {IN,      OF_T,     PER_SAMPLE, SIZE_DY_ROW, BELL, 0, 0, 0},           // dy
      {IN,      OF_T,     PER_SAMPLE, SIZE_C,  BELL, 0, 0, 0}}, 0, {{0}}},   // x
    {"matvec", PRODUCT, run_matvec, NULL,
     {{OUT,     OF_T,     PER_SAMPLE, SIZE_D,  BELL, 3e-6, 3e-6, 0},         // y: may cancel
      {IN,      OF_T,     PER_SAMPLE, SIZE_C,  BELL, 0, 0, 0},               // x
      {IN,      OF_T,     WHOLE,      SIZE_CD, BELL, 0, 0, 0},               // w
      {IN,      OF_FLOAT, WHOLE,      SIZE_D,  BELL, 0, 0, 0}}, 0, {{0}}},   // b
    {"matvec into floats", PRODUCT, run_matvec_float, NULL,
     {{OUT,     OF_FLOAT, PER_SAMPLE, SIZE_D,  BELL, 3e-6, 3e-6, 0},         // y: may cancel
      {IN,      OF_T,     PER_SAMPLE, SIZE_C,  BELL, 0, 0, 0},               // x
      {IN,      OF_T,     WHOLE,      SIZE_CD, BELL, 0, 0, 0},               // w
      {IN,      OF_FLOAT, WHOLE,      SIZE_D,  BELL, 0, 0, 0}}, 0, {{0}}},   // b
    {"attention_fwd", ATTENTION, run_attention_fwd, NULL,
     {{OUT,     OF_T,     PER_SAMPLE, SIZE_SAD,  BELL, 5e-6, 0, 1},          // out
      {OUT,     OF_FLOAT, PER_SAMPLE, SIZE_AS,   BELL, 1e-6, 0, 0},          // lse
      {IN,      OF_T,     PER_SAMPLE, SIZE_S3AD, BELL, 0, 0, 0}}, 0, {{0}}}, // qkv
    {"attention_bwd", ATTENTION, run_attention_bwd, prepare_attention_bwd,
     {{OUT,     OF_T,     PER_SAMPLE, SIZE_S3AD, BELL, 2e-5, 0, 1},          // dqkv
      {SCRATCH, OF_FLOAT, PER_SAMPLE, SIZE_AS,   BELL, 0, 0, 0},             // delta
      {IN,      OF_T,     PER_SAMPLE, SIZE_S3AD, BELL, 0, 0, 0},             // qkv
      {IN,      OF_T,     PER_SAMPLE, SIZE_SAD,  BELL, 0, 0, 0},             // out
      {IN,      OF_FLOAT, PER_SAMPLE, SIZE_AS,   BELL, 0, 0, 0},             // lse
      {IN,      OF_T,     PER_SAMPLE, SIZE_SAD,  BELL, 0, 0, 0}}, 0, {{0}}}, // dout
    {"attention_fwd of documents", ATTENTION, run_documents_fwd, NULL,
     {{OUT,     OF_T,     PER_SAMPLE, SIZE_SAD,  BELL, 5e-6, 0, 1},          // out
      {OUT,     OF_FLOAT, PER_SAMPLE, SIZE_AS,   BELL, 1e-6, 1e-6, 0},       // lse: one key
      {IN,      OF_T,     PER_SAMPLE, SIZE_S3AD, BELL, 0, 0, 0},             // qkv
      {IN,      OF_INT,   PER_SAMPLE, SIZE_S,    FIRST_KEYS, 0, 0, 0}}, 0, {{0}}},
    {"attention_bwd of documents", ATTENTION, run_documents_bwd, prepare_documents_bwd,
     {{OUT,     OF_T,     PER_SAMPLE, SIZE_S3AD, BELL, 2e-5, 0, 1},          // dqkv
      {SCRATCH, OF_FLOAT, PER_SAMPLE, SIZE_AS,   BELL, 0, 0, 0},             // delta
      {IN,      OF_T,     PER_SAMPLE, SIZE_S3AD, BELL, 0, 0, 0},             // qkv
      {IN,      OF_T,     PER_SAMPLE, SIZE_SAD,  BELL, 0, 0, 0},             // out
      {IN,      OF_FLOAT, PER_SAMPLE, SIZE_AS,   BELL, 0, 0, 0},             // lse
      {IN,      OF_T,     PER_SAMPLE, SIZE_SAD,  BELL, 0, 0, 0},             // dout
      {IN,      OF_INT,   PER_SAMPLE, SIZE_S,    FIRST_KEYS, 0, 0, 0}}, 0, {{0}}},
    {"attention_fwd of padding", ATTENTION, run_padding_fwd, NULL,
     {{OUT,     OF_T,     PER_SAMPLE, SIZE_SAD,  BELL, 5e-6, 0, 1},          // out
      {OUT,     OF_FLOAT, PER_SAMPLE, SIZE_AS,   BELL, 1e-6, 1e-6, 0},       // lse: one key
      {IN,      OF_T,     PER_SAMPLE, SIZE_S3AD, BELL, 0, 0, 0},             // qkv
      {IN,      OF_INT,   PER_SAMPLE, SIZE_ONE,  KEY_ENDS, 0, 0, 0}}, 0, {{0}}},
    {"attention_bwd of padding", ATTENTION, run_padding_bwd, prepare_padding_bwd,
     {{OUT,     OF_T,     PER_SAMPLE, SIZE_S3AD, BELL, 2e-5, 2e-4, 1},       // dqkv: few keys
      {SCRATCH, OF_FLOAT, PER_SAMPLE, SIZE_AS,   BELL, 0, 0, 0},             // delta
      {IN,      OF_T,     PER_SAMPLE, SIZE_S3AD, BELL, 0, 0, 0},             // qkv
      {IN,      OF_T,     PER_SAMPLE, SIZE_SAD,  BELL, 0, 0, 0},             // out
      {IN,      OF_FLOAT, PER_SAMPLE, SIZE_AS,   BELL, 0, 0, 0},             // lse
      {IN,      OF_T,     PER_SAMPLE, SIZE_SAD,  BELL, 0, 0, 0},             // dout
      {IN,      OF_INT,   PER_SAMPLE, SIZE_ONE,  KEY_ENDS, 0, 0, 0}}, 0, {{0}}},
    {"attention_decode", ATTENTION, run_attention_decode, NULL,
     {{OUT,     OF_T,     WHOLE,      SIZE_AD,   BELL, 2e-6, 0, 1},          // out
      {IN,      OF_T,     WHOLE,      SIZE_AD,   BELL, 0, 0, 0},             // q
      {IN,      OF_T,     WHOLE,      SIZE_S3AD, BELL, 0, 0, 0},             // the cache
      {SCRATCH, OF_FLOAT, WHOLE,      SIZE_AS,   BELL, 0, 0, 0}}, 0, {{0}}}, // scores
    {"xent_max", LOSS, run_xent_max, NULL,
     {{OUT,     OF_FLOAT, PER_SAMPLE, SIZE_S,  BELL, 0, 0, 0},               // row_max
      {IN,      OF_FLOAT, PER_SAMPLE, SIZE_SC, BELL, 0, 0, 0}}, 0, {{0}}},   // logits
    {"xent_exp", LOSS, run_xent_exp, prepare_xent_exp,
     {{OUT,     OF_FLOAT, PER_SAMPLE, SIZE_S,  BELL, 1e-6, 0, 0},            // row_sum
      {OUT,     OF_FLOAT, PER_SAMPLE, SIZE_S,  BELL, 0, 0, 0},               // target_logit
      {UPDATED, OF_FLOAT, PER_SAMPLE, SIZE_SC, BELL, 5e-7, 0, 0},            // logits
      {IN,      OF_FLOAT, PER_SAMPLE, SIZE_S,  BELL, 0, 0, 0},               // row_max
      {IN,      OF_INT,   PER_SAMPLE, SIZE_S,  TARGETS, 0, 0, 0}}, 0, {{0}}},
    {"xent_top", LOSS, run_xent_top, prepare_xent_top,
     {{OUT,     OF_INT,   PER_SAMPLE, SIZE_S,  BELL, 0, 0, 0},               // column
      {IN,      OF_FLOAT, PER_SAMPLE, SIZE_SC, BELL, 0, 0, 0},               // logits
      {IN,      OF_FLOAT, PER_SAMPLE, SIZE_S,  BELL, 0, 0, 0}}, 0, {{0}}},   // row_max
    {"xent_grad", LOSS, run_xent_grad, prepare_xent_grad,
     {{OUT,     OF_T,     PER_SAMPLE, SIZE_SC, BELL, 5e-7, 1.2e-7, 0},       // p - 1 cancels
      {SPOILED, OF_FLOAT, PER_SAMPLE, SIZE_SC, BELL, 0, 0, 0},               // logits
      {IN,      OF_FLOAT, PER_SAMPLE, SIZE_S,  BELL, 0, 0, 0},               // row_sum
      {IN,      OF_INT,   PER_SAMPLE, SIZE_S,  TARGETS, 0, 0, 0},
      {IN,      OF_FLOAT, PER_SAMPLE, SIZE_S,  POSITIVE, 0, 0, 0}}, 0, {{0}}}, // mask
    {"adamw", FLAT, run_adamw, NULL,
     {{UPDATED, OF_FLOAT, PER_SAMPLE, SIZE_SC, BELL, 5e-7, 0, 0},            // p
      {UPDATED, OF_FLOAT, PER_SAMPLE, SIZE_SC, BELL, TWO_ROUNDINGS, 0, 0},   // m
      {UPDATED, OF_FLOAT, PER_SAMPLE, SIZE_SC, POSITIVE, 2e-7, 0, 0},        // v
      {IN,      OF_T,     PER_SAMPLE, SIZE_SC, BELL, 0, 0, 0},               // g
      {OUT,     OF_T,     PER_SAMPLE, SIZE_SC, BELL, 5e-7, 0, 0}}, 0, {{0}}}, // param
    {"sum_squares", FLAT, run_sum_squares, NULL,
     {{OUT,     OF_DOUBLE, WHOLE,     SIZE_SQUARES, BELL, 1e-13, 0, 0},      // partial
      {IN,      OF_T,     PER_SAMPLE, SIZE_SC, BELL, 0, 0, 0}}, 0, {{0}}},   // x
    {"load", FLAT, run_load, NULL,
     {{OUT,     OF_FLOAT, PER_SAMPLE, SIZE_SC, BELL, 0, 0, 0},
      {IN,      OF_T,     PER_SAMPLE, SIZE_SC, BELL, 0, 0, 0}}, 0, {{0}}},
    {"store", FLAT, run_store, NULL,
     {{OUT,     OF_T,     PER_SAMPLE, SIZE_SC, BELL, 0, 0, 0},
      {IN,      OF_FLOAT, PER_SAMPLE, SIZE_SC, BELL, 0, 0, 0}}, 0, {{0}}},
    {"store_add", FLAT, run_store_add, NULL,
     {{UPDATED, OF_T,     PER_SAMPLE, SIZE_SC, BELL, 0, 0, 0},
      {IN,      OF_FLOAT, PER_SAMPLE, SIZE_SC, BELL, 0, 0, 0}}, 0, {{0}}},
    {"add_stored", FLAT, run_add_stored, NULL,
     {{UPDATED, OF_T,     PER_SAMPLE, SIZE_SC, BELL, 0, 0, 0},
      {IN,      OF_T,     PER_SAMPLE, SIZE_SC, BELL, 0, 0, 0}}, 0, {{0}}},
    {"reduce", FLAT, run_reduce, NULL,
     {{OUT,     OF_T,     PER_SAMPLE, SIZE_SC, BELL, 0, 0, 0},
      {IN,      OF_T,     PER_SAMPLE, SIZE_SC, BELL, 0, 0, 0},
      {IN,      OF_T,     PER_SAMPLE, SIZE_SC, BELL, 0, 0, 0},
      {IN,      OF_T,     PER_SAMPLE, SIZE_SC, BELL, 0, 0, 0}},
     2, {{0, 1, false}, {0, 3, false}}},
    {"copy", FLAT, run_copy, NULL,
     {{OUT,     OF_FLOAT, PER_SAMPLE, SIZE_SC, BELL, 0, 0, 0},
      {IN,      OF_FLOAT, PER_SAMPLE, SIZE_SC, BELL, 0, 0, 0}}, 0, {{0}}},
    {"add", FLAT, run_add, NULL,
     {{UPDATED, OF_FLOAT, PER_SAMPLE, SIZE_SC, BELL, 0, 0, 0},
      {IN,      OF_FLOAT, PER_SAMPLE, SIZE_SC, BELL, 0, 0, 0}}, 0, {{0}}},
    {"fill", FLAT, run_fill, NULL,
     {{OUT,     OF_FLOAT, PER_SAMPLE, SIZE_SC, BELL, 0, 0, 0}}, 0, {{0}}},
};
// clang-format on

#endif

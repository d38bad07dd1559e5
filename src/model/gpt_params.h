/*
 * gpt_params - the parameters of a GPT: what each of its layers has, in the order of
 * memory. The names are those on disk; weights are (out, in), row-major.
 */
#ifndef MODEL_GPT_PARAMS_H
#define MODEL_GPT_PARAMS_H

#include "config/config.h"
#include "params/param_table.h"

enum gpt_embedding_param {
    GPT_WORD_WEIGHT,     // (V, H)
    GPT_POSITION_WEIGHT, // (P, H)
    GPT_EMBEDDING_PARAMS,
};

enum gpt_block_param {    // vectors first: they are float32 whatever the matrices are
    GPT_LN1_WEIGHT,       // (H)
    GPT_LN1_BIAS,         // (H)
    GPT_QKV_BIAS,         // (3, A, D)
    GPT_ATTN_PROJ_BIAS,   // (H)
    GPT_LN2_WEIGHT,       // (H)
    GPT_LN2_BIAS,         // (H)
    GPT_FC_BIAS,          // (F)
    GPT_MLP_PROJ_BIAS,    // (H)
    GPT_QKV_WEIGHT,       // (3, A, D, H): fused; heads contiguous in each of q, k, v
    GPT_ATTN_PROJ_WEIGHT, // (H, A, D)
    GPT_FC_WEIGHT,        // (F, H)
    GPT_MLP_PROJ_WEIGHT,  // (H, F)
    GPT_BLOCK_PARAMS,
};

enum gpt_final_norm_param {
    GPT_FINAL_NORM_WEIGHT, // (H)
    GPT_FINAL_NORM_BIAS,   // (H)
    GPT_FINAL_NORM_PARAMS,
};

enum gpt_head_param {
    GPT_HEAD_WEIGHT, // (V, H): tied to the word embedding
    GPT_HEAD_PARAMS,
};

/* The table of a part of the model; of all of it with part NULL. */
MUST_CHECK int gpt_param_table(struct param_table *table, const struct config_model *m,
                               const struct param_part *part, struct error *err);

#endif

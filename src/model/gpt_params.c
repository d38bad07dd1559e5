#include "model/gpt_params.h"

#include <limits.h>

enum gpt_dim { // a symbolic dim; DIM_END closes a shape that has fewer than four
    DIM_END,
    DIM_QKV, // query, key, value
    DIM_V,
    DIM_P,
    DIM_H,
    DIM_A,
    DIM_D,
    DIM_F,
    N_DIMS,
};

/* Kinds of rows: role, what they are stored as, how their gradient arrives. */
#define ROWS PARAM_ROWS, STORED_TYPED, GRAD_BY_ROWS
#define MATRIX PARAM_MATRIX, STORED_TYPED, GRAD_OVERWRITTEN
#define VECTOR PARAM_VECTOR, STORED_F32, GRAD_ACCUMULATED
#define DATA OWNED_BY_DATA_RANKS

// clang-format off
#define UNTIED {false, LAYER_EMBEDDING, 0}

//  place in its layer         name on disk                 shape                           of a    initial      decays lr split    number, tie
//                                                                                          kind    values, scale       scale dim, owner
static const struct param_spec embedding_rows[GPT_EMBEDDING_PARAMS] = {
    [GPT_WORD_WEIGHT]       = {"embedding.word.weight",     {DIM_V, DIM_H},                 ROWS,   INIT_NORMAL, 1, true,  1,  0, DATA, 0, UNTIED},
    [GPT_POSITION_WEIGHT]   = {"embedding.position.weight", {DIM_P, DIM_H},                 ROWS,   INIT_NORMAL, 1, true,  1, -1, DATA, 1, UNTIED},
};

static const struct param_spec block_rows[GPT_BLOCK_PARAMS] = {
    [GPT_LN1_WEIGHT]        = {"ln1.weight",                {DIM_H},                        VECTOR, INIT_ONES,   1, false, 1, -1, DATA, 0, UNTIED},
    [GPT_LN1_BIAS]          = {"ln1.bias",                  {DIM_H},                        VECTOR, INIT_ZEROS,  1, false, 1, -1, DATA, 1, UNTIED},
    [GPT_QKV_BIAS]          = {"attn.qkv.bias",             {DIM_QKV, DIM_A, DIM_D},        VECTOR, INIT_ZEROS,  1, false, 1,  1, DATA, 3, UNTIED},
    [GPT_ATTN_PROJ_BIAS]    = {"attn.proj.bias",            {DIM_H},                        VECTOR, INIT_ZEROS,  1, false, 1, -1, DATA, 5, UNTIED},
    [GPT_LN2_WEIGHT]        = {"ln2.weight",                {DIM_H},                        VECTOR, INIT_ONES,   1, false, 1, -1, DATA, 6, UNTIED},
    [GPT_LN2_BIAS]          = {"ln2.bias",                  {DIM_H},                        VECTOR, INIT_ZEROS,  1, false, 1, -1, DATA, 7, UNTIED},
    [GPT_FC_BIAS]           = {"mlp.fc.bias",               {DIM_F},                        VECTOR, INIT_ZEROS,  1, false, 1,  0, DATA, 9, UNTIED},
    [GPT_MLP_PROJ_BIAS]     = {"mlp.proj.bias",             {DIM_H},                        VECTOR, INIT_ZEROS,  1, false, 1, -1, DATA, 11, UNTIED},
    [GPT_QKV_WEIGHT]        = {"attn.qkv.weight",           {DIM_QKV, DIM_A, DIM_D, DIM_H}, MATRIX, INIT_NORMAL, 1, true,  1,  1, DATA, 2, UNTIED},
    [GPT_ATTN_PROJ_WEIGHT]  = {"attn.proj.weight",          {DIM_H, DIM_H},                 MATRIX, INIT_NORMAL, 1, true,  1,  1, DATA, 4, UNTIED},
    [GPT_FC_WEIGHT]         = {"mlp.fc.weight",             {DIM_F, DIM_H},                 MATRIX, INIT_NORMAL, 1, true,  1,  0, DATA, 8, UNTIED},
    [GPT_MLP_PROJ_WEIGHT]   = {"mlp.proj.weight",           {DIM_H, DIM_F},                 MATRIX, INIT_NORMAL, 1, true,  1,  1, DATA, 10, UNTIED},
};

static const struct param_spec final_norm_rows[GPT_FINAL_NORM_PARAMS] = {
    [GPT_FINAL_NORM_WEIGHT] = {"final_norm.weight",         {DIM_H},                        VECTOR, INIT_ONES,   1, false, 1, -1, DATA, 0, UNTIED},
    [GPT_FINAL_NORM_BIAS]   = {"final_norm.bias",           {DIM_H},                        VECTOR, INIT_ZEROS,  1, false, 1, -1, DATA, 1, UNTIED},
};

static const struct param_spec head_rows[GPT_HEAD_PARAMS] = {
    [GPT_HEAD_WEIGHT]       = {.tie = {true, LAYER_EMBEDDING, GPT_WORD_WEIGHT}},
};
// clang-format on

/* The sizes of the symbolic dims; a model that has none of its own dims is refused. */
static int resolve_dims(int64_t dims[N_DIMS], const struct config_model *m,
                        struct error *err)
{
    const struct {
        const char *key;
        int64_t value;
    } needed[] = {
        {"vocab_size", m->vocab_size},
        {"hidden_size", m->hidden_size},
        {"num_layers", m->num_layers},
        {"num_attention_heads", m->num_attention_heads},
        {"ffn_hidden_size", m->ffn_hidden_size},
        {"max_position_embeddings", m->max_position_embeddings},
    };
    for (size_t i = 0; i < ARRAY_LEN(needed); i++)
        if (needed[i].value < 1)
            return error_set(err, ERROR_INPUT,
                             "cannot lay out the model: Model.%s is %lld, must be at "
                             "least 1",
                             needed[i].key, (long long)needed[i].value);
    if (m->num_layers > INT_MAX - 1)
        return error_set(err, ERROR_INPUT,
                         "cannot lay out the model: Model.num_layers is %lld, must be at "
                         "most %d",
                         (long long)m->num_layers, INT_MAX - 1);
    if (m->hidden_size % m->num_attention_heads != 0)
        return error_set(err, ERROR_INPUT,
                         "cannot lay out the model: Model.hidden_size %lld is not a "
                         "multiple of Model.num_attention_heads %lld",
                         (long long)m->hidden_size, (long long)m->num_attention_heads);
    dims[DIM_END] = 0;
    dims[DIM_QKV] = 3;
    dims[DIM_V] = m->vocab_size;
    dims[DIM_P] = m->max_position_embeddings;
    dims[DIM_H] = m->hidden_size;
    dims[DIM_A] = m->num_attention_heads;
    dims[DIM_D] = m->hidden_size / m->num_attention_heads;
    dims[DIM_F] = m->ffn_hidden_size;
    return 0;
}

int gpt_param_table(struct param_table *table, const struct config_model *m,
                    const struct param_part *part, struct error *err)
{
    int64_t dims[N_DIMS];
    struct param_part whole = param_part_whole(m->num_layers);
    struct param_model model = {
        .layers = {[LAYER_EMBEDDING] = {embedding_rows, GPT_EMBEDDING_PARAMS},
                   [LAYER_BLOCK] = {block_rows, GPT_BLOCK_PARAMS},
                   [LAYER_FINAL_NORM] = {final_norm_rows, GPT_FINAL_NORM_PARAMS},
                   [LAYER_HEAD] = {head_rows, GPT_HEAD_PARAMS}},
        .n_blocks = m->num_layers,
        .dims = dims,
    };
    *table = (struct param_table){0};
    if (resolve_dims(dims, m, err))
        return -1;
    return param_table_init(table, &model, part ? part : &whole, err);
}

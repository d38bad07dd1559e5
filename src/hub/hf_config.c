#include "hub/hf_config.h"

#include "base/fs.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#define CONFIG_NAME "config.json"
#define MOST_BYTES ((size_t)1 << 20)
#define MOST_SIZE 2147483647

/* -- writing ------------------------------------------------------------------------- */

/* An id, or null. */
static json_t *id_or_null(int64_t id)
{
    return id >= 0 ? json_integer(id) : json_null();
}

/* -- the activation ------------------------------------------------------------------ */

static const struct {
    const char *name; // the first name of a value is written
    enum config_activation value;
} activations[] = {
    {"gelu_new", MODEL_GELU_TANH},
    {"gelu_pytorch_tanh", MODEL_GELU_TANH},
    {"gelu", MODEL_GELU},
};

static const char *activation_name(enum config_activation value)
{
    size_t i = 0;
    while (activations[i].value != value)
        i++;
    return activations[i].name;
}

static char *take_text(json_t *root)
{
    char *text = root ? json_dumps(root, JSON_INDENT(2) | JSON_REAL_PRECISION(15)) : NULL;
    json_decref(root);
    return text;
}

char *hf_config_text(const struct hf_config *config, enum dtype dtype)
{
    const struct config_model *m = &config->model;
    bool is_usual = m->ffn_hidden_size == 4 * m->hidden_size;
    return take_text(json_pack(
        "{s:s, s:[s], s:f, s:o, s:f, s:o, s:f, s:f, s:s, s:I, s:I, s:I, s:o, s:I, s:I, "
        "s:b, s:f, s:b, s:b, s:b, s:s, s:b, s:I}",
        "activation_function", activation_name(m->activation), "architectures",
        "GPT2LMHeadModel", "attn_pdrop", m->attention_probs_dropout_prob, "bos_token_id",
        id_or_null(config->eos), "embd_pdrop", m->embed_drop_rate, "eos_token_id",
        id_or_null(config->eos), "initializer_range", m->initializer_range,
        "layer_norm_epsilon", m->norm_epsilon, "model_type", "gpt2", "n_ctx",
        (json_int_t)m->max_position_embeddings, "n_embd", (json_int_t)m->hidden_size,
        "n_head", (json_int_t)m->num_attention_heads, "n_inner",
        is_usual ? json_null() : json_integer(m->ffn_hidden_size), "n_layer",
        (json_int_t)m->num_layers, "n_positions", (json_int_t)m->max_position_embeddings,
        "reorder_and_upcast_attn", 0, "resid_pdrop", m->hidden_dropout_prob,
        "scale_attn_by_inverse_layer_idx", 0, "scale_attn_weights", 1,
        "tie_word_embeddings", 1, "torch_dtype", dtype_name(dtype), "use_cache", 1,
        "vocab_size", (json_int_t)m->vocab_size));
}

char *hf_config_generation_text(const struct hf_config *config)
{
    return take_text(json_pack("{s:b, s:o, s:o}", "_from_model_config", 1, "bos_token_id",
                               id_or_null(config->eos), "eos_token_id",
                               id_or_null(config->eos)));
}

/* -- reading ------------------------------------------------------------------------- */

struct reading {
    const char *path;
    const json_t *root;
    struct error *err;
};

/* The value as JSON for a message, truncated; a number with as few digits as needed. */
static void value_text(const json_t *value, char text[80])
{
    if (json_is_real(value)) {
        double x = json_real_value(value);
        for (int digits = 1; digits <= 17; digits++) {
            snprintf(text, 80, "%.*g", digits, x);
            if (!(strtod(text, NULL) < x || strtod(text, NULL) > x))
                return;
        }
    }
    char *dump = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
    snprintf(text, 80, "%s", dump ? dump : "nothing");
    free(dump);
}

static int refuse_value(const struct reading *r, const char *key, const char *wanted)
{
    char text[80] = "missing";
    const json_t *value = json_object_get(r->root, key);
    if (value)
        value_text(value, text);
    return error_set(r->err, ERROR_INPUT,
                     "'%s': \"%s\" is %s; a GPT-2 can be imported only where it is %s",
                     r->path, key, text, wanted);
}

/* -- what must be as ours is -- */

static const struct flag_rule {
    const char *key;
    bool value; // also of a missing key
} flag_rules[] = {
    {"scale_attn_weights", true},
    {"tie_word_embeddings", true},
    {"scale_attn_by_inverse_layer_idx", false},
    {"add_cross_attention", false},
};

static int check_architecture(const struct reading *r)
{
    const json_t *list = json_object_get(r->root, "architectures");
    const char *name = json_string_value(json_array_get(list, 0));
    if (!list || json_is_null(list) ||
        (name && json_array_size(list) == 1 &&
         (strcmp(name, "GPT2LMHeadModel") == 0 || strcmp(name, "GPT2Model") == 0)))
        return 0;
    return refuse_value(r, "architectures", "[\"GPT2LMHeadModel\"]");
}

static int check_rules(const struct reading *r)
{
    const char *type = json_string_value(json_object_get(r->root, "model_type"));
    if (!type || strcmp(type, "gpt2") != 0)
        return refuse_value(r, "model_type", "gpt2");
    for (size_t i = 0; i < ARRAY_LEN(flag_rules); i++) {
        const json_t *value = json_object_get(r->root, flag_rules[i].key);
        bool wanted = flag_rules[i].value;
        if (value && !(wanted ? json_is_true(value) : json_is_false(value)))
            return refuse_value(r, flag_rules[i].key, wanted ? "true" : "false");
    }
    return check_architecture(r);
}

/* -- numbers -- */

/* A missing or null key has `otherwise`, or is refused when that is 0. */
static int get_size(const struct reading *r, const char *key, int64_t otherwise,
                    int64_t *size)
{
    const json_t *value = json_object_get(r->root, key);
    *size = otherwise;
    if ((!value || json_is_null(value)) && otherwise > 0)
        return 0;
    *size = json_integer_value(value);
    if (json_is_integer(value) && *size >= 1 && *size <= MOST_SIZE)
        return 0;
    return refuse_value(r, key, "a whole number of at least 1");
}

static int get_rate(const struct reading *r, const char *key, double otherwise,
                    double *rate)
{
    const json_t *value = json_object_get(r->root, key);
    *rate = value ? json_number_value(value) : otherwise;
    if ((!value || json_is_number(value)) && *rate >= 0 && *rate < 1)
        return 0;
    return refuse_value(r, key, "a number in [0, 1)");
}

/* A missing key means gelu_new. */
static int get_activation(const struct reading *r, enum config_activation *activation)
{
    const json_t *value = json_object_get(r->root, "activation_function");
    const char *name = json_string_value(value);
    *activation = MODEL_GELU_TANH;
    for (size_t i = 0; i < ARRAY_LEN(activations); i++)
        if (name && strcmp(name, activations[i].name) == 0) {
            *activation = activations[i].value;
            return 0;
        }
    return value ? refuse_value(r, "activation_function",
                                "gelu, gelu_new or gelu_pytorch_tanh")
                 : 0;
}

static int get_epsilon(const struct reading *r, double *epsilon)
{
    const json_t *value = json_object_get(r->root, "layer_norm_epsilon");
    *epsilon = value ? json_number_value(value) : 1e-5;
    if ((!value || json_is_number(value)) && *epsilon >= 1e-12 && *epsilon <= 1)
        return 0;
    return refuse_value(r, "layer_norm_epsilon", "a number in [1e-12, 1]");
}

static int get_sizes(const struct reading *r, struct config_model *m)
{
    if (get_size(r, "vocab_size", 0, &m->vocab_size) ||
        get_size(r, "n_embd", 0, &m->hidden_size) ||
        get_size(r, "n_layer", 0, &m->num_layers) ||
        get_size(r, "n_head", 0, &m->num_attention_heads) ||
        get_size(r, "n_positions", 0, &m->max_position_embeddings) ||
        get_size(r, "n_inner", 4 * m->hidden_size, &m->ffn_hidden_size))
        return -1;
    if (m->hidden_size % m->num_attention_heads != 0)
        return refuse_value(r, "n_head", "a divisor of n_embd");
    return 0;
}

static int get_rates(const struct reading *r, struct config_model *m)
{
    if (get_rate(r, "resid_pdrop", 0.1, &m->hidden_dropout_prob) ||
        get_rate(r, "embd_pdrop", 0.1, &m->embed_drop_rate) ||
        get_rate(r, "attn_pdrop", 0.1, &m->attention_probs_dropout_prob) ||
        get_rate(r, "initializer_range", 0.02, &m->initializer_range))
        return -1;
    return 0;
}

static int take_config(const struct reading *r, struct hf_config *config)
{
    const json_t *eos = json_object_get(r->root, "eos_token_id");
    if (!json_is_object(r->root))
        return error_set(r->err, ERROR_INPUT, "'%s' is no JSON object", r->path);
    if (json_is_array(eos)) // of several the first, which is the usual one
        eos = json_array_get(eos, 0);
    if (eos && !json_is_null(eos) && !json_is_integer(eos))
        return refuse_value(r, "eos_token_id", "a token of the vocabulary");
    if (check_rules(r) || get_sizes(r, &config->model) || get_rates(r, &config->model) ||
        get_epsilon(r, &config->model.norm_epsilon) ||
        get_activation(r, &config->model.activation))
        return -1;
    config->eos = json_is_integer(eos) ? json_integer_value(eos) : -1;
    if (config->eos >= config->model.vocab_size || config->eos < -1)
        return refuse_value(r, "eos_token_id", "a token of the vocabulary");
    return 0;
}

json_t *hf_json_read(const char *path, size_t most_bytes, struct error *err)
{
    char *text = NULL;
    size_t n;
    json_error_t where;
    if (fs_read_regular(path, most_bytes, &text, &n, err))
        return NULL;
    json_t *root = json_loadb(text, n, JSON_REJECT_DUPLICATES, &where);
    free(text);
    if (!root)
        error_set(err, ERROR_INPUT, "'%s':%d:%d: %s", path, where.line, where.column,
                  where.text);
    return root;
}

int hf_config_read(struct hf_config *config, const char *dir, struct error *err)
{
    char path[PATH_MAX];
    *config = (struct hf_config){.eos = -1};
    if (fs_join(path, sizeof path, dir, CONFIG_NAME, err))
        return -1;
    json_t *root = hf_json_read(path, MOST_BYTES, err);
    if (!root)
        return -1;
    struct reading r = {path, root, err};
    int rc = take_config(&r, config);
    json_decref(root);
    return rc;
}

/*
 * Other architectures are described too, as far as their config.json uses the common
 * names: that a model cannot be imported is worth a sentence, not a refusal to look.
 */
#include "cli/inspect_model.h"

#include "base/fs.h"
#include "cli/report.h"
#include "hub/hf_config.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#define MOST_BYTES ((size_t)1 << 20)
#define MOST_SHOWN 200 // bytes of a text

/* Sizes of a model, under the names of GPT-2 and of its successors. */
static const char *const shown_keys[] = {
    "model_type",
    "torch_dtype",
    "dtype",
    "vocab_size",
    "n_embd",
    "hidden_size",
    "n_layer",
    "num_hidden_layers",
    "n_head",
    "num_attention_heads",
    "num_key_value_heads",
    "n_inner",
    "intermediate_size",
    "n_positions",
    "max_position_embeddings",
    "activation_function",
    "hidden_act",
    "tie_word_embeddings",
    "eos_token_id",
};

static void copy_value(json_t *object, const char *key, const json_t *value)
{
    const char *text = json_string_value(value);
    if (text)
        report_set(object, key, report_text(text, strnlen(text, MOST_SHOWN)));
    else if (json_is_number(value) || json_is_boolean(value))
        report_set(object, key, json_deep_copy(value));
}

static json_t *describe(const json_t *root, const char *dir)
{
    struct hf_config config;
    struct error why;
    json_t *object = json_object();
    copy_value(object, "architecture",
               json_array_get(json_object_get(root, "architectures"), 0));
    for (size_t i = 0; i < ARRAY_LEN(shown_keys); i++)
        copy_value(object, shown_keys[i], json_object_get(root, shown_keys[i]));
    if (hf_config_read(&config, dir, &why))
        report_note(object, "it cannot be imported: %s", why.text);
    else
        report_note(object,
                    "trefoil import --from hf --input %s --output DIR makes it a "
                    "checkpoint to go on from",
                    dir);
    return object;
}

int inspect_hf(json_t **model, const char *dir, struct error *err)
{
    char path[PATH_MAX];
    *model = NULL;
    if (fs_join(path, sizeof path, dir, INSPECT_HF_NAME, err))
        return -1;
    json_t *root = hf_json_read(path, MOST_BYTES, err);
    if (!root)
        return -1;
    if (json_is_string(json_object_get(root, "model_type")) ||
        json_is_array(json_object_get(root, "architectures")))
        *model = describe(root, dir);
    json_decref(root);
    return 0;
}

/*
 * Writing: the header's text from a description. The tensors stand in it in the order of
 * their data, as in the parameter table, so a layer is one piece of the file.
 */
#include "ckpt/safetensors.h"
#include "ckpt/safetensors_dtype.h"

#include <endian.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

static json_t *tensor_to_json(const struct safetensors_tensor *t)
{
    json_t *shape = json_array();
    for (int i = 0; i < t->n_dims; i++)
        if (json_array_append_new(shape, json_integer(t->shape[i]))) {
            json_decref(shape);
            return NULL;
        }
    return json_pack("{s:s, s:o, s:[I, I]}", "dtype", safetensors_dtypes[t->dtype].name,
                     "shape", shape, "data_offsets", (json_int_t)t->begin,
                     (json_int_t)t->end);
}

static char *header_text(const struct safetensors *st)
{
    char *text = NULL;
    /* Readers of the Hugging Face world look for "format". */
    json_t *root = json_pack("{s:{s:s}}", "__metadata__", "format", "pt");
    for (int64_t i = 0; i < st->n_tensors; i++)
        if (json_object_set_new(root, st->tensors[i].name,
                                tensor_to_json(&st->tensors[i])))
            goto done;
    text = json_dumps(root, JSON_COMPACT);
done:
    json_decref(root);
    return text;
}

int safetensors_encode_header(struct safetensors *st, char **header, struct error *err)
{
    char *text = header_text(st);
    char *bytes = NULL;
    int rc = -1;
    if (!text) {
        error_set(err, ERROR_RUNTIME, "out of memory for a header of %lld tensors",
                  (long long)st->n_tensors);
        goto done;
    }
    size_t n_text = strlen(text);
    size_t n_padded = (n_text + 7) / 8 * 8;
    if (n_padded > SAFETENSORS_MAX_HEADER_BYTES) {
        error_set(err, ERROR_INPUT,
                  "a safetensors header of %zu bytes is over the limit of %d", n_padded,
                  SAFETENSORS_MAX_HEADER_BYTES);
        goto done;
    }
    bytes = malloc(8 + n_padded);
    if (!bytes) {
        error_set(err, ERROR_RUNTIME, "out of memory for a header of %zu bytes",
                  n_padded);
        goto done;
    }
    uint64_t length = htole64(n_padded);
    memcpy(bytes, &length, sizeof length);
    memcpy(bytes + 8, text, n_text);
    memset(bytes + 8 + n_text, ' ', n_padded - n_text);
    st->header_bytes = (int64_t)(8 + n_padded);
    *header = bytes;
    rc = 0;
done:
    free(text);
    return rc;
}

void safetensors_encode_f32(const float *src, int64_t n, uint8_t *raw)
{
    for (int64_t i = 0; i < n; i++) {
        uint32_t word;
        memcpy(&word, src + i, sizeof word);
        word = htole32(word);
        memcpy(raw + 4 * i, &word, sizeof word);
    }
}

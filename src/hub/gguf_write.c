#include "hub/gguf_write.h"

#include <stdlib.h>
#include <string.h>

#define VERSION 3

/* -- bytes --------------------------------------------------------------------------- */

static void put(struct gguf_bytes *b, const void *bytes, size_t n)
{
    if (b->is_short)
        return;
    if (n > b->capacity - b->n) {
        size_t wanted = (b->n + n) * 2;
        uint8_t *larger = wanted > b->n ? realloc(b->bytes, wanted) : NULL;
        if (!larger) {
            b->is_short = true;
            return;
        }
        b->bytes = larger;
        b->capacity = wanted;
    }
    if (n > 0)
        memcpy(b->bytes + b->n, bytes, n);
    b->n += n;
}

static void put_int(struct gguf_bytes *b, uint64_t value, int n_bytes)
{
    uint8_t bytes[8];
    for (int i = 0; i < n_bytes; i++)
        bytes[i] = (uint8_t)(value >> (8 * i));
    put(b, bytes, (size_t)n_bytes);
}

static void put_text(struct gguf_bytes *b, const char *text, size_t n)
{
    put_int(b, n, 8);
    put(b, text, n);
}

void gguf_release(struct gguf_header *h)
{
    free(h->pairs.bytes);
    free(h->tensors.bytes);
    *h = (struct gguf_header){.n_pairs = 0};
}

/* -- pairs --------------------------------------------------------------------------- */

static void add_key(struct gguf_header *h, const char *key, enum gguf_type type)
{
    put_text(&h->pairs, key, strlen(key));
    put_int(&h->pairs, (uint64_t)type, 4);
    h->n_pairs++;
}

void gguf_add_u32(struct gguf_header *h, const char *key, uint32_t value)
{
    add_key(h, key, GGUF_U32);
    put_int(&h->pairs, value, 4);
}

void gguf_add_f32(struct gguf_header *h, const char *key, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    add_key(h, key, GGUF_F32);
    put_int(&h->pairs, bits, 4);
}

void gguf_add_bool(struct gguf_header *h, const char *key, bool value)
{
    add_key(h, key, GGUF_BOOL);
    put_int(&h->pairs, value, 1);
}

void gguf_add_text(struct gguf_header *h, const char *key, const char *text)
{
    add_key(h, key, GGUF_TEXT);
    put_text(&h->pairs, text, strlen(text));
}

void gguf_add_array(struct gguf_header *h, const char *key, enum gguf_type type,
                    uint64_t n)
{
    add_key(h, key, GGUF_ARRAY);
    put_int(&h->pairs, (uint64_t)type, 4);
    put_int(&h->pairs, n, 8);
}

void gguf_append_i32(struct gguf_header *h, int32_t value)
{
    put_int(&h->pairs, (uint32_t)value, 4);
}

void gguf_append_text(struct gguf_header *h, const char *text, size_t n)
{
    put_text(&h->pairs, text, n);
}

/* -- tensors ------------------------------------------------------------------------- */

void gguf_add_tensor(struct gguf_header *h, const char *name, int n_dims,
                     const int64_t *shape, uint32_t ggml_type, uint64_t n_bytes)
{
    put_text(&h->tensors, name, strlen(name));
    put_int(&h->tensors, (uint64_t)n_dims, 4);
    for (int i = n_dims - 1; i >= 0; i--)
        put_int(&h->tensors, (uint64_t)shape[i], 8);
    put_int(&h->tensors, ggml_type, 4);
    put_int(&h->tensors, h->data_bytes, 8);
    h->n_tensors++;
    h->data_bytes += (n_bytes + GGUF_ALIGN - 1) / GGUF_ALIGN * GGUF_ALIGN;
}

int gguf_finish(const struct gguf_header *h, uint8_t **bytes, size_t *n,
                struct error *err)
{
    static const uint8_t zeros[GGUF_ALIGN] = {0};
    struct gguf_bytes all = {.is_short = h->pairs.is_short || h->tensors.is_short};
    put(&all, "GGUF", 4);
    put_int(&all, VERSION, 4);
    put_int(&all, h->n_tensors, 8);
    put_int(&all, h->n_pairs, 8);
    put(&all, h->pairs.bytes, h->pairs.n);
    put(&all, h->tensors.bytes, h->tensors.n);
    put(&all, zeros, (GGUF_ALIGN - all.n % GGUF_ALIGN) % GGUF_ALIGN);
    if (all.is_short) {
        free(all.bytes);
        return error_set(err, ERROR_RUNTIME, "out of memory for the header of a GGUF");
    }
    *bytes = all.bytes;
    *n = all.n;
    return 0;
}

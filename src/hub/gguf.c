#include "hub/gguf.h"

#include "base/fs.h"
#include "text/tokenizer_build.h"
#include "text/vocab.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* -- the header, piece by piece into memory ------------------------------------------ */

#define VERSION 3

struct gguf_bytes { // grows as needed; zero-initialised is empty
    uint8_t *bytes;
    size_t n, capacity;
    bool is_short; // memory ran out
};

struct gguf_header { // zero-initialised is empty
    struct gguf_bytes pairs, tensors;
    uint64_t n_pairs, n_tensors;
    uint64_t data_bytes; // of the tensors so far, padded
};

static void put_bytes(struct gguf_bytes *b, const void *bytes, size_t n)
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
    put_bytes(b, bytes, (size_t)n_bytes);
}

static void put_text(struct gguf_bytes *b, const char *text, size_t n)
{
    put_int(b, n, 8);
    put_bytes(b, text, n);
}

static void release_header(struct gguf_header *h)
{
    free(h->pairs.bytes);
    free(h->tensors.bytes);
    *h = (struct gguf_header){.n_pairs = 0};
}

static void add_key(struct gguf_header *h, const char *key, enum gguf_type type)
{
    put_text(&h->pairs, key, strlen(key));
    put_int(&h->pairs, (uint64_t)type, 4);
    h->n_pairs++;
}

static void add_u32(struct gguf_header *h, const char *key, uint32_t value)
{
    add_key(h, key, GGUF_U32);
    put_int(&h->pairs, value, 4);
}

static void add_f32(struct gguf_header *h, const char *key, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    add_key(h, key, GGUF_F32);
    put_int(&h->pairs, bits, 4);
}

static void add_bool(struct gguf_header *h, const char *key, bool value)
{
    add_key(h, key, GGUF_BOOL);
    put_int(&h->pairs, value, 1);
}

static void add_text(struct gguf_header *h, const char *key, const char *text)
{
    add_key(h, key, GGUF_TEXT);
    put_text(&h->pairs, text, strlen(text));
}

static void add_array(struct gguf_header *h, const char *key, enum gguf_type type,
                      uint64_t n)
{
    add_key(h, key, GGUF_ARRAY);
    put_int(&h->pairs, (uint64_t)type, 4);
    put_int(&h->pairs, n, 8);
}

static void append_i32(struct gguf_header *h, int32_t value)
{
    put_int(&h->pairs, (uint32_t)value, 4);
}

static void append_text(struct gguf_header *h, const char *text, size_t n)
{
    put_text(&h->pairs, text, n);
}

static void add_tensor(struct gguf_header *h, const char *name, int n_dims,
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

static int finish_header(const struct gguf_header *h, uint8_t **bytes, size_t *n,
                         struct error *err)
{
    static const uint8_t zeros[GGUF_ALIGN] = {0};
    struct gguf_bytes all = {.is_short = h->pairs.is_short || h->tensors.is_short};
    put_bytes(&all, "GGUF", 4);
    put_int(&all, VERSION, 4);
    put_int(&all, h->n_tensors, 8);
    put_int(&all, h->n_pairs, 8);
    put_bytes(&all, h->pairs.bytes, h->pairs.n);
    put_bytes(&all, h->tensors.bytes, h->tensors.n);
    put_bytes(&all, zeros, (GGUF_ALIGN - all.n % GGUF_ALIGN) % GGUF_ALIGN);
    if (all.is_short) {
        free(all.bytes);
        return error_set(err, ERROR_RUNTIME, "out of memory for the header of a GGUF");
    }
    *bytes = all.bytes;
    *n = all.n;
    return 0;
}

/* -- the tokenizer ------------------------------------------------------------------- */

/*
 * A "gpt2" tokenizer of a GGUF: tokens spelled in GPT-2's symbols, and merges. It always
 * cuts a text as GPT-2 does, which changes nothing where there are no merges: so the
 * bytes fit in too.
 */

enum token_type { // llama.cpp's
    TOKEN_NORMAL = 1,
    TOKEN_CONTROL = 3,
    TOKEN_USER_DEFINED = 4,
    TOKEN_UNUSED = 5,
};

static int check_tokenizer(const struct tokenizer *t, struct error *err)
{
    const char *what = NULL;
    if (!t->is_cut_into_words && t->merges.n > 0)
        what = "does not cut a text into words before it merges";
    else if (t->adds_prefix_space)
        what = "adds a space before a text";
    else if (t->takes_whole_words)
        what = "takes words that are tokens whole, whatever the merges";
    if (!what)
        return 0;
    return error_set(err, ERROR_INPUT,
                     "the tokenizer '%s' %s, which a GGUF cannot say; export to hf "
                     "instead",
                     tokenizer_name(t), what);
}

static enum token_type token_type(const struct tokenizer *t, int64_t id)
{
    uint32_t flags = vocab_flags(&t->vocab, id);
    return flags == 0              ? TOKEN_UNUSED
           : flags & VOCAB_SPECIAL ? TOKEN_CONTROL
           : flags & VOCAB_ADDED   ? TOKEN_USER_DEFINED
                                   : TOKEN_NORMAL;
}

/* The longest token in symbols, or the name of an unused one. */
static size_t most_spelled(const struct tokenizer *t)
{
    size_t most = 32;
    for (int64_t id = 0; id < t->vocab.n_ids; id++) {
        size_t n = BYTE_LEVEL_SYMBOL_BYTES * (size_t)t->vocab.tokens[id].n_bytes;
        most = n > most ? n : most;
    }
    return most;
}

/* Writes the token as the file spells it to `out`; returns its length. */
static size_t spell_token(const struct tokenizer *t, int64_t id, char *out)
{
    size_t n;
    uint32_t flags = vocab_flags(&t->vocab, id);
    if (flags == 0)
        return (size_t)sprintf(out, "[PAD%lld]", (long long)id);
    const char *bytes = vocab_bytes(&t->vocab, id, &n);
    if (!(flags & VOCAB_ADDED))
        return byte_level_spell(bytes, n, out);
    memcpy(out, bytes, n);
    return n;
}

static void add_tokens(struct gguf_header *h, const struct tokenizer *t, int64_t V,
                       char *buffer)
{
    add_array(h, "tokenizer.ggml.tokens", GGUF_TEXT, (uint64_t)V);
    for (int64_t id = 0; id < V; id++)
        append_text(h, buffer, spell_token(t, id, buffer));
    add_array(h, "tokenizer.ggml.token_type", GGUF_I32, (uint64_t)V);
    for (int64_t id = 0; id < V; id++)
        append_i32(h, (int32_t)token_type(t, id));
}

static void add_merges(struct gguf_header *h, const struct tokenizer *t, char *buffer)
{
    add_array(h, "tokenizer.ggml.merges", GGUF_TEXT, (uint64_t)t->merges.n);
    for (int64_t rank = 0; rank < t->merges.n; rank++) {
        const struct merge *m = &t->merges.list[rank];
        size_t n = spell_token(t, m->left, buffer);
        buffer[n++] = ' ';
        n += spell_token(t, m->right, buffer + n);
        append_text(h, buffer, n);
    }
}

static int add_tokenizer(struct gguf_header *h, const struct tokenizer *t, int64_t V,
                         struct error *err)
{
    if (check_tokenizer(t, err))
        return -1;
    char *buffer = malloc(2 * most_spelled(t) + 2);
    if (!buffer)
        return error_set(err, ERROR_RUNTIME, "out of memory for a token");
    add_text(h, "tokenizer.ggml.model", "gpt2");
    add_text(h, "tokenizer.ggml.pre", "gpt-2");
    add_tokens(h, t, V, buffer);
    add_merges(h, t, buffer);
    if (t->eos >= 0) {
        add_u32(h, "tokenizer.ggml.bos_token_id", (uint32_t)t->eos);
        add_u32(h, "tokenizer.ggml.eos_token_id", (uint32_t)t->eos);
    }
    add_bool(h, "tokenizer.ggml.add_bos_token", false);
    free(buffer);
    return 0;
}

/* -- the file ------------------------------------------------------------------------ */

enum { GGML_F32 = 0, GGML_F16 = 1 };            // types of tensors
enum { FILE_ALL_F32 = 0, FILE_MOSTLY_F16 = 1 }; // of general.file_type

/* Of `row` in the file; see the header. */
static enum dtype type_of(const struct param *row, enum dtype dtype)
{
    bool is_f32 =
        row->role == PARAM_VECTOR || strcmp(row->name, "embedding.position.weight") == 0;
    return is_f32 ? DTYPE_F32 : dtype;
}

static void add_model(struct gguf_header *h, const struct config_model *m,
                      enum dtype dtype)
{
    add_text(h, "general.architecture", "gpt2");
    add_text(h, "general.name", "trefoil");
    add_u32(h, "general.file_type", dtype == DTYPE_F32 ? FILE_ALL_F32 : FILE_MOSTLY_F16);
    add_u32(h, "gpt2.context_length", (uint32_t)m->max_position_embeddings);
    add_u32(h, "gpt2.embedding_length", (uint32_t)m->hidden_size);
    add_u32(h, "gpt2.feed_forward_length", (uint32_t)m->ffn_hidden_size);
    add_u32(h, "gpt2.block_count", (uint32_t)m->num_layers);
    add_u32(h, "gpt2.attention.head_count", (uint32_t)m->num_attention_heads);
    add_f32(h, "gpt2.attention.layer_norm_epsilon", (float)m->norm_epsilon);
}

static void add_tensors(struct gguf_header *h, const struct param_table *table,
                        enum dtype dtype)
{
    for (int64_t i = 0; i < table->n_params; i++) {
        const struct param *row = &table->params[i];
        struct hf_shape shape = hf_shape(row, HF_GGUF);
        enum dtype type = type_of(row, dtype);
        char name[HF_NAME_BYTES];
        hf_name(row, HF_GGUF, name);
        add_tensor(h, name, shape.n_dims, shape.shape,
                   type == DTYPE_F16 ? GGML_F16 : GGML_F32,
                   (uint64_t)row->n_elements * dtype_bytes(type));
    }
}

static int write_tensor(struct hub_source *src, const struct param *row, enum dtype type,
                        int fd, const char *path, struct error *err)
{
    static const uint8_t zeros[GGUF_ALIGN] = {0};
    size_t over = (size_t)row->n_elements * dtype_bytes(type) % GGUF_ALIGN;
    char name[HF_NAME_BYTES];
    hf_name(row, HF_GGUF, name);
    const float *x = hub_source_read(src, row, HF_GGUF, err);
    if (!x || hf_write_numbers(fd, x, row->n_elements, type, name, path, err))
        return -1;
    if (over > 0 && fs_write_exact(fd, zeros, GGUF_ALIGN - over))
        return error_set(err, ERROR_RUNTIME, "cannot write '%s': %s", path,
                         strerror(errno));
    return 0;
}

static int write_file(struct hub_source *src, const struct gguf_header *h,
                      enum dtype dtype, int fd, const char *path, struct error *err)
{
    uint8_t *bytes = NULL;
    size_t n = 0;
    if (finish_header(h, &bytes, &n, err))
        return -1;
    int rc = fs_write_exact(fd, bytes, n);
    free(bytes);
    if (rc)
        return error_set(err, ERROR_RUNTIME, "cannot write '%s': %s", path,
                         strerror(errno));
    for (int64_t i = 0; i < src->table.n_params; i++) {
        const struct param *row = &src->table.params[i];
        if (write_tensor(src, row, type_of(row, dtype), fd, path, err))
            return -1;
    }
    if (fsync(fd))
        return error_set(err, ERROR_RUNTIME, "cannot sync '%s': %s", path,
                         strerror(errno));
    return 0;
}

/* Through a file beside it, which is renamed. */
static int replace_file(struct hub_source *src, const struct gguf_header *h,
                        enum dtype dtype, const char *output, struct error *err)
{
    char temp[PATH_MAX];
    if (snprintf(temp, sizeof temp, "%s.tmp-%ld", output, (long)getpid()) >=
        (int)sizeof temp)
        return error_set(err, ERROR_INPUT, "path too long: '%.200s...'", output);
    int fd = open(temp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (fd < 0)
        return error_set(err, ERROR_INPUT, "cannot create '%s': %s", temp,
                         strerror(errno));
    int rc = write_file(src, h, dtype, fd, temp, err);
    close(fd);
    if (rc == 0)
        rc = fs_rename(temp, output, err);
    if (rc)
        unlink(temp);
    return rc;
}

int gguf_export(struct hub_source *src, const struct tokenizer *tokenizer,
                enum dtype dtype, const char *output, struct error *err)
{
    struct gguf_header h = {.n_pairs = 0};
    if (src->cfg.model.activation == MODEL_GELU)
        return error_set(
            err, ERROR_INPUT,
            "cannot export to '%s': Model.activation is gelu (exact), and "
            "llama.cpp computes GPT-2 with GELU by tanh; export to hf instead",
            output);
    if (fs_exists(output))
        return error_set(err, ERROR_INPUT,
                         "cannot export to '%s': it exists; remove it or name another "
                         "file",
                         output);
    add_model(&h, &src->cfg.model, dtype);
    int rc = add_tokenizer(&h, tokenizer, src->cfg.model.vocab_size, err);
    if (rc == 0) {
        add_tensors(&h, &src->table, dtype);
        rc = replace_file(src, &h, dtype, output, err);
    }
    release_header(&h);
    return rc;
}

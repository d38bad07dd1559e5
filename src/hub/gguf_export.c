#include "hub/gguf_export.h"

#include "base/fs.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EPSILON 1e-5F

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
    gguf_add_text(h, "general.architecture", "gpt2");
    gguf_add_text(h, "general.name", "trefoil");
    gguf_add_u32(h, "general.file_type",
                 dtype == DTYPE_F32 ? FILE_ALL_F32 : FILE_MOSTLY_F16);
    gguf_add_u32(h, "gpt2.context_length", (uint32_t)m->max_position_embeddings);
    gguf_add_u32(h, "gpt2.embedding_length", (uint32_t)m->hidden_size);
    gguf_add_u32(h, "gpt2.feed_forward_length", (uint32_t)m->ffn_hidden_size);
    gguf_add_u32(h, "gpt2.block_count", (uint32_t)m->num_layers);
    gguf_add_u32(h, "gpt2.attention.head_count", (uint32_t)m->num_attention_heads);
    gguf_add_f32(h, "gpt2.attention.layer_norm_epsilon", EPSILON);
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
        gguf_add_tensor(h, name, shape.n_dims, shape.shape,
                        type == DTYPE_F16 ? GGML_F16 : GGML_F32,
                        (uint64_t)row->n_elements * dtype_bytes(type));
    }
}

static int write_tensor(struct hf_source *src, const struct param *row, enum dtype type,
                        int fd, const char *path, struct error *err)
{
    static const uint8_t zeros[GGUF_ALIGN] = {0};
    size_t over = (size_t)row->n_elements * dtype_bytes(type) % GGUF_ALIGN;
    char name[HF_NAME_BYTES];
    hf_name(row, HF_GGUF, name);
    const float *x = hf_source_read(src, row, HF_GGUF, err);
    if (!x || hf_write_numbers(fd, x, row->n_elements, type, name, path, err))
        return -1;
    if (over > 0 && fs_write_exact(fd, zeros, GGUF_ALIGN - over))
        return error_set(err, ERROR_RUNTIME, "cannot write '%s': %s", path,
                         strerror(errno));
    return 0;
}

static int write_file(struct hf_source *src, const struct gguf_header *h,
                      enum dtype dtype, int fd, const char *path, struct error *err)
{
    uint8_t *bytes = NULL;
    size_t n;
    if (gguf_finish(h, &bytes, &n, err))
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
static int replace(struct hf_source *src, const struct gguf_header *h, enum dtype dtype,
                   const char *output, struct error *err)
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

int gguf_export(struct hf_source *src, const struct tokenizer *tokenizer,
                enum dtype dtype, const char *output, struct error *err)
{
    struct gguf_header h = {.n_pairs = 0};
    if (fs_exists(output))
        return error_set(err, ERROR_INPUT,
                         "cannot export to '%s': it exists; remove it or name another "
                         "file",
                         output);
    add_model(&h, &src->cfg.model, dtype);
    int rc = gguf_add_tokenizer(&h, tokenizer, src->cfg.model.vocab_size, err);
    if (rc == 0) {
        add_tensors(&h, &src->table, dtype);
        rc = replace(src, &h, dtype, output, err);
    }
    gguf_release(&h);
    return rc;
}

/*
 * Fuzz target: any bytes as a safetensors file. Whatever is accepted must keep the
 * promises of safetensors.h, and every element of it must be readable.
 *
 *     clang -std=gnu11 -D_GNU_SOURCE -g -O1 -fsanitize=fuzzer,address,undefined -Isrc \
 *         tests/fuzz/fuzz_safetensors.c src/ckpt/safetensors*.c src/base/[a-z]*.c \
 *         -ljansson -lpthread -lm -o fuzz_safetensors
 *     ./fuzz_safetensors -max_total_time=60
 */
#include "base/fs.h"
#include "ckpt/safetensors.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Every tensor begins where the one before ended, and the last ends with the data. */
static void check_tiling(const struct safetensors *st, size_t size)
{
    int64_t at = 0;
    for (int64_t i = 0; i < st->n_tensors; i++) {
        const struct safetensors_tensor *t = &st->tensors[i];
        CHECK(t->begin == at && t->end >= at, "tensor %lld", (long long)i);
        CHECK(t->n_dims >= 0 && t->n_dims <= SAFETENSORS_MAX_DIMS, "%d", t->n_dims);
        CHECK(safetensors_find(st, t->name) == t, "'%s' is there twice", t->name);
        at = t->end;
    }
    CHECK(at == st->data_bytes, "%lld", (long long)at);
    CHECK(st->header_bytes + at == (int64_t)size, "%zu", size);
}

static void read_tensors(const struct safetensors *st, int fd)
{
    for (int64_t i = 0; i < st->n_tensors; i++) {
        const struct safetensors_tensor *t = &st->tensors[i];
        struct error err;
        if (!safetensors_is_float(t->dtype))
            continue;
        float *dst = malloc((size_t)t->n_elements * sizeof *dst + 1);
        CHECK(dst, "%lld elements", (long long)t->n_elements);
        int rc = safetensors_read_f32(st, t, fd, "input", 0, t->n_elements, dst, &err);
        CHECK(rc == 0, "%s", err.text);
        free(dst);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct safetensors st;
    struct error err;
    int fd = memfd_create("input", MFD_CLOEXEC);
    CHECK(fd >= 0 && fs_write_exact(fd, data, size) == 0, "%zu bytes", size);
    if (safetensors_read_header(&st, fd, "input", NULL, &err) == 0) {
        check_tiling(&st, size);
        read_tensors(&st, fd);
        safetensors_release(&st);
    } else {
        CHECK(strlen(err.text) > 0, "an error without words");
    }
    close(fd);
    return 0;
}

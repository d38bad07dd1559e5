/*
 * Any bytes as X.idx: document ends that add up, or one sentence. X.bin is given the size
 * that the lengths ask for, in each width of token, so that the checks behind the one of
 * its size are reached too.
 *
 *     clang -fsanitize=fuzzer,address,undefined ... tests/fuzz/fuzz_idx.c
 */
#include "base/fs.h"
#include "data/formats/dataset_index.h"

#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint64_t sum_of_lengths(const uint8_t *data, size_t size)
{
    uint64_t sum = 0, n = size < 26 ? 0 : disk_get_u64(data + 18);
    for (uint64_t i = 0; i < n && 34 + 4 * i + 4 <= size; i++)
        sum += disk_get_u32(data + 34 + 4 * i);
    return sum;
}

static void read_index(int fd, uint64_t bin_bytes)
{
    struct dataset_index idx;
    struct error err = {.text = ""};
    if (megatron_index_read(&idx, fd, "fuzz.idx", bin_bytes, "fuzz.bin", &err)) {
        CHECK(err.text[0], "an error without a sentence");
        return;
    }
    int64_t before = 0;
    for (int64_t d = 0; d < idx.n_documents; d++) {
        CHECK(idx.document_ends[d] >= before, "document %lld", (long long)d);
        before = idx.document_ends[d];
    }
    CHECK(before == idx.n_tokens &&
              (uint64_t)before * disk_int_bytes(idx.type) == bin_bytes,
          "%lld tokens", (long long)idx.n_tokens);
    dataset_index_release(&idx);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint64_t n_tokens = sum_of_lengths(data, size);
    int fd = memfd_create("fuzz", MFD_CLOEXEC);
    CHECK(fd >= 0 && fs_pwrite_exact(fd, data, size, 0) == 0, "no memory file");
    for (uint64_t token_bytes = 1; token_bytes <= 8; token_bytes *= 2)
        read_index(fd, n_tokens * token_bytes);
    close(fd);
    return 0;
}

/*
 * Any bytes as X_idx.npz: document ends that add up, or one sentence.
 *
 *     clang -fsanitize=fuzzer,address,undefined ... tests/fuzz/fuzz_npz.c
 */
#include "base/fs.h"
#include "data/formats/dataset_index.h"

#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct npz z;
    struct dataset_index idx;
    struct error err = {.text = ""};
    int fd = memfd_create("fuzz", MFD_CLOEXEC);
    CHECK(fd >= 0 && fs_pwrite_exact(fd, data, size, 0) == 0, "no memory file");
    int rc = npz_open(&z, fd, "fuzz.npz", &err);
    if (rc == 0) {
        rc = fleetx_index_read(&idx, &z, 1 << 16, &err);
        npz_close(&z);
    }
    if (rc) {
        CHECK(err.text[0], "an error without a sentence");
    } else {
        int64_t before = 0;
        for (int64_t d = 0; d < idx.n_documents; d++) {
            CHECK(idx.document_ends[d] >= before, "document %lld", (long long)d);
            before = idx.document_ends[d];
        }
        CHECK(before == idx.n_tokens, "%lld tokens", (long long)idx.n_tokens);
        dataset_index_release(&idx);
    }
    close(fd);
    return 0;
}

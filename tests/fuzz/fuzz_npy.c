/*
 * Any bytes as a numpy array file: a description that fits the file, or one sentence.
 *
 *     clang -fsanitize=fuzzer,address,undefined ... tests/fuzz/fuzz_npy.c
 */
#include "data/formats/npy.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct npy npy;
    struct error err = {.text = ""};
    uint8_t *exact = malloc(size + (size == 0)); // so that one byte too far is seen
    CHECK(exact, "out of memory");
    memcpy(exact, data, size);
    if (npy_parse(&npy, exact, size, size, "fuzz.npy", &err))
        CHECK(err.text[0], "an error without a sentence");
    else
        CHECK(npy.data_offset + (size_t)npy.n_elements * disk_int_bytes(npy.type) == size,
              "%lld elements", (long long)npy.n_elements);
    free(exact);
    return 0;
}

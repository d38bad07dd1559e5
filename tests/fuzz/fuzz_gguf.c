/*
 * Any bytes as a GGUF file: a report that can be printed, or a sentence.
 *
 *     clang -fsanitize=fuzzer,address,undefined ... tests/fuzz/fuzz_gguf.c
 */
#include "base/fs.h"
#include "cli/inspect_tensors.h"
#include "cli/report.h"

#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[64];
    struct error err = {.text = ""};
    int fd = memfd_create("fuzz", MFD_CLOEXEC);
    CHECK(fd >= 0 && fs_pwrite_exact(fd, data, size, 0) == 0, "no memory file");
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    json_t *report = inspect_gguf(path, &err);
    CHECK(report || err.text[0], "an error without a sentence");
    FILE *nowhere = report ? fopen("/dev/null", "w") : NULL;
    if (nowhere) {
        report_print(report, nowhere);
        fclose(nowhere);
    }
    json_decref(report);
    close(fd);
    return 0;
}

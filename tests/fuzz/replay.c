/*
 * A fuzz target without the fuzzer: every file of the directories given, once. So what
 * was ever found stays found, in every run of the tests and with any compiler.
 */
#include "base/fs.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

#define MOST_BYTES ((size_t)64 << 20)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int replay_directory(const char *dir, int64_t *n_files, struct error *err)
{
    struct fs_names names;
    int rc = -1;
    if (fs_list(dir, &names, err))
        return -1;
    for (int64_t i = 0; i < names.n_names; i++) {
        char path[PATH_MAX];
        char *data = NULL;
        size_t n;
        if (fs_join(path, sizeof path, dir, names.names[i], err) ||
            fs_read_all(path, MOST_BYTES, &data, &n, err))
            goto done;
        fprintf(stderr, "%s\n", path); // the last one named is the one that fails
        LLVMFuzzerTestOneInput((const uint8_t *)data, n);
        free(data);
        ++*n_files;
    }
    rc = 0;
done:
    fs_names_release(&names);
    return rc;
}

int main(int argc, char **argv)
{
    struct error err;
    int64_t n_files = 0;
    for (int i = 1; i < argc; i++)
        if (replay_directory(argv[i], &n_files, &err)) {
            fprintf(stderr, "%s\n", err.text);
            return 1;
        }
    printf("%lld inputs\n", (long long)n_files);
    return n_files == 0;
}

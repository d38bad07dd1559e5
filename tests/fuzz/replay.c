/*
 * A fuzz target without the fuzzer: replay N DIR... takes every file of the directories
 * once, so what was ever found stays found, and then N inputs made of them, the same ones
 * in every run (mutate.h), in every run of the tests and with any compiler.
 *
 * Inputs are taken in child processes. When one of those dies its inputs are tried one by
 * one; the one that fails is kept as `found-NUMBER` in the current directory.
 */
#include "base/fs.h"
#include "mutate.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define MOST_BYTES ((size_t)64 << 20)
#define INPUTS_OF_A_CHILD 500

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct corpus {
    struct mutate_seed *seeds;
    char **paths;
    size_t n;
};

static void corpus_release(struct corpus *c)
{
    for (size_t i = 0; i < c->n; i++) {
        free(c->seeds[i].data);
        free(c->paths[i]);
    }
    free(c->seeds);
    free(c->paths);
}

static int corpus_add(struct corpus *c, const char *path, struct error *err)
{
    char *data;
    size_t n;
    if (fs_read_all(path, MOST_BYTES, &data, &n, err))
        return -1;
    c->seeds = realloc(c->seeds, (c->n + 1) * sizeof *c->seeds);
    c->paths = realloc(c->paths, (c->n + 1) * sizeof *c->paths);
    CHECK(c->seeds && c->paths, "no memory");
    c->seeds[c->n] = (struct mutate_seed){(uint8_t *)data, n};
    c->paths[c->n++] = strdup(path);
    return 0;
}

static int corpus_read(struct corpus *c, const char *dir, struct error *err)
{
    struct fs_names names;
    int rc = -1;
    if (fs_list(dir, &names, err))
        return -1;
    for (int64_t i = 0; i < names.n_names; i++) {
        char path[PATH_MAX];
        if (fs_join(path, sizeof path, dir, names.names[i], err) ||
            corpus_add(c, path, err))
            goto done;
    }
    rc = 0;
done:
    fs_names_release(&names);
    return rc;
}

/* Input i: the files first, then what is made of them. */
static size_t input_of(const struct corpus *c, uint64_t i, uint8_t *out,
                       const uint8_t **data)
{
    if (i < c->n) {
        *data = c->seeds[i].data;
        return c->seeds[i].n;
    }
    *data = out;
    return mutate_input(i - c->n, c->seeds, c->n, out);
}

/* Inputs first..last - 1 in a child; true when it lives to their end. A target gets
 * memory of exactly the input's size, so that a sanitizer sees a step beyond. */
static bool survives(const struct corpus *c, uint64_t first, uint64_t last)
{
    static uint8_t room[MUTATE_MOST_BYTES];
    fflush(NULL);
    pid_t child = fork();
    CHECK(child >= 0, "fork");
    if (child == 0) {
        for (uint64_t i = first; i < last; i++) {
            const uint8_t *made;
            size_t n = input_of(c, i, room, &made);
            uint8_t *data = malloc(n + (n == 0));
            CHECK(data, "no memory");
            memcpy(data, made, n);
            LLVMFuzzerTestOneInput(data, n);
            free(data);
        }
        exit(0); // not _exit(): what leaks is to be found
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child, "waitpid");
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static void keep_failed(const struct corpus *c, uint64_t i)
{
    static uint8_t room[MUTATE_MOST_BYTES];
    char path[64];
    struct error err;
    const uint8_t *data;
    if (i < c->n) {
        fprintf(stderr, "replay: FAILED on '%s'\n", c->paths[i]);
        return;
    }
    snprintf(path, sizeof path, "found-%llu", (unsigned long long)(i - c->n));
    size_t n = input_of(c, i, room, &data);
    if (fs_write_atomic(path, data, n, &err))
        fprintf(stderr, "replay: %s\n", err.text);
    fprintf(stderr, "replay: FAILED on input %llu, kept as '%s'\n",
            (unsigned long long)(i - c->n), path);
}

static bool replay(const struct corpus *c, uint64_t n_inputs)
{
    for (uint64_t i = 0; i < n_inputs; i += INPUTS_OF_A_CHILD) {
        uint64_t last =
            i + INPUTS_OF_A_CHILD < n_inputs ? i + INPUTS_OF_A_CHILD : n_inputs;
        if (survives(c, i, last))
            continue;
        for (uint64_t one = i; one < last; one++)
            if (!survives(c, one, one + 1)) {
                keep_failed(c, one);
                return false;
            }
        fprintf(stderr, "replay: FAILED on inputs %llu to %llu together, none alone\n",
                (unsigned long long)i, (unsigned long long)(last - 1));
        return false;
    }
    return true;
}

int main(int argc, char **argv)
{
    struct error err;
    struct corpus corpus = {0};
    int rc = 1;
    if (argc < 3) {
        fprintf(stderr, "usage: %s N DIR...\n", argv[0]);
        return 2;
    }
    for (int i = 2; i < argc; i++)
        if (corpus_read(&corpus, argv[i], &err)) {
            fprintf(stderr, "%s\n", err.text);
            goto done;
        }
    if (corpus.n == 0) {
        fprintf(stderr, "replay: no files to begin with\n");
        goto done;
    }
    uint64_t n_inputs = corpus.n + strtoull(argv[1], NULL, 10);
    if (replay(&corpus, n_inputs)) {
        printf("%zu files and %llu inputs made of them\n", corpus.n,
               (unsigned long long)(n_inputs - corpus.n));
        rc = 0;
    }
done:
    corpus_release(&corpus);
    return rc;
}

/*
 * mutate - inputs for fuzz targets that are the same in every run and on every machine.
 *
 * Input number i is a function of i and of the corpus alone: one of its files with one to
 * eight changes, or two of them spliced. Nothing is learnt from what an input reaches:
 * that is libFuzzer's business, and depends on where the loader puts things.
 */
#ifndef FUZZ_MUTATE_H
#define FUZZ_MUTATE_H

#include <stddef.h>
#include <stdint.h>

#define MUTATE_MOST_BYTES 65536

struct mutate_seed {
    uint8_t *data; // malloc'ed
    size_t n;
};

/* Writes input i to out, which has room for MUTATE_MOST_BYTES; returns its length.
 * n_seeds is at least 1. */
size_t mutate_input(uint64_t i, const struct mutate_seed *seeds, size_t n_seeds,
                    uint8_t *out);

#endif

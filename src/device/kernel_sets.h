/*
 * kernel_sets - the tables of kernels for different instructions, which of them this
 * processor can run, and the one that runs. All give the same bits: the choice is one of
 * speed.
 *
 *   generic   any processor; on AArch64 with its vectors
 *   avx2      x86-64 with AVX2, FMA and F16C
 *   avx512    the same with AVX-512 (F, DQ, BW, VL)
 *   amx       the same with a tile unit for bfloat16, which float32 and float16 models
 *             have no use for: they take avx512
 *
 * What a processor can do is found by asking it and the operating system, and its tile
 * unit by one product besides; never by its name.
 */
#ifndef DEVICE_KERNEL_SETS_H
#define DEVICE_KERNEL_SETS_H

#include "base/kernel_set.h"
#include "device/kernels.h"

/* What a set may need of the processor and of the operating system; bits of a mask. */
enum processor_fact {
    HAS_AVX2 = 1 << 0,
    HAS_FMA = 1 << 1,
    HAS_F16C = 1 << 2,
    KEEPS_256_BITS = 1 << 3, // the operating system keeps such registers for a thread
    HAS_AVX512F = 1 << 4,
    HAS_AVX512DQ = 1 << 5,
    HAS_AVX512BW = 1 << 6,
    HAS_AVX512VL = 1 << 7,
    KEEPS_512_BITS = 1 << 8,
    HAS_AMX_TILE = 1 << 9,
    HAS_AMX_BF16 = 1 << 10,
    KEEPS_TILES = 1 << 11,
    GRANTS_TILES = 1 << 12,     // to this process, which asked
    MULTIPLIES_TILES = 1 << 13, // one product was right
};

/* Facts of this processor, found when they are asked for first: best before there are
 * other threads. */
uint32_t processor_facts(void);
/* Whether one product of tiles gives the right bits, and no signal. For processors that
 * say they have tiles, once permission was granted; not beside other threads. */
bool tile_trial_is_right(void);

/* -- the choice, from facts ---------------------------------------------------------- */

#define KERNEL_SET_WORDS_BYTES 512

/* Whether the set cannot run; words := what it lacks, such as "AVX2, FMA". */
bool kernel_set_lacks(enum kernel_set set, uint32_t facts,
                      char words[KERNEL_SET_WORDS_BYTES]);
/* 0 if `wanted` can run, or is auto; an ERROR_INPUT that says what is lacking. */
MUST_CHECK int kernel_set_check(enum kernel_set wanted, uint32_t facts,
                                struct error *err);
/* The set that a model of this type computes with; `wanted` can run. */
enum kernel_set kernel_set_for(enum kernel_set wanted, uint32_t facts, enum dtype dtype);
/* Whether the processor says that it has tiles that cannot be used; words := why. */
bool kernel_set_lies(uint32_t facts, char words[KERNEL_SET_WORDS_BYTES]);

/* -- the choice, here ---------------------------------------------------------------- */

/* The table of a set; NULL: this build has none, as it is for another kind of processor. */
const struct kernels *kernel_set_table(enum kernel_set set);

/* From now on this set computes, or the best one; before a model is made. Refuses one
 * that cannot run here; logs a warning of tiles that auto cannot use. */
MUST_CHECK int kernels_use(enum kernel_set wanted, struct error *err);
/* What is in use, such as "avx512", or "avx512; amx for bfloat16". */
void kernels_words(char words[KERNEL_SET_WORDS_BYTES]);

#endif

/*
 * kernel_tables - every table of kernels that can run in a test: those of kernels_list(),
 * and on x86-64 with AVX2 what the processor may lack, emulated:
 *
 *   avx512_emulated   AVX-512 as SIMDe computes it
 *   amx_emulated      the same, with tiles by the twin of cpu_tiles.h
 *   amx               the unit's own instructions, which amx_trap.c computes; where the
 *                     processor has AVX-512
 */
#ifndef TESTS_KERNEL_TABLES_H
#define TESTS_KERNEL_TABLES_H

#include "device/kernels.h"

/* Writes up to max_tables of them, the reference first, and returns their number. To be
 * called in every test that runs them: cmocka's handler of SIGILL gives way then. */
int kernel_tables(const struct kernels **tables, int max_tables);

/* Of a program that tries the emulated GPU: the reference, and the GPU's kernels behind
 * device_table.h, which is opened for every type at the first call. */
int emulated_tables(const struct kernels **tables, int max_tables);

#endif

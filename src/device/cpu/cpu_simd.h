/*
 * cpu_simd - the intrinsics of the set that a file is compiled for. KERNEL_AVX2 and
 * KERNEL_AVX512 say whether it has those instructions; KERNEL_TILES is defined where it
 * computes with tiles (cpu_tiles.h). In the emulated tables of the tests AVX-512 is what
 * SIMDe makes of it.
 */
#ifndef DEVICE_CPU_CPU_SIMD_H
#define DEVICE_CPU_CPU_SIMD_H

#ifdef KERNEL_EMULATED
#define SIMDE_ENABLE_NATIVE_ALIASES
#include <simde/x86/avx512.h>
#elif defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#ifdef __AVX2__
#define KERNEL_AVX2 1
#else
#define KERNEL_AVX2 0
#endif
#if defined(__AVX512F__) || defined(KERNEL_EMULATED)
#define KERNEL_AVX512 1
#else
#define KERNEL_AVX512 0
#endif

#endif

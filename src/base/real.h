/*
 * real - elementary functions whose bits are the same everywhere.
 *
 * What a library makes of log or cos differs from one version and processor to the next.
 * These are additions, subtractions, multiplications and divisions of doubles in a fixed
 * order, so a result is a property of its argument. It is the double nearest to the true
 * value unless that lies within 2^-35 of their distance from the middle of two of them.
 * Whatever enters a result of training or decoding calls these; sqrt, fma and functions
 * that are exact may come from libm.
 *
 * They round to nearest, as C starts, and must be compiled without contraction. No state.
 */
#ifndef BASE_REAL_H
#define BASE_REAL_H

#include "base/base.h"

/* The natural logarithm: -inf of 0, NaN of negative numbers and of NaN. */
double real_log(double x);

/* e to the power of x, subnormal results rounded once. */
double real_exp(double x);

/* x to the power of n: x >= 0, n >= 0; NaN of negative x and of NaN. */
double real_power(double x, int64_t n);

/* Sine and cosine of an angle of at most REAL_ANGLE_MOST in size; NaN of any other. */
#define REAL_ANGLE_MOST 8192.0
struct real_sin_cos {
    double sin, cos;
};
struct real_sin_cos real_sin_cos(double x);

#endif

/*
 * Each function is done twice: in a few operations, with a bound of the error that tells
 * whether the rounded result is certain; where it is not, about once in a hundred calls
 * at most, again in pairs of doubles with about 100 bits.
 *
 * The argument is taken to a point of a table plus a small rest, exactly or with 100 bits;
 * the rest enters a Taylor series. Table points of log are reciprocals of 9 bits, so that
 * their products with the halves of a mantissa are exact.
 */
#include "base/real.h"

#include "base/real_tables.h"

#include <math.h>
#include <string.h>

#define SLOW __attribute__((noinline, cold)) // so that callers keep their registers

/* -- pairs --------------------------------------------------------------------------- */

struct pair { // hi + lo, where hi is that sum rounded
    double hi, lo;
};

/* a + b exactly, |a| >= |b| or a = 0. */
static inline struct pair fast_sum(double a, double b)
{
    double sum = a + b;
    return (struct pair){sum, b - (sum - a)};
}

/* a + b exactly. */
static inline struct pair exact_sum(double a, double b)
{
    double sum = a + b, of_b = sum - a;
    return (struct pair){sum, (a - (sum - of_b)) + (b - of_b)};
}

/* x as two numbers of 26 bits. */
static inline struct pair halves(double x)
{
    double scaled = 0x1.0000002p27 * x;
    double hi = scaled - (scaled - x);
    return (struct pair){hi, x - hi};
}

/* a * b exactly, of sizes whose parts neither overflow nor become subnormal. */
static inline struct pair exact_product(double a, double b)
{
    struct pair x = halves(a), y = halves(b);
    double product = a * b;
    double lo = x.hi * y.hi - product;
    lo += x.hi * y.lo;
    lo += x.lo * y.hi;
    return (struct pair){product, lo + x.lo * y.lo};
}

static inline struct pair pair_sum(struct pair a, struct pair b)
{
    struct pair hi = exact_sum(a.hi, b.hi), lo = exact_sum(a.lo, b.lo);
    hi = fast_sum(hi.hi, hi.lo + lo.hi);
    return fast_sum(hi.hi, hi.lo + lo.lo);
}

static inline struct pair pair_product(struct pair a, struct pair b)
{
    struct pair p = exact_product(a.hi, b.hi);
    return fast_sum(p.hi, p.lo + (a.hi * b.lo + a.lo * b.hi));
}

static inline struct pair pair_of(const double constant[2])
{
    return (struct pair){constant[0], constant[1]};
}

/* The sum of three numbers of decreasing size. */
static inline struct pair pair_of_three(const double part[3])
{
    struct pair p = fast_sum(part[0], part[1]);
    return fast_sum(p.hi, p.lo + part[2]);
}

/* -- bits ---------------------------------------------------------------------------- */

static inline uint64_t bits_of(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline double double_of(uint64_t bits)
{
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* 2^n, -1022 <= n <= 1023. */
static inline double power_of_two(int64_t n)
{
    return double_of((uint64_t)(n + 1023) << 52);
}

/* x without its last 27 bits: 26 are left. */
static inline double first_half(double x)
{
    return double_of(bits_of(x) & 0xFFFFFFFFF8000000);
}

/* The integer nearest to x, |x| < 2^31. */
static inline double nearest_integer(double x)
{
    return (x + 0x1.8p52) - 0x1.8p52;
}

/* A positive finite x as m * 2^*exponent, 1 <= m < 2. */
static inline double mantissa(double x, int64_t *exponent)
{
    *exponent = -1023;
    if (x < 0x1p-1022) {
        x *= 0x1p54;
        *exponent -= 54;
    }
    uint64_t bits = bits_of(x);
    *exponent += (int64_t)(bits >> 52);
    return double_of((bits & 0x000FFFFFFFFFFFFF) | 0x3FF0000000000000);
}

/* p * 2^n rounded once; p.hi is in (1/2, 4). */
static double scaled(struct pair p, int64_t n)
{
    if (n > 1100)
        return (double)INFINITY;
    if (n < -1100)
        return 0.0;
    if (n > 1000)
        return p.hi * 0x1p1000 * power_of_two(n - 1000);
    if (n >= -1000)
        return p.hi * power_of_two(n);
    // the unit of a double at `one` is that of subnormal numbers times 2^-n
    double one = power_of_two(-1022 - n);
    if (p.hi < one) {
        struct pair sum = fast_sum(one, p.hi);
        p.hi = (sum.hi + (sum.lo + p.lo)) - one;
    }
    return p.hi * 0x1p-900 * power_of_two(n + 900);
}

/* -- logarithm ----------------------------------------------------------------------- */

struct log_parts { // log(x) = exponent * log(2) - log(c) + log(1 + r)
    double exponent;
    struct pair r; // |r| < 2^-6.7
    const double *row;
};

static inline struct log_parts log_reduce(double x)
{
    int64_t exponent;
    uint64_t bits = bits_of(mantissa(x, &exponent));
    // 1 + i/64 is near the mantissa; a branch here would often be foreseen wrongly
    uint64_t i = ((bits & 0x000FFFFFFFFFFFFF) + (UINT64_C(1) << 45)) >> 46;
    uint64_t is_halved = i >= 27;
    double m = double_of(bits - (is_halved << 52));
    double m_hi = first_half(m);
    const double *row = log_table[i];
    return (struct log_parts){.exponent = (double)(exponent + (int64_t)is_halved),
                              .r = fast_sum(m_hi * row[0] - 1.0, (m - m_hi) * row[0]),
                              .row = row};
}

static SLOW struct pair log_pair(const struct log_parts *p)
{
    enum { LAST = 16, LAST_PAIR = 7 };
    double tail = 0;
    for (int k = LAST; k > LAST_PAIR; k--)
        tail = (k % 2 ? 1.0 : -1.0) / k + p->r.hi * tail;
    struct pair sum = {tail, 0};
    for (int k = LAST_PAIR; k >= 1; k--) {
        struct pair c = pair_of(inverse[k]);
        if (k % 2 == 0)
            c = (struct pair){-c.hi, -c.lo};
        sum = pair_sum(c, pair_product(sum, p->r));
    }
    struct pair whole = {p->exponent * ln_2[0] + p->row[1], 0}; // exact
    struct pair rest = exact_sum(p->exponent * ln_2[1], p->row[2]);
    return pair_sum(pair_sum(whole, pair_product(sum, p->r)), rest);
}

double real_log(double x)
{
    if (!(x > 0 && x < (double)INFINITY))
        return x == 0 ? -(double)INFINITY : x > 0 ? x : (double)NAN;
    struct log_parts p = log_reduce(x);
    double r = p.r.hi, r2 = r * r;
    double series = (1.0 / 3 - r * 0.25) +
                    r2 * ((0.2 - r * (1.0 / 6)) +
                          r2 * ((1.0 / 7 - r * 0.125) + r2 * (1.0 / 9 - r * 0.1)));
    struct pair sum = exact_sum(p.exponent * ln_2[0] + p.row[1], r);
    double lo = sum.lo + ((p.exponent * ln_2[1] + p.row[2] + p.r.lo) +
                          (r * r2 * series - 0.5 * r2));
    double error = 0x1p-65; // r2/2, and its sums with others: 2^-68 each
    double below = sum.hi + (lo - error), above = sum.hi + (lo + error);
    return below == above ? below : log_pair(&p).hi;
}

/* -- exponential --------------------------------------------------------------------- */

/* e^r * 2^(i/64), |r| < 2^-7.5. */
static SLOW struct pair exp_pair(struct pair r, const double *row)
{
    enum { LAST = 12, LAST_PAIR = 5 };
    double tail = 1;
    for (int k = LAST; k > LAST_PAIR; k--)
        tail = 1 + tail * r.hi / k;
    struct pair sum = {tail, 0};
    for (int k = LAST_PAIR; k >= 1; k--) {
        sum = pair_product(sum, pair_product(r, pair_of(inverse[k])));
        sum = pair_sum((struct pair){1, 0}, sum);
    }
    return pair_product(sum, pair_of_three(row));
}

double real_exp(double x)
{
    if (!(x > -746 && x < 710)) // beyond them half the least and the largest number
        return x <= -746 ? 0.0 : x >= 710 ? (double)INFINITY : x;
    double k = nearest_integer(x * 0x1.71547652b82fep6); // 64/log(2)
    int64_t whole = (int64_t)k;
    const double *row = exp_table[whole & 63];
    int64_t n = (whole - (whole & 63)) / 64;
    struct pair r = exact_sum(x - k * ln_2_over_64[0], -(k * ln_2_over_64[1]));
    r = fast_sum(r.hi, r.lo - k * ln_2_over_64[2]);

    double h = r.hi, h2 = h * h, h_hi = first_half(h);
    double series = (0.5 + h * (1.0 / 6)) + h2 * ((1.0 / 24 + h * (1.0 / 120)) +
                                                  h2 * (1.0 / 720 + h * (1.0 / 5040)));
    struct pair sum = fast_sum(row[0], row[0] * h_hi); // an exact product
    double rest = (h - h_hi) + (r.lo + h2 * series);
    double lo = sum.lo + (row[1] + (row[1] * h_hi + (row[0] + row[1]) * rest));
    double error = 0x1p-65; // h2/2, and its sums with others, times 2: 2^-68 each
    double below = sum.hi + (lo - error), above = sum.hi + (lo + error);
    if (below == above && n > -1000)
        return scaled((struct pair){below, 0}, n);
    return scaled(exp_pair(r, row), n);
}

/* -- powers -------------------------------------------------------------------------- */

struct power { // value * 2^exponent
    struct pair value;
    int64_t
        exponent; // within +-EXPONENT_MOST, beyond which all results are 0 or infinite
};

static struct power power_product(struct power a, struct power b)
{
    enum { EXPONENT_MOST = 1 << 20 };
    struct pair p = pair_product(a.value, b.value);
    int64_t exponent = a.exponent + b.exponent;
    if (p.hi >= 2) {
        p = (struct pair){0.5 * p.hi, 0.5 * p.lo};
        exponent++;
    }
    exponent = i64_max(-EXPONENT_MOST, i64_min(exponent, EXPONENT_MOST));
    return (struct power){p, exponent};
}

/* By squaring: n times the error of a product, 2^-102. */
double real_power(double x, int64_t n)
{
    CHECK(n >= 0, "the power of %lld", (long long)n);
    if (n == 0)
        return 1;
    if (!(x > 0 && x < (double)INFINITY))
        return x >= 0 ? x + 0.0 : (double)NAN;
    struct power result = {{1, 0}, 0}, square;
    square.value = (struct pair){mantissa(x, &square.exponent), 0};
    for (; n > 0; n /= 2) {
        if (n % 2)
            result = power_product(result, square);
        square = power_product(square, square);
    }
    return scaled(result.value, result.exponent);
}

/* -- angles -------------------------------------------------------------------------- */

/* sin(pi i/128) = hi + mid + lo, hi of 26 bits; with i + 64 the cosine. */
struct step {
    double hi, mid, lo;
};

/* Without branches, which nobody foresees. */
static inline struct step sine_of_step(int64_t i)
{
    int64_t is_falling = i >> 6 & 1, is_negative = i >> 7 & 1;
    const double *row = sin_table[((i & 63) ^ -is_falling) + 65 * is_falling];
    double sign = (double)(1 - 2 * is_negative);
    return (struct step){sign * row[0], sign * row[1], sign * row[2]};
}

static struct pair pair_of_step(int64_t i)
{
    struct step s = sine_of_step(i);
    return pair_of_three((const double[]){s.hi, s.mid, s.lo});
}

/* 1 - z/(f(f+1)) (1 - z/((f+2)(f+3)) (1 - ...)): the cosine of the root of z with f = 1,
 * the sine over that root with f = 2. */
static struct pair alternating_series(struct pair z, int f)
{
    enum { TERMS = 6, TERMS_OF_PAIRS = 4 };
    struct pair sum = {1, 0};
    for (int t = TERMS - 1; t >= 0; t--) {
        int k = f + 2 * t;
        struct pair factor = t < TERMS_OF_PAIRS ? pair_product(pair_of(inverse[k]),
                                                               pair_of(inverse[k + 1]))
                                                : (struct pair){1.0 / (k * (k + 1)), 0};
        sum = pair_product(sum, pair_product(z, factor));
        sum = pair_sum((struct pair){1, 0}, (struct pair){-sum.hi, -sum.lo});
    }
    return sum;
}

/* x = k pi/128 + r. */
static SLOW struct real_sin_cos sin_cos_pair(double x, double k)
{
    struct pair first = exact_sum(x - k * pi_over_128[0], -(k * pi_over_128[1]));
    struct pair second = exact_sum(first.lo, -(k * pi_over_128[2]));
    struct pair r = exact_sum(first.hi, second.hi);
    r = exact_sum(r.hi, r.lo + (second.lo - k * pi_over_128[3]));

    struct pair z = pair_product(r, r);
    struct pair c = alternating_series(z, 1);
    struct pair s = pair_product(r, alternating_series(z, 2));
    struct pair at_sin = pair_of_step((int64_t)k), at_cos = pair_of_step((int64_t)k + 64);
    struct pair minus_sin = {-at_sin.hi, -at_sin.lo};
    return (struct real_sin_cos){
        .sin = pair_sum(pair_product(at_sin, c), pair_product(at_cos, s)).hi,
        .cos = pair_sum(pair_product(at_cos, c), pair_product(minus_sin, s)).hi,
    };
}

/* a + b + rest rounded; a and b are exact. */
static inline double certain_sum(double a, double b, double rest, bool *is_certain)
{
    double error = 0x1p-63; // z/2 of the cosine, and its sums with others: 2^-67 each
    struct pair sum = exact_sum(a, b);
    double lo = sum.lo + rest;
    double below = sum.hi + (lo - error), above = sum.hi + (lo + error);
    *is_certain = *is_certain && below == above;
    return below;
}

struct real_sin_cos real_sin_cos(double x)
{
    if (!(fabs(x) <= REAL_ANGLE_MOST))
        return (struct real_sin_cos){(double)NAN, (double)NAN};
    if (x == 0)
        return (struct real_sin_cos){x, 1};
    double k = nearest_integer(x * 0x1.45f306dc9c883p5); // 128/pi
    struct pair first = exact_sum(x - k * pi_over_128[0], -(k * pi_over_128[1]));
    double r = first.hi, r_lo = first.lo - k * pi_over_128[2];
    double r_hi = first_half(r), z = r * r;
    // sin(r + r_lo) - r_hi and cos(r + r_lo) - 1, of |r| < 2^-6.3
    double s = (r - r_hi) + (r_lo - r * z *
                                        ((1.0 / 6 - z * (1.0 / 120)) +
                                         z * z * (1.0 / 5040 - z * (1.0 / 362880))));
    double c = z * z * ((1.0 / 24 - z * (1.0 / 720)) + z * z * (1.0 / 40320)) -
               (0.5 * z + r * r_lo);
    struct step sin = sine_of_step((int64_t)k), cos = sine_of_step((int64_t)k + 64);
    double a = sin.hi + sin.mid, b = cos.hi + cos.mid;
    bool is_certain = true;
    struct real_sin_cos result;
    result.sin = certain_sum(sin.hi, cos.hi * r_hi,
                             sin.mid + (cos.mid * r_hi + (b * s + a * c)), &is_certain);
    result.cos = certain_sum(cos.hi, -(sin.hi * r_hi),
                             cos.mid - (sin.mid * r_hi + (a * s - b * c)), &is_certain);
    return is_certain ? result : sin_cos_pair(x, k);
}

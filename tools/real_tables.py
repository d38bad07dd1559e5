#!/usr/bin/env python3
"""Writes src/base/real_tables.h, the constants of src/base/real.c:

    tools/real_tables.py >src/base/real_tables.h

Everything follows from integers: a real number is held as an integer times 2^-FRACTION,
its series are summed there, and what is printed is rounded from that.
"""
FRACTION = 320  # bits; what is printed needs 160 of them
ONE = 1 << FRACTION


def log_near_one(x):
    """log(x) = 2 artanh((x - 1) / (x + 1)), for x of (0.4, 2.5)."""
    z = (x - ONE) * ONE // (x + ONE)
    total, power, k = 0, z, 1
    while power:
        total += power // k
        power = power * z // ONE * z // ONE
        if power == -1:  # where floor division of negative numbers ends
            power = 0
        k += 2
    return 2 * total


def exp_small(x):
    total, term, k = 0, ONE, 1
    while term:
        total += term
        term = term * x // ONE // k
        k += 1
    return total


def sin_small(x):
    """sin(x) for x of [0, pi/2]."""
    total, term, k = 0, x, 1
    while term:
        total += term if k % 4 == 1 else -term
        term = term * x // ONE * x // ONE // ((k + 1) * (k + 2))
        k += 2
    return total


def arctan_inverse(n):
    total, power, k = 0, ONE // n, 1
    while power:
        total += power // k if k % 4 == 1 else -(power // k)
        power //= n * n
        k += 2
    return total


LN2 = log_near_one(2 * ONE)
PI = 16 * arctan_inverse(5) - 4 * arctan_inverse(239)


def rounded(x, lowest=None):
    """x to the nearest double, or to the nearest multiple of 2^lowest: the double, and
    what is left of x."""
    sign, size = (-1, -x) if x < 0 else (1, x)
    if size >> 20 == 0:  # what the series left
        return 0.0, 0
    shift = FRACTION + lowest if lowest is not None else max(size.bit_length() - 53, 0)
    units = (size + (1 << shift >> 1)) >> shift
    value = sign * float(units) * 2.0 ** (shift - FRACTION)
    return value, x - sign * (units << shift)


def parts(x, lowest):
    """Doubles that add up to x, the first of them multiples of 2^lowest."""
    values = []
    for low in lowest:
        value, x = rounded(x, low)
        values.append(value)
    return values


def row(values):
    return "    {" + ", ".join(v.hex() for v in values) + "},"


def table(name, what, width, rows):
    print(f"\n/* {what} */")
    print(f"static const double {name}[][{width}] = {{")
    for values in rows:
        print(row(values))
    print("};")


def constants(name, what, values):
    print(f"\n/* {what} */")
    print(f"static const double {name}[] = {{")
    for v in values:
        print(f"    {v.hex()},")
    print("};")


def log_rows():
    """For each i the reciprocal c of 1 + i/64, of half that from the root of 2 on, to 9
    bits; and -log(c)."""
    for i in range(65):
        twice = 1 if i < 27 else 2  # 1 + 27/64 is the first above the root of 2
        c = (twice * 256 * 64 * 2 + 64 + i) // (2 * (64 + i))
        yield [c / 256] + parts(-log_near_one(c * ONE // 256), [-42, None])


print("""/*
 * Constants of real.c, each a sum of doubles from the largest on. Written by
 * tools/real_tables.py, which derives them.
 */
#ifndef BASE_REAL_TABLES_H
#define BASE_REAL_TABLES_H

// clang-format off""")
table("log_table", "c near 1/(1 + i/64), or near 2/(1 + i/64) for i >= 27; -log(c)", 3,
      log_rows())
constants("ln_2", "log(2); the first is a multiple of 2^-42", parts(LN2, [-42, None]))
table("exp_table", "2^(i/64); the first a multiple of 2^-26", 3,
      (parts(exp_small(LN2 * i // 64), [-26, None, None]) for i in range(64)))
constants("ln_2_over_64", "log(2)/64; the first two are multiples of 2^-40 and of 2^-74",
          parts(LN2 // 64, [-40, -74, None]))
table("sin_table", "sin(pi i/128); the first a multiple of 2^-26", 3,
      (parts(sin_small(PI * i // 128), [-26, None, None]) for i in range(65)))
constants("pi_over_128", "pi/128; the first three are multiples of 2^-36, 2^-68, 2^-100",
          parts(PI // 128, [-36, -68, -100, None]))
table("inverse", "1/k; the first stands for no k", 2,
      (parts(ONE // k if k else 0, [None, None]) for k in range(16)))
print("""
// clang-format on

#endif""")

#include "mutate.h"

#include <string.h>

#define MOST_CHANGES 8
#define MOST_INSERTED 64

/* The input while it is made. */
struct draft {
    uint64_t state; // of the random numbers
    uint8_t *data;
    size_t n;
};

/* splitmix64 */
static uint64_t draw(struct draft *d)
{
    uint64_t z = d->state += 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

/* 0 <= it < n; 0 when n is 0. */
static size_t draw_below(struct draft *d, size_t n)
{
    return n > 0 ? (size_t)(draw(d) % n) : 0;
}

/* Room for n bytes at `at`: what was there moves on, and what no longer fits is lost. */
static size_t make_room(struct draft *d, size_t at, size_t n)
{
    if (n > MUTATE_MOST_BYTES - at)
        n = MUTATE_MOST_BYTES - at;
    if (d->n + n > MUTATE_MOST_BYTES)
        d->n = MUTATE_MOST_BYTES - n;
    memmove(d->data + at + n, d->data + at, d->n - at);
    d->n += n;
    return n;
}

static void flip_bit(struct draft *d)
{
    if (d->n > 0)
        d->data[draw_below(d, d->n)] ^= (uint8_t)(1u << draw_below(d, 8));
}

/* Bytes that parsers care about. */
static void set_byte(struct draft *d)
{
    static const char telling[] =
        "\0\x01\x7f\x80\xff\n\t \"'{}[]():,;-+.0123456789eE#\\/";
    uint8_t byte = draw(d) % 4 == 0 ? (uint8_t)draw(d)
                                    : (uint8_t)telling[draw_below(d, sizeof telling - 1)];
    if (d->n > 0)
        d->data[draw_below(d, d->n)] = byte;
}

/* A length or an offset, little-endian, of 2, 4 or 8 bytes. */
static void set_number(struct draft *d)
{
    static const uint64_t telling[] = {
        0,          1,          2,          INT8_MAX,   UINT8_MAX,     INT16_MAX,
        UINT16_MAX, INT32_MAX,  UINT32_MAX, 1ull << 31, INT64_MAX,     UINT64_MAX,
        1ull << 63, 1ull << 62, 1ull << 40, 65536,      UINT64_MAX - 7};
    size_t n = (size_t)2 << draw_below(d, 3);
    uint64_t value = telling[draw_below(d, sizeof telling / sizeof *telling)];
    if (draw(d) % 4 == 0)
        value = d->n + draw_below(d, 17) - 8;
    if (d->n < n)
        return;
    size_t at = draw_below(d, d->n - n + 1);
    for (size_t i = 0; i < n; i++)
        d->data[at + i] = (uint8_t)(value >> 8 * i);
}

static void erase(struct draft *d)
{
    size_t at = draw_below(d, d->n), n = 1 + draw_below(d, d->n - at);
    if (d->n == 0)
        return;
    if (draw(d) % 2 == 0 && n > MOST_INSERTED)
        n = MOST_INSERTED;
    memmove(d->data + at, d->data + at + n, d->n - at - n);
    d->n -= n;
}

static void insert_noise(struct draft *d)
{
    size_t at = draw_below(d, d->n + 1);
    size_t n = make_room(d, at, 1 + draw_below(d, MOST_INSERTED));
    for (size_t i = 0; i < n; i++)
        d->data[at + i] = (uint8_t)draw(d);
}

static void repeat_part(struct draft *d)
{
    uint8_t part[MOST_INSERTED];
    size_t from = draw_below(d, d->n), n = 1 + draw_below(d, MOST_INSERTED);
    if (n > d->n - from)
        n = d->n - from;
    memcpy(part, d->data + from, n);
    size_t at = draw_below(d, d->n + 1);
    for (size_t left = 1 + draw_below(d, 4); left > 0; left--)
        memcpy(d->data + at, part, make_room(d, at, n));
}

/* The rest from another file of the corpus, from any place in it. */
static void splice(struct draft *d, const struct mutate_seed *other)
{
    size_t from = draw_below(d, other->n), n = other->n - from;
    d->n = draw_below(d, d->n + 1);
    if (n > MUTATE_MOST_BYTES - d->n)
        n = MUTATE_MOST_BYTES - d->n;
    if (n > 0)
        memcpy(d->data + d->n, other->data + from, n);
    d->n += n;
}

size_t mutate_input(uint64_t i, const struct mutate_seed *seeds, size_t n_seeds,
                    uint8_t *out)
{
    static void (*const changes[])(struct draft *) = {
        flip_bit, set_byte, set_number, erase, insert_noise, repeat_part};
    struct draft d = {.state = i * 0xD1342543DE82EF95u, .data = out};
    const struct mutate_seed *base = &seeds[draw_below(&d, n_seeds)];
    d.n = base->n < MUTATE_MOST_BYTES ? base->n : MUTATE_MOST_BYTES;
    if (d.n > 0)
        memcpy(out, base->data, d.n);
    if (draw(&d) % 8 == 0)
        splice(&d, &seeds[draw_below(&d, n_seeds)]);
    for (size_t left = 1 + draw_below(&d, MOST_CHANGES); left > 0; left--)
        changes[draw_below(&d, sizeof changes / sizeof *changes)](&d);
    return d.n;
}

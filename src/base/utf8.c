/*
 * Eight bytes of ASCII are passed over at once: the check must cost nothing beside the
 * encoding of the text.
 */
#include "base/utf8.h"

#include <string.h>

#define ONES 0x0101010101010101u
#define HIGHS 0x8080808080808080u

/* Is one of eight bytes NUL or not ASCII? The sum may also take a byte after a NUL for
 * one, which changes nothing. */
static bool is_special(const char *bytes)
{
    uint64_t word;
    memcpy(&word, bytes, sizeof word);
    return ((word | ((word - ONES) & ~word)) & HIGHS) != 0;
}

size_t utf8_find_bad(const char *bytes, size_t n)
{
    size_t i = 0;
    while (i < n) {
        if (n - i >= 8 && !is_special(bytes + i)) {
            i += 8;
            continue;
        }
        uint32_t code;
        size_t length = bytes[i] ? utf8_decode(bytes + i, n - i, &code) : 0;
        if (length == 0)
            return i;
        i += length;
    }
    return n;
}

/* Of the character that begins with this byte; 1 where none does. */
static size_t length_of(char lead)
{
    uint8_t b = (uint8_t)lead;
    return b >= 0xF0 ? 4 : b >= 0xE0 ? 3 : b >= 0xC2 ? 2 : 1;
}

/* Could the n bytes go on to be a character? */
static bool is_beginning(const char *bytes, size_t n)
{
    if (n >= length_of(bytes[0]))
        return false;
    for (size_t i = 1; i < n; i++)
        if (!utf8_is_tail((uint8_t)bytes[i]))
            return false;
    return true;
}

bool utf8_check_take(struct utf8_check *c, const char *bytes, size_t n)
{
    while (c->n_held > 0 && n > 0) {
        c->held[c->n_held++] = *bytes++;
        n--;
        if (utf8_find_bad(c->held, c->n_held) == c->n_held) {
            c->n_bytes += (int64_t)c->n_held;
            c->n_held = 0;
        } else if (!is_beginning(c->held, c->n_held)) {
            return false;
        }
    }
    size_t good = utf8_find_bad(bytes, n);
    c->n_bytes += (int64_t)good;
    if (good == n)
        return true;
    if (!is_beginning(bytes + good, n - good))
        return false;
    c->n_held = n - good;
    memcpy(c->held, bytes + good, c->n_held);
    return true;
}

bool utf8_check_end(const struct utf8_check *c)
{
    return c->n_held == 0;
}

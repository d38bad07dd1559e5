#include "text/byte_level.h"

#include "base/utf8.h"

#define FIRST_STAND_IN 0x100u // the symbol of byte 0

static bool stands_for_itself(uint32_t code)
{
    return (code >= 0x21 && code <= 0x7E) || (code >= 0xA1 && code <= 0xAC) ||
           (code >= 0xAE && code <= 0xFF);
}

uint32_t byte_level_symbol(uint8_t byte)
{
    if (stands_for_itself(byte))
        return byte;
    if (byte <= 0x20)
        return FIRST_STAND_IN + byte;
    return byte == 0xAD ? FIRST_STAND_IN + 67 : FIRST_STAND_IN + 33 + (byte - 0x7Fu);
}

/* The byte of a symbol; -1: none. */
static int byte_of(uint32_t code)
{
    if (stands_for_itself(code))
        return (int)code;
    if (code < FIRST_STAND_IN || code > FIRST_STAND_IN + 67)
        return -1;
    int k = (int)(code - FIRST_STAND_IN);
    if (k <= 0x20)
        return k;
    return k == 67 ? 0xAD : 0x7F + (k - 33);
}

int32_t byte_level_place(uint8_t byte)
{
    uint32_t symbol = byte_level_symbol(byte);
    if (symbol <= 0x7E)
        return (int32_t)(symbol - 0x21);
    if (symbol <= 0xAC)
        return (int32_t)(symbol - 0xA1 + 94);
    if (symbol <= 0xFF)
        return (int32_t)(symbol - 0xAE + 106);
    return (int32_t)(symbol - FIRST_STAND_IN + 188);
}

size_t byte_level_spell(const char *bytes, size_t n, char *out)
{
    size_t used = 0;
    for (size_t i = 0; i < n; i++) {
        char symbol[UTF8_MOST_BYTES];
        size_t k = utf8_encode(byte_level_symbol((uint8_t)bytes[i]), symbol);
        for (size_t j = 0; j < k; j++)
            out[used++] = symbol[j];
    }
    return used;
}

bool byte_level_read(const char *text, size_t n, char *out, size_t *n_out)
{
    size_t used = 0;
    for (size_t at = 0; at < n;) {
        uint32_t code = 0;
        size_t k = utf8_decode(text + at, n - at, &code);
        int byte = k ? byte_of(code) : -1;
        if (byte < 0)
            return false;
        out[used++] = (char)(uint8_t)byte;
        at += k;
    }
    *n_out = used;
    return true;
}

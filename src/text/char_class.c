/*
 * The table has a byte for each code point, in one piece: memory of blocks that are never
 * met is never touched.
 */
#include "text/char_class.h"

#include "base/utf8.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdlib.h>

#define N_CODES 0x110000u
#define BLOCK 256u

struct char_classes {
    uint8_t *classes; // enum char_class of each code point
    pcre2_code *code; // group 1 is a letter, group 2 a number
    pcre2_match_data *match;
};

static bool is_space(uint32_t code)
{
    return (code >= 0x9 && code <= 0xD) || code == 0x20 || code == 0x85 || code == 0xA0 ||
           code == 0x1680 || (code >= 0x2000 && code <= 0x200A) || code == 0x2028 ||
           code == 0x2029 || code == 0x202F || code == 0x205F || code == 0x3000;
}

static enum char_class ask(struct char_classes *c, uint32_t code)
{
    char text[UTF8_MOST_BYTES];
    size_t n = utf8_encode(code, text);
    if (is_space(code))
        return CHAR_SPACE;
    // The text is a character that was just written, so it needs no check.
    int rc =
        pcre2_match(c->code, (PCRE2_SPTR)text, n, 0, PCRE2_NO_UTF_CHECK, c->match, NULL);
    CHECK(rc > 0 || rc == PCRE2_ERROR_NOMATCH, "PCRE2 says %d of U+%04X", rc, code);
    return rc == 2 ? CHAR_LETTER : rc == 3 ? CHAR_NUMBER : CHAR_OTHER;
}

static void fill_block(struct char_classes *c, uint32_t first)
{
    for (uint32_t code = first; code < first + BLOCK; code++) {
        bool is_surrogate = code >= 0xD800 && code < 0xE000;
        c->classes[code] = (uint8_t)(is_surrogate ? CHAR_OTHER : ask(c, code));
    }
}

enum char_class char_class_of(struct char_classes *classes, uint32_t code)
{
    if (classes->classes[code] == CHAR_UNKNOWN)
        fill_block(classes, code & ~(BLOCK - 1));
    return (enum char_class)classes->classes[code];
}

int char_classes_open(struct char_classes **out, struct error *err)
{
    int rc = -1, code = 0;
    PCRE2_SIZE at = 0;
    struct char_classes *c = calloc(1, sizeof *c);
    if (!c)
        return error_set(err, ERROR_RUNTIME, "out of memory for classes of characters");
    c->classes = calloc(N_CODES, 1);
    c->code =
        pcre2_compile((PCRE2_SPTR) "\\A(?:(\\p{L})|(\\p{N}))", PCRE2_ZERO_TERMINATED,
                      PCRE2_UTF | PCRE2_UCP, &code, &at, NULL);
    if (c->code)
        c->match = pcre2_match_data_create_from_pattern(c->code, NULL);
    if (!c->classes || !c->match) {
        error_set(err, ERROR_RUNTIME,
                  "classes of characters cannot be had: out of memory, or PCRE2 was "
                  "built without Unicode (its code %d)",
                  code);
        goto done;
    }
    *out = c;
    rc = 0;
done:
    if (rc)
        char_classes_close(c);
    return rc;
}

void char_classes_close(struct char_classes *classes)
{
    if (!classes)
        return;
    pcre2_match_data_free(classes->match);
    pcre2_code_free(classes->code);
    free(classes->classes);
    free(classes);
}

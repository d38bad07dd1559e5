/*
 * The pattern is a choice by the classes of one or two characters and a run of one class,
 * so it is a loop here, over a table for ASCII: linear for any text, and at home with
 * invalid UTF-8. The tests compare it with PCRE2 on the pattern itself.
 */
#include "text/word_split.h"

#include "base/utf8.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdlib.h>
#include <string.h>

/* -- classes of characters ----------------------------------------------------------- */

/*
 * Letters and numbers are what PCRE2 knows as \p{L} and \p{N}. White space is the 25 code
 * points of Unicode's White_Space, written out, because PCRE2's \s has U+180E as well and
 * the reference implementations have not.
 *
 * PCRE2 classifies 256 code points at a time, when the first of them occurs. The table
 * has a byte per code point, in one allocation: pages of others are never touched.
 */
enum char_class {
    CHAR_UNKNOWN, // not classified yet
    CHAR_LETTER,
    CHAR_NUMBER,
    CHAR_SPACE,
    CHAR_OTHER,
};

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

static enum char_class ask_pcre2(struct char_classes *c, uint32_t code)
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
        c->classes[code] = (uint8_t)(is_surrogate ? CHAR_OTHER : ask_pcre2(c, code));
    }
}

/* The class of a code point below 0x110000 that is no surrogate. */
static enum char_class char_class_of(struct char_classes *classes, uint32_t code)
{
    if (classes->classes[code] == CHAR_UNKNOWN)
        fill_block(classes, code & ~(BLOCK - 1));
    return (enum char_class)classes->classes[code];
}

static void char_classes_close(struct char_classes *classes)
{
    if (!classes)
        return;
    pcre2_match_data_free(classes->match);
    pcre2_code_free(classes->code);
    free(classes->classes);
    free(classes);
}

static int char_classes_open(struct char_classes **out, struct error *err)
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

/* -- words --------------------------------------------------------------------------- */

struct word_splitter {
    uint8_t ascii[256]; // class of an ASCII byte; CHAR_UNKNOWN: look at the character
    struct char_classes *classes;
};

int word_splitter_open(struct word_splitter **out, struct error *err)
{
    struct word_splitter *s = calloc(1, sizeof *s);
    if (!s)
        return error_set(err, ERROR_RUNTIME, "out of memory for the words of a text");
    if (char_classes_open(&s->classes, err)) {
        free(s);
        return -1;
    }
    CHECK(s->classes, "no classes of characters");
    for (uint32_t code = 0; code < 0x80; code++)
        s->ascii[code] = (uint8_t)char_class_of(s->classes, code);
    *out = s;
    return 0;
}

void word_splitter_close(struct word_splitter *s)
{
    if (!s)
        return;
    char_classes_close(s->classes);
    free(s);
}

/* The class of the first character of the n > 0 bytes, and its number of bytes. */
static inline enum char_class class_at(struct word_splitter *s, const char *text,
                                       size_t n, size_t *n_char)
{
    uint32_t code;
    uint8_t class = s->ascii[(uint8_t)text[0]];
    *n_char = 1;
    if (class != CHAR_UNKNOWN)
        return (enum char_class) class;
    size_t k = utf8_decode(text, n, &code);
    if (k == 0)
        return CHAR_OTHER;
    *n_char = k;
    return char_class_of(s->classes, code);
}

/* The end of the run of `class` that goes on at `at`; *last := where its last character
 * starts, if there is one. */
static inline size_t run_end(struct word_splitter *s, const char *text, size_t at,
                             size_t n, enum char_class class, size_t *last)
{
    while (at < n) {
        size_t n_char;
        if (class_at(s, text + at, n - at, &n_char) != class)
            break;
        *last = at;
        at += n_char;
    }
    return at;
}

/* The bytes of the contraction that the text starts with; 0: none. */
static size_t contraction(const char *text, size_t n)
{
    if (n < 2 || text[0] != '\'')
        return 0;
    if (strchr("stmd", text[1]) && text[1])
        return 2;
    if (n < 3)
        return 0;
    bool is_one = (text[1] == 'r' && text[2] == 'e') ||
                  (text[1] == 'v' && text[2] == 'e') ||
                  (text[1] == 'l' && text[2] == 'l');
    return is_one ? 3 : 0;
}

size_t word_split_next(struct word_splitter *s, const char *text, size_t n)
{
    size_t n_char, n_next = 0, last = 0;
    enum char_class class = class_at(s, text, n, &n_char);
    if (class == CHAR_SPACE) {
        enum char_class next = CHAR_SPACE;
        if (text[0] == ' ' && n > 1)
            next = class_at(s, text + 1, n - 1, &n_next);
        if (next != CHAR_SPACE)
            return run_end(s, text, 1 + n_next, n, next, &last);
        size_t end = run_end(s, text, n_char, n, CHAR_SPACE, &last);
        // Before something else, the last of several leaves them and starts a word.
        return end < n && last > 0 ? last : end;
    }
    size_t n_contraction = contraction(text, n);
    return n_contraction ? n_contraction : run_end(s, text, n_char, n, class, &last);
}

bool word_split_is_inside(struct word_splitter *s, const char *bytes, size_t n)
{
    uint32_t code;
    for (size_t at = 0; at < n;) {
        size_t k = utf8_decode(bytes + at, n - at, &code);
        if (k == 0)
            return true;
        at += k;
    }
    // Contractions are the only words of which a stretch is no word.
    if (n == 2 && bytes[0] == '\'' && bytes[1] && strchr("rvl", bytes[1]))
        return true;
    return word_split_next(s, bytes, n) == n;
}

size_t word_split_last_cut(const char *text, size_t n)
{
    for (size_t at = n; at-- > 1;) {
        uint8_t before = (uint8_t)text[at - 1], here = (uint8_t)text[at];
        bool is_white = here == ' ' || (here >= '\t' && here <= '\r');
        // Past ASCII, one byte does not distinguish white space from other characters.
        bool is_other = before > ' ' && before < 0x80;
        if (is_white && (is_other || before < '\t'))
            return at;
    }
    return 0;
}

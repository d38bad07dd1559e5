#include "board/board_text.h"

#include "base/grow.h"
#include "base/utf8.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PRINT_BYTES 1024 // of one board_text_print(), terminated

void board_text_release(struct board_text *t)
{
    free(t->bytes);
    *t = (struct board_text){0};
}

void board_text_reset(struct board_text *t)
{
    t->n = 0;
    t->is_broken = false;
}

void board_text_add(struct board_text *t, const char *bytes, size_t n)
{
    if (t->is_broken || n == 0)
        return;
    if (grow_array(&t->bytes, &t->capacity, t->n + (int64_t)n, 1)) {
        t->is_broken = true;
        return;
    }
    memcpy(t->bytes + t->n, bytes, n);
    t->n += (int64_t)n;
}

void board_text_put(struct board_text *t, const char *text)
{
    board_text_add(t, text, strlen(text));
}

void board_text_print(struct board_text *t, const char *fmt, ...)
{
    char text[PRINT_BYTES];
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    CHECK(n >= 0 && (size_t)n < sizeof text, "%d bytes at once", n);
    board_text_add(t, text, (size_t)n);
}

/* -- JSON ---------------------------------------------------------------------------- */

/* '<', '>' and '&' as escapes: then no string can end a script or begin a comment of the
 * page that it is put into. */
static bool is_plain(uint32_t code)
{
    return code >= 0x20 && code != 0x7F && code != '"' && code != '\\' && code != '<' &&
           code != '>' && code != '&' && code != 0x2028 && code != 0x2029;
}

void board_text_string(struct board_text *t, const char *bytes, size_t n)
{
    board_text_add(t, "\"", 1);
    for (size_t i = 0; i < n;) {
        uint32_t code;
        size_t n_code = utf8_decode(bytes + i, n - i, &code);
        if (n_code == 0)
            board_text_put(t, "\\ufffd");
        else if (is_plain(code))
            board_text_add(t, bytes + i, n_code);
        else if (code == '"' || code == '\\')
            board_text_print(t, "\\%c", (int)code);
        else
            board_text_print(t, "\\u%04x", (unsigned)code);
        i += n_code ? n_code : 1;
    }
    board_text_add(t, "\"", 1);
}

static void put_number(struct board_text *t, double x, int digits)
{
    if (isfinite(x))
        board_text_print(t, "%.*g", digits, x);
    else
        board_text_put(t, "null");
}

void board_text_number(struct board_text *t, double x)
{
    put_number(t, x, 9);
}

void board_text_long_number(struct board_text *t, double x)
{
    put_number(t, x, 15);
}

void board_text_comma(struct board_text *t)
{
    if (t->n > 0 && t->bytes[t->n - 1] != '{' && t->bytes[t->n - 1] != '[')
        board_text_add(t, ",", 1);
}

void board_text_key(struct board_text *t, const char *key)
{
    board_text_comma(t);
    board_text_print(t, "\"%s\":", key);
}

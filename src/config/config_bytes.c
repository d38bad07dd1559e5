/*
 * Text or not? Looked at before any parser sees the bytes. Overlong forms, surrogates
 * and code points past U+10FFFF are not UTF-8.
 */
#include "base/utf8.h"
#include "config/config_yaml.h"

#include <string.h>

static int refuse_marks(const char *name, const char *text, size_t n, struct error *err)
{
    if (n >= 2 && (memcmp(text, "\xFF\xFE", 2) == 0 || memcmp(text, "\xFE\xFF", 2) == 0))
        return error_set(err, ERROR_INPUT, "%s:1:1: the file is UTF-16: save it as UTF-8",
                         name);
    if (n >= 3 && memcmp(text, "\xEF\xBB\xBF", 3) == 0)
        return error_set(err, ERROR_INPUT,
                         "%s:1:1: the file begins with a byte order mark: save it as "
                         "UTF-8 without one",
                         name);
    return 0;
}

int config_check_bytes(const char *name, const char *text, size_t n, struct error *err)
{
    const unsigned char *p = (const unsigned char *)text;
    int line = 1, column = 1;
    uint32_t code;
    if (refuse_marks(name, text, n, err))
        return -1;
    for (size_t i = 0; i < n;) {
        size_t length = utf8_decode(text + i, n - i, &code);
        bool is_control =
            (p[i] < 0x20 && p[i] != '\t' && p[i] != '\n' && p[i] != '\r') || p[i] == 0x7F;
        if (length == 0)
            return error_set(err, ERROR_INPUT,
                             "%s:%d:%d: byte 0x%02x is not UTF-8: save the file as UTF-8",
                             name, line, column, (unsigned)p[i]);
        if (is_control)
            return error_set(err, ERROR_INPUT,
                             "%s:%d:%d: control character 0x%02x: remove it", name, line,
                             column, (unsigned)p[i]);
        column = p[i] == '\n' ? 1 : column + 1;
        line += p[i] == '\n';
        i += length;
    }
    return 0;
}

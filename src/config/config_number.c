#include "config/config_number.h"

#include "config/config_value.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define MAX_NUMBER_BYTES 64 // longer texts are no numbers anybody meant

static const char *skip_digits(const char *p)
{
    while (isdigit((unsigned char)*p))
        p++;
    return p;
}

static const char *skip_sign(const char *p)
{
    return *p == '+' || *p == '-' ? p + 1 : p;
}

/* Other languages' numbers, each with what to write here. */
static int refuse_look_alike(const char *text, struct error *err)
{
    char shown[CONFIG_SHOWN_BYTES];
    const char *p = skip_sign(text);
    config_show(text, shown);
    if (strlen(text) > MAX_NUMBER_BYTES)
        return error_set(err, ERROR_INPUT, "'%s' is too long for a number", shown);
    if (strchr(text, '_') && isdigit((unsigned char)*p))
        return error_set(err, ERROR_INPUT,
                         "'%s' is not a number here: write it without '_'", shown);
    if (p[0] == '0' && p[1] != 0 && strchr("oOxXbB", p[1]))
        return error_set(err, ERROR_INPUT,
                         "'%s' is not a number here: write it in decimal", shown);
    if (p[0] == '0' && isdigit((unsigned char)p[1]))
        return error_set(err, ERROR_INPUT,
                         "'%s' begins with 0, which some read as octal: write it in "
                         "decimal without leading zeros",
                         shown);
    p += *p == '.';
    if (strcasecmp(p, "nan") == 0 || strcasecmp(p, "inf") == 0 ||
        strcasecmp(p, "infinity") == 0)
        return error_set(err, ERROR_INPUT, "'%s' is refused: write a finite number",
                         shown);
    return 0;
}

/* The end of a decimal number at the start of `text`, or `text` if there is none. */
static const char *decimal_end(const char *text)
{
    const char *start = skip_sign(text);
    const char *p = skip_digits(start);
    bool has_digits = p > start;
    if (*p == '.') {
        const char *fraction = p + 1;
        p = skip_digits(fraction);
        has_digits = has_digits || p > fraction;
    }
    if (!has_digits)
        return text;
    if (*p == 'e' || *p == 'E') {
        const char *digits = skip_sign(p + 1);
        const char *end = skip_digits(digits);
        if (end > digits)
            p = end;
    }
    return p;
}

static bool is_decimal(const char *text)
{
    const char *end = decimal_end(text);
    return end > text && *end == 0;
}

/* "5.0" or "1e3" where an integer is needed: say which one was probably meant. */
static int refuse_fraction(const char *text, struct error *err)
{
    char shown[CONFIG_SHOWN_BYTES];
    double value = strtod(text, NULL);
    config_show(text, shown);
    if (value == floor(value) && fabs(value) < 1e15)
        return error_set(err, ERROR_INPUT, "'%s' is not an integer: write %.0f", shown,
                         value);
    return error_set(err, ERROR_INPUT, "'%s' is not an integer", shown);
}

int config_parse_int(const char *text, int64_t *value, struct error *err)
{
    char shown[CONFIG_SHOWN_BYTES];
    const char *digits = skip_sign(text);
    const char *end = skip_digits(digits);
    if (refuse_look_alike(text, err))
        return -1;
    if (end == digits || *end != 0) {
        if (is_decimal(text))
            return refuse_fraction(text, err);
        config_show(text, shown);
        return error_set(err, ERROR_INPUT, "'%s' is not an integer", shown);
    }
    errno = 0;
    *value = strtoll(text, NULL, 10);
    if (errno)
        return error_set(err, ERROR_INPUT, "'%s' does not fit into 64 bits", text);
    return 0;
}

int config_parse_float(const char *text, double *value, struct error *err)
{
    char shown[CONFIG_SHOWN_BYTES];
    config_show(text, shown);
    if (refuse_look_alike(text, err))
        return -1;
    if (!is_decimal(text))
        return error_set(err, ERROR_INPUT, "'%s' is not a number", shown);
    errno = 0;
    *value = strtod(text, NULL);
    if (!isfinite(*value))
        return error_set(err, ERROR_INPUT, "'%s' is too large for a double", shown);
    if (*value == 0 && errno == ERANGE)
        return error_set(err, ERROR_INPUT, "'%s' is too small for a double: write 0",
                         shown);
    return 0;
}

void config_format_float(double value, char *buf, size_t size)
{
    if (value == floor(value) && fabs(value) < 1e15) {
        snprintf(buf, size, "%.0f", value); // %g would write 50 as 5e+01
        return;
    }
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(buf, size, "%.*g", digits, value);
        if (strtod(buf, NULL) == value)
            return;
    }
}

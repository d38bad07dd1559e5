#include "board/run_scan.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define NUMBER_BYTES 64 // of one that is read; a longer one is none
#define EXACT_DIGITS 15 // below 2^53
#define EXACT_POWER 22  // 10^22 is a double

// clang-format off
static const struct {
    const char *name;
    size_t n;
} columns[RUN_N_COLUMNS] = {
#define COLUMN(which, text) [which] = {text, sizeof(text) - 1}
    COLUMN(RUN_STEP, "step"),
    COLUMN(RUN_TOKENS, "tokens"),
    COLUMN(RUN_TIME, "time"),
    COLUMN(RUN_FLOPS, "flops"),
    COLUMN(RUN_LOSS, "loss"),
    COLUMN(RUN_LR, "lr"),
    COLUMN(RUN_GRAD_NORM, "grad_norm"),
    COLUMN(RUN_LOSS_SCALE, "loss_scale"),
    COLUMN(RUN_BATCH_COST, "batch_cost"),
    COLUMN(RUN_READER_COST, "reader_cost"),
    COLUMN(RUN_IPS_TOTAL, "ips_total"),
    COLUMN(RUN_MFU, "mfu"),
    COLUMN(RUN_SHARE_COMPUTE, "share_compute"),
    COLUMN(RUN_SHARE_WAITING, "share_waiting"),
    COLUMN(RUN_SHARE_READER, "share_reader"),
    COLUMN(RUN_SHARE_OPTIMIZER, "share_optimizer"),
    COLUMN(RUN_EVAL_LOSS, "eval_loss"),
#undef COLUMN
};
// clang-format on

const char *run_column_name(enum run_column column)
{
    return columns[column].name;
}

static bool is_column(int column, const char *name, size_t n)
{
    return columns[column].n == n && memcmp(columns[column].name, name, n) == 0;
}

int run_column_of(const char *name, size_t n)
{
    for (int i = 0; i < RUN_N_COLUMNS; i++)
        if (is_column(i, name, n))
            return i;
    return -1;
}

/* -- pieces of JSON: each returns what follows it, NULL when it is none ------------------ */

static const char *skip_space(const char *p, const char *end)
{
    while (p < end && (*p == ' ' || *p == '\t' || *p == '\r'))
        p++;
    return p;
}

/* After the closing quote; p is after the opening one. */
static const char *skip_string(const char *p, const char *end)
{
    for (; p < end && *p != '"'; p++)
        if (*p == '\\' && ++p == end)
            return NULL;
    return p < end ? p + 1 : NULL;
}

/* An array or an object, by its brackets alone. */
static const char *skip_nested(const char *p, const char *end)
{
    int64_t depth = 0;
    while (p < end) {
        char c = *p++;
        if (c == '"') {
            p = skip_string(p, end);
            if (!p)
                return NULL;
        } else if (c == '[' || c == '{') {
            depth++;
        } else if ((c == ']' || c == '}') && --depth == 0) {
            return p;
        }
    }
    return NULL;
}

/* By libc, for numbers with more digits than a double holds exactly. */
static const char *scan_hard_number(const char *p, const char *end, double *x)
{
    static const char of_numbers[] = "+-.0123456789eE";
    char text[NUMBER_BYTES];
    char *after;
    size_t n = 0;
    while (p + n < end && n < sizeof text &&
           memchr(of_numbers, p[n], sizeof of_numbers - 1))
        n++;
    if (n == 0 || n == sizeof text)
        return NULL;
    memcpy(text, p, n);
    text[n] = 0;
    *x = strtod(text, &after);
    return after == text + n ? p + n : NULL;
}

/* A mantissa below 2^53 and a power of ten that is a double: one rounding, as strtod(). */
static const char *scan_number(const char *start, const char *end, double *x)
{
    static const double powers[EXACT_POWER + 1] = {
        1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
        1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
    const char *p = start;
    int64_t mantissa = 0;
    int n_digits = 0, power = 0, written = 0;
    bool is_negative = p < end && *p == '-';
    p += is_negative;
    for (; p < end && *p >= '0' && *p <= '9' && n_digits <= EXACT_DIGITS; p++, n_digits++)
        mantissa = mantissa * 10 + (*p - '0');
    if (n_digits == 0)
        return NULL;
    if (p < end && *p == '.')
        for (p++; p < end && *p >= '0' && *p <= '9' && n_digits <= EXACT_DIGITS;
             p++, n_digits++, power--)
            mantissa = mantissa * 10 + (*p - '0');
    if (p < end && (*p == 'e' || *p == 'E')) {
        bool is_small = ++p < end && *p == '-';
        p += p < end && (*p == '-' || *p == '+');
        const char *digits = p;
        for (; p < end && *p >= '0' && *p <= '9' && written < 1000; p++)
            written = written * 10 + (*p - '0');
        if (p == digits)
            return NULL;
        power += is_small ? -written : written;
    }
    if (n_digits > EXACT_DIGITS || power < -EXACT_POWER || power > EXACT_POWER)
        return scan_hard_number(start, end, x);
    double value =
        power < 0 ? (double)mantissa / powers[-power] : (double)mantissa * powers[power];
    *x = is_negative ? -value : value;
    return p;
}

/* null, true, false, and what other writers put for numbers that JSON does not have. */
static const char *scan_word(const char *p, const char *end, double *x)
{
    static const struct {
        const char *word;
        double value;
    } words[] = {{"null", RUN_LOST},     {"true", 1},
                 {"false", 0},           {"NaN", RUN_LOST},
                 {"Infinity", RUN_LOST}, {"-Infinity", RUN_LOST}};
    for (size_t i = 0; i < ARRAY_LEN(words); i++) {
        size_t n = strlen(words[i].word);
        if ((size_t)(end - p) >= n && memcmp(p, words[i].word, n) == 0) {
            *x = words[i].value;
            return p + n;
        }
    }
    return NULL;
}

/* Any value; *x is NAN where it is no number. */
static const char *scan_value(const char *p, const char *end, double *x)
{
    const char *after;
    *x = RUN_NONE;
    if (p == end)
        return NULL;
    if (*p == '"')
        return skip_string(p + 1, end);
    if (*p == '{' || *p == '[')
        return skip_nested(p, end);
    after = scan_number(p, end, x);
    return after ? after : scan_word(p, end, x);
}

/* -- lines --------------------------------------------------------------------------- */

static enum run_line kind_of(const struct run_values *values, bool is_event)
{
    double step = values->at[RUN_STEP];
    if (is_event)
        return RUN_LINE_EVENT;
    if (!(step >= 0 && step <= 0x1p53))
        return RUN_LINE_OTHER;
    if (!isnan(values->at[RUN_LOSS]))
        return RUN_LINE_STEP;
    return isnan(values->at[RUN_EVAL_LOSS]) ? RUN_LINE_OTHER : RUN_LINE_EVAL;
}

static bool is_event_key(const char *key, size_t n)
{
    return n == 5 && (memcmp(key, "event", 5) == 0 || memcmp(key, "ranks", 5) == 0);
}

json_t *run_scan_load(const char *line, size_t n)
{
    json_t *root = memchr(line, 0, n) ? NULL : json_loadb(line, n, JSON_ALLOW_NUL, NULL);
    if (!json_is_object(root)) {
        json_decref(root);
        return NULL;
    }
    return root;
}

/* The slow way: what jansson reads, or a bad line. */
static enum run_line load_line(const char *line, size_t n, struct run_values *values)
{
    const char *key;
    json_t *value, *root = run_scan_load(line, n);
    bool is_event = false;
    enum run_line kind = RUN_LINE_BAD;
    for (int i = 0; i < RUN_N_COLUMNS; i++)
        values->at[i] = RUN_NONE;
    if (root) {
        json_object_foreach(root, key, value)
        {
            int column = run_column_of(key, strlen(key));
            is_event = is_event || is_event_key(key, strlen(key));
            if (column >= 0 && (json_is_number(value) || json_is_null(value)))
                values->at[column] =
                    json_is_null(value) ? RUN_LOST : json_number_value(value);
        }
        kind = kind_of(values, is_event);
    }
    json_decref(root);
    return kind;
}

enum run_line run_scan_line(struct run_scan *scan, const char *line, size_t n,
                            struct run_values *values)
{
    const char *p = line, *end = line + n;
    bool is_event = false;
    double x;
    for (int i = 0; i < RUN_N_COLUMNS; i++)
        values->at[i] = RUN_NONE;
    p = skip_space(p, end);
    if (p == end || *p++ != '{')
        return RUN_LINE_BAD;
    for (size_t i = 0;; i++) {
        p = skip_space(p, end);
        if (p == end || *p++ != '"')
            return load_line(line, n, values);
        const char *key = p;
        p = skip_string(p, end);
        if (!p)
            return RUN_LINE_BAD;
        size_t n_key = (size_t)(p - 1 - key);
        int column = i < ARRAY_LEN(scan->guesses) ? scan->guesses[i] - 1 : -1;
        if (column < 0 || !is_column(column, key, n_key)) {
            column = run_column_of(key, n_key);
            is_event = is_event || is_event_key(key, n_key);
        }
        if (i < ARRAY_LEN(scan->guesses))
            scan->guesses[i] = (int8_t)(column + 1);
        p = skip_space(p, end);
        if (p == end || *p++ != ':')
            return load_line(line, n, values);
        p = scan_value(skip_space(p, end), end, &x);
        if (!p)
            return load_line(line, n, values);
        if (column >= 0)
            values->at[column] = x;
        p = skip_space(p, end);
        if (p == end)
            return load_line(line, n, values);
        if (*p == '}')
            break;
        if (*p++ != ',')
            return load_line(line, n, values);
    }
    if (skip_space(p + 1, end) != end)
        return load_line(line, n, values);
    return kind_of(values, is_event);
}

#include "config/config_value.h"

#include "base/utf8.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define MAX_NUMBER_BYTES 64 // longer texts are no numbers anybody meant

void config_show(const char *text, char buf[CONFIG_SHOWN_BYTES])
{
    size_t n = 0, most = CONFIG_SHOWN_BYTES - sizeof "...";
    for (; text[n] && n < most; n++)
        buf[n] = text[n] == CONFIG_YAML_SEPARATOR  ? ','
                 : iscntrl((unsigned char)text[n]) ? '?'
                                                   : text[n];
    bool is_cut = text[n] != 0;
    while (is_cut && n > 0 && ((unsigned char)text[n] & 0xC0) == 0x80)
        n--; // not in the middle of a UTF-8 sequence
    memcpy(buf + n, is_cut ? "..." : "", is_cut ? 4 : 1);
}

bool config_text_is_empty(const struct config_text *text)
{
    static const char *const words[] = {"", "~", "null", "Null", "NULL", "None"};
    if (text->is_quoted || text->is_list)
        return false;
    for (size_t i = 0; i < ARRAY_LEN(words); i++)
        if (strcmp(text->text, words[i]) == 0)
            return true;
    return false;
}

/* -- what a type allows, in words ---------------------------------------------------- */

static void append_text(char *buf, size_t size, const char *text)
{
    size_t used = strlen(buf);
    snprintf(buf + used, size - used, "%s", text);
}

static void describe_words(const struct config_key *key, char *buf, size_t size)
{
    snprintf(buf, size, "one of ");
    for (const struct config_word *w = key->words; w->word; w++) {
        append_text(buf, size, w == key->words ? "" : ", ");
        append_text(buf, size, w->word);
    }
}

static void describe_range(const struct config_key *key, char *buf, size_t size)
{
    char min[32], max[32];
    const struct config_range *r = &key->range;
    bool is_int = key->type != CONFIG_FLOAT && key->type != CONFIG_NUMBERS;
    snprintf(min, sizeof min, is_int ? "%.0f" : "%g", r->min);
    snprintf(max, sizeof max, is_int ? "%.0f" : "%g", r->max);
    append_text(buf, size, r->is_min_open ? " above " : " from ");
    append_text(buf, size, min);
    append_text(buf, size,
                r->is_max_open   ? " to below "
                : r->is_min_open ? ", up to "
                                 : " to ");
    append_text(buf, size, max);
}

void config_describe_type(const struct config_key *key, char *buf, size_t size)
{
    switch (key->type) {
    case CONFIG_INT:
        snprintf(buf, size, "an integer");
        describe_range(key, buf, size);
        break;
    case CONFIG_FLOAT:
        snprintf(buf, size, "a number");
        describe_range(key, buf, size);
        break;
    case CONFIG_BOOL:
        snprintf(buf, size, "True or False");
        break;
    case CONFIG_TRUTH:
        snprintf(buf, size, "True, False or empty");
        break;
    case CONFIG_ENUM:
        describe_words(key, buf, size);
        break;
    case CONFIG_TEXT:
        snprintf(buf, size, "text");
        break;
    case CONFIG_WEIGHTS:
        snprintf(buf, size, "three weights such as 949,50,1");
        break;
    case CONFIG_SHAPE:
        snprintf(buf, size, "three integers such as [8, 1024, 1024]");
        break;
    case CONFIG_PATHS:
        snprintf(buf, size, "a path, or a list of paths such as [a, b]");
        break;
    case CONFIG_TEXTS:
        snprintf(buf, size, "a text, or a list of texts such as [a, b]");
        break;
    case CONFIG_NUMBERS:
        snprintf(buf, size, "a list such as [1, 3] of numbers");
        describe_range(key, buf, size);
        break;
    }
}

/* -- numbers ------------------------------------------------------------------------- */

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

/* [+-] digits, no leading zero; must fit into 64 bits. */
static int parse_int(const char *text, int64_t *value, struct error *err)
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

/* Decimal digits with optional sign, point and exponent; finite. */
static int parse_float(const char *text, double *value, struct error *err)
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

/* -- reading ------------------------------------------------------------------------- */

static bool is_triple(const struct config_key *key)
{
    return key->type == CONFIG_WEIGHTS || key->type == CONFIG_SHAPE;
}

bool config_is_list(const struct config_key *key)
{
    return key->type == CONFIG_PATHS || key->type == CONFIG_TEXTS ||
           key->type == CONFIG_NUMBERS;
}

static bool takes_list(const struct config_key *key)
{
    return is_triple(key) || config_is_list(key);
}

/* Quotes make a string; the types that are written as one may have them. */
static bool may_be_quoted(const struct config_key *key)
{
    return takes_list(key) || key->type == CONFIG_ENUM || key->type == CONFIG_TEXT;
}

static int refuse_type(const struct config_key *key, const struct config_text *text,
                       struct error *err)
{
    char wanted[256], shown[CONFIG_SHOWN_BYTES];
    bool has_wrong_quotes = text->is_quoted && !may_be_quoted(key);
    config_describe_type(key, wanted, sizeof wanted);
    config_show(text->text, shown);
    return error_set(err, ERROR_INPUT, "%s'%s' is not possible here: use %s%s",
                     text->is_list      ? "the list "
                     : has_wrong_quotes ? "the quoted text "
                                        : "",
                     shown, wanted, has_wrong_quotes ? ", without quotes" : "");
}

int config_check_range(const struct config_key *key, double value, const char *text,
                       struct error *err)
{
    char wanted[256], shown[CONFIG_SHOWN_BYTES];
    const struct config_range *r = &key->range;
    if ((r->is_min_open ? value > r->min : value >= r->min) &&
        (r->is_max_open ? value < r->max : value <= r->max))
        return 0;
    config_describe_type(key, wanted, sizeof wanted);
    config_show(text, shown);
    return error_set(err, ERROR_INPUT, "%s is out of range: use %s. %s", shown, wanted,
                     key->meaning);
}

static int set_int(const struct config_key *key, int64_t *member, const char *text,
                   struct error *err)
{
    int64_t value = 0;
    if (parse_int(text, &value, err) || config_check_range(key, (double)value, text, err))
        return -1;
    *member = value;
    return 0;
}

static int set_float(const struct config_key *key, double *member, const char *text,
                     struct error *err)
{
    double value = 0;
    if (parse_float(text, &value, err) || config_check_range(key, value, text, err))
        return -1;
    *member = value;
    return 0;
}

static int set_bool(bool *member, const char *text, struct error *err)
{
    static const char *const yes[] = {"yes", "on", "y", "1", "true"};
    static const char *const no[] = {"no", "off", "n", "0", "false"};
    char shown[CONFIG_SHOWN_BYTES];
    if (strcmp(text, "True") == 0 || strcmp(text, "true") == 0) {
        *member = true;
        return 0;
    }
    if (strcmp(text, "False") == 0 || strcmp(text, "false") == 0) {
        *member = false;
        return 0;
    }
    config_show(text, shown);
    for (size_t i = 0; i < ARRAY_LEN(yes); i++) {
        if (strcasecmp(text, yes[i]) == 0)
            return error_set(err, ERROR_INPUT, "'%s' is not a truth value: write True",
                             shown);
        if (strcasecmp(text, no[i]) == 0)
            return error_set(err, ERROR_INPUT, "'%s' is not a truth value: write False",
                             shown);
    }
    return error_set(err, ERROR_INPUT, "'%s' is not a truth value: write True or False",
                     shown);
}

static int set_truth(enum config_truth *member, const char *text, struct error *err)
{
    bool is_true = false;
    if (text[0] && set_bool(&is_true, text, err))
        return -1;
    *member = !text[0] ? TRUTH_EMPTY : is_true ? TRUTH_TRUE : TRUTH_FALSE;
    return 0;
}

static int set_enum(const struct config_key *key, void *member, const char *text,
                    struct error *err)
{
    char wanted[256], shown[CONFIG_SHOWN_BYTES];
    for (const struct config_word *w = key->words; w->word; w++)
        if (strcmp(w->word, text) == 0) {
            memcpy(member, &w->value, sizeof w->value);
            return 0;
        }
    describe_words(key, wanted, sizeof wanted);
    config_show(text, shown);
    return error_set(err, ERROR_INPUT, "'%s' is unknown: use %s", shown, wanted);
}

int config_check_text(const char *text, size_t n, struct error *err)
{
    if (n >= CONFIG_PATH_BYTES)
        return error_set(err, ERROR_INPUT, "%zu bytes are too long: use at most %d", n,
                         CONFIG_PATH_BYTES - 1);
    for (size_t i = 0, length; i < n; i += length) {
        uint32_t code;
        length = utf8_decode(text + i, n - i, &code);
        if (length == 0)
            return error_set(err, ERROR_INPUT, "byte 0x%02x is not UTF-8",
                             (unsigned)(unsigned char)text[i]);
        if (config_is_control(code))
            return error_set(err, ERROR_INPUT,
                             "control character 0x%02x in the text: remove it",
                             (unsigned)code);
    }
    return 0;
}

static int set_text(char *member, const char *text, struct error *err)
{
    size_t n = strlen(text);
    if (config_check_text(text, n, err))
        return -1;
    memset(member, 0, CONFIG_PATH_BYTES);
    memcpy(member, text, n);
    return 0;
}

/* Cut the next element off a list, at one of `separators`. */
static bool next_element(const char **p, const char *separators,
                         char element[MAX_NUMBER_BYTES])
{
    const char *s = *p + strspn(*p, " ");
    size_t n = strcspn(s, separators);
    *p = s[n] ? s + n + 1 : NULL;
    while (n > 0 && s[n - 1] == ' ')
        n--;
    if (n >= MAX_NUMBER_BYTES)
        return false;
    memcpy(element, s, n);
    element[n] = 0;
    return true;
}

/* Without the brackets that Python and YAML put around a list. */
static bool strip_brackets(const char *text, char *buf, size_t size)
{
    size_t n = strlen(text);
    bool has_brackets = n >= 2 && ((text[0] == '(' && text[n - 1] == ')') ||
                                   (text[0] == '[' && text[n - 1] == ']'));
    if (has_brackets) {
        text++;
        n -= 2;
    }
    if (n >= size)
        return false;
    memcpy(buf, text, n);
    buf[n] = 0;
    return true;
}

static int set_triple(const struct config_key *key, struct config *cfg,
                      const struct config_text *text, struct error *err)
{
    char list[256], element[MAX_NUMBER_BYTES] = "";
    double weights[3] = {0};
    int64_t sizes[3] = {0};
    int n = 0;
    const char *p = list,
               *separators = text->is_list ? (char[]){CONFIG_YAML_SEPARATOR, 0} : ",/";
    if (!strip_brackets(text->text, list, sizeof list))
        return refuse_type(key, text, err);
    while (p) {
        if (n == 3 || !next_element(&p, separators, element))
            return refuse_type(key, text, err);
        if (key->type == CONFIG_SHAPE ? set_int(key, &sizes[n], element, err)
                                      : set_float(key, &weights[n], element, err))
            return -1;
        n++;
    }
    if (n != 3)
        return refuse_type(key, text, err);
    if (key->type == CONFIG_WEIGHTS && weights[0] + weights[1] + weights[2] <= 0)
        return error_set(err, ERROR_INPUT,
                         "all weights are 0: write for example 949,50,1");
    if (key->type == CONFIG_SHAPE)
        memcpy(config_member(key, cfg), sizes, sizeof sizes);
    else
        memcpy(config_member(key, cfg), weights, sizeof weights);
    return 0;
}

_Static_assert(CONFIG_MAX_SPLIT == 3 && CONFIG_SHAPE_DIMS == 3, "set_triple() reads 3");

/* -- lists of any length ------------------------------------------------------------- */

/* Add the n bytes at `text` as the next path or text; *used is what the others take. */
int config_paths_add(struct config_paths *paths, const char *text, size_t n, size_t *used,
                     struct error *err)
{
    if (config_check_text(text, n, err))
        return -1;
    if (paths->n_paths == CONFIG_LIST_MOST || *used + n + 1 > sizeof paths->bytes)
        return error_set(
            err, ERROR_INPUT,
            "the list is too long: use at most %d elements of %d bytes together",
            CONFIG_LIST_MOST, CONFIG_LIST_BYTES);
    memcpy(paths->bytes + *used, text, n);
    *used += n + 1;
    paths->n_paths++;
    return 0;
}

static int set_paths(const struct config_key *key, struct config_paths *paths,
                     const struct config_text *text, struct error *err)
{
    static const char separator[] = {CONFIG_YAML_SEPARATOR, 0};
    struct config_paths all = {0}; // so that a refused value leaves the member alone
    size_t used = 0;
    const char *p = text->text;
    if (key->type == CONFIG_TEXTS && !*p)
        p = NULL;
    else if (text->is_list && !*p)
        return error_set(err, ERROR_INPUT, "the list is empty: name at least one path");
    while (p) {
        size_t n = text->is_list ? strcspn(p, separator) : strlen(p);
        if (config_paths_add(&all, p, n, &used, err))
            return error_prefix(err, "%s %lld",
                                key->type == CONFIG_TEXTS ? "text" : "path",
                                (long long)all.n_paths + 1);
        p = p[n] ? p + n + 1 : NULL;
    }
    *paths = all;
    return 0;
}

static int set_numbers(const struct config_key *key, struct config_numbers *numbers,
                       const struct config_text *text, struct error *err)
{
    const char separator[] = {text->is_list ? CONFIG_YAML_SEPARATOR : ',', 0};
    struct config_numbers all = {0};
    const char *p = *text->text ? text->text : NULL;
    while (p) {
        char element[MAX_NUMBER_BYTES];
        p += strspn(p, " ");
        size_t n = strcspn(p, separator), kept = n;
        while (kept > 0 && p[kept - 1] == ' ')
            kept--;
        if (kept >= sizeof element)
            return refuse_type(key, text, err);
        snprintf(element, sizeof element, "%.*s", (int)kept, p);
        if (all.n_values == CONFIG_LIST_MOST)
            return error_set(err, ERROR_INPUT,
                             "the list is too long: use at most %d numbers",
                             CONFIG_LIST_MOST);
        double *value = &all.values[all.n_values];
        if (parse_float(element, value, err) ||
            config_check_range(key, *value, element, err))
            return error_prefix(err, "number %lld", (long long)all.n_values + 1);
        all.n_values++;
        p = p[n] ? p + n + 1 : NULL;
    }
    *numbers = all;
    return 0;
}

/* -- any value ----------------------------------------------------------------------- */

int config_value_set(const struct config_key *key, struct config *cfg,
                     const struct config_text *text, struct error *err)
{
    void *member = config_member(key, cfg);
    if ((text->is_list && !takes_list(key)) || (text->is_quoted && !may_be_quoted(key)))
        return refuse_type(key, text, err);
    switch (key->type) {
    case CONFIG_INT:
        return set_int(key, member, text->text, err);
    case CONFIG_FLOAT:
        return set_float(key, member, text->text, err);
    case CONFIG_BOOL:
        return set_bool(member, text->text, err);
    case CONFIG_TRUTH:
        return set_truth(member, text->text, err);
    case CONFIG_ENUM:
        return set_enum(key, member, text->text, err);
    case CONFIG_TEXT:
        return set_text(member, text->text, err);
    case CONFIG_WEIGHTS:
    case CONFIG_SHAPE:
        return set_triple(key, cfg, text, err);
    case CONFIG_PATHS:
    case CONFIG_TEXTS:
        return set_paths(key, member, text, err);
    case CONFIG_NUMBERS:
        return set_numbers(key, member, text, err);
    }
    return -1;
}

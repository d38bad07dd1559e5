#include "config/config_value.h"

#include "base/utf8.h"
#include "config/config_list.h"
#include "config/config_number.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#define MAX_ELEMENT_BYTES 64

void config_show(const char *text, char buf[CONFIG_SHOWN_BYTES])
{
    size_t n = 0, room = CONFIG_SHOWN_BYTES - sizeof "...";
    for (; text[n] && n < room; n++)
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

static void append(char *buf, size_t size, const char *text)
{
    size_t used = strlen(buf);
    snprintf(buf + used, size - used, "%s", text);
}

static void describe_words(const struct config_key *key, char *buf, size_t size)
{
    snprintf(buf, size, "one of ");
    for (const struct config_word *w = key->words; w->word; w++) {
        append(buf, size, w == key->words ? "" : ", ");
        append(buf, size, w->word);
    }
}

static void describe_range(const struct config_key *key, char *buf, size_t size)
{
    char min[32], max[32];
    const struct config_range *r = &key->range;
    bool is_int = key->type != CONFIG_FLOAT && key->type != CONFIG_NUMBERS;
    snprintf(min, sizeof min, is_int ? "%.0f" : "%g", r->min);
    snprintf(max, sizeof max, is_int ? "%.0f" : "%g", r->max);
    append(buf, size, r->is_min_open ? " above " : " from ");
    append(buf, size, min);
    append(buf, size,
           r->is_max_open   ? " to below "
           : r->is_min_open ? ", up to "
                            : " to ");
    append(buf, size, max);
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
    case CONFIG_NUMBERS:
        snprintf(buf, size, "a list such as [1, 3] of numbers");
        describe_range(key, buf, size);
        break;
    }
}

/* -- reading ------------------------------------------------------------------------- */

static bool is_triple(const struct config_key *key)
{
    return key->type == CONFIG_WEIGHTS || key->type == CONFIG_SHAPE;
}

bool config_takes_list(const struct config_key *key)
{
    return is_triple(key) || key->type == CONFIG_PATHS || key->type == CONFIG_NUMBERS;
}

/* Quotes make a string; the types that are written as one may have them. */
static bool may_be_quoted(const struct config_key *key)
{
    return config_takes_list(key) || key->type == CONFIG_ENUM || key->type == CONFIG_TEXT;
}

int config_refuse_type(const struct config_key *key, const struct config_text *text,
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
    int64_t value;
    if (config_parse_int(text, &value, err) ||
        config_check_range(key, (double)value, text, err))
        return -1;
    *member = value;
    return 0;
}

static int set_float(const struct config_key *key, double *member, const char *text,
                     struct error *err)
{
    double value;
    if (config_parse_float(text, &value, err) ||
        config_check_range(key, value, text, err))
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
                         char element[MAX_ELEMENT_BYTES])
{
    const char *s = *p + strspn(*p, " ");
    size_t n = strcspn(s, separators);
    *p = s[n] ? s + n + 1 : NULL;
    while (n > 0 && s[n - 1] == ' ')
        n--;
    if (n >= MAX_ELEMENT_BYTES)
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
    char list[256], element[MAX_ELEMENT_BYTES] = "";
    double weights[3] = {0};
    int64_t sizes[3] = {0};
    int n = 0;
    const char *p = list,
               *separators = text->is_list ? (char[]){CONFIG_YAML_SEPARATOR, 0} : ",/";
    if (!strip_brackets(text->text, list, sizeof list))
        return config_refuse_type(key, text, err);
    while (p) {
        if (n == 3 || !next_element(&p, separators, element))
            return config_refuse_type(key, text, err);
        if (key->type == CONFIG_SHAPE ? set_int(key, &sizes[n], element, err)
                                      : set_float(key, &weights[n], element, err))
            return -1;
        n++;
    }
    if (n != 3)
        return config_refuse_type(key, text, err);
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

int config_value_set(const struct config_key *key, struct config *cfg,
                     const struct config_text *text, struct error *err)
{
    void *member = config_member(key, cfg);
    if ((text->is_list && !config_takes_list(key)) ||
        (text->is_quoted && !may_be_quoted(key)))
        return config_refuse_type(key, text, err);
    switch (key->type) {
    case CONFIG_INT:
        return set_int(key, member, text->text, err);
    case CONFIG_FLOAT:
        return set_float(key, member, text->text, err);
    case CONFIG_BOOL:
        return set_bool(member, text->text, err);
    case CONFIG_ENUM:
        return set_enum(key, member, text->text, err);
    case CONFIG_TEXT:
        return set_text(member, text->text, err);
    case CONFIG_WEIGHTS:
    case CONFIG_SHAPE:
        return set_triple(key, cfg, text, err);
    case CONFIG_PATHS:
        return config_paths_set(member, text, err);
    case CONFIG_NUMBERS:
        return config_numbers_set(key, member, text, err);
    }
    return -1;
}

/* -- writing ------------------------------------------------------------------------- */

/* YAML's single quotes have one escape: a quote is written twice. */
void config_quote(const char *text, char *buf, size_t size)
{
    size_t used = 0;
    buf[used++] = '\'';
    for (; *text && used + 4 < size; text++) {
        if (*text == '\'')
            buf[used++] = '\'';
        buf[used++] = *text;
    }
    buf[used++] = '\'';
    buf[used] = 0;
}

static void write_enum(const struct config_key *key, const void *member, char *buf,
                       size_t size)
{
    int value;
    memcpy(&value, member, sizeof value);
    snprintf(buf, size, "%d", value);
    for (const struct config_word *w = key->words; w->word; w++)
        if (w->value == value) {
            snprintf(buf, size, "%s", w->word);
            return;
        }
}

static void write_weights(const double *weights, char *buf, size_t size)
{
    char w[3][32];
    for (int i = 0; i < 3; i++)
        config_format_float(weights[i], w[i], sizeof w[i]);
    snprintf(buf, size, "[%s, %s, %s]", w[0], w[1], w[2]);
}

void config_value_text(const struct config_key *key, const struct config *cfg, char *buf,
                       size_t size)
{
    const void *member = config_member_const(key, cfg);
    const int64_t *ints = member;
    switch (key->type) {
    case CONFIG_INT:
        snprintf(buf, size, "%lld", (long long)*ints);
        break;
    case CONFIG_FLOAT:
        config_format_float(*(const double *)member, buf, size);
        break;
    case CONFIG_BOOL:
        snprintf(buf, size, "%s", *(const bool *)member ? "True" : "False");
        break;
    case CONFIG_ENUM:
        write_enum(key, member, buf, size);
        break;
    case CONFIG_TEXT:
        config_quote(member, buf, size);
        break;
    case CONFIG_WEIGHTS:
        write_weights(member, buf, size);
        break;
    case CONFIG_SHAPE:
        snprintf(buf, size, "[%lld, %lld, %lld]", (long long)ints[0], (long long)ints[1],
                 (long long)ints[2]);
        break;
    case CONFIG_PATHS:
        config_paths_text(member, buf, size);
        break;
    case CONFIG_NUMBERS:
        config_numbers_text(member, buf, size);
        break;
    }
}

bool config_value_works_now(const struct config_key *key, const struct config *cfg)
{
    char value[CONFIG_SHOWN_BYTES];
    const char *p = key->works_now;
    if (!p)
        return true;
    config_value_text(key, cfg, value, sizeof value);
    while (p) {
        size_t n = strcspn(p, "|");
        if (strlen(value) == n && memcmp(p, value, n) == 0)
            return true;
        p = p[n] ? p + n + 1 : NULL;
    }
    return false;
}

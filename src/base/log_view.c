#include "base/log_view.h"

#include "base/log.h"

#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

const char *const log_view_levels[] = {
    [LOG_INFO] = "INFO", [LOG_WARNING] = "WARNING", [LOG_ERROR] = "ERROR"};

static const char *const colours[] = {
    [LOG_INFO] = "\033[32m", [LOG_WARNING] = "\033[33m", [LOG_ERROR] = "\033[31m"};

/* "[2022-07-27 12:42:46,601] [    INFO] - " */
enum {
    CLOCK_AT = 12,
    CLOCK_BYTES = 8,
    LEVEL_AT = 27,
    LEVEL_BYTES = 8,
    HEAD_BYTES = 39,
};

#define NARROW_COLUMNS                                                                   \
    120 // a terminal where no line has its date, so that all look alike

/* The fields of a line that can be spared, what is missed least first. */
static const char *const expendable[] = {
    "avg_reader_cost", "batch", "ips",           "avg_batch_cost", "avg_eval_cost",
    "speed",           "epoch", "learning rate", "ips_total",
};

/* -- the terminal -------------------------------------------------------------------- */

static int terminal_columns(int fd)
{
    struct winsize size;
    const char *columns = getenv("COLUMNS");
    int n = columns ? atoi(columns) : 0;
    if (n > 0)
        return n;
    return ioctl(fd, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

struct log_view log_view_of(int fd)
{
    struct log_view view = {0};
    if (isatty(fd) != 1)
        return view;
    const char *term = getenv("TERM"), *no_colour = getenv("NO_COLOR");
    view.is_terminal = true;
    view.columns = terminal_columns(fd);
    view.is_redrawable = term && *term && strcmp(term, "dumb") != 0;
    view.is_coloured = view.is_redrawable && !(no_colour && *no_colour);
    return view;
}

/* -- a line -------------------------------------------------------------------------- */

const char *log_view_padding(int level)
{
    static const char blanks[] = "        ";
    return blanks + strlen(log_view_levels[level]);
}

/* The level of a line of log.h; -1: it is none. */
static int level_of(const char *line, size_t n)
{
    static const char form[] = "[....-..-.. ..:..:..,...] [........] - ";
    for (size_t i = 0; i < HEAD_BYTES; i++)
        if (i >= n || (form[i] != '.' && line[i] != form[i]))
            return -1;
    for (int level = LOG_INFO; level <= LOG_ERROR; level++) {
        size_t n_level = strlen(log_view_levels[level]);
        if (memcmp(line + LEVEL_AT + LEVEL_BYTES - n_level, log_view_levels[level],
                   n_level) == 0)
            return level;
    }
    return -1;
}

/* Columns that n bytes of UTF-8 take, a newline at their end apart. */
static int width_of(const char *text, size_t n)
{
    int width = 0;
    for (size_t i = 0; i < n; i++)
        width += (text[i] & 0xc0) != 0x80 && text[i] != '\n';
    return width;
}

/* Take ", NAME: value" out of the n bytes of `text`; what is left of n. */
static size_t drop_field(char *text, size_t n, const char *name)
{
    size_t n_name = strlen(name);
    for (size_t i = 0; i + n_name + 4 < n; i++) {
        if (memcmp(text + i, ", ", 2) != 0 || memcmp(text + i + 2, name, n_name) != 0 ||
            memcmp(text + i + 2 + n_name, ": ", 2) != 0)
            continue;
        size_t end = i + 2;
        while (end < n && text[end] != '\n' &&
               !(text[end] == ',' && end + 1 < n && text[end + 1] == ' '))
            end++;
        memmove(text + i, text + end, n - end);
        return n - (end - i);
    }
    return n;
}

static size_t append_bytes(char *to, size_t at, const char *text, size_t n)
{
    memcpy(to + at, text, n);
    return at + n;
}

/* The head of a line, `n_head` bytes of it, in colour or not; what precedes the text. */
static size_t put_head(const struct log_view *view, int level, const char *head,
                       size_t n_head, char *shown)
{
    static const char plain[] = "\033[0m";
    size_t at = 0;
    if (!view->is_coloured)
        return append_bytes(shown, at, head, n_head);
    at = append_bytes(shown, at, colours[level], strlen(colours[level]));
    at = append_bytes(shown, at, head, n_head);
    return append_bytes(shown, at, plain, sizeof plain - 1);
}

/* "[12:42:46]", and the level of what is more than news. */
static size_t short_head(int level, const char *line, char head[HEAD_BYTES])
{
    size_t at = append_bytes(head, 0, "[", 1);
    at = append_bytes(head, at, line + CLOCK_AT, CLOCK_BYTES);
    at = append_bytes(head, at, "]", 1);
    if (level == LOG_INFO)
        return at;
    at = append_bytes(head, at, " ", 1);
    return append_bytes(head, at, log_view_levels[level], strlen(log_view_levels[level]));
}

size_t log_view_line(const struct log_view *view, const char *line, size_t n, char *shown)
{
    static const char dash[] = " - ";
    int level = level_of(line, n);
    size_t n_dash = sizeof dash - 1;
    if (level < 0)
        return append_bytes(shown, 0, line, n);
    const char *text = line + HEAD_BYTES;
    size_t n_text = n - HEAD_BYTES;
    bool is_whole = view->columns <= 0 || (view->columns >= NARROW_COLUMNS &&
                                           width_of(line, n) <= view->columns);
    if (is_whole) {
        size_t at = put_head(view, level, line, HEAD_BYTES - n_dash, shown);
        return append_bytes(shown, at, line + HEAD_BYTES - n_dash, n_text + n_dash);
    }
    char head[HEAD_BYTES];
    size_t n_head = short_head(level, line, head);
    if (level == LOG_INFO)
        n_dash = 1; // a blank is enough
    size_t at = put_head(view, level, head, n_head, shown);
    at = append_bytes(shown, at, level == LOG_INFO ? " " : dash, n_dash);
    append_bytes(shown, at, text, n_text);
    int width = view->columns - (int)(n_head + n_dash);
    for (size_t i = 0; i < ARRAY_LEN(expendable) && level == LOG_INFO; i++)
        if (width_of(shown + at, n_text) > width)
            n_text = drop_field(shown + at, n_text, expendable[i]);
    return at + n_text;
}

#include "base/log.h"

#include "base/fs.h"
#include "base/log_view.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define STAMP_BYTES 32 // "2022-07-27 12:42:46,601"
#define SHORT_LINE_BYTES 2048
#define CLEAR_STATUS "\r\033[K"

static enum log_level lowest_level = LOG_INFO;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
/* What a signal handler needs, beside the lines themselves. */
static atomic_bool status_is_shown;
static atomic_long utc_offset; // of local time, in seconds
static atomic_int copy_fd = -1;
static const char *copy_mark;

bool log_is_terminal(void)
{
    return log_view_of(STDERR_FILENO).is_redrawable;
}

enum log_level log_set_level(enum log_level level)
{
    enum log_level before = lowest_level;
    lowest_level = level;
    return before;
}

void log_set_copy(int fd, const char *mark)
{
    copy_mark = mark;
    atomic_store(&copy_fd, fd);
}

/* What cannot be written is dropped: there is nobody left to tell. */
static void write_bytes(const char *text, size_t n)
{
    int fd = atomic_load(&copy_fd);
    ssize_t unused = fs_write_exact(STDERR_FILENO, text, n);
    for (const char *end; fd >= 0 && n > 0; n -= (size_t)(end - text), text = end) {
        end = memchr(text, '\n', n);
        end = end ? end + 1 : text + n;
        const struct iovec parts[] = {
            {.iov_base = (void *)(uintptr_t)copy_mark, .iov_len = strlen(copy_mark)},
            {.iov_base = (void *)(uintptr_t)text, .iov_len = (size_t)(end - text)}};
        unused = writev(fd, parts, ARRAY_LEN(parts));
    }
    (void)unused;
}

static void clear_status(void)
{
    if (atomic_exchange(&status_is_shown, false))
        write_bytes(CLEAR_STATUS, sizeof CLEAR_STATUS - 1);
}

void log_status_clear(void)
{
    pthread_mutex_lock(&lock);
    clear_status();
    pthread_mutex_unlock(&lock);
}

void log_status(const char *fmt, ...)
{
    struct log_view view = log_view_of(STDERR_FILENO);
    if (!view.is_redrawable)
        return;
    char text[512], shown[sizeof text + sizeof CLEAR_STATUS];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    // one that is longer than the terminal would wrap and could not be redrawn
    int n = snprintf(shown, sizeof shown, CLEAR_STATUS "%.*s",
                     (view.columns > 0 ? view.columns : 80) - 1, text);
    pthread_mutex_lock(&lock);
    write_bytes(shown, (size_t)n);
    atomic_store(&status_is_shown, true);
    pthread_mutex_unlock(&lock);
}

/* -- a line -------------------------------------------------------------------------- */

static void format_time(char stamp[STAMP_BYTES])
{
    struct timespec now;
    struct tm tm;
    char seconds[STAMP_BYTES - 4];
    clock_gettime(CLOCK_REALTIME, &now);
    localtime_r(&now.tv_sec, &tm);
    atomic_store(&utc_offset, tm.tm_gmtoff);
    strftime(seconds, sizeof seconds, "%Y-%m-%d %H:%M:%S", &tm);
    snprintf(stamp, STAMP_BYTES, "%s,%03d", seconds, (int)(now.tv_nsec / 1000000));
}

static void show(const char *line, size_t n)
{
    struct log_view view = log_view_of(STDERR_FILENO);
    char *shown = malloc(n + LOG_VIEW_MORE_BYTES);
    if (shown) {
        n = log_view_line(&view, line, n, shown);
        line = shown;
    }
    pthread_mutex_lock(&lock);
    clear_status();
    write_bytes(line, n);
    pthread_mutex_unlock(&lock);
    free(shown);
}

/* Where no memory is left for a line of any length, that it is short of memory is still
 * to be said. */
static PRINTF_LIKE(3, 0) void write_short_line(enum log_level level, const char *stamp,
                                               const char *fmt, va_list args)
{
    char line[SHORT_LINE_BYTES];
    int used =
        snprintf(line, sizeof line - 1, "[%s] [%8s] - ", stamp, log_view_levels[level]);
    vsnprintf(line + used, sizeof line - 1 - (size_t)used, fmt, args);
    size_t n = strlen(line);
    line[n++] = '\n';
    show(line, n);
}

static PRINTF_LIKE(2, 0) void write_line(enum log_level level, const char *fmt,
                                         va_list args)
{
    char stamp[STAMP_BYTES], *text = NULL, *line = NULL;
    va_list again;
    va_copy(again, args);
    format_time(stamp);
    bool has_text = vasprintf(&text, fmt, args) >= 0;
    int n = has_text ? asprintf(&line, "[%s] [%8s] - %s\n", stamp, log_view_levels[level],
                                text)
                     : -1;
    if (n > 0)
        show(line, (size_t)n);
    else
        write_short_line(level, stamp, fmt, again);
    va_end(again);
    free(n > 0 ? line : NULL);
    free(has_text ? text : NULL);
}

void log_line(enum log_level level, const char *fmt, ...)
{
    va_list args;
    if (level < lowest_level)
        return;
    va_start(args, fmt);
    write_line(level, fmt, args);
    va_end(args);
}

static bool is_own;

void log_is_own(void)
{
    is_own = true;
}

void log_own(const char *fmt, ...)
{
    va_list args;
    if (!is_own)
        return;
    va_start(args, fmt);
    write_line(LOG_INFO, fmt, args);
    va_end(args);
}

/* -- from a signal handler ----------------------------------------------------------- */

void log_number(char text[LOG_NUMBER_BYTES], int64_t value)
{
    char digits[LOG_NUMBER_BYTES];
    int n = 0;
    do
        digits[n++] = (char)('0' + value % 10);
    while (value /= 10);
    while (n)
        *text++ = digits[--n];
    *text = '\0';
}

/* The digits of `value`, `n` of them, before `end`; returns where they begin. */
static char *put_digits(char *end, int64_t value, int n)
{
    for (; n > 0; n--, value /= 10)
        *--end = (char)('0' + value % 10);
    return end;
}

/* Year, month and day of a day counted from 1970-01-01, which is not before it. */
static void date_of_day(int64_t day, int64_t date[3])
{
    static const int of_month[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    for (date[0] = 1970, date[1] = 1;;) {
        bool is_leap = date[0] % 4 == 0 && (date[0] % 100 != 0 || date[0] % 400 == 0);
        int n = of_month[date[1] - 1] + (is_leap && date[1] == 2);
        if (day < n)
            break;
        day -= n;
        date[0] += date[1] == 12;
        date[1] = date[1] % 12 + 1;
    }
    date[2] = day + 1;
}

/* As format_time(), by the offset of local time that it saw last. */
static void stamp_in_handler(char stamp[STAMP_BYTES])
{
    static const char form[] = "yyyy-mm-dd HH:MM:SS,mmm";
    struct timespec now;
    int64_t date[3];
    clock_gettime(CLOCK_REALTIME, &now);
    int64_t seconds = i64_max(0, (int64_t)now.tv_sec + atomic_load(&utc_offset));
    date_of_day(seconds / 86400, date);
    memcpy(stamp, form, sizeof form);
    put_digits(stamp + 4, date[0], 4);
    put_digits(stamp + 7, date[1], 2);
    put_digits(stamp + 10, date[2], 2);
    put_digits(stamp + 13, seconds / 3600 % 24, 2);
    put_digits(stamp + 16, seconds / 60 % 60, 2);
    put_digits(stamp + 19, seconds % 60, 2);
    put_digits(stamp + 23, now.tv_nsec / 1000000, 3);
}

/* Add `text` to the n bytes of `line`, as far as it goes; the new n. */
static size_t append_text(char *line, size_t size, size_t n, const char *text)
{
    while (*text && n + 1 < size)
        line[n++] = *text++;
    return n;
}

void log_from_handler(enum log_level level, const char *const *words, size_t n_words)
{
    char stamp[STAMP_BYTES], line[512], shown[sizeof line + LOG_VIEW_MORE_BYTES];
    struct pollfd fd = {.fd = STDERR_FILENO, .events = POLLOUT};
    size_t n = 0;
    if (poll(&fd, 1, 0) != 1 || !(fd.revents & POLLOUT))
        return;
    stamp_in_handler(stamp);
    const char *const head[] = {
        "[", stamp, "] [", log_view_padding((int)level), log_view_levels[level], "] - "};
    for (size_t i = 0; i < ARRAY_LEN(head); i++)
        n = append_text(line, sizeof line, n, head[i]);
    for (size_t i = 0; i < n_words; i++)
        n = append_text(line, sizeof line, n, words[i]);
    line[n++] = '\n';
    struct log_view view = log_view_of(STDERR_FILENO);
    n = log_view_line(&view, line, n, shown);
    clear_status();
    write_bytes(shown, n);
}

#include "base/log.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

static const struct {
    const char *name;
    const char *colour;
} levels[] = {
    [LOG_INFO] = {"INFO", "\033[32m"},
    [LOG_WARNING] = {"WARNING", "\033[33m"},
    [LOG_ERROR] = {"ERROR", "\033[31m"},
};

static enum log_level lowest_level = LOG_INFO;
static bool status_is_shown;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

bool log_is_terminal(void)
{
    return isatty(STDERR_FILENO) == 1;
}

void log_set_level(enum log_level level)
{
    lowest_level = level;
}

static void clear_status_locked(void)
{
    if (status_is_shown)
        fputs("\r\033[K", stderr);
    status_is_shown = false;
}

void log_status_clear(void)
{
    pthread_mutex_lock(&lock);
    clear_status_locked();
    fflush(stderr);
    pthread_mutex_unlock(&lock);
}

/* A status line longer than the terminal would wrap and could not be redrawn. */
static int terminal_columns(void)
{
    struct winsize size;
    if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
        return size.ws_col;
    return 80;
}

void log_status(const char *fmt, ...)
{
    if (!log_is_terminal())
        return;
    char text[512];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    pthread_mutex_lock(&lock);
    fprintf(stderr, "\r\033[K%.*s", terminal_columns() - 1, text);
    fflush(stderr);
    status_is_shown = true;
    pthread_mutex_unlock(&lock);
}

static void format_time(char *text, size_t size)
{
    struct timespec now;
    struct tm tm;
    char seconds[32];
    clock_gettime(CLOCK_REALTIME, &now);
    localtime_r(&now.tv_sec, &tm);
    strftime(seconds, sizeof seconds, "%Y-%m-%d %H:%M:%S", &tm);
    snprintf(text, size, "%s,%03d", seconds, (int)(now.tv_nsec / 1000000));
}

void log_line(enum log_level level, const char *fmt, ...)
{
    if (level < lowest_level)
        return;
    char when[48];
    format_time(when, sizeof when);
    bool coloured = log_is_terminal();

    va_list args;
    va_start(args, fmt);
    pthread_mutex_lock(&lock);
    clear_status_locked();
    fprintf(stderr, "%s[%s] [%8s]%s - ", coloured ? levels[level].colour : "", when,
            levels[level].name, coloured ? "\033[0m" : "");
    vfprintf(stderr, fmt, args);
    fputc('\n', stderr);
    fflush(stderr);
    pthread_mutex_unlock(&lock);
    va_end(args);
}

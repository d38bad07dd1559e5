#include "base/error.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int error_set(struct error *err, enum error_kind kind, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    err->kind = kind;
    vsnprintf(err->text, sizeof err->text, fmt, args);
    va_end(args);
    return -1;
}

int error_prefix(struct error *err, const char *fmt, ...)
{
    char prefix[512];
    char sentence[sizeof err->text - sizeof prefix - 2];
    va_list args;
    va_start(args, fmt);
    vsnprintf(prefix, sizeof prefix, fmt, args);
    va_end(args);
    snprintf(sentence, sizeof sentence, "%.*s", (int)sizeof sentence - 1, err->text);
    snprintf(err->text, sizeof err->text, "%s: %s", prefix, sentence);
    return -1;
}

int error_exit_code(const struct error *err)
{
    switch (err->kind) {
    case ERROR_INPUT:
        return 2;
    case ERROR_RUNTIME:
    case ERROR_DIVERGED:
    case ERROR_UNSAVED:
        return 3;
    case ERROR_CRASH_LOOP:
        return 4;
    case ERROR_STOPPED:
        return 75;
    }
    return 3;
}

void check_failed(const char *file, int line, const char *cond, const char *fmt, ...)
{
    va_list args;
    fprintf(stderr, "%s:%d: internal error, please report it: %s: ", file, line, cond);
    va_start(args, fmt);
    vfprintf(stderr, fmt, args);
    va_end(args);
    fputc('\n', stderr);
    abort();
}

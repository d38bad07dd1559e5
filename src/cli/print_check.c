#include "cli/print_check.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

int print_check(const char *what, struct error *err)
{
    errno = 0;
    if (fflush(stdout) == 0 && !ferror(stdout))
        return 0;
    // the reason of a write that failed earlier is gone
    return error_set(err, ERROR_RUNTIME, "cannot write %s: %s", what,
                     errno ? strerror(errno) : "a part of it could not be written");
}

int print_close(struct error *err)
{
    if (print_check("to standard output", err))
        return -1;
    if (fclose(stdout))
        return error_set(err, ERROR_RUNTIME, "cannot write to standard output: %s",
                         strerror(errno));
    return 0;
}

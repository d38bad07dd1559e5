#include "ckpt/ckpt_latest.h"

#include "base/fs.h"
#include "base/log.h"
#include "ckpt/ckpt_failpoint.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NEXT_NAME CKPT_LATEST_NAME ".next"
#define NO_NAME "-"
#define MAX_LINE_BYTES ((size_t)256)

/* A missing or malformed file is not an error; any other failure is. */
static int fail_unless_input(const struct error *why, struct error *err)
{
    if (why->kind == ERROR_INPUT)
        return 0;
    *err = *why;
    return -1;
}

/* The first line of dir/file, "" where there is no such file. */
static int read_line(const char *dir, const char *file, char line[MAX_LINE_BYTES],
                     struct error *err)
{
    char path[PATH_MAX], *text = NULL;
    size_t n;
    struct error why;
    line[0] = 0;
    if (fs_join(path, sizeof path, dir, file, err))
        return -1;
    if (fs_read_regular(path, MAX_LINE_BYTES - 1, &text, &n, &why))
        return fail_unless_input(&why, err);
    snprintf(line, MAX_LINE_BYTES, "%.*s", (int)strcspn(text, "\n"), text);
    free(text);
    return 0;
}

/* The name in `latest`, as text; NO_NAME where there is none. */
static int read_noted(const char *dir, char text[MAX_LINE_BYTES], struct error *err)
{
    struct ckpt_name name;
    if (read_line(dir, CKPT_LATEST_NAME, text, err))
        return -1;
    if (!ckpt_name_parse(text, &name))
        snprintf(text, MAX_LINE_BYTES, NO_NAME);
    return 0;
}

/* Is the checkpoint of this name there, with a trainer.json of this hash? */
static int is_committed(const char *dir, const char *name, const char *hash, bool *is_it,
                        struct error *err)
{
    char path[PATH_MAX], found[17];
    struct error why;
    *is_it = false;
    if (fs_join(path, sizeof path, dir, name, err))
        return -1;
    if (ckpt_manifest_hash(path, found, &why))
        return fail_unless_input(&why, err);
    *is_it = strcmp(found, hash) == 0;
    return 0;
}

/* A commit that happened after `noted` was written. */
static int read_next(const char *dir, const char *noted, struct ckpt_name *name,
                     bool *is_known, struct error *err)
{
    char line[MAX_LINE_BYTES], text[CKPT_NAME_BYTES], hash[17], before[CKPT_NAME_BYTES];
    *is_known = false;
    if (read_line(dir, NEXT_NAME, line, err))
        return -1;
    if (sscanf(line, "%63s %16s %63s", text, hash, before) != 3 ||
        strcmp(before, noted) != 0 || !ckpt_name_parse(text, name))
        return 0;
    return is_committed(dir, text, hash, is_known, err);
}

int ckpt_latest_read(const char *dir, struct ckpt_name *name, bool *is_known,
                     struct error *err)
{
    char noted[MAX_LINE_BYTES];
    if (read_noted(dir, noted, err) || read_next(dir, noted, name, is_known, err))
        return -1;
    if (!*is_known)
        *is_known = ckpt_name_parse(noted, name);
    return 0;
}

static int write_line(const char *dir, const char *file, const char *line,
                      struct error *err)
{
    char path[PATH_MAX];
    if (fs_join(path, sizeof path, dir, file, err))
        return -1;
    return fs_write_atomic(path, line, strlen(line), err);
}

int ckpt_latest_announce(const char *dir, const struct ckpt_name *name, const char *temp,
                         struct error *err)
{
    char noted[MAX_LINE_BYTES], hash[17], line[MAX_LINE_BYTES];
    if (read_noted(dir, noted, err) || ckpt_manifest_hash(temp, hash, err))
        return -1;
    snprintf(line, sizeof line, "%s %s %.63s\n", name->text, hash, noted);
    return write_line(dir, NEXT_NAME, line, err);
}

void ckpt_latest_retract(const char *dir)
{
    char path[PATH_MAX];
    struct error err;
    if (fs_join(path, sizeof path, dir, NEXT_NAME, &err) ||
        (unlink(path) && errno != ENOENT))
        log_warning("could not remove '%s/" NEXT_NAME "': %s", dir, strerror(errno));
}

void ckpt_latest_note(const char *dir, const struct ckpt_name *name)
{
    char line[CKPT_NAME_BYTES + 2];
    struct error err;
    snprintf(line, sizeof line, "%s\n", name->text);
    if (write_line(dir, CKPT_LATEST_NAME, line, &err)) {
        log_warning("could not note the newest checkpoint: %s", err.text);
        return;
    }
    if (ckpt_failpoint(CKPT_AT_LATEST_WRITTEN))
        log_warning("could not write '%s/" CKPT_LATEST_NAME "': %s", dir,
                    strerror(errno));
    ckpt_latest_retract(dir);
}

void ckpt_latest_settle(const char *dir)
{
    char noted[MAX_LINE_BYTES];
    struct ckpt_name name;
    struct error err;
    bool is_known;
    if (read_noted(dir, noted, &err) || read_next(dir, noted, &name, &is_known, &err))
        log_warning("could not look for an interrupted save: %s", err.text);
    else if (is_known)
        ckpt_latest_note(dir, &name);
}

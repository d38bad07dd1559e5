#include "train/event_file.h"

#include "base/fs.h"
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define NAME_START "events.out."
#define NAME_MARK "tfevents" // what a reader knows its files by
#define SECONDS_DIGITS 10    // in a name; as many for the next 260 years
#define READ_BYTES ((size_t)1 << 16)

static bool is_ours(const char *name)
{
    return strstr(name, NAME_MARK) != NULL;
}

/* The directory's names; none where it is not there. */
static int list_names(const char *dir, struct fs_names *names, struct error *err)
{
    *names = (struct fs_names){0};
    return fs_exists(dir) ? fs_list(dir, names, err) : 0;
}

/* The seconds in a name of ours; -1: it has none. */
static int64_t seconds_of(const char *name)
{
    static const char head[] = NAME_START NAME_MARK ".";
    size_t n = sizeof head - 1;
    if (strncmp(name, head, n) != 0 || strspn(name + n, "0123456789") != SECONDS_DIGITS)
        return -1;
    return strtoll(name + n, NULL, 10);
}

int event_file_open(struct event_file *f, const char *dir, struct error *err)
{
    struct fs_names names;
    char host[256] = "", name[512];
    int64_t seconds = (int64_t)time(NULL);
    f->fd = -1;
    f->n_bytes = 0;
    if (fs_make_directories(dir, err) || list_names(dir, &names, err))
        return -1;
    for (int64_t i = 0; i < names.n_names; i++) // of a clock that was ahead, or of now
        seconds = i64_max(seconds, seconds_of(names.names[i]) + 1);
    fs_names_release(&names);
    gethostname(host, sizeof host - 1);
    snprintf(name, sizeof name, "%s%s.%0*lld.%s.%d.0", NAME_START, NAME_MARK,
             SECONDS_DIGITS, (long long)seconds, host, (int)getpid());
    if (fs_join(f->path, sizeof f->path, dir, name, err))
        return -1;
    f->fd = open(f->path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (f->fd < 0)
        return error_set(err, ERROR_RUNTIME, "cannot create '%s': %s", f->path,
                         strerror(errno));
    return 0;
}

void event_file_close(struct event_file *f)
{
    if (f->fd >= 0)
        close(f->fd);
    f->fd = -1;
}

int event_file_write(struct event_file *f, const void *records, size_t n)
{
    ssize_t written;
    do {
        written = pwrite(f->fd, records, n, f->n_bytes);
    } while (written < 0 && errno == EINTR);
    if (written == (ssize_t)n) {
        f->n_bytes += written;
        return 0;
    }
    int reason = written < 0 ? errno : ENOSPC;
    int unused = ftruncate(f->fd, f->n_bytes);
    (void)unused;
    errno = reason;
    return -1;
}

/* -- what a crash left --------------------------------------------------------------- */

struct scan {
    const struct event_record *sums;
    FILE *in;
    int64_t n_bytes; // of the file
    int64_t good;    // bytes of whole records so far
    uint8_t *buffer; // (READ_BYTES)
};

static uint64_t little_endian(const uint8_t *bytes, size_t n)
{
    uint64_t value = 0;
    for (size_t i = 0; i < n; i++)
        value |= (uint64_t)bytes[i] << 8 * i;
    return value;
}

/* Go past the next record, whose sum is looked at if it fits the buffer and is the last:
 * false where there is none that is whole. *end := where it says that it ends. */
static bool take_record(struct scan *s, int64_t *end)
{
    uint8_t head[EVENT_HEAD_BYTES], tail[EVENT_TAIL_BYTES];
    *end = s->n_bytes;
    if (fread(head, 1, sizeof head, s->in) != sizeof head)
        return false;
    uint64_t n = little_endian(head, 8);
    int64_t left = s->n_bytes - s->good - EVENT_HEAD_BYTES - EVENT_TAIL_BYTES;
    if (little_endian(head + 8, 4) != event_sum(s->sums, head, 8) || left < 0 ||
        n > (uint64_t)left)
        return false;
    *end = s->good + EVENT_HEAD_BYTES + (int64_t)n + EVENT_TAIL_BYTES;
    if (n > READ_BYTES) {
        if (fseeko(s->in, (off_t)*end, SEEK_SET))
            return false;
    } else if (fread(s->buffer, 1, n, s->in) != n ||
               fread(tail, 1, sizeof tail, s->in) != sizeof tail ||
               little_endian(tail, 4) != event_sum(s->sums, s->buffer, n)) {
        return false;
    }
    s->good = *end;
    return true;
}

/* What follows the last whole record is nothing but zeros, as after a loss of power. */
static bool rest_is_zero(struct scan *s)
{
    if (fseeko(s->in, (off_t)s->good, SEEK_SET))
        return false;
    for (size_t n; (n = fread(s->buffer, 1, READ_BYTES, s->in)) > 0;)
        for (size_t i = 0; i < n; i++)
            if (s->buffer[i])
                return false;
    return true;
}

static int repair_file(struct scan *s, const char *path, struct error *err)
{
    struct stat st;
    int64_t end = 0;
    if (fstat(fileno(s->in), &st))
        return error_set(err, ERROR_RUNTIME, "cannot read '%s': %s", path,
                         strerror(errno));
    s->n_bytes = (int64_t)st.st_size;
    while (s->good < s->n_bytes && take_record(s, &end))
        continue;
    if (s->good == s->n_bytes)
        return 0;
    if (end < s->n_bytes && !rest_is_zero(s)) {
        log_warning("'%s' has a wrong record at byte %lld: TensorBoard reads no further "
                    "in it",
                    path, (long long)s->good);
        return 0;
    }
    if (truncate(path, (off_t)s->good))
        return error_set(err, ERROR_RUNTIME, "cannot cut '%s': %s", path,
                         strerror(errno));
    log_info("'%s': %lld bytes of a record that was not finished are cut off", path,
             (long long)(s->n_bytes - s->good));
    return 0;
}

int event_file_repair(const struct event_record *e, const char *dir, struct error *err)
{
    struct fs_names names;
    struct scan s = {.sums = e};
    char path[PATH_MAX] = "";
    struct stat st;
    int rc = -1;
    if (list_names(dir, &names, err))
        return -1;
    for (int64_t i = names.n_names; i-- > 0 && !path[0];)
        if (is_ours(names.names[i]) &&
            fs_join(path, sizeof path, dir, names.names[i], err))
            goto done;
    rc = 0;
    if (!path[0] || lstat(path, &st) || !S_ISREG(st.st_mode))
        goto done;
    rc = -1;
    s.in = fopen(path, "re");
    s.buffer = malloc(READ_BYTES);
    if (s.in && s.buffer)
        rc = repair_file(&s, path, err);
    else
        error_set(err, ERROR_RUNTIME, "cannot read '%s': %s", path, strerror(errno));
done:
    if (s.in)
        fclose(s.in);
    free(s.buffer);
    fs_names_release(&names);
    return rc;
}

/* -- an older run -------------------------------------------------------------------- */

int event_file_set_aside(const char *dir, const char *to, struct error *err)
{
    struct fs_names old, names = {0};
    char from_path[PATH_MAX], to_path[PATH_MAX];
    int64_t n_moved = 0;
    int rc = -1;
    if (list_names(to, &old, err))
        return -1;
    if (list_names(dir, &names, err))
        goto done;
    for (int64_t i = 0; i < names.n_names; i++) {
        if (!is_ours(names.names[i]))
            continue;
        if (n_moved++ == 0) {
            for (int64_t j = 0; j < old.n_names; j++)
                if (is_ours(old.names[j]) &&
                    (fs_join(to_path, sizeof to_path, to, old.names[j], err) ||
                     fs_remove_tree(to_path, err)))
                    goto done;
            if (fs_make_directories(to, err))
                goto done;
        }
        if (fs_join(from_path, sizeof from_path, dir, names.names[i], err) ||
            fs_join(to_path, sizeof to_path, to, names.names[i], err) ||
            fs_rename(from_path, to_path, err))
            goto done;
    }
    rc = 0;
done:
    fs_names_release(&old);
    fs_names_release(&names);
    return rc;
}

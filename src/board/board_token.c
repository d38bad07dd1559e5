#include "board/board_token.h"

#include "base/fs.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

int board_token_make(char token[BOARD_TOKEN_BYTES], struct error *err)
{
    unsigned char random[16];
    if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random)
        return error_set(err, ERROR_RUNTIME, "cannot make a token: %s", strerror(errno));
    for (size_t i = 0; i < sizeof random; i++)
        snprintf(token + 2 * i, 3, "%02x", random[i]);
    return 0;
}

int board_token_take(char token[BOARD_TOKEN_BYTES], const char *given, const char *place,
                     struct error *err)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                  "0123456789-_";
    size_t n = strlen(given);
    if (n < BOARD_TOKEN_LEAST || n >= BOARD_TOKEN_BYTES || strspn(given, letters) != n)
        return error_set(err, ERROR_INPUT,
                         "the token in %s must have %d to %d letters, digits, '-' and "
                         "'_': leave it out and one is made",
                         place, BOARD_TOKEN_LEAST, BOARD_TOKEN_BYTES - 1);
    memcpy(token, given, n + 1);
    return 0;
}

/* -- the file ------------------------------------------------------------------------ */

int board_token_path(char *path, size_t size, struct error *err)
{
    const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    char dir[PATH_MAX];
    if (state && state[0] == '/')
        return fs_join(path, size, state, BOARD_TOKEN_NAME, err);
    if (!home || home[0] != '/') {
        const struct passwd *user = getpwuid(geteuid());
        home = user ? user->pw_dir : NULL;
    }
    if (!home || home[0] != '/')
        return error_set(err, ERROR_RUNTIME, "this user has no home directory");
    return fs_join(dir, sizeof dir, home, ".local/state", err) ||
                   fs_join(path, size, dir, BOARD_TOKEN_NAME, err)
               ? -1
               : 0;
}

static int make_parent(const char *path, struct error *err)
{
    char dir[PATH_MAX];
    const char *slash = strrchr(path, '/');
    if (!slash || slash == path)
        return 0;
    if ((size_t)(slash - path) >= sizeof dir)
        return error_set(err, ERROR_INPUT, "path too long: '%s'", path);
    memcpy(dir, path, (size_t)(slash - path));
    dir[slash - path] = 0;
    return fs_make_directories(dir, err);
}

/* A sibling is written first and then linked, which fails where the name is taken: of two
 * boards that start at once, both read the token of one. */
int board_token_create(const char *path, struct error *err)
{
    char tmp[PATH_MAX], line[BOARD_TOKEN_BYTES + 1];
    int fd = -1, rc = -1;
    if (fs_exists(path))
        return 0;
    if (snprintf(tmp, sizeof tmp, "%s.%ld.tmp", path, (long)getpid()) >= (int)sizeof tmp)
        return error_set(err, ERROR_INPUT, "path too long: '%s'", path);
    if (board_token_make(line, err) || make_parent(path, err))
        return -1;
    size_t n = strlen(line);
    line[n++] = '\n';
    fd = fs_create(tmp, O_WRONLY, 0600);
    if (fd < 0) {
        error_set(err, fs_error_kind(errno), "cannot create '%s': %s", tmp,
                  strerror(errno));
        return -1;
    }
    if (fs_write_exact(fd, line, n) || fsync(fd)) {
        error_set(err, ERROR_RUNTIME, "cannot write '%s': %s", tmp, strerror(errno));
        goto done;
    }
    // a file system without links has rename() alone
    if (link(tmp, path) && errno != EEXIST && rename(tmp, path)) {
        error_set(err, ERROR_RUNTIME, "cannot create '%s': %s", path, strerror(errno));
        goto done;
    }
    rc = 0;
done:
    close(fd);
    unlink(tmp);
    return rc;
}

/* -1: the file may be known to others. */
static int check_private(int fd, const char *path, struct error *err)
{
    struct stat st;
    if (fstat(fd, &st))
        return error_set(err, ERROR_RUNTIME, "cannot look at '%s': %s", path,
                         strerror(errno));
    if (!S_ISREG(st.st_mode))
        return error_set(err, ERROR_INPUT, "the token '%s' is not a file", path);
    if (st.st_uid != geteuid() && st.st_uid != 0)
        return error_set(err, ERROR_INPUT,
                         "the token '%s' belongs to another user: name a file of your "
                         "own with --token_file",
                         path);
    if (st.st_mode & (S_IRWXG | S_IRWXO))
        return error_set(err, ERROR_INPUT,
                         "other users may know the token in '%s', whose mode is %03o: "
                         "remove it, and a new one is made that only you can read",
                         path, (unsigned)(st.st_mode & 0777));
    return 0;
}

int board_token_read(const char *path, char token[BOARD_TOKEN_BYTES], struct error *err)
{
    char text[BOARD_TOKEN_BYTES + 16] = "", place[PATH_MAX + 8];
    int rc = -1;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); // a pipe would have us wait
    if (fd < 0)
        return error_set(err, fs_error_kind(errno),
                         "cannot read the token '%s': %s; name another file with "
                         "--token_file",
                         path, strerror(errno));
    if (check_private(fd, path, err))
        goto done;
    ssize_t n = read(fd, text, sizeof text - 1);
    if (n < 0) {
        error_set(err, ERROR_RUNTIME, "cannot read the token '%s': %s", path,
                  strerror(errno));
        goto done;
    }
    text[n] = 0;
    text[strcspn(text, "\r\n")] = 0; // of the line that an editor ended
    snprintf(place, sizeof place, "'%s'", path);
    rc = board_token_take(token, text, place, err);
done:
    close(fd);
    return rc;
}

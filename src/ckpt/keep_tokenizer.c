#include "ckpt/keep_tokenizer.h"

#include "base/fs.h"
#include "base/log.h"
#include "text/tokenizer_save.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#define MOST_BYTES ((size_t)1 << 30)

/* Are these the files themselves, or a file of them? */
static bool is_kept(const char *name, const char *dir)
{
    char *from = realpath(name, NULL), *to = realpath(dir, NULL);
    size_t n = to ? strlen(to) : 0;
    bool is_it = from && to && strncmp(from, to, n) == 0 && (!from[n] || from[n] == '/');
    free(from);
    free(to);
    return is_it;
}

/* *text := the file's; NULL when it has none. */
static int read_file(const char *dir, const char *name, char **text, size_t *n,
                     struct error *err)
{
    char path[PATH_MAX];
    *text = NULL;
    if (fs_join(path, sizeof path, dir, name, err))
        return -1;
    if (fs_read_regular(path, MOST_BYTES, text, n, err))
        return err->kind == ERROR_INPUT ? 0 : -1;
    return 0;
}

static int have_same_file(const char *a_dir, const char *b_dir, const char *name,
                          bool *is_same, struct error *err)
{
    char *a = NULL, *b = NULL;
    size_t n_a = 0, n_b = 0;
    int rc = read_file(a_dir, name, &a, &n_a, err);
    if (rc == 0)
        rc = read_file(b_dir, name, &b, &n_b, err);
    *is_same = a && b && n_a == n_b && memcmp(a, b, n_a) == 0;
    free(a);
    free(b);
    return rc;
}

static int set_aside(const char *output_dir, const char *dir, struct error *err)
{
    char previous[PATH_MAX];
    enum fs_type type;
    if (fs_look(dir, &type, err))
        return -1;
    if (type == FS_NOTHING)
        return 0;
    if (fs_join(previous, sizeof previous, output_dir, CKPT_TOKENIZER_DIR ".previous",
                err) ||
        fs_remove_tree(previous, err) || fs_rename(dir, previous, err))
        return -1;
    log_warning("'%s' was of another run; it is '%s' now", dir, previous);
    return 0;
}

static int write_files(const struct tokenizer *tokenizer, const char *output_dir,
                       const char *dir, struct error *err)
{
    char temp[PATH_MAX];
    bool is_same;
    if (fs_join(temp, sizeof temp, output_dir, CKPT_TOKENIZER_DIR ".tmp", err) ||
        fs_remove_tree(temp, err) || fs_make_directories(temp, err) ||
        tokenizer_save(tokenizer, temp, err) ||
        have_same_file(temp, dir, "tokenizer.json", &is_same, err))
        return -1;
    if (is_same)
        return fs_remove_tree(temp, err);
    if (set_aside(output_dir, dir, err) || fs_rename(temp, dir, err))
        return -1;
    log_info("tokenizer: '%s'", dir);
    return 0;
}

int ckpt_keep_tokenizer(const char *output_dir, const char *name, struct error *err)
{
    char dir[PATH_MAX];
    struct tokenizer *tokenizer = NULL;
    if (fs_join(dir, sizeof dir, output_dir, CKPT_TOKENIZER_DIR, err))
        return -1;
    if (strcmp(name, TOKENIZER_BYTES) == 0)
        return set_aside(output_dir, dir, err);
    if (is_kept(name, dir))
        return 0;
    int rc = tokenizer_open(&tokenizer, name, err);
    if (rc == 0)
        rc = write_files(tokenizer, output_dir, dir, err);
    tokenizer_close(tokenizer);
    return rc;
}

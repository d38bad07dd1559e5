#include "ckpt/keep_tokenizer.h"

#include "base/fs.h"
#include "base/log.h"
#include "token/tokenizer.h"

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

static bool have_same_file(const char *a_dir, const char *b_dir, const char *name)
{
    char path[PATH_MAX], *a = NULL, *b = NULL;
    size_t n_a = 0, n_b = 0;
    struct error ignored;
    bool is_same = fs_join(path, sizeof path, a_dir, name, &ignored) == 0 &&
                   fs_read_all(path, MOST_BYTES, &a, &n_a, &ignored) == 0 &&
                   fs_join(path, sizeof path, b_dir, name, &ignored) == 0 &&
                   fs_read_all(path, MOST_BYTES, &b, &n_b, &ignored) == 0 && n_a == n_b &&
                   memcmp(a, b, n_a) == 0;
    free(a);
    free(b);
    return is_same;
}

static int set_aside(const char *output_dir, const char *dir, struct error *err)
{
    char previous[PATH_MAX];
    if (!fs_exists(dir))
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
    if (fs_join(temp, sizeof temp, output_dir, CKPT_TOKENIZER_DIR ".tmp", err) ||
        fs_remove_tree(temp, err) || fs_make_directories(temp, err) ||
        tokenizer_save(tokenizer, temp, err))
        return -1;
    if (have_same_file(temp, dir, "tokenizer.json"))
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

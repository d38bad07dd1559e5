#include "ckpt/ckpt_tokenizer.h"

#include "base/fs.h"
#include "base/log.h"
#include "ckpt/ckpt_store.h"
#include "data/formats/dataset_list.h"
#include "text/tokenizer_save.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define MOVED_PREFIX CKPT_TOKENIZER_DIR "-"          // then the hash
#define PREVIOUS_NAME CKPT_TOKENIZER_DIR ".previous" // by version 2.0.0
#define BYTES_ROUNDED 128 // what a vocabulary of bytes may be rounded up to

struct search {
    const char *path;
    const char *hash; // "": any will do
    const struct config *cfg;
    char name[PATH_MAX];  // "": not found yet
    const char *why;      // where it was found
    char other[PATH_MAX]; // one that was found and has another hash; "": none
    char other_hash[TOKENIZER_HASH_BYTES];
};

/* -- where to look ------------------------------------------------------------------- */

/* The directory that holds the checkpoint, as the user would write it; where `path` is a
 * link or ends in dots, what is really its parent. */
static int find_parent(const char *path, char parent[PATH_MAX], struct error *err)
{
    struct stat st;
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/')
        n--;
    if (n >= PATH_MAX)
        return error_set(err, ERROR_INPUT, "path too long: '%.200s...'", path);
    snprintf(parent, PATH_MAX, "%.*s", (int)n, path);
    const char *slash = strrchr(parent, '/');
    const char *last = slash ? slash + 1 : parent;
    bool is_plain = strcmp(last, ".") != 0 && strcmp(last, "..") != 0;
    if (!is_plain || (lstat(parent, &st) == 0 && S_ISLNK(st.st_mode))) {
        char *real = realpath(path, NULL);
        if (!real)
            return error_set(err, fs_error_kind(errno), "cannot look at '%s': %s", path,
                             strerror(errno));
        snprintf(parent, PATH_MAX, "%s", real);
        free(real);
    }
    char *end = strrchr(parent, '/');
    if (!end)
        snprintf(parent, PATH_MAX, ".");
    else
        end[end == parent] = 0;
    return 0;
}

/* Is there a tokenizer in `dir_name` beside the checkpoint? */
static int look_beside(struct search *s, const char *dir_name, struct error *err)
{
    char parent[PATH_MAX], dir[PATH_MAX], file[PATH_MAX];
    enum fs_type type;
    if (find_parent(s->path, parent, err) ||
        fs_join(dir, sizeof dir, parent, dir_name, err) ||
        fs_join(file, sizeof file, dir, "tokenizer.json", err) ||
        fs_look(file, &type, err))
        return -1;
    if (type == FS_NOTHING)
        return 0;
    memcpy(s->name, dir, sizeof s->name);
    s->why = "beside the checkpoint";
    return 0;
}

/* *has_others := tokenizers of other runs are beside the checkpoint, which it could have been
 * trained with as well. */
static int look_for_others(const struct search *s, bool *has_others, struct error *err)
{
    char parent[PATH_MAX];
    struct fs_names names;
    *has_others = false;
    if (find_parent(s->path, parent, err) || fs_list(parent, &names, err))
        return -1;
    for (int64_t i = 0; i < names.n_names; i++)
        *has_others |= strncmp(names.names[i], MOVED_PREFIX, strlen(MOVED_PREFIX)) == 0 ||
                       strcmp(names.names[i], PREVIOUS_NAME) == 0;
    fs_names_release(&names);
    return 0;
}

/* The tokenizers of earlier runs in the same directory. */
static int look_at_moved(struct search *s, struct error *err)
{
    char dir_name[sizeof MOVED_PREFIX + TOKENIZER_HASH_BYTES];
    if (!s->hash[0])
        return 0;
    snprintf(dir_name, sizeof dir_name, MOVED_PREFIX "%s", s->hash);
    return look_beside(s, dir_name, err);
}

static int look_at_data(struct search *s, struct error *err)
{
    if (dataset_list_tokenizer(&s->cfg->dataset.input_dir, s->name, sizeof s->name, err))
        return error_prefix(err,
                            "the tokenizer of checkpoint '%s' is to be named with "
                            "--tokenizer",
                            s->path);
    s->why = "of the data it was trained on";
    return 0;
}

/* -- opening ------------------------------------------------------------------------- */

static int refuse_unknown(const struct search *s, struct error *err)
{
    return error_set(err, ERROR_INPUT,
                     "the tokenizer of checkpoint '%s' is not known, and its vocabulary "
                     "of %lld tokens is not the byte-level one: name it with --tokenizer "
                     "DIR",
                     s->path, (long long)s->cfg->model.vocab_size);
}

/* Of the sizes that a vocabulary of n tokens is rounded up to? */
static bool is_rounded(int64_t V, int64_t n)
{
    for (int64_t unit = 1; unit <= BYTES_ROUNDED; unit *= 2)
        if (V == i64_round_up(n, unit))
            return true;
    return false;
}

static bool has_hash(const struct tokenizer *t, const char *hash)
{
    char own[TOKENIZER_HASH_BYTES];
    tokenizer_hash(t, own);
    return strcmp(own, hash) == 0;
}

/* *out NULL without an error: it is not the checkpoint's tokenizer, and was noted. */
static int open_named(struct tokenizer **out, struct search *s, const char *name,
                      struct error *err)
{
    if (tokenizer_open(out, name, err))
        return s->why ? error_prefix(err,
                                     "the tokenizer %s cannot be opened; name it with "
                                     "--tokenizer",
                                     s->why)
                      : -1;
    int64_t n = tokenizer_vocab_size(*out), V = s->cfg->model.vocab_size;
    bool is_other = s->hash[0] && !has_hash(*out, s->hash);
    if (!is_other && n <= V)
        return 0;
    if (is_other) {
        snprintf(s->other, sizeof s->other, "%s", name);
        tokenizer_hash(*out, s->other_hash);
    }
    tokenizer_close(*out);
    *out = NULL;
    if (is_other)
        return 0;
    return error_set(err, ERROR_INPUT,
                     "the tokenizer '%s' has %lld tokens, but checkpoint '%s' only %lld: "
                     "name the tokenizer it was trained with",
                     name, (long long)n, s->path, (long long)V);
}

static int refuse_other(const struct search *s, const char *remedy, struct error *err)
{
    return error_set(err, ERROR_INPUT,
                     "the tokenizer '%.600s' (hash %s) is not the one that checkpoint "
                     "'%.600s' was trained with (hash %s): %s",
                     s->other, s->other_hash, s->path, s->hash, remedy);
}

/* Bytes, if the checkpoint records them, or if it records nothing and its vocabulary is
 * theirs, rounded up or not: a guess, and the log says that it is one. */
static int open_bytes(struct tokenizer **out, const struct search *s, bool is_optional,
                      struct error *err)
{
    int64_t V = s->cfg->model.vocab_size;
    if (tokenizer_open(out, TOKENIZER_BYTES, err))
        return -1;
    if (s->hash[0] && has_hash(*out, s->hash))
        return 0;
    if (!s->hash[0] && is_rounded(V, tokenizer_vocab_size(*out))) {
        log_info(
            "tokenizer: nothing says which one checkpoint '%s' was trained with; its "
            "vocabulary of %lld tokens looks like bytes, so bytes are taken. If that "
            "is wrong, name it with --tokenizer",
            s->path, (long long)V);
        return 0;
    }
    tokenizer_close(*out);
    *out = NULL;
    if (s->other[0])
        return refuse_other(s, "name that one with --tokenizer DIR", err);
    return is_optional ? 0 : refuse_unknown(s, err);
}

static int open_given(struct tokenizer **out, struct search *s, const char *given,
                      struct error *err)
{
    if (open_named(out, s, given, err))
        return -1;
    return *out ? 0
                : refuse_other(s,
                               "name that one, or leave --tokenizer out to have it "
                               "looked for",
                               err);
}

/* Try the places in turn until *out is open; NULL: none has the checkpoint's tokenizer.
 * One that cannot be opened ends the search, unless a hash can tell the right one. */
static int open_found(struct tokenizer **out, struct search *s, struct error *err)
{
    bool has_failed = false;
    struct error failure;
    for (int place = 0; place < 3 && !*out; place++) {
        s->name[0] = 0;
        if (place == 0   ? look_beside(s, CKPT_TOKENIZER_DIR, err)
            : place == 1 ? look_at_moved(s, err)
                         : look_at_data(s, err))
            return -1;
        if (!s->name[0])
            continue;
        if (open_named(out, s, s->name, err)) {
            if (!s->hash[0] || err->kind != ERROR_INPUT)
                return -1;
            if (!has_failed)
                failure = *err;
            has_failed = true;
        } else if (*out) {
            log_info("tokenizer: '%s', %s", s->name, s->why);
        }
    }
    if (!*out && has_failed) {
        *err = failure;
        return -1;
    }
    return 0;
}

int ckpt_tokenizer_open(struct tokenizer **out, const char *given, const char *path,
                        const char *hash, const struct config *cfg, bool is_optional,
                        struct error *err)
{
    struct search s = {.path = path, .hash = hash, .cfg = cfg};
    *out = NULL;
    if (given)
        return open_given(out, &s, given, err);
    bool has_others = false;
    if (!hash[0] && look_for_others(&s, &has_others, err))
        return -1;
    if (has_others)
        return is_optional
                   ? 0
                   : error_set(err, ERROR_INPUT,
                               "checkpoint '%s' does not record its tokenizer, and "
                               "tokenizers of other runs are beside it: name the one it "
                               "was trained with by --tokenizer DIR",
                               path);
    if (open_found(out, &s, err))
        return -1;
    if (*out)
        return 0;
    return open_bytes(out, &s, is_optional, err);
}

/* -- keeping ------------------------------------------------------------------------- */

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

/* The name of the tokenizer in `dir` after another has taken its place. */
static void name_moved(const char *dir,
                       char name[sizeof MOVED_PREFIX + TOKENIZER_HASH_BYTES])
{
    char hash[TOKENIZER_HASH_BYTES] = "damaged"; // no checkpoint has this hash
    struct tokenizer *t;
    struct error ignored;
    if (tokenizer_open(&t, dir, &ignored) == 0) {
        tokenizer_hash(t, hash);
        tokenizer_close(t);
    }
    snprintf(name, sizeof MOVED_PREFIX + TOKENIZER_HASH_BYTES, MOVED_PREFIX "%s", hash);
}

static int set_aside(const char *output_dir, const char *dir, struct error *err)
{
    char previous[PATH_MAX], name[sizeof MOVED_PREFIX + TOKENIZER_HASH_BYTES];
    enum fs_type type;
    if (fs_look(dir, &type, err))
        return -1;
    if (type == FS_NOTHING)
        return 0;
    name_moved(dir, name);
    if (fs_join(previous, sizeof previous, output_dir, name, err) ||
        fs_remove_tree(previous, err) || fs_rename(dir, previous, err))
        return -1;
    log_warning("'%s' is the tokenizer of an earlier run; it was renamed to '%s'", dir,
                previous);
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

/* *is_it := the tokenizer of this hash may belong to another run in output_dir: its
 * checkpoints record the hash, or none. */
static int is_of_another(const char *output_dir, const char *run_id, const char *hash,
                         bool *is_it, struct error *err)
{
    struct ckpt_list list;
    *is_it = false;
    if (ckpt_scan(output_dir, &list, err))
        return -1;
    for (int64_t i = 0; i < list.n_names && !*is_it; i++) {
        struct ckpt_progress p;
        struct error ignored;
        *is_it = ckpt_check(output_dir, &list.names[i], &p, &ignored) == 0 &&
                 strcmp(p.run_id, run_id) != 0 &&
                 (!p.tokenizer_hash[0] || strcmp(p.tokenizer_hash, hash) == 0);
    }
    ckpt_list_release(&list);
    return 0;
}

int ckpt_tokenizer_clear(const char *output_dir, const char *run_id, struct error *err)
{
    char dir[PATH_MAX], hash[TOKENIZER_HASH_BYTES];
    struct tokenizer *t;
    struct error why;
    bool is_it;
    if (fs_join(dir, sizeof dir, output_dir, CKPT_TOKENIZER_DIR, err))
        return -1;
    if (tokenizer_open(&t, dir, &why)) {
        if (why.kind == ERROR_INPUT) // not there, or no command takes it
            return 0;
        *err = why;
        return -1;
    }
    tokenizer_hash(t, hash);
    tokenizer_close(t);
    if (is_of_another(output_dir, run_id, hash, &is_it, err))
        return -1;
    return is_it ? set_aside(output_dir, dir, err) : 0;
}

/* `hash`: its value when the data was prepared; "": not recorded. */
static int keep(const char *output_dir, const char *name, const char *hash,
                struct error *err)
{
    char dir[PATH_MAX], now[TOKENIZER_HASH_BYTES];
    struct tokenizer *tokenizer = NULL;
    int rc;
    if (fs_join(dir, sizeof dir, output_dir, CKPT_TOKENIZER_DIR, err))
        return -1;
    if (strcmp(name, TOKENIZER_BYTES) == 0)
        return set_aside(output_dir, dir, err);
    if (is_kept(name, dir))
        return 0;
    if (tokenizer_open(&tokenizer, name, err))
        return -1;
    tokenizer_hash(tokenizer, now);
    if (hash[0] && strcmp(now, hash) != 0)
        rc = error_set(err, ERROR_INPUT,
                       "'%.600s' has changed since the data was prepared with it (its "
                       "hash was %s, is %s)",
                       name, hash, now);
    else
        rc = write_files(tokenizer, output_dir, dir, err);
    tokenizer_close(tokenizer);
    return rc;
}

int ckpt_tokenizer_keep(const char *output_dir, const char *name, struct error *err)
{
    return keep(output_dir, name, "", err);
}

int ckpt_tokenizer_keep_of(const char *output_dir, const struct config_paths *inputs,
                           struct error *err)
{
    char name[PATH_MAX], hash[TOKENIZER_HASH_BYTES];
    if (dataset_list_tokenizer(inputs, name, sizeof name, err) ||
        dataset_list_tokenizer_hash(inputs, hash, err))
        return -1;
    return name[0] ? keep(output_dir, name, hash, err) : 0;
}

int ckpt_tokenizer_hash_of(const struct config_paths *inputs,
                           char hash[TOKENIZER_HASH_BYTES], struct error *err)
{
    char name[PATH_MAX];
    struct tokenizer *t;
    hash[0] = 0;
    if (dataset_list_tokenizer(inputs, name, sizeof name, err) ||
        dataset_list_tokenizer_hash(inputs, hash, err))
        return -1;
    if (!name[0])
        hash[0] = 0;
    if (!name[0] || hash[0])
        return 0;
    if (tokenizer_open(&t, name, err))
        return -1;
    tokenizer_hash(t, hash);
    tokenizer_close(t);
    return 0;
}

#include "data/text/text_dataset.h"

#include "base/fs.h"
#include "base/log.h"
#include "base/stop.h"
#include "data/formats/dataset_list.h"
#include "data/text/text_files.h"
#include "data/text/text_prepare.h"
#include "text/tokenizer.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <xxhash.h>

#define JSON_KEY "text"
#define WAIT_SECONDS 0.1 // between two attempts to get the lock

_Static_assert(DATASET_HASH_BYTES == TOKENIZER_HASH_BYTES, "two sizes of one hash");

struct text_dataset {
    const struct config_dataset *data;
    const char *path;            // of the JSON lines
    char tokenizer[PATH_MAX];    // as given
    char real[PATH_MAX];         // its full path, as the dataset records it
    char prefix[PATH_MAX];       // of the dataset
    int64_t vocab_size, eos;     // of the tokenizer
    struct dataset_source found; // how the file is now
};

/* -- which tokenizer ----------------------------------------------------------------- */

static bool is_file_in(const char *dir, const char *name)
{
    char path[PATH_MAX];
    enum fs_type type;
    struct error ignored;
    return fs_join(path, sizeof path, dir, name, &ignored) == 0 &&
           fs_look(path, &type, &ignored) == 0 && type == FS_FILE;
}

static int refuse_no_tokenizer(const struct text_dataset *d, const char *dir,
                               struct error *err)
{
    return error_set(
        err, ERROR_INPUT,
        "'%.600s' has to be tokenized, and there is no tokenizer: looked for the "
        "directory '%.600s/gpt2', then for tokenizer.json, vocab.json with merges.txt "
        "and encoder.json with vocab.bpe in '%.600s'; set dataset.tokenizer to the "
        "directory of a tokenizer, or put GPT-2's files into one of these "
        "places: " TOKENIZER_GPT2_FILES,
        d->path, dir, dir);
}

static int find_tokenizer(struct text_dataset *d, struct error *err)
{
    static const char *const files[] = {"tokenizer.json", "vocab.json", "encoder.json"};
    char dir[PATH_MAX];
    const char *slash = strrchr(d->path, '/');
    if (d->data->tokenizer[0]) {
        snprintf(d->tokenizer, sizeof d->tokenizer, "%s", d->data->tokenizer);
        return 0;
    }
    size_t n = slash == d->path ? 1 : slash ? (size_t)(slash - d->path) : 0;
    if (n >= sizeof dir)
        return error_set(err, ERROR_INPUT, "path too long: '%.200s...'", d->path);
    snprintf(dir, sizeof dir, "%.*s", slash ? (int)n : 1, slash ? d->path : ".");
    if (fs_join(d->tokenizer, sizeof d->tokenizer, dir, "gpt2", err))
        return -1;
    if (fs_is_directory(d->tokenizer))
        return 0;
    memcpy(d->tokenizer, dir, sizeof d->tokenizer);
    for (size_t i = 0; i < ARRAY_LEN(files); i++)
        if (is_file_in(dir, files[i]))
            return 0;
    return refuse_no_tokenizer(d, dir, err);
}

static int look_at_tokenizer(struct text_dataset *d, struct error *err)
{
    struct tokenizer *t;
    if (find_tokenizer(d, err))
        return -1;
    if (tokenizer_open(&t, d->tokenizer, err))
        return error_prefix(err, "the tokenizer for '%s' (dataset.tokenizer)", d->path);
    d->vocab_size = tokenizer_vocab_size(t);
    d->eos = tokenizer_eos(t);
    tokenizer_hash(t, d->found.tokenizer_hash);
    tokenizer_close(t);
    if (strcmp(d->tokenizer, TOKENIZER_BYTES) == 0)
        snprintf(d->real, sizeof d->real, "%s", d->tokenizer);
    else if (!realpath(d->tokenizer, d->real))
        return error_set(err, ERROR_INPUT, "cannot open '%s': %s", d->tokenizer,
                         strerror(errno));
    return 0;
}

/* -- which dataset ------------------------------------------------------------------- */

static int name_dataset(struct text_dataset *d, struct error *err)
{
    const char *dir = d->data->cache_dir, *slash = strrchr(d->path, '/');
    char real[PATH_MAX] = "";
    if (dir[0] && !realpath(d->path, real))
        return error_set(err, fs_error_kind(errno), "cannot open '%s': %s", d->path,
                         strerror(errno));
    XXH64_hash_t hash = XXH64(real, strlen(real), 0);
    hash = XXH64(d->found.tokenizer_hash, strlen(d->found.tokenizer_hash), hash);
    int n = snprintf(d->prefix, sizeof d->prefix, "%s%s%s" DATASET_OF_TEXT_MARK "%08x",
                     dir, dir[0] ? "/" : "", dir[0] && slash ? slash + 1 : d->path,
                     (unsigned)(hash & 0xffffffff));
    // room for the suffixes of its files
    if (n + 32 >= (int)sizeof d->prefix)
        return error_set(err, ERROR_INPUT, "path too long: '%.200s...'", d->path);
    return 0;
}

static int look_at_file(const char *path, struct dataset_source *found, struct error *err)
{
    struct stat st;
    if (stat(path, &st))
        return error_set(err, fs_error_kind(errno), "cannot open '%s': %s", path,
                         strerror(errno));
    found->n_bytes = st.st_size;
    found->mtime_ns = (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec;
    return 0;
}

static bool is_same_source(const struct dataset_source *a, const struct dataset_source *b)
{
    return a->n_bytes == b->n_bytes && a->mtime_ns == b->mtime_ns &&
           strcmp(a->tokenizer_hash, b->tokenizer_hash) == 0;
}

/* A dataset that is incomplete or damaged is not ready: it is made again. */
static bool is_ready(const struct text_dataset *d)
{
    struct dataset dataset;
    struct error ignored;
    if (dataset_open(&dataset, d->prefix, DATASET_MEGATRON, &ignored))
        return false;
    bool is_it = dataset.has_meta && is_same_source(&dataset.meta.source, &d->found);
    dataset_close(&dataset);
    return is_it;
}

static int open_dataset(struct text_dataset *d, const struct config_dataset *data,
                        const char *path, struct error *err)
{
    *d = (struct text_dataset){.data = data, .path = path};
    if (look_at_file(path, &d->found, err) || look_at_tokenizer(d, err))
        return -1;
    return name_dataset(d, err);
}

/* -- one process at a time ----------------------------------------------------------- */

static int refuse_place(const char *path, struct error *err)
{
    return error_set(err, fs_error_kind(errno),
                     "cannot write '%s': %s; the JSON lines are prepared there once: set "
                     "dataset.cache_dir to a directory that can be written",
                     path, strerror(errno));
}

/* *lock := the descriptor. */
static int take_lock(const struct text_dataset *d, const char *path, int *lock,
                     struct error *err)
{
    const struct timespec pause = {.tv_nsec = (long)(WAIT_SECONDS * 1e9)};
    bool is_waiting = false;
    for (;;) {
        int fd = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK, 0644);
        if (fd < 0)
            return refuse_place(path, err);
        bool is_held = flock(fd, LOCK_EX | LOCK_NB) == 0;
        bool has_failed = !is_held && errno != EWOULDBLOCK && errno != EINTR;
        int is_same = is_held ? fs_is_same_file(path, fd) : 0, reason = errno;
        if (is_same > 0) {
            *lock = fd;
            return 0;
        }
        close(fd);
        errno = reason;
        if (has_failed || is_same < 0)
            return refuse_place(path, err);
        if (stop_check(err))
            return -1;
        if (is_held) // but the owner before has removed the file
            continue;
        if (!is_waiting)
            log_info("waiting for another process that prepares '%s'", d->path);
        is_waiting = true;
        nanosleep(&pause, NULL);
    }
}

static int make_dataset(const struct text_dataset *d, struct error *err)
{
    struct text_prepared done;
    struct dataset_source now = d->found;
    char *input = strdup(d->path);
    if (!input)
        return error_set(err, ERROR_RUNTIME, "out of memory");
    const struct text_prepare request = {.inputs = &input,
                                         .n_inputs = 1,
                                         .output = d->prefix,
                                         .format = DATASET_MEGATRON,
                                         .tokenizer = d->tokenizer,
                                         .json_key = JSON_KEY,
                                         .is_json = true,
                                         .is_strict = true,
                                         .source = d->found};
    // the one process that does this reports it, whatever its rank
    enum log_level level = log_set_level(LOG_INFO);
    log_info("preparing '%s' with the tokenizer '%s', once", d->path, d->tokenizer);
    int rc = text_prepare(&request, &done, err);
    if (rc == 0)
        log_info("prepared '%s': %lld documents, %lld tokens in %.1f s", d->prefix,
                 (long long)done.counts.n_documents, (long long)done.n_tokens,
                 done.seconds);
    if (rc == 0 && done.counts.n_empty > 0)
        log_warning("%lld empty texts of '%s' are left out",
                    (long long)done.counts.n_empty, d->path);
    log_set_level(level);
    free(input);
    if (rc && err->kind == ERROR_INPUT)
        return error_prefix(err,
                            "cannot prepare '%s' (trefoil prepare has options for other "
                            "keys and encodings; its output can be dataset.input_dir)",
                            d->path);
    if (rc || look_at_file(d->path, &now, err))
        return -1;
    if (!is_same_source(&now, &d->found))
        return error_set(err, ERROR_INPUT,
                         "'%s' has changed while it was prepared; start again when it is "
                         "complete",
                         d->path);
    return 0;
}

static int make_ready(const struct text_dataset *d, struct error *err)
{
    char path[PATH_MAX + 8];
    int lock = -1, rc = 0;
    if (is_ready(d)) {
        log_info("'%s' is prepared already: '%s'", d->path, d->prefix);
        return 0;
    }
    if (d->data->cache_dir[0] && fs_make_directories(d->data->cache_dir, err))
        return error_prefix(err, "dataset.cache_dir, for the data prepared from '%s'",
                            d->path);
    snprintf(path, sizeof path, "%s.lock", d->prefix);
    if (take_lock(d, path, &lock, err))
        return -1;
    if (!is_ready(d)) // the one before may have made it
        rc = make_dataset(d, err);
    unlink(path);
    close(lock);
    return rc;
}

/* -- the data of a run --------------------------------------------------------------- */

/* A dataset of that name takes precedence over a file of text. */
static bool is_json_lines(const char *path)
{
    struct dataset_list list;
    struct error ignored;
    enum fs_type type;
    if (!text_files_is_json(path) || fs_look(path, &type, &ignored) || type != FS_FILE)
        return false;
    if (dataset_list_find(&list, path, &ignored))
        return true;
    dataset_list_release(&list);
    return false;
}

/* The facts that the tokenizer has for the dataset that is to come. */
static void expect_facts(const struct text_dataset *d, struct config_data_facts *facts)
{
    if (!facts->source[0]) {
        facts->vocab_size = d->vocab_size;
        facts->eos_token_id = d->eos;
        snprintf(facts->source, sizeof facts->source, "%.*s", CONFIG_PATH_BYTES - 1,
                 d->real);
    }
    if (d->eos != facts->eos_token_id)
        facts->eos_token_id = -1;
    if (d->vocab_size != facts->vocab_size && !facts->other_source[0]) {
        facts->other_vocab_size = d->vocab_size;
        snprintf(facts->other_source, sizeof facts->other_source, "%.*s",
                 CONFIG_PATH_BYTES - 1, d->real);
    }
}

bool text_dataset_is_coming(const struct config_dataset *data)
{
    const struct config_paths *paths = config_datasets(data);
    for (int64_t i = 0; i < paths->n_paths; i++)
        if (is_json_lines(config_path_at(paths, i)))
            return true;
    return false;
}

static int use_inputs(struct config_dataset *data, bool may_write,
                      struct config_data_facts *coming, struct error *err)
{
    struct config_paths used = {0};
    size_t n_bytes = 0;
    for (int64_t i = 0; i < data->input_dir.n_paths; i++) {
        const char *path = config_path_at(&data->input_dir, i);
        struct text_dataset d;
        bool is_text = is_json_lines(path);
        if (is_text &&
            (open_dataset(&d, data, path, err) || (may_write && make_ready(&d, err))))
            return -1;
        bool has_dataset = is_text && (may_write || is_ready(&d));
        if (is_text && !has_dataset) {
            expect_facts(&d, coming);
            log_info(
                "'%s' would be prepared first, as '%s'; the number of its samples is "
                "not known before",
                path, d.prefix);
        }
        const char *name = has_dataset ? d.prefix : path;
        if (config_paths_add(&used, name, strlen(name), &n_bytes, err))
            return error_prefix(err, "dataset.input_dir: '%s'", path);
    }
    data->datasets = used;
    return 0;
}

int text_dataset_prepare(struct config_dataset *data, struct config_data_facts *facts,
                         struct error *err)
{
    struct config_data_facts none = {.eos_token_id = -1};
    if (use_inputs(data, true, &none, err))
        return -1;
    return dataset_list_facts(data, facts, err);
}

int text_dataset_look(struct config_dataset *data, struct config_data_facts *facts,
                      struct error *err)
{
    struct config_data_facts coming = {.eos_token_id = -1};
    if (use_inputs(data, false, &coming, err) || dataset_list_facts(data, facts, err))
        return -1;
    if (!facts->source[0] && coming.source[0])
        *facts = coming;
    return 0;
}

#include "ckpt/ckpt_store.h"

#include "base/fs.h"
#include "base/log.h"
#include "ckpt/ckpt_failpoint.h"
#include "ckpt/ckpt_read.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

struct ckpt_name ckpt_name_make(int64_t epoch, int64_t step)
{
    struct ckpt_name name = {.epoch = epoch, .step = step};
    snprintf(name.text, sizeof name.text, "epoch_%lld_step_%lld", (long long)epoch,
             (long long)step);
    return name;
}

/* Skip `word` and the number after it; NULL when they are not there. */
static const char *parse_field(const char *text, const char *word, int64_t *value)
{
    size_t n = strlen(word);
    if (strncmp(text, word, n) != 0)
        return NULL;
    *value = 0;
    for (text += n; *text >= '0' && *text <= '9'; text++)
        if (__builtin_mul_overflow(*value, 10, value) ||
            __builtin_add_overflow(*value, *text - '0', value))
            return NULL;
    return text;
}

bool ckpt_name_parse(const char *text, struct ckpt_name *name)
{
    int64_t epoch, step;
    const char *at = parse_field(text, "epoch_", &epoch);
    if (at)
        at = parse_field(at, "_step_", &step);
    if (!at)
        return false;
    *name = ckpt_name_make(epoch, step);
    return strcmp(name->text, text) == 0;
}

static int compare_newest_first(const void *a, const void *b)
{
    const struct ckpt_name *x = a, *y = b;
    if (x->step != y->step)
        return x->step > y->step ? -1 : 1;
    return (x->epoch < y->epoch) - (x->epoch > y->epoch);
}

int ckpt_scan(const char *dir, struct ckpt_list *list, struct error *err)
{
    struct fs_names files;
    *list = (struct ckpt_list){0};
    if (fs_list(dir, &files, err))
        return -1;
    list->names = calloc((size_t)files.n_names + 1, sizeof *list->names);
    for (int64_t i = 0; i < files.n_names && list->names; i++)
        list->n_names += ckpt_name_parse(files.names[i], &list->names[list->n_names]);
    fs_names_release(&files);
    if (!list->names)
        return error_set(err, ERROR_RUNTIME, "out of memory for the names in '%s'", dir);
    qsort(list->names, (size_t)list->n_names, sizeof *list->names, compare_newest_first);
    return 0;
}

void ckpt_list_release(struct ckpt_list *list)
{
    free(list->names);
    *list = (struct ckpt_list){0};
}

int64_t ckpt_newest_step(const char *dir)
{
    struct ckpt_list list;
    struct error err;
    int64_t step = -1;
    if (ckpt_scan(dir, &list, &err) == 0 && list.n_names > 0)
        step = list.names[0].step;
    ckpt_list_release(&list);
    return step;
}

/* -- is it whole? -------------------------------------------------------------------- */

int ckpt_check_name(const char *path, const struct ckpt_progress *progress,
                    struct error *err)
{
    struct ckpt_name name;
    char text[CKPT_NAME_BYTES];
    size_t n = strlen(path), begin;
    while (n > 0 && path[n - 1] == '/')
        n--;
    for (begin = n; begin > 0 && path[begin - 1] != '/';)
        begin--;
    if (n - begin >= sizeof text)
        return 0;
    snprintf(text, sizeof text, "%.*s", (int)(n - begin), path + begin);
    if (!ckpt_name_parse(text, &name) ||
        (progress->step == name.step && progress->epoch == name.epoch))
        return 0;
    return error_set(err, ERROR_INPUT,
                     "'%s/" CKPT_MANIFEST_NAME "' belongs to another checkpoint: it says "
                     "epoch %lld, step %lld",
                     path, (long long)progress->epoch, (long long)progress->step);
}

int ckpt_verify(const char *path, int n_sets, bool *is_damaged, struct error *err)
{
    struct ckpt_reader reader;
    int rc = ckpt_reader_open_named(&reader, path, n_sets, err);
    if (rc == 0)
        rc = ckpt_reader_verify(&reader, err);
    *is_damaged = reader.is_damaged;
    ckpt_reader_close(&reader);
    return rc;
}

int ckpt_check(const char *dir, const struct ckpt_name *name,
               struct ckpt_progress *progress, struct error *err)
{
    struct ckpt_manifest m = {.n_parameters = 0};
    char path[PATH_MAX];
    bool is_damaged;
    int rc = -1;
    if (fs_join(path, sizeof path, dir, name->text, err) ||
        ckpt_manifest_read(&m, path, &is_damaged, err) ||
        ckpt_manifest_check_files(&m, path, err) ||
        ckpt_check_name(path, &m.progress, err))
        goto done;
    if (progress)
        *progress = m.progress;
    rc = 0;
done:
    ckpt_manifest_release(&m);
    return rc;
}

int ckpt_set_aside(const char *path, char *aside, size_t size, struct error *err)
{
    for (int i = 1; i < 1000; i++) {
        char number[16] = "";
        if (i > 1)
            snprintf(number, sizeof number, "-%d", i);
        if (snprintf(aside, size, "%s" CKPT_DAMAGED_SUFFIX "%s", path, number) >=
            (int)size)
            return error_set(err, ERROR_INPUT, "path too long: '%.200s...'", path);
        if (!fs_exists(aside))
            return fs_rename(path, aside, err);
    }
    return error_set(err, ERROR_RUNTIME, "there are a thousand '%s', remove some", aside);
}

/* -- whose is it? -------------------------------------------------------------------- */

/*
 * Runs have names so that one never prunes another's checkpoints. A random name for
 * each would do, but for one promise: a state is the same bytes whatever wrote it. So a
 * run that has a directory to itself is named by the hash of what decides its numbers,
 * and only those that could be mistaken for another get random bits.
 */

/* What a run computes with, whatever the layout; malloc'ed, or NULL. */
static char *describe_run(const char *config_json, const char *data_fingerprint)
{
    static const char *const members[] = {"seed", "Model", "Optimizer", "mix_precision"};
    json_t *config = json_loads(config_json, 0, NULL);
    json_t *facts = json_object();
    for (size_t i = 0; i < ARRAY_LEN(members); i++)
        json_object_set(facts, members[i], json_object_get(config, members[i]));
    json_object_set(
        facts, "batch",
        json_object_get(json_object_get(config, "batch_size"), "global_batch_size"));
    json_object_set_new(facts, "data", json_string(data_fingerprint));
    char *text = json_dumps(facts, JSON_SORT_KEYS | JSON_COMPACT);
    json_decref(facts);
    json_decref(config);
    return text;
}

/* An imported model, of step 0, is no run's. */
static bool holds_no_run(const char *output_dir)
{
    struct ckpt_list list;
    struct error ignored;
    bool is_empty = ckpt_scan(output_dir, &list, &ignored) == 0;
    for (int64_t i = 0; i < list.n_names; i++)
        is_empty = is_empty && list.names[i].step == 0;
    ckpt_list_release(&list);
    return is_empty;
}

void ckpt_run_id_make(char id[CKPT_RUN_ID_BYTES], const char *output_dir,
                      const char *config_json, const char *data_fingerprint)
{
    uint64_t bits;
    char *text =
        holds_no_run(output_dir) ? describe_run(config_json, data_fingerprint) : NULL;
    if (text)
        ckpt_hash_text(text, strlen(text), id);
    else if (getrandom(&bits, sizeof bits, 0) == sizeof bits)
        snprintf(id, CKPT_RUN_ID_BYTES, "%016llx", (unsigned long long)bits);
    else
        id[0] = 0;
    free(text);
}

void ckpt_warn_of_other_runs(const char *output_dir, const char *run_id)
{
    struct ckpt_list list;
    struct error ignored;
    if (ckpt_scan(output_dir, &list, &ignored))
        return;
    for (int64_t i = 0; i < list.n_names; i++) {
        struct ckpt_progress progress;
        if (ckpt_check(output_dir, &list.names[i], &progress, &ignored) ||
            progress.step == 0 || // an imported model: no run's
            strcmp(progress.run_id, run_id) == 0)
            continue;
        log_warning("output_dir '%s' holds checkpoints of another run too, '%s' for one; "
                    "they stay, unless this run saves the same step. After this run's "
                    "first save the directory stands for this run alone",
                    output_dir, list.names[i].text);
        break;
    }
    ckpt_list_release(&list);
}

bool ckpt_find_own(const char *output_dir, const char *run_id, int64_t step,
                   char path[PATH_MAX])
{
    struct ckpt_list list;
    struct error ignored;
    bool is_found = false;
    if (ckpt_scan(output_dir, &list, &ignored))
        return false;
    for (int64_t i = 0; i < list.n_names && !is_found; i++) {
        struct ckpt_progress progress;
        is_found = list.names[i].step < step &&
                   ckpt_check(output_dir, &list.names[i], &progress, &ignored) == 0 &&
                   strcmp(progress.run_id, run_id) == 0 &&
                   fs_join(path, PATH_MAX, output_dir, list.names[i].text, &ignored) == 0;
    }
    ckpt_list_release(&list);
    return is_found;
}

/* -- removing ------------------------------------------------------------------------ */

/*
 * A checkpoint that is to go is first renamed to ".trash-*", so a directory with a
 * checkpoint's name is always complete. Whatever a killed process leaves behind is
 * removed by the next save.
 */

#define TRASH_PREFIX ".trash-"

static uint32_t random_suffix(void)
{
    uint32_t bits;
    if (getrandom(&bits, sizeof bits, GRND_NONBLOCK) != sizeof bits)
        bits = (uint32_t)getpid();
    return bits;
}

int ckpt_tidy_rename(const char *output_dir, const char *path,
                     const struct ckpt_name *name, char trash[PATH_MAX],
                     struct error *err)
{
    char trash_name[CKPT_NAME_BYTES + 32];
    snprintf(trash_name, sizeof trash_name, TRASH_PREFIX "%s-%08x", name->text,
             random_suffix());
    if (fs_join(trash, PATH_MAX, output_dir, trash_name, err) ||
        fs_rename(path, trash, err))
        return -1;
    if (ckpt_failpoint(CKPT_AT_TRASH_RENAMED))
        return error_set(err, ERROR_RUNTIME, "cannot rename '%s': %s", path,
                         strerror(errno));
    return 0;
}

void ckpt_tidy_remove(const char *trash)
{
    struct error err;
    if (fs_remove_tree(trash, &err))
        log_warning("could not remove an old checkpoint: %s", err.text);
    else if (ckpt_failpoint(CKPT_AT_TRASH_REMOVED))
        log_warning("could not remove '%s': %s", trash, strerror(errno));
}

void ckpt_tidy_discard(const char *output_dir, const char *path,
                       const struct ckpt_name *name)
{
    char trash[PATH_MAX];
    struct error err;
    if (ckpt_tidy_rename(output_dir, path, name, trash, &err))
        log_warning("could not remove an old checkpoint: %s", err.text);
    else
        ckpt_tidy_remove(trash);
}

/* "epoch_E_step_N.tmp-RANDOM": the lock is ours, so nobody else can be writing it. */
static bool is_unfinished(const char *file_name)
{
    struct ckpt_name name;
    char base[CKPT_NAME_BYTES];
    const char *infix = strstr(file_name, CKPT_TEMP_INFIX);
    if (!infix || infix - file_name >= (ptrdiff_t)sizeof base)
        return false;
    snprintf(base, sizeof base, "%.*s", (int)(infix - file_name), file_name);
    return ckpt_name_parse(base, &name);
}

static bool is_trash(const char *file_name)
{
    return strncmp(file_name, TRASH_PREFIX "epoch_", strlen(TRASH_PREFIX "epoch_")) == 0;
}

void ckpt_tidy_leftovers(const char *output_dir)
{
    struct fs_names files;
    struct error err;
    if (fs_list(output_dir, &files, &err)) {
        log_warning("could not look for leftovers: %s", err.text);
        return;
    }
    for (int64_t i = 0; i < files.n_names; i++) {
        char path[PATH_MAX];
        if (!is_unfinished(files.names[i]) && !is_trash(files.names[i]))
            continue;
        if (fs_join(path, sizeof path, output_dir, files.names[i], &err) ||
            fs_remove_tree(path, &err))
            log_warning("could not remove what an interrupted save left: %s", err.text);
        else
            log_info("removed '%s', left by an interrupted save", path);
    }
    fs_names_release(&files);
}

/* Remove the run's checkpoints up to `saved`, which is one of them, that `keep` does not
 * name. One that looks damaged, or is another run's, is neither counted nor removed. */
void ckpt_tidy_prune(const char *output_dir, const struct ckpt_name *saved,
                     const char *run_id, const struct ckpt_keep *keep)
{
    struct ckpt_list list;
    struct error err;
    int64_t n_own = 1; // `saved`
    if (keep->last <= 0)
        return;
    if (ckpt_scan(output_dir, &list, &err)) {
        log_warning("could not remove old checkpoints: %s", err.text);
        return;
    }
    for (int64_t i = 0; i < list.n_names; i++) {
        const struct ckpt_name *name = &list.names[i];
        struct ckpt_progress progress;
        char path[PATH_MAX];
        if (name->step > saved->step || strcmp(name->text, saved->text) == 0)
            continue;
        if (ckpt_check(output_dir, name, &progress, &err))
            log_warning("left %s checkpoint alone: %s",
                        err.kind == ERROR_INPUT ? "a damaged" : "an unreadable",
                        err.text);
        else if (strcmp(progress.run_id, run_id) == 0 && ++n_own > keep->last &&
                 (keep->every <= 0 || name->step % keep->every != 0) &&
                 fs_join(path, sizeof path, output_dir, name->text, &err) == 0)
            ckpt_tidy_discard(output_dir, path, name);
    }
    ckpt_list_release(&list);
}

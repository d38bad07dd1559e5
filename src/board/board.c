#include "board/board.h"

#include "base/clock.h"
#include "base/fs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BUFFER_BYTES ((size_t)1 << 20)
#define PIECE_BYTES ((int64_t)4 << 20) // of a run's file between two requests
#define LOOK_SECONDS 3.0               // between two looks for new runs

static bool is_known(const struct board *b, const char *dir)
{
    for (int64_t i = 0; i < b->n_runs; i++)
        if (strcmp(b->runs[i]->dir, dir) == 0)
            return true;
    return false;
}

static int add_run(struct board *b, const char *dir)
{
    if (b->n_runs == BOARD_RUNS_MOST || is_known(b, dir))
        return 0;
    struct run *run = malloc(sizeof *run);
    if (!run)
        return -1;
    run_init(run, dir);
    b->runs[b->n_runs++] = run;
    b->version++;
    return 0;
}

/* The directory itself where it is a run's, or those in it. */
static int find_runs(struct board *b, const char *dir)
{
    struct fs_names list;
    struct error ignored;
    char path[PATH_MAX];
    if (run_is_directory(dir))
        return add_run(b, dir);
    if (fs_list(dir, &list, &ignored))
        return 0;
    int rc = 0;
    for (int64_t i = 0; rc == 0 && i < list.n_names; i++)
        if (fs_join(path, sizeof path, dir, list.names[i], &ignored) == 0 &&
            fs_is_directory(path) && run_is_directory(path))
            rc = add_run(b, path);
    fs_names_release(&list);
    return rc;
}

int board_init(struct board *b, char *const *dirs, int n_dirs, struct error *err)
{
    *b = (struct board){.dirs = dirs, .n_dirs = n_dirs, .looked = clock_seconds()};
    pthread_mutex_init(&b->mutex, NULL);
    for (int i = 0; i < n_dirs; i++) {
        enum fs_type type;
        if (fs_look(dirs[i], &type, err))
            return -1;
        if (type != FS_DIRECTORY)
            return error_set(
                err, ERROR_INPUT,
                "'%s' is not a directory: name the output_dir of a run, or a "
                "directory that holds such",
                dirs[i]);
    }
    b->buffer = malloc(BUFFER_BYTES);
    int rc = b->buffer ? 0 : -1;
    for (int i = 0; rc == 0 && i < n_dirs; i++)
        rc = find_runs(b, dirs[i]);
    return rc ? error_set(err, ERROR_RUNTIME, "out of memory for the board") : 0;
}

void board_release(struct board *b)
{
    for (int64_t i = 0; i < b->n_runs; i++) {
        run_release(b->runs[i]);
        free(b->runs[i]);
    }
    free(b->buffer);
    pthread_mutex_destroy(&b->mutex);
    *b = (struct board){0};
}

bool board_refresh(struct board *b)
{
    bool has_more = false;
    pthread_mutex_lock(&b->mutex);
    if (clock_seconds() - b->looked > LOOK_SECONDS) {
        b->looked = clock_seconds();
        for (int i = 0; i < b->n_dirs; i++)
            if (find_runs(b, b->dirs[i]))
                break; // without memory now: the next look may have some
    }
    int64_t n_runs = b->n_runs;
    pthread_mutex_unlock(&b->mutex);
    for (int64_t i = 0; i < n_runs; i++) {
        pthread_mutex_lock(&b->mutex);
        struct run *run = b->runs[i];
        uint64_t before = run->version;
        if (run_refresh(run, b->buffer, BUFFER_BYTES, PIECE_BYTES))
            has_more = true;
        b->version += run->version - before;
        pthread_mutex_unlock(&b->mutex);
    }
    return has_more;
}

uint64_t board_version(struct board *b)
{
    pthread_mutex_lock(&b->mutex);
    uint64_t version = b->version;
    pthread_mutex_unlock(&b->mutex);
    return version;
}

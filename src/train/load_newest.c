#include "train/load_newest.h"

#include "ckpt/ckpt_scan.h"

#include <string.h>

/* Rank 0 decides which checkpoint is tried: the others might look at another moment. An
 * empty path: there are no more. */
static int next_path(struct comm *world, struct ckpt_candidates *candidates,
                     char path[PATH_MAX], struct error *err)
{
    memset(path, 0, PATH_MAX);
    if (comm_rank(world) == 0 && !ckpt_candidates_next(candidates, path, PATH_MAX))
        path[0] = 0;
    return comm_bcast_bytes(world, path, PATH_MAX, 0, err);
}

/* Load it on all ranks, or on none. */
static int load(const struct load_newest *what, struct comm *world, const char *path,
                bool *is_damaged, struct error *err)
{
    *is_damaged = false;
    int rc = what->load(what->context, path, is_damaged, err);
    // a rank that failed for another reason decides: the next one would fail it too
    int64_t failures[] = {rc && *is_damaged, rc && !*is_damaged};
    struct error mpi_err;
    *is_damaged = false;
    if (comm_max_i64(world, failures, ARRAY_LEN(failures), &mpi_err)) {
        *err = mpi_err;
        return -1;
    }
    rc = comm_agree(world, rc, err);
    *is_damaged = failures[0] && !failures[1];
    return rc;
}

static int try_each(const struct load_newest *what, struct comm *world,
                    struct ckpt_candidates *candidates, char path[PATH_MAX],
                    struct error *err)
{
    struct error newest = {.text = ""}, why;
    bool is_first = comm_rank(world) == 0, is_damaged;
    for (int n_tried = 0;; n_tried++) {
        if (next_path(world, candidates, path, err))
            return -1;
        if (path[0] == 0)
            break;
        if (load(what, world, path, &is_damaged, &why) == 0) {
            if (is_first)
                ckpt_candidates_warn(candidates, path);
            return 0;
        }
        if (!is_damaged) {
            *err = why;
            if (why.kind == ERROR_RUNTIME)
                error_set(err, why.kind,
                          "%.1500s; the checkpoint was left as it is: try again, or name "
                          "another",
                          why.text);
            return -1;
        }
        if (n_tried == 0)
            newest = why;
        if (is_first && candidates->list.n_names > 0)
            what->skip(what->context, path, &why);
    }
    int rc = is_first ? ckpt_candidates_none(candidates, &newest, err) : 0;
    return comm_agree(world, rc, err);
}

int load_newest(const struct load_newest *what, struct comm *world, const char *dir,
                char path[PATH_MAX], struct error *err)
{
    struct ckpt_candidates candidates = {.n_tried = 0};
    int rc = comm_rank(world) == 0 ? ckpt_candidates_open(&candidates, dir, err) : 0;
    rc = comm_agree(world, rc, err);
    if (rc == 0)
        rc = try_each(what, world, &candidates, path, err);
    ckpt_candidates_release(&candidates);
    return rc;
}

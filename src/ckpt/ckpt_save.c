/* The steps of ckpt_commit.h by one process that has the whole model. */
#include "base/fs.h"
#include "ckpt/ckpt.h"
#include "ckpt/ckpt_commit.h"
#include "ckpt/ckpt_part.h"
#include "ckpt/ckpt_whole.h"
#include "ckpt/ckpt_write.h"

struct whole_save {
    const struct ckpt_state *state;
    struct ckpt_lock lock;
    struct ckpt_layout layout;
    struct ckpt_whole whole;
    struct ckpt_sums sums;
    struct ckpt_commit commit;
};

static int write_all(struct whole_save *w, const char *output_dir, struct error *err)
{
    const struct ckpt_progress *progress = &w->state->progress;
    struct ckpt_source source = ckpt_whole_source(&w->whole);
    if (ckpt_commit_begin(&w->commit, output_dir, &w->lock, &w->layout, progress, err) ||
        ckpt_write_part(w->commit.temp, &w->layout, &w->whole.part, &source, true,
                        &w->sums, err) ||
        ckpt_commit_finish(&w->commit, progress, &w->sums, err))
        return ckpt_commit_abandon(&w->commit, err);
    return 0;
}

int ckpt_save(const char *output_dir, const struct ckpt_state *state,
              const struct ckpt_keep *keep, char *path, size_t path_size,
              struct error *err)
{
    struct whole_save w = {.state = state};
    int rc = -1;
    struct ckpt_name name = ckpt_name_make(state->progress.epoch, state->progress.step);
    if (fs_make_directories(output_dir, err))
        return -1;
    if (path && fs_join(path, path_size, output_dir, name.text, err))
        return -1;
    if (ckpt_lock_open(&w.lock, output_dir, CKPT_LOCK_BEAT_SECONDS, err))
        return -1;
    if (ckpt_layout_init(&w.layout, state->table, state->rule, CKPT_MAX_FILE_BYTES,
                         err) ||
        ckpt_whole_init(&w.whole, state, err) ||
        ckpt_sums_init(&w.sums, w.layout.n_blocks, err) || write_all(&w, output_dir, err))
        goto done;
    ckpt_tidy(output_dir, &name, state->progress.run_id, keep);
    rc = 0;
done:
    ckpt_sums_release(&w.sums);
    ckpt_whole_release(&w.whole);
    ckpt_layout_release(&w.layout);
    ckpt_lock_close(&w.lock);
    return rc;
}

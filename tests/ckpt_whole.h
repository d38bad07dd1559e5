/*
 * ckpt_whole - a whole model in flat buffers, saved and loaded by one process with the
 * steps that jobs use.
 */
#ifndef TESTS_CKPT_WHOLE_H
#define TESTS_CKPT_WHOLE_H

#include "base/fs.h"
#include "ckpt/ckpt_find.h"
#include "ckpt/ckpt_read.h"
#include "ckpt/ckpt_write.h"

#include <string.h>

/* A whole model in memory. All pointers are borrowed. */
struct ckpt_state {
    struct ckpt_progress progress;
    const struct param_table *table; // of the whole model, float32
    const struct update_rule *rule;
    /* By kind: flat buffers of table->n_flat elements laid out by `table`. */
    float *flat[1 + UPDATE_MAX_STATES];
};

struct ckpt_whole {
    struct shard_map map;
    struct ckpt_part part;
    const struct ckpt_state *state; // borrowed
};

static inline int ckpt_whole_init(struct ckpt_whole *w, const struct ckpt_state *state,
                                  struct error *err)
{
    *w = (struct ckpt_whole){.state = state};
    if (shard_map_init(&w->map, state->table, 1, 0, err))
        return -1;
    return ckpt_part_init(&w->part, &w->map, true, err);
}

static inline void ckpt_whole_release(struct ckpt_whole *w)
{
    ckpt_part_release(&w->part);
    shard_map_release(&w->map);
}

static inline float *whole_place(const struct ckpt_whole *w, int kind,
                                 const struct ckpt_piece *piece, int64_t first)
{
    return w->state->flat[kind] + piece->row->offset + piece->first + first;
}

static inline const float *whole_view(void *context, int kind,
                                      const struct ckpt_piece *piece, int64_t first,
                                      int64_t n, float *room, struct error *err)
{
    (void)n;
    (void)room;
    (void)err;
    return whole_place(context, kind, piece, first);
}

static inline int whole_take(void *context, int kind, const struct ckpt_piece *piece,
                             int64_t first, int64_t n, const float *x, struct error *err)
{
    (void)err;
    memcpy(whole_place(context, kind, piece, first), x, (size_t)n * sizeof *x);
    return 0;
}

static inline struct ckpt_source ckpt_whole_source(struct ckpt_whole *w)
{
    return (struct ckpt_source){whole_view, w};
}

static inline struct ckpt_sink ckpt_whole_sink(struct ckpt_whole *w)
{
    return (struct ckpt_sink){whole_take, w};
}

struct whole_save {
    const struct ckpt_state *state;
    struct ckpt_lock lock;
    struct ckpt_layout layout;
    struct ckpt_whole whole;
    struct ckpt_sums sums;
    struct ckpt_commit commit;
};

static inline int write_all(struct whole_save *w, const char *output_dir,
                            struct error *err)
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

static inline int ckpt_save(const char *output_dir, const struct ckpt_state *state,
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

static inline int load_sets(const char *path, struct ckpt_state *state, int n_sets,
                            struct error *err)
{
    struct ckpt_reader reader;
    struct ckpt_whole whole = {.part.n_pieces = 0};
    struct ckpt_sink sink = ckpt_whole_sink(&whole);
    int rc = -1;
    if (ckpt_reader_open(&reader, path, n_sets, err) ||
        ckpt_reader_check(&reader, state->table, state->rule, n_sets, err) ||
        ckpt_whole_init(&whole, state, err) ||
        ckpt_reader_read(&reader, n_sets, &whole.part, &sink, err))
        goto done;
    const char *config_json = state->progress.config_json;
    state->progress = reader.manifest.progress;
    state->progress.config_json = config_json; // the caller's, not the checkpoint's
    rc = 0;
done:
    ckpt_whole_release(&whole);
    ckpt_reader_close(&reader);
    return rc;
}

static inline int ckpt_load(const char *path, struct ckpt_state *state, struct error *err)
{
    return load_sets(path, state, N_CKPT_SETS, err);
}

static inline int ckpt_load_params(const char *path, const struct param_table *table,
                                   float *params, struct error *err)
{
    struct ckpt_state state = {.table = table, .flat = {params}};
    return load_sets(path, &state, CKPT_MODEL + 1, err);
}

#endif

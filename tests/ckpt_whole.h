/*
 * ckpt_whole - a whole model in flat buffers, saved and loaded by one process as a job
 * does it.
 */
#ifndef TESTS_CKPT_WHOLE_H
#define TESTS_CKPT_WHOLE_H

#include "base/fs.h"
#include "ckpt/ckpt_find.h"
#include "ckpt/ckpt_read.h"
#include "ckpt/ckpt_saver.h"

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

/* As an import does: by a job of one process. */
static inline int ckpt_save(const char *output_dir, const struct ckpt_state *state,
                            const struct ckpt_keep *keep, char *path, size_t path_size,
                            struct error *err)
{
    struct ckpt_name name = ckpt_name_make(state->progress.epoch, state->progress.step);
    struct ckpt_whole whole = {.state = NULL};
    struct ckpt_saver *saver = NULL;
    int rc = path ? fs_join(path, path_size, output_dir, name.text, err) : 0;
    if (rc == 0)
        rc = ckpt_whole_init(&whole, state, err);
    struct ckpt_saver_options opt = {.output_dir = output_dir,
                                     .whole = state->table,
                                     .rule = state->rule,
                                     .map = &whole.map,
                                     .max_file_bytes = CKPT_MAX_FILE_BYTES,
                                     .keep = *keep,
                                     .source = ckpt_whole_source(&whole)};
    if (rc == 0)
        rc = ckpt_saver_open(&saver, &opt, err);
    if (rc == 0)
        rc = ckpt_saver_save(saver, &state->progress, true, err);
    ckpt_saver_close(saver);
    ckpt_whole_release(&whole);
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

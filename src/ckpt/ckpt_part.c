#include "ckpt/ckpt_part.h"

#include <stdlib.h>

/* Runs that follow each other without a gap (all columns of a matrix that mp could cut)
 * are one: a call to the kernel and a copy for each row would cost more than the data. */
static struct param_runs joined_runs(const struct param *row)
{
    struct param_runs runs = param_runs(row);
    if (runs.n_runs > 1 && runs.run_stride == runs.run_length) {
        runs.run_length *= runs.n_runs;
        runs.n_runs = 1;
    }
    return runs;
}

int ckpt_part_init(struct ckpt_part *part, const struct shard_map *map, bool only_counted,
                   struct error *err)
{
    *part = (struct ckpt_part){0};
    part->pieces = calloc((size_t)map->n_pieces + 1, sizeof *part->pieces);
    if (!part->pieces)
        return error_set(err, ERROR_RUNTIME,
                         "out of memory for the pieces of %lld parameters",
                         (long long)map->n_pieces);
    for (int64_t i = 0; i < map->n_pieces; i++) {
        const struct shard_piece *piece = &map->pieces[i];
        const struct param *row = &map->table->params[piece->row];
        if (only_counted && !row->is_counted)
            continue;
        part->pieces[part->n_pieces++] = (struct ckpt_piece){.row = row,
                                                             .id = i,
                                                             .runs = joined_runs(row),
                                                             .first = piece->first,
                                                             .n = piece->n};
        part->n_elements += piece->n;
    }
    return 0;
}

void ckpt_part_release(struct ckpt_part *part)
{
    free(part->pieces);
    *part = (struct ckpt_part){0};
}

int64_t ckpt_piece_run(const struct ckpt_piece *piece, int64_t i, int64_t n,
                       int64_t *whole)
{
    const struct param_runs *runs = &piece->runs;
    int64_t at = piece->first + i;
    int64_t run = at / runs->run_length, inside = at % runs->run_length;
    *whole = runs->first + run * runs->run_stride + inside;
    return i64_min(n, runs->run_length - inside);
}

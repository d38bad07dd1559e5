/* What each process adds to the hashes of blocks, brought together. A process sends the
 * blocks it wrote in and no others, so the whole is little more than one record a block.
 */
#include "ckpt/ckpt_commit.h"

#include <stdlib.h>

/* bounds[r]: bytes of the records of the ranks before r. */
static int share_bounds(struct comm *comm, int64_t n_records, int64_t *bounds,
                        struct error *err)
{
    int size = comm_size(comm), me = comm_rank(comm);
    for (int r = 0; r <= size; r++)
        bounds[r] = 0;
    bounds[me + 1] = n_records * (int64_t)sizeof(struct ckpt_sum_record);
    if (comm_sum_i64(comm, bounds, size + 1, err))
        return -1;
    for (int r = 0; r < size; r++)
        bounds[r + 1] += bounds[r];
    return 0;
}

static void add_others(struct ckpt_sums *sums, const struct ckpt_sum_record *all,
                       const int64_t *bounds, int size)
{
    int64_t width = (int64_t)sizeof *all;
    for (int64_t i = bounds[1] / width; i < bounds[size] / width; i++)
        ckpt_sums_add_record(sums, &all[i]);
}

static int out_of_memory(struct error *err)
{
    return error_set(err, ERROR_RUNTIME, "out of memory for the hashes of a checkpoint");
}

int ckpt_gather_sums(struct ckpt_sums *sums, struct comm *comm, struct error *err)
{
    int size = comm_size(comm), me = comm_rank(comm), rc = 0;
    if (size == 1)
        return 0;
    struct ckpt_sum_record *mine = calloc((size_t)sums->n_blocks + 1, sizeof *mine);
    int64_t *bounds = calloc((size_t)size + 1, sizeof *bounds);
    struct ckpt_sum_record *all = NULL;
    if (!mine || !bounds)
        rc = out_of_memory(err);
    rc = comm_agree(comm, rc, err);
    if (rc || !mine || !bounds)
        goto done;
    rc = share_bounds(comm, ckpt_sums_records(sums, mine), bounds, err);
    if (rc)
        goto done;
    if (me == 0) {
        all = malloc((size_t)bounds[size] + 1);
        if (!all)
            rc = out_of_memory(err);
    }
    rc = comm_agree(comm, rc, err);
    if (rc == 0)
        rc = comm_gather_bytes(comm, mine, all, bounds, 0, err);
    if (rc == 0 && me == 0)
        add_others(sums, all, bounds, size);
done:
    free(mine);
    free(bounds);
    free(all);
    return rc;
}

#include "train/room.h"

#include "base/memory.h"
#include "base/thread.h"
#include "train/fit.h"

#include <stdio.h>

#define GB 1e9

int room_check(int64_t n_ranks, bool is_oversubscribed, const struct config *cfg,
               struct error *err)
{
    struct plan_data found;
    struct plan_memory mem;
    struct error ignored;
    char crowd[64] = "", changes[FIT_CHANGES_BYTES] = "";
    int rank, n_local = (int)n_ranks, n_processors = thread_processors();
    if (n_ranks < 1)
        return 0;
    // data that cannot be read is told of by the ranks
    const struct plan_data *data = plan_data_find(&found, cfg, &ignored) ? NULL : &found;
    if (fit_fullest(&mem, &rank, cfg, data, err))
        return -1;
    double all = (double)memory_available_bytes();
    double each = all / (double)n_ranks, needed = fit_needed(&mem, n_local);
    bool is_crowded = !is_oversubscribed && thread_is_crowded(n_ranks);
    if (!is_crowded && needed <= each)
        return 0;
    if (is_crowded)
        snprintf(crowd, sizeof crowd, ", where more than %d need --oversubscribe",
                 RANKS_PER_PROCESSOR * n_processors);
    else
        fit_changes(changes, cfg, data, n_local, each);
    return error_set(err, is_crowded ? ERROR_INPUT : ERROR_RUNTIME,
                     "%s: %lld process%s on this machine of %d processor%s%s; the "
                     "fullest, rank %d, needs %.2f GB of memory, and %.2f GB are free "
                     "for each (%.2f GB in all)%s%s",
                     is_crowded ? "too many ranks" : "not enough memory",
                     (long long)n_ranks, n_ranks == 1 ? "" : "es", n_processors,
                     n_processors == 1 ? "" : "s", crowd, rank, needed / GB, each / GB,
                     all / GB, changes[0] ? "; the cheapest changes that fit: " : "",
                     changes);
}

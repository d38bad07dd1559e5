#include "launch/pin.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

struct processor {
    int package, core, id;
};

int pin_share(int n_processors, int local_rank, int local_size, int *first)
{
    if (local_size < 1 || local_rank < 0 || local_rank >= local_size)
        return 0;
    int n = n_processors / local_size;
    *first = local_rank * n;
    return n;
}

/* A number the kernel tells about a processor; 0 where it does not. */
static int topology_number(int id, const char *name)
{
    char path[128];
    int value = 0;
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/%s", id, name);
    FILE *f = fopen(path, "re");
    if (!f)
        return 0;
    if (fscanf(f, "%d", &value) != 1)
        value = 0;
    fclose(f);
    return value;
}

static int compare_processors(const void *a_, const void *b_)
{
    const struct processor *a = a_, *b = b_;
    if (a->package != b->package)
        return a->package < b->package ? -1 : 1;
    if (a->core != b->core)
        return a->core < b->core ? -1 : 1;
    return a->id < b->id ? -1 : a->id > b->id;
}

void pin_process(int local_rank, int local_size)
{
    cpu_set_t allowed, mine;
    struct processor processors[CPU_SETSIZE];
    int n = 0, first = 0;
    if (sched_getaffinity(0, sizeof allowed, &allowed))
        return;
    for (int id = 0; id < CPU_SETSIZE; id++)
        if (CPU_ISSET((size_t)id, &allowed))
            processors[n++] =
                (struct processor){topology_number(id, "physical_package_id"),
                                   topology_number(id, "core_id"), id};
    qsort(processors, (size_t)n, sizeof *processors, compare_processors);
    int n_mine = pin_share(n, local_rank, local_size, &first);
    CPU_ZERO(&mine);
    for (int i = first; i < first + n_mine; i++)
        CPU_SET((size_t)processors[i].id, &mine);
    if (n_mine > 0 && sched_setaffinity(0, sizeof mine, &mine))
        return;
}

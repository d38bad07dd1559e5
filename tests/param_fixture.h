/* param_fixture - what tests of parameters share. */
#ifndef TESTS_PARAM_FIXTURE_H
#define TESTS_PARAM_FIXTURE_H

#include "model/gpt_params.h"

#include <string.h>

/* The row called `name`, or NULL. */
static inline const struct param *find_param(const struct param_table *table,
                                             const char *name)
{
    for (int64_t i = 0; i < table->n_params; i++)
        if (strcmp(table->params[i].name, name) == 0)
            return &table->params[i];
    return NULL;
}

#endif

/* Loading: the manifest first, then each file against it and against the model. */
#include "ckpt/ckpt.h"
#include "ckpt/ckpt_file.h"
#include "ckpt/ckpt_manifest.h"

#include <stdio.h>
#include <stdlib.h>

int ckpt_read_info(const char *path, struct ckpt_info *info, struct error *err)
{
    struct ckpt_manifest m;
    *info = (struct ckpt_info){0};
    if (ckpt_manifest_read(&m, path, err))
        return -1;
    info->step = m.step;
    info->epoch = m.epoch;
    info->consumed_samples = m.consumed_samples;
    info->n_parameters = m.n_parameters;
    snprintf(info->program_version, sizeof info->program_version, "%s",
             m.program_version);
    info->config_json = json_dumps(m.config, JSON_INDENT(2));
    ckpt_manifest_release(&m);
    if (!info->config_json)
        return error_set(err, ERROR_RUNTIME,
                         "out of memory for the configuration in '%s'", path);
    return 0;
}

void ckpt_info_release(struct ckpt_info *info)
{
    free(info->config_json);
    *info = (struct ckpt_info){0};
}

int ckpt_load(const char *path, struct ckpt_state *state, struct error *err)
{
    struct ckpt_manifest m;
    int rc = -1;
    if (ckpt_manifest_read(&m, path, err) ||
        ckpt_file_read(path, CKPT_MODEL_NAME, &m, state, err) ||
        ckpt_file_read(path, CKPT_OPTIMIZER_NAME, &m, state, err))
        goto done;
    state->step = m.step;
    state->epoch = m.epoch;
    state->consumed_samples = m.consumed_samples;
    rc = 0;
done:
    ckpt_manifest_release(&m);
    return rc;
}

int ckpt_load_params(const char *path, const struct param_table *table, float *params,
                     struct error *err)
{
    struct ckpt_manifest m;
    struct ckpt_state state = {.table = table, .params = params};
    int rc = ckpt_manifest_read(&m, path, err);
    if (rc == 0)
        rc = ckpt_file_read(path, CKPT_MODEL_NAME, &m, &state, err);
    ckpt_manifest_release(&m);
    return rc;
}

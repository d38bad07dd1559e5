/* Loading by one process that has the whole model. */
#include "ckpt/ckpt.h"
#include "ckpt/ckpt_read.h"
#include "ckpt/ckpt_whole.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int ckpt_read_info(const char *path, struct ckpt_info *info, struct error *err)
{
    struct ckpt_manifest m;
    bool is_damaged;
    *info = (struct ckpt_info){.n_parameters = 0};
    if (ckpt_manifest_read(&m, path, &is_damaged, err))
        return -1;
    info->progress = m.progress;
    info->n_parameters = m.n_parameters;
    memcpy(info->program_version, m.program_version, sizeof info->program_version);
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
    *info = (struct ckpt_info){.n_parameters = 0};
}

static int load_sets(const char *path, struct ckpt_state *state, int n_sets,
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

int ckpt_load(const char *path, struct ckpt_state *state, struct error *err)
{
    return load_sets(path, state, N_CKPT_SETS, err);
}

int ckpt_load_params(const char *path, const struct param_table *table, float *params,
                     struct error *err)
{
    struct ckpt_state state = {.table = table, .flat = {params}};
    return load_sets(path, &state, CKPT_MODEL + 1, err);
}

#include "data/formats/dataset_tokenizer.h"

#include "data/formats/dataset_list.h"
#include "data/formats/dataset_meta.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

/* A dataset without a meta file, made by others, says nothing. */
static int look_at_dataset(const char *prefix, char *name, size_t size, struct error *err)
{
    char path[PATH_MAX];
    struct dataset_meta meta;
    bool is_there;
    if (snprintf(path, sizeof path, "%s.meta.json", prefix) >= (int)sizeof path)
        return error_set(err, ERROR_INPUT, "path too long: '%.200s...'", prefix);
    if (dataset_meta_read(path, &meta, &is_there, err))
        return -1;
    if (!is_there || strcmp(meta.tokenizer, name) == 0)
        return 0;
    if (name[0])
        return error_set(err, ERROR_INPUT,
                         "its datasets were prepared with several tokenizers, '%s' and "
                         "'%s'",
                         name, meta.tokenizer);
    snprintf(name, size, "%s", meta.tokenizer);
    return 0;
}

int dataset_tokenizer_find(const struct config_paths *inputs, char *name, size_t size,
                           struct error *err)
{
    struct error ignored;
    int rc = 0;
    name[0] = 0;
    for (int64_t i = 0; i < inputs->n_paths && rc == 0; i++) {
        struct dataset_list list = {0};
        if (dataset_list_find(&list, config_path_at(inputs, i), &ignored) == 0)
            for (int64_t j = 0; j < list.n_entries && rc == 0; j++)
                rc = look_at_dataset(list.entries[j].prefix, name, size, err);
        dataset_list_release(&list);
    }
    return rc;
}

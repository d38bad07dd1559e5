#include "cli/pretrain_options.h"

#include <stdlib.h>
#include <string.h>

#define MAX_RESTARTS "max_restarts"

int pretrain_options_parse(struct pretrain_options *o, int argc, char **argv,
                           struct error *err)
{
    *o = (struct pretrain_options){0};
    const struct option_spec options[] = {
        {"config", 'c', OPTION_TEXT, &o->path, true, "FILE", "The YAML configuration."},
        {"override", 'o', OPTION_LIST, &o->overrides, false, "KEY=VALUE",
         "Set a key after the file, e.g. -o max_steps=100; may be repeated."},
        {"dry_run", 0, OPTION_FLAG, &o->is_dry, false, NULL,
         "Print the memory that each process would take, and end."},
        {MAX_RESTARTS, 0, OPTION_INT, &o->max_restarts, false, "K",
         "If the run dies, start it again from its newest checkpoint, K times at most."},
    };
    const struct command cmd = {
        "trefoil pretrain",
        "Train a GPT model as a YAML configuration says. A layout of several processes "
        "is started by itself, or joined under mpirun, srun or trefoil launch.",
        options, ARRAY_LEN(options)};
    return options_parse(&cmd, argc, argv, err);
}

void pretrain_options_release(struct pretrain_options *o)
{
    options_list_release(&o->overrides);
}

int pretrain_options_load(const struct pretrain_options *o, struct config *cfg,
                          int64_t n_processes, struct error *err)
{
    return config_load_for(cfg, o->path, o->overrides.values, o->overrides.n_values,
                           n_processes, err);
}

char **pretrain_options_job_words(char *const *argv)
{
    static const char name[] = "--" MAX_RESTARTS;
    size_t n = 0, n_kept = 0;
    while (argv[n])
        n++;
    char **words = calloc(n + 1, sizeof *words);
    for (size_t i = 0; words && i < n; i++) {
        bool has_value =
            strncmp(argv[i], name, strlen(name)) == 0 && argv[i][strlen(name)] == '=';
        if (strcmp(argv[i], name) == 0)
            i++; // its value is the next word
        else if (!has_value)
            words[n_kept++] = argv[i];
    }
    return words;
}

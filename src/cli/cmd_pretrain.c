#include "base/log.h"
#include "cli/cmd.h"
#include "cli/options.h"
#include "config/config.h"
#include "train/train.h"

#include <stdio.h>

int cmd_pretrain(int argc, char **argv)
{
    const char *path = NULL;
    struct option_list overrides = {0};
    const struct option_spec options[] = {
        {"config", 'c', OPTION_TEXT, &path, true, "FILE", "The YAML configuration."},
        {"override", 'o', OPTION_LIST, &overrides, false, "KEY=VALUE",
         "Set a key after the file, e.g. -o max_steps=100; may be repeated."},
    };
    const struct command cmd = {"trefoil pretrain",
                                "Train a GPT model as a YAML configuration says.",
                                options, ARRAY_LEN(options)};
    struct config cfg;
    struct error err;
    int rc = options_parse(&cmd, argc, argv, &err);
    if (rc == 0)
        rc = config_load(&cfg, path, overrides.values, overrides.n_values, &err);
    if (rc == 0)
        rc = train_run(&cfg, &err);
    options_list_release(&overrides);
    if (rc >= 0)
        return 0;
    if (err.kind == ERROR_STOPPED)
        log_warning("%s", err.text);
    else
        log_error("%s", err.text);
    return error_exit_code(&err);
}

/*
 * trefoil config: the effective configuration, every key with its meaning.
 */
#include "cli/cmd.h"
#include "cli/cmd_pretrain.h"
#include "cli/help.h"
#include "cli/options.h"
#include "config/config.h"

#include <stdio.h>
#include <string.h>

struct request {
    const char *file;
    struct option_list overrides;
    bool is_markdown;
    bool is_man;
};

static int print_config(void *context, struct error *err)
{
    const struct request *r = context;
    struct config cfg;
    if ((r->is_markdown || r->is_man) && (r->file || r->overrides.n_values))
        return error_set(err, ERROR_INPUT,
                         "trefoil config: --%s describes all keys, not one "
                         "configuration: leave -c and -o out",
                         r->is_man ? "man" : "markdown");
    if (r->is_man) {
        man_print_keys();
    } else if (r->is_markdown) {
        config_print_markdown(stdout);
    } else {
        // without a file there is no run with data and a checkpoint
        if (config_load_run(&cfg, r->file, r->overrides.values, r->overrides.n_values, 1,
                            r->file ? &pretrain_look_sources : NULL, err))
            return -1;
        config_print(&cfg, stdout);
    }
    return print_check("the configuration", err);
}

int cmd_config(int argc, char **argv)
{
    struct request r = {0};
    const struct option_spec specs[] = {
        {"config", 'c', OPTION_TEXT, &r.file, false, "FILE",
         "The YAML file; without it, the defaults are shown."},
        {"override", 'o', OPTION_LIST, &r.overrides, false, "KEY=VALUE",
         "Override a key of the file; may be repeated."},
        {"markdown", 0, OPTION_FLAG, &r.is_markdown, false, NULL,
         "Print docs/config.md instead: all keys, without values."},
        {"man", 0, OPTION_FLAG, &r.is_man, false, NULL,
         "Print the manual page trefoil.yaml(5) instead: all keys, without values."},
    };
    const struct command command = {
        "trefoil config",
        "Show every configuration key with its effective value, default and meaning.",
        specs, (int)ARRAY_LEN(specs)};
    int code = command_run(&command, argc, argv, print_config, &r);
    options_list_release(&r.overrides);
    return code;
}

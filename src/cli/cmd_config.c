/*
 * trefoil config: the effective configuration, every key with its meaning.
 */
#include "base/log.h"
#include "cli/cmd.h"
#include "cli/options.h"
#include "cli/print_check.h"
#include "config/config.h"

#include <stdio.h>
#include <string.h>

static int print_all(const char *file, const struct option_list *overrides,
                     bool is_markdown, struct error *err)
{
    struct config cfg;
    if (is_markdown && (file || overrides->n_values))
        return error_set(err, ERROR_INPUT,
                         "trefoil config: --markdown describes all keys, not one "
                         "configuration: leave -c and -o out");
    if (is_markdown) {
        config_print_markdown(stdout);
    } else {
        if (config_load(&cfg, file, overrides->values, overrides->n_values, err))
            return -1;
        config_print(&cfg, stdout);
    }
    return print_check("the configuration", err);
}

int cmd_config(int argc, char **argv)
{
    const char *file = NULL;
    struct option_list overrides = {0};
    bool is_markdown = false;
    struct error err;
    const struct option_spec specs[] = {
        {"config", 'c', OPTION_TEXT, &file, false, "FILE",
         "The YAML file; without one, the defaults."},
        {"override", 'o', OPTION_LIST, &overrides, false, "KEY=VALUE",
         "Set a key, over the file; may be repeated."},
        {"markdown", 0, OPTION_FLAG, &is_markdown, false, NULL,
         "Write docs/config.md instead: all keys, no values."},
    };
    const struct command command = {
        "trefoil config",
        "Show every configuration key with its effective value, default and meaning.",
        specs, (int)ARRAY_LEN(specs)};
    int rc = options_parse(&command, argc, argv, &err);
    if (rc == 0)
        rc = print_all(file, &overrides, is_markdown, &err);
    options_list_release(&overrides);
    if (rc < 0)
        log_error("%s", err.text);
    return rc < 0 ? error_exit_code(&err) : 0;
}

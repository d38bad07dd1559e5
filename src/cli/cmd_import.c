/* trefoil import - a model of other programs as a checkpoint to go on from. */
#include "base/log.h"
#include "base/stop.h"
#include "cli/cmd.h"
#include "cli/options.h"
#include "hf/hf_import.h"

#include <limits.h>
#include <string.h>

static int import(const char *from, const char *input, const char *output,
                  struct error *err)
{
    char path[PATH_MAX];
    if (strcmp(from, "hf") != 0)
        return error_set(err, ERROR_INPUT,
                         "trefoil import: --from '%s' is not known; hf is", from);
    if (hf_import(input, output, path, sizeof path, err))
        return -1;
    log_info("imported '%s' as '%s'", input, path);
    return 0;
}

int cmd_import(int argc, char **argv)
{
    const char *from = NULL, *input = NULL, *output = NULL;
    const struct option_spec options[] = {
        {"from", 0, OPTION_TEXT, &from, true, "FORMAT",
         "hf: a GPT-2 directory of the transformers library."},
        {"input", 0, OPTION_TEXT, &input, true, "DIR", "The model to read."},
        {"output", 0, OPTION_TEXT, &output, true, "DIR",
         "Where the checkpoint is written: what ckpt_dir may name."},
    };
    const struct command cmd = {"trefoil import",
                                "Turn a model of other programs into a checkpoint, to go "
                                "on training it with ckpt_dir.",
                                options, ARRAY_LEN(options)};
    struct error err;
    int rc = options_parse(&cmd, argc, argv, &err);
    if (rc == 0) {
        stop_watch(STOP_COMMAND);
        rc = import(from, input, output, &err);
    }
    if (rc >= 0)
        return 0;
    log_error("%s", err.text);
    return error_exit_code(&err);
}

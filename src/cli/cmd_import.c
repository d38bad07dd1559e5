/* trefoil import - a model of other programs as a checkpoint to go on from. */
#include "base/fs.h"
#include "base/log.h"
#include "base/stop.h"
#include "ckpt/ckpt_tokenizer.h"
#include "cli/cmd.h"
#include "cli/options.h"
#include "hub/hf_import.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RECIPE_NAME "continue.yaml"
#define CONTINUED "_continued" // after the name of the directory
#define MOST_TOKENS 256 // of a sample: longer ones are for machines larger than a laptop

struct import {
    const char *from, *input, *output;
};

/* -- the recipe ---------------------------------------------------------------------- */

/* A run that goes on from the checkpoint: its model, and a few hundred gentle steps on
 * data that is still to be named. */
static void set_recipe(struct config *cfg, const char *output)
{
    size_t n = strlen(output);
    while (n > 1 && output[n - 1] == '/')
        n--;
    cfg->max_steps = 200;
    cfg->logging_freq = 1;
    cfg->eval_freq = 50;
    cfg->dataset.max_seq_len = i64_min(cfg->model.max_position_embeddings, MOST_TOKENS);
    cfg->batch_size.global_batch_size = 8;
    cfg->batch_size.micro_batch_size = 4;
    cfg->save_load.save_steps = 100;
    cfg->optimizer.lr.decay_steps = cfg->max_steps;
    cfg->optimizer.lr.warmup_rate = 0.1;
    snprintf(cfg->save_load.ckpt_dir, sizeof cfg->save_load.ckpt_dir, "%s", output);
    snprintf(cfg->save_load.output_dir, sizeof cfg->save_load.output_dir,
             "%.*s" CONTINUED, (int)n, output);
}

/* To standard output goes what other configurations need to say of it. */
static int print_model(const struct config *cfg, struct error *err)
{
    static const char *const paths[] = {"Model"};
    config_print_keys(cfg, paths, ARRAY_LEN(paths), stdout);
    return print_check("the section Model", err);
}

static int write_recipe(struct config *cfg, const struct import *im, char path[PATH_MAX],
                        struct error *err)
{
    static const char *const paths[] = {
        "max_steps",
        "logging_freq",
        "eval_freq",
        "Model",
        "Optimizer.weight_decay",
        "Optimizer.lr",
        "batch_size.global_batch_size",
        "batch_size.micro_batch_size",
        "dataset.input_dir",
        "dataset.split",
        "dataset.max_seq_len",
        "save_load.save_steps",
        "save_load.output_dir",
        "save_load.ckpt_dir",
    };
    char *text = NULL;
    size_t n = 0;
    if (fs_join(path, PATH_MAX, im->output, RECIPE_NAME, err))
        return -1;
    if (strlen(im->output) + sizeof CONTINUED > sizeof cfg->save_load.output_dir)
        return error_set(err, ERROR_INPUT, "path too long for '%s'", path);
    FILE *out = open_memstream(&text, &n);
    if (!out)
        return error_set(err, ERROR_RUNTIME, "out of memory for '%s'", path);
    set_recipe(cfg, im->output);
    fprintf(
        out,
        "# trefoil pretrain -c " RECIPE_NAME " -o dataset.input_dir=DATA\n#\n"
        "# Goes on training the imported model, on text of yours that was prepared "
        "with its\n# tokenizer. max_steps and the batch are those of a first try; the "
        "section Model is the\n# checkpoint's.\n");
    config_print_keys(cfg, paths, ARRAY_LEN(paths), out);
    int rc = fclose(out) ? error_set(err, ERROR_RUNTIME, "out of memory for '%s'", path)
                         : fs_write_atomic(path, text, n, err);
    free(text);
    return rc;
}

/* -- the command --------------------------------------------------------------------- */

static int run_import(void *context, struct error *err)
{
    const struct import *im = context;
    char path[PATH_MAX], recipe[PATH_MAX], tokenizer[PATH_MAX];
    struct config cfg;
    stop_watch(STOP_COMMAND);
    if (strcmp(im->from, "hf") != 0)
        return error_set(err, ERROR_INPUT,
                         "trefoil import: --from '%s' is not known; hf is", im->from);
    if (hf_import(im->input, im->output, path, sizeof path, &cfg, err) ||
        print_model(&cfg, err) || write_recipe(&cfg, im, recipe, err) ||
        fs_join(tokenizer, sizeof tokenizer, im->output, CKPT_TOKENIZER_DIR, err))
        return -1;
    log_info("imported '%s' as '%s'", im->input, path);
    log_info("to go on training it on text of yours: %s prepare --input TEXT "
             "--tokenizer %s --output DATA, then %s pretrain -c %s -o "
             "dataset.input_dir=DATA",
             program_invocation_name, fs_exists(tokenizer) ? tokenizer : "ITS_TOKENIZER",
             program_invocation_name, recipe);
    return 0;
}

int cmd_import(int argc, char **argv)
{
    struct import im = {0};
    const struct option_spec options[] = {
        {"from", 0, OPTION_TEXT, &im.from, true, "FORMAT",
         "hf: a GPT-2 directory of the transformers library."},
        {"input", 0, OPTION_TEXT, &im.input, true, "DIR", "The model to read."},
        {"output", 0, OPTION_TEXT, &im.output, true, "DIR",
         "Where to write the checkpoint and " RECIPE_NAME "."},
    };
    const struct command cmd = {
        "trefoil import",
        "Turn a Hugging Face GPT-2 into a checkpoint, with a " RECIPE_NAME " beside it "
        "that goes on training it.",
        options, ARRAY_LEN(options)};
    return command_run(&cmd, argc, argv, run_import, &im);
}

/* trefoil import - a model of other programs as a checkpoint to go on from. */
#include "base/log.h"
#include "base/stop.h"
#include "cli/cmd.h"
#include "cli/options.h"
#include "hub/hf_import.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

/* What the configuration of a run that goes on from it must say. */
static int print_model(const struct config_model *m, struct error *err)
{
    printf("Model:\n  vocab_size: %lld\n  hidden_size: %lld\n  num_layers: %lld\n"
           "  num_attention_heads: %lld\n  ffn_hidden_size: %lld\n"
           "  max_position_embeddings: %lld\n  hidden_dropout_prob: %g\n"
           "  attention_probs_dropout_prob: %g\n",
           (long long)m->vocab_size, (long long)m->hidden_size, (long long)m->num_layers,
           (long long)m->num_attention_heads, (long long)m->ffn_hidden_size,
           (long long)m->max_position_embeddings, m->hidden_dropout_prob,
           m->attention_probs_dropout_prob);
    return print_check("the section Model", err);
}

struct import {
    const char *from, *input, *output;
};

static int run_import(void *context, struct error *err)
{
    const struct import *im = context;
    char path[PATH_MAX];
    struct config_model model;
    stop_watch(STOP_COMMAND);
    if (strcmp(im->from, "hf") != 0)
        return error_set(err, ERROR_INPUT,
                         "trefoil import: --from '%s' is not known; hf is", im->from);
    if (hf_import(im->input, im->output, path, sizeof path, &model, err))
        return -1;
    log_info("imported '%s' as '%s'; to go on training it, give a configuration the "
             "section Model that follows and -o save_load.ckpt_dir=%s",
             im->input, path, im->output);
    return print_model(&model, err);
}

int cmd_import(int argc, char **argv)
{
    struct import im = {0};
    const struct option_spec options[] = {
        {"from", 0, OPTION_TEXT, &im.from, true, "FORMAT",
         "hf: a GPT-2 directory of the transformers library."},
        {"input", 0, OPTION_TEXT, &im.input, true, "DIR", "The model to read."},
        {"output", 0, OPTION_TEXT, &im.output, true, "DIR",
         "Where to write the checkpoint; ckpt_dir of a run can name it."},
    };
    const struct command cmd = {
        "trefoil import",
        "Turn a Hugging Face GPT-2 into a checkpoint, to continue "
        "training it with ckpt_dir.",
        options, ARRAY_LEN(options)};
    return command_run(&cmd, argc, argv, run_import, &im);
}

/*
 * trefoil - pretrain GPT language models.
 *
 * The table of commands is the whole of this file's knowledge; each command is a file.
 */
#include "base/base.h"
#include "base/log.h"
#include "base/process.h"
#include "cli/cmd.h"
#include "cli/options.h"
#include "cli/script_names.h"

static const struct command_choice commands[] = {
    {"pretrain", cmd_pretrain, "Train a model described by a YAML file."},
    {"launch", cmd_launch, "Run a command on several processes, on this host or others."},
    {"prepare", cmd_prepare, "Turn text or JSON lines into token files."},
    {"tokenizer", cmd_tokenizer,
     "Train a tokenizer, or encode and decode text with one."},
    {"generate", cmd_generate, "Sample text from a trained model."},
    {"eval", cmd_eval, "Measure perplexity and cloze accuracy of a trained model."},
    {"export", cmd_export, "Write a checkpoint for transformers or llama.cpp."},
    {"import", cmd_import, "Turn a Hugging Face GPT-2 into a checkpoint."},
    {"inspect", cmd_inspect,
     "Show what is in a dataset, checkpoint, run, tokenizer or model."},
    {"board", cmd_board, "Show runs on a web page, live or finished."},
    {"top", cmd_top, "Show runs in the terminal, live or finished."},
    {"schedule", cmd_schedule, "Draw a pipeline schedule with its bubble and memory."},
    {"selftest", cmd_selftest,
     "Check on this machine that parallel layouts do not change results."},
    {"config", cmd_config, "Show every configuration key with its value and meaning."},
};

static const struct command_group trefoil = {
    "trefoil", "Pretrain GPT language models on CPUs.", commands, ARRAY_LEN(commands)};

int main(int argc, char **argv)
{
    struct error err;
    process_begin();
    if (argc > 1)
        argv[1] = (char *)(uintptr_t)command_of_script(argv[1]);
    int code = command_dispatch(&trefoil, argc, argv);
    // what is still on its way may fail: nothing may be lost in silence
    if (print_close(&err) && code == 0) {
        log_error("%s", err.text);
        code = error_exit_code(&err);
    }
    return code;
}

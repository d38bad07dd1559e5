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
#include "cli/print_check.h"

#include <stdio.h>
#include <string.h>

static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *summary;
} commands[] = {
    {"pretrain", cmd_pretrain, "Train a model as a YAML configuration says."},
    {"launch", cmd_launch, "Run a command on several processes, here or on other hosts."},
    {"prepare", cmd_prepare, "Turn text or JSON lines into token files."},
    {"tokenizer", cmd_tokenizer, "Learn a tokenizer, or use one on a text."},
    {"generate", cmd_generate, "Continue a text with a trained model."},
    {"eval", cmd_eval, "Measure perplexity and cloze accuracy of a trained model."},
    {"export", cmd_export, "Write a checkpoint for transformers or llama.cpp."},
    {"import", cmd_import, "Make a checkpoint of a Hugging Face GPT-2."},
    {"inspect", cmd_inspect, "Show what a dataset, checkpoint or tokenizer holds."},
    {"schedule", cmd_schedule, "Draw a pipeline schedule, its bubble and its memory."},
    {"selftest", cmd_selftest, "Compare layouts of processes on this machine."},
    {"config", cmd_config, "Show every configuration key, its value and its meaning."},
};

static void print_help(FILE *out)
{
    fputs("usage: trefoil COMMAND [options]\n\n"
          "Pretrain GPT language models on CPUs.\n\ncommands:\n",
          out);
    for (size_t i = 0; i < ARRAY_LEN(commands); i++)
        fprintf(out, "  %-10s %s\n", commands[i].name, commands[i].summary);
    fputs("\ntrefoil COMMAND --help lists the options of a command.\n", out);
}

static int run_command(int argc, char **argv)
{
    for (size_t i = 0; i < ARRAY_LEN(commands); i++)
        if (strcmp(argv[0], commands[i].name) == 0)
            return commands[i].run(argc, argv);
    fprintf(stderr, "trefoil: unknown command '%s'; trefoil --help lists them\n",
            argv[0]);
    return 2;
}

/* "help", "help COMMAND", "help tokenizer train". */
static int help(int argc, char **argv)
{
    static char ask[] = "--help";
    char *words[] = {argc > 1 ? argv[1] : NULL, argc > 2 ? argv[2] : ask, ask, NULL};
    if (argc > 1)
        return run_command(argc > 2 ? 3 : 2, words);
    print_help(stdout);
    return 0;
}

static bool is_one_of(const char *word, const char *a, const char *b, const char *c)
{
    return strcmp(word, a) == 0 || strcmp(word, b) == 0 || strcmp(word, c) == 0;
}

static int run(int argc, char **argv)
{
    if (argc < 2) {
        print_help(stderr);
        return 2;
    }
    if (is_one_of(argv[1], "help", "--help", "-h"))
        return help(argc - 1, argv + 1);
    if (is_one_of(argv[1], "version", "--version", "-V")) {
        options_print_version();
        return 0;
    }
    return run_command(argc - 1, argv + 1);
}

int main(int argc, char **argv)
{
    struct error err;
    process_begin();
    int code = run(argc, argv);
    // what is still on its way may fail: nothing may be lost in silence
    if (print_close(&err) && code == 0) {
        log_error("%s", err.text);
        code = error_exit_code(&err);
    }
    return code;
}

/*
 * The forms of help by name, and the one for people.
 */
#include "cli/help.h"

#include "comm/comm.h"
#include "device/kernel_sets.h"
#include "device/plugin.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

bool help_is_asked(const char *word, enum help_form *form)
{
    static const char *const words[N_HELP_FORMS] = {[HELP_TEXT] = "--help",
                                                    [HELP_MAN] = "--help=man",
                                                    [HELP_BASH] = "--help=bash",
                                                    [HELP_ZSH] = "--help=zsh",
                                                    [HELP_FISH] = "--help=fish"};
    *form = HELP_TEXT;
    if (strcmp(word, "-h") == 0)
        return true;
    for (int i = 0; i < N_HELP_FORMS; i++)
        if (strcmp(word, words[i]) == 0) {
            *form = (enum help_form)i;
            return true;
        }
    return false;
}

static void print_command(const struct command *cmd)
{
    printf("usage: %s [options]", cmd->name);
    for (int i = 0; i < cmd->n_options; i++)
        if (option_is_operand(&cmd->options[i]))
            printf(cmd->options[i].is_required ? " %s%s" : " [%s%s]",
                   cmd->options[i].value,
                   cmd->options[i].kind == OPTION_OPERANDS ? "..." : "");
    printf("\n\n%s\n\noptions:\n", cmd->summary);
    for (int i = 0; i < cmd->n_options; i++) {
        const struct option_spec *o = &cmd->options[i];
        char left[64];
        char letter[] = {'-', o->letter, ',', ' ', 0};
        if (option_is_operand(o))
            snprintf(left, sizeof left, "  %s", o->value);
        else
            snprintf(left, sizeof left, "  %s--%s%s%s%s", o->letter ? letter : "",
                     o->name, o->value ? " " : "", o->value ? o->value : "",
                     o->kind == OPTION_LIST ? "..." : "");
        printf("%-30s %s%s\n", left, o->help, o->is_required ? " (required)" : "");
    }
    printf("%-30s %s\n%-30s %s\n", "  --help", "Show this text.", "  --version",
           "Show the version.");
}

void help_print(const struct command *cmd, enum help_form form)
{
    if (form == HELP_TEXT)
        print_command(cmd);
    else if (form == HELP_MAN)
        man_print(cmd);
    else
        shell_print(cmd, form);
}

void help_print_group(const struct command_group *group, enum help_form form)
{
    if (form == HELP_TEXT)
        command_list(group, stdout);
    else if (form == HELP_MAN)
        man_print_group(group);
    else
        shell_print_group(group, form);
}

void help_print_version(void)
{
    char kernels[KERNEL_SET_WORDS_BYTES], mpi[COMM_LIBRARY_BYTES], gpu[PATH_MAX];
    kernels_words(kernels);
    comm_library_words(mpi);
    plugin_words(gpu, sizeof gpu);
    printf("trefoil %s\nbuild: %s\nMPI: %s\nkernels: %s\ndevice: cpu, emulated; gpu by "
           "plug-in: %s\n",
           TREFOIL_VERSION, TREFOIL_BUILD, mpi, kernels, gpu);
}

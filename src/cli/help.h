/*
 * help - what a table of options says, to people, to man and to shells.
 *
 * One walk for all forms: a command prints its own table, a group passes the question on
 * to its commands. So what parses, what --help says, the manual pages and what a shell
 * completes cannot disagree.
 */
#ifndef CLI_HELP_H
#define CLI_HELP_H

#include "cli/options.h"

enum help_form {
    HELP_TEXT, // --help
    HELP_MAN,  // --help=man: a page for man(1), of this command or group alone
    HELP_BASH, // --help=bash and so on: asked of the whole program, tables for completion
    HELP_ZSH,
    HELP_FISH,
    N_HELP_FORMS
};

/* Whether the word asks for help, and in which form. */
bool help_is_asked(const char *word, enum help_form *form);

void help_print(const struct command *cmd, enum help_form form);
void help_print_group(const struct command_group *group, enum help_form form);

/* The version, and what this build and this machine are. */
void help_print_version(void);

/* -- the forms, each in its file ----------------------------------------------------- */

void man_print(const struct command *cmd);
void man_print_group(const struct command_group *group);
/* trefoil.yaml(5), the keys of the configuration. */
void man_print_keys(void);

void shell_print(const struct command *cmd, enum help_form form);
void shell_print_group(const struct command_group *group, enum help_form form);

#endif

/*
 * options - one table per command drives parsing, checks and --help.
 *
 * Options are written `--name VALUE`, `--name=VALUE`, `-x VALUE` or `-xVALUE`; a list
 * option takes several values and may be repeated; an operand is a word without a name.
 * `--help` and `--version` exist everywhere; help.h has the forms of help. What the table does not name is refused,
 * with the nearest name it does.
 */
#ifndef CLI_OPTIONS_H
#define CLI_OPTIONS_H

#include "base/base.h"
#include "base/error.h"

#include <stdio.h>

enum option_kind {
    OPTION_FLAG,     // bool: no value
    OPTION_TEXT,     // const char *
    OPTION_LIST,     // struct option_list: the values are argv's own
    OPTION_INT,      // int64_t
    OPTION_NUMBER,   // double
    OPTION_OPERAND,  // const char *: a word by itself, without the name
    OPTION_OPERANDS, // struct option_list: all such words that are left
};

struct option_list {
    char **values; // malloc'ed by options_parse(), freed by options_list_release()
    int n_values;
};

struct option_spec {
    const char *name; // without the dashes
    char letter;      // or 0
    enum option_kind kind;
    void *target;      // of the type of the kind; holds the default before parsing
    bool is_required;  // must be given
    const char *value; // how --help names the value, NULL for a flag: "FILE", "DIR",
                       // "PATH" and "PREFIX" complete files, "a|b" one of these words
    const char *help;  // one sentence
};

static inline bool option_is_operand(const struct option_spec *o)
{
    return o->kind == OPTION_OPERAND || o->kind == OPTION_OPERANDS;
}

struct command {
    const char *name;    // "trefoil pretrain"
    const char *summary; // one sentence
    const struct option_spec *options;
    int n_options;
};

/* Fill the targets from argv[1..]. Returns 0; 1 when --help or --version was asked for
 * and printed; -1 with *err. */
MUST_CHECK int options_parse(const struct command *cmd, int argc, char **argv,
                             struct error *err);
void options_list_release(struct option_list *list);

/* -- commands ------------------------------------------------------------------------ */

/* Parse, run, and log why it failed. Returns the exit code of the process. */
int command_run(const struct command *cmd, int argc, char **argv,
                int (*run)(void *context, struct error *err), void *context);

struct command_choice {
    const char *name;
    int (*run)(int argc, char **argv); // argv[0] is the name
    const char *summary;
};

struct command_group {
    const char *name;    // "trefoil tokenizer"
    const char *summary; // one sentence
    const struct command_choice *choices;
    size_t n_choices;
};

/* The command that argv[1] names, its help after "help", or the version. Returns the exit
 * code of the process. */
int command_dispatch(const struct command_group *group, int argc, char **argv);

/* The commands of the group, one a line: its --help. */
void command_list(const struct command_group *group, FILE *out);

/* -- results ------------------------------------------------------------------------- */

/* What a command prints as its result arrives, or the command fails: a full disk or a
 * reader that has gone away is reported, never taken for success. `what` is what was
 * printed, "the report", or "to standard output". */
MUST_CHECK int print_check(const char *what, struct error *err);

/* For main(), as the last use of standard output. */
MUST_CHECK int print_close(struct error *err);

#endif

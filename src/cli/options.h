/*
 * options - one table a command drives parsing, checks and --help.
 *
 * Options are written `--name VALUE`, `--name=VALUE`, `-x VALUE` or `-xVALUE`; a list
 * option takes several values and may be repeated; an operand is a word without a name.
 * `--help` and `--version` exist everywhere. What the table does not name is refused,
 * with the nearest name it does.
 */
#ifndef CLI_OPTIONS_H
#define CLI_OPTIONS_H

#include "base/base.h"
#include "base/error.h"

enum option_kind {
    OPTION_FLAG,    // bool: no value
    OPTION_TEXT,    // const char *
    OPTION_LIST,    // struct option_list: the values are argv's own
    OPTION_INT,     // int64_t
    OPTION_NUMBER,  // double
    OPTION_OPERAND, // const char *: a word by itself, without the name
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
    const char *value; // how --help names the value, e.g. "FILE"; NULL for a flag
    const char *help;  // one sentence
};

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
void options_print_help(const struct command *cmd);
/* The program's version and, on a second line, what computes here. */
void options_print_version(void);
void options_list_release(struct option_list *list);

#endif

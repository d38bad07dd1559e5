#include "cli/options.h"

#include "base/log.h"
#include "base/text.h"
#include "cli/help.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void options_list_release(struct option_list *list)
{
    free(list->values);
    *list = (struct option_list){0};
}

static int refuse_unknown(const struct command *cmd, const char *word, struct error *err)
{
    const char *nearest = NULL;
    int least = 4;
    for (int i = 0; i < cmd->n_options && strncmp(word, "--", 2) == 0; i++) {
        int distance = text_distance(word + 2, cmd->options[i].name);
        if (distance < least && !option_is_operand(&cmd->options[i])) {
            least = distance;
            nearest = cmd->options[i].name;
        }
    }
    if (nearest)
        return error_set(err, ERROR_INPUT, "%s: unknown option '%s'; did you mean --%s?",
                         cmd->name, word, nearest);
    return error_set(err, ERROR_INPUT, "%s: unknown argument '%s'; %s --help lists all",
                     cmd->name, word, cmd->name);
}

/* The option that `word` names; *value := what follows its "=", or NULL. */
static const struct option_spec *find_option(const struct command *cmd, char *word,
                                             char **value)
{
    char *equals = strncmp(word, "--", 2) == 0 ? strchr(word, '=') : NULL;
    size_t n = equals ? (size_t)(equals - word) : strlen(word);
    *value = equals ? equals + 1 : NULL;
    for (int i = 0; i < cmd->n_options; i++) {
        const struct option_spec *o = &cmd->options[i];
        bool is_long = n > 2 && word[0] == '-' && word[1] == '-' &&
                       strlen(o->name) == n - 2 && strncmp(word + 2, o->name, n - 2) == 0;
        bool is_short = n == 2 && word[0] == '-' && o->letter && word[1] == o->letter;
        if ((is_long || is_short) && !option_is_operand(o))
            return o;
        bool is_joined = n > 2 && word[0] == '-' && o->letter && word[1] == o->letter &&
                         !option_is_operand(o) && o->kind != OPTION_FLAG;
        if (is_joined) {
            *value = word + 2;
            return o;
        }
    }
    return NULL;
}

/* The first operand that has no value yet, for a word that is no option. */
static const struct option_spec *find_operand(const struct command *cmd, const char *word,
                                              const bool *is_given)
{
    if (word[0] == '-' && word[1])
        return NULL;
    for (int i = 0; i < cmd->n_options; i++)
        if (option_is_operand(&cmd->options[i]) &&
            (!is_given[i] || cmd->options[i].kind == OPTION_OPERANDS))
            return &cmd->options[i];
    return NULL;
}

static int append_value(struct option_list *list, char *value, struct error *err)
{
    char **larger =
        realloc(list->values, (size_t)(list->n_values + 1) * sizeof *list->values);
    if (!larger)
        return error_set(err, ERROR_RUNTIME, "out of memory for the command line");
    list->values = larger;
    list->values[list->n_values++] = value;
    return 0;
}

static int store_number(const struct command *cmd, const struct option_spec *o,
                        const char *value, struct error *err)
{
    char *end;
    errno = 0;
    if (o->kind == OPTION_INT) {
        long long n = strtoll(value, &end, 10);
        if (end == value || *end || errno)
            return error_set(err, ERROR_INPUT, "%s: --%s needs a whole number, not '%s'",
                             cmd->name, o->name, value);
        *(int64_t *)o->target = n;
        return 0;
    }
    double x = strtod(value, &end);
    if (end == value || *end || errno || !isfinite(x))
        return error_set(err, ERROR_INPUT, "%s: --%s needs a number, not '%s'", cmd->name,
                         o->name, value);
    *(double *)o->target = x;
    return 0;
}

static int store_value(const struct command *cmd, const struct option_spec *o,
                       char *value, struct error *err)
{
    switch (o->kind) {
    case OPTION_FLAG:
        *(bool *)o->target = true;
        return 0;
    case OPTION_TEXT:
    case OPTION_OPERAND:
        *(const char **)o->target = value;
        return 0;
    case OPTION_LIST:
    case OPTION_OPERANDS:
        return append_value(o->target, value, err);
    case OPTION_INT:
    case OPTION_NUMBER:
        return store_number(cmd, o, value, err);
    }
    return 0;
}

static int check_required(const struct command *cmd, const bool *is_given,
                          struct error *err)
{
    for (int i = 0; i < cmd->n_options; i++) {
        const struct option_spec *o = &cmd->options[i];
        if (o->is_required && !is_given[i] && option_is_operand(o))
            return error_set(err, ERROR_INPUT, "%s: %s is missing: %s", cmd->name,
                             o->value, o->help);
        if (o->is_required && !is_given[i])
            return error_set(err, ERROR_INPUT, "%s: --%s %s is missing: %s", cmd->name,
                             o->name, o->value ? o->value : "", o->help);
    }
    return 0;
}

/* Store the option at argv[*i] with its value or values, and move *i to the last word
 * used. */
static int take_option(const struct command *cmd, const struct option_spec *o,
                       char *value, int argc, char **argv, int *i, struct error *err)
{
    if (o->kind == OPTION_FLAG) {
        if (value)
            return error_set(err, ERROR_INPUT, "%s: --%s takes no value", cmd->name,
                             o->name);
        return store_value(cmd, o, NULL, err);
    }
    if (!value && *i + 1 >= argc)
        return error_set(err, ERROR_INPUT, "%s: --%s needs a value: %s", cmd->name,
                         o->name, o->value);
    if (store_value(cmd, o, value ? value : argv[++*i], err))
        return -1;
    // a list goes on until the next option; a dash by itself is none
    while (o->kind == OPTION_LIST && !value && *i + 1 < argc &&
           (argv[*i + 1][0] != '-' || !argv[*i + 1][1]))
        if (store_value(cmd, o, argv[++*i], err))
            return -1;
    return 0;
}

int options_parse(const struct command *cmd, int argc, char **argv, struct error *err)
{
    bool is_given[64] = {false};
    CHECK(cmd->n_options <= 64, "%d options", cmd->n_options);
    for (int i = 1; i < argc; i++) {
        char *value;
        enum help_form form;
        if (help_is_asked(argv[i], &form)) {
            help_print(cmd, form);
            return 1;
        }
        if (strcmp(argv[i], "--version") == 0) {
            help_print_version();
            return 1;
        }
        const struct option_spec *o = find_option(cmd, argv[i], &value);
        if (!o && (o = find_operand(cmd, argv[i], is_given)))
            value = argv[i];
        if (!o)
            return refuse_unknown(cmd, argv[i], err);
        is_given[o - cmd->options] = true;
        if (take_option(cmd, o, value, argc, argv, &i, err))
            return -1;
    }
    return check_required(cmd, is_given, err);
}

/* -- commands ------------------------------------------------------------------------ */

int command_run(const struct command *cmd, int argc, char **argv,
                int (*run)(void *context, struct error *err), void *context)
{
    struct error err;
    int rc = options_parse(cmd, argc, argv, &err);
    if (rc == 0)
        rc = run(context, &err);
    if (rc >= 0)
        return 0;
    log_error("%s", err.text);
    return error_exit_code(&err);
}

void command_list(const struct command_group *group, FILE *out)
{
    fprintf(out, "usage: %s COMMAND [options]\n\n%s\n\ncommands:\n", group->name,
            group->summary);
    for (size_t i = 0; i < group->n_choices; i++)
        fprintf(out, "  %-10s %s\n", group->choices[i].name, group->choices[i].summary);
    fprintf(out,
            "\n%s COMMAND --help lists the options of a command, --help=man prints its "
            "manual page.\n",
            group->name);
}

/* The command that a misspelt word may stand for; NULL: none is near. */
static const char *nearest_choice(const struct command_group *group, const char *word)
{
    const char *nearest = NULL;
    int least = 3;
    for (size_t i = 0; i < group->n_choices; i++) {
        int distance = text_distance(word, group->choices[i].name);
        if (distance < least) {
            least = distance;
            nearest = group->choices[i].name;
        }
    }
    return nearest;
}

static int run_choice(const struct command_group *group, int argc, char **argv)
{
    for (size_t i = 0; i < group->n_choices; i++)
        if (strcmp(argv[0], group->choices[i].name) == 0)
            return group->choices[i].run(argc, argv);
    const char *nearest = nearest_choice(group, argv[0]);
    fprintf(stderr, "%s: unknown command '%s'; ", group->name, argv[0]);
    if (nearest)
        fprintf(stderr, "did you mean %s? ", nearest);
    fprintf(stderr, "%s --help lists them\n", group->name);
    return 2;
}

/* "help", "help COMMAND", "help tokenizer train"; or with --help in place of help, whose
 * form is passed on. */
static int print_group_help(const struct command_group *group, int argc, char **argv)
{
    static char text[] = "--help";
    char *ask = argv[0][0] == '-' ? argv[0] : text;
    char *words[] = {argc > 1 ? argv[1] : NULL, argc > 2 ? argv[2] : ask, ask, NULL};
    enum help_form form;
    if (argc > 1)
        return run_choice(group, argc > 2 ? 3 : 2, words);
    help_print_group(group, help_is_asked(ask, &form) ? form : HELP_TEXT);
    return 0;
}

int command_dispatch(const struct command_group *group, int argc, char **argv)
{
    enum help_form form;
    if (argc < 2) {
        command_list(group, stderr);
        return 2;
    }
    if (strcmp(argv[1], "help") == 0 || help_is_asked(argv[1], &form))
        return print_group_help(group, argc - 1, argv + 1);
    if (strcmp(argv[1], "version") == 0 || strcmp(argv[1], "--version") == 0 ||
        strcmp(argv[1], "-V") == 0) {
        help_print_version();
        return 0;
    }
    return run_choice(group, argc - 1, argv + 1);
}

/* -- results ------------------------------------------------------------------------- */

int print_check(const char *what, struct error *err)
{
    errno = 0;
    if (fflush(stdout) == 0 && !ferror(stdout))
        return 0;
    // the reason of a write that failed earlier is gone
    return error_set(err, ERROR_RUNTIME, "cannot write %s: %s", what,
                     errno ? strerror(errno) : "a part of it could not be written");
}

int print_close(struct error *err)
{
    if (print_check("to standard output", err))
        return -1;
    if (fclose(stdout))
        return error_set(err, ERROR_RUNTIME, "cannot write to standard output: %s",
                         strerror(errno));
    return 0;
}

/*
 * The tables of options as data of a shell, for completion in bash, zsh and fish.
 *
 * Asked of the whole program, the root prints the keys of the configuration and has every
 * command print its own part by the same question. What looks things up in them, in the
 * shells' languages, is in tools/completion; tools/make_pages.sh puts the two together.
 * A word after a command that is one of its operand's, as in `launch pretrain`, is a
 * command with options of its own.
 */
#include "base/kernel_set.h"
#include "cli/help.h"
#include "config/config.h"

#include <stdio.h>
#include <string.h>

#define SET_WORD(name, id) "|" name
static const char kernel_words[] = KERNEL_SETS(SET_WORD);

static bool is_value(const struct option_spec *o, const char *word)
{
    return o->value && strcmp(o->value, word) == 0;
}

/* The words a value is one of, "a|b"; NULL: it is something else. */
static const char *alternatives(const struct option_spec *o)
{
    if (is_value(o, "SET")) // too many for the left column of --help
        return kernel_words + 1;
    if (is_value(o, "TYPE"))
        return "float32|float16|bfloat16";
    return o->value && strchr(o->value, '|') ? o->value : NULL;
}

static bool is_path(const struct option_spec *o)
{
    return is_value(o, "FILE") || is_value(o, "PATH") || is_value(o, "PREFIX") ||
           (is_value(o, "NAME") && strcmp(o->name, "tokenizer") == 0);
}

/* In single quotes of a shell; `more` characters get a backslash in front of them. */
static void put_quoted(const char *text, const char *more)
{
    putchar('\'');
    for (; *text; text++) {
        if (*text == '\'') {
            fputs("'\\''", stdout);
            continue;
        }
        if (strchr(more, *text))
            putchar('\\');
        putchar(*text);
    }
    putchar('\'');
}

static void put_spaced(const char *words)
{
    for (; *words; words++)
        putchar(*words == '|' ? ' ' : *words);
}

/* -- bash ---------------------------------------------------------------------------- */

static void bash_command(const struct command *cmd)
{
    printf("_trefoil_words['%s']='", cmd->name);
    for (int i = 0; i < cmd->n_options; i++)
        if (!option_is_operand(&cmd->options[i]))
            printf("--%s ", cmd->options[i].name);
    puts("--help --version'");
    for (int i = 0; i < cmd->n_options; i++) {
        const struct option_spec *o = &cmd->options[i];
        const char *value = alternatives(o) ? alternatives(o)
                            : is_path(o)    ? "PATH"
                                            : o->value;
        const char *dots = o->kind == OPTION_LIST ? "..." : "";
        if (!value)
            continue;
        if (option_is_operand(o))
            printf("_trefoil_values['%s operand']='%s'\n", cmd->name, value);
        else
            printf("_trefoil_values['%s --%s']='%s%s'\n", cmd->name, o->name, value,
                   dots);
        if (o->letter)
            printf("_trefoil_values['%s -%c']='%s%s'\n", cmd->name, o->letter, value,
                   dots);
    }
}

static void bash_group(const struct command_group *group, bool is_root)
{
    printf("_trefoil_words['%s']='", group->name);
    for (size_t i = 0; i < group->n_choices; i++)
        printf("%s ", group->choices[i].name);
    puts(is_root ? "help version --help --version'" : "help --help --version'");
    printf("_trefoil_words['%s help']=' '\n_trefoil_values['%s help operand']='",
           group->name, group->name);
    for (size_t i = 0; i < group->n_choices; i++)
        printf("%s%s", i ? "|" : "", group->choices[i].name);
    puts("'");
}

static void bash_keys(void)
{
    struct config_hint hint;
    puts("_trefoil_keys=(");
    for (int i = 0; config_hint_at(&hint, i); i++)
        printf("    '%s=%s'\n", hint.path, hint.words);
    puts(")");
}

/* -- zsh ----------------------------------------------------------------------------- */

/* "trefoil tokenizer train" as the name of a function. */
static void put_function(const char *name)
{
    for (putchar('_'); *name; name++)
        putchar(*name == ' ' ? '_' : *name);
}

static void zsh_action(const struct option_spec *o)
{
    if (alternatives(o)) {
        putchar('(');
        put_spaced(alternatives(o));
        putchar(')');
    } else if (is_value(o, "KEY=VALUE")) {
        fputs("_trefoil_complete_key", stdout);
    } else if (is_value(o, "DIR")) {
        fputs("_files -/", stdout);
    } else {
        fputs(is_path(o) ? "_files" : " ", stdout);
    }
}

/* One spec of _arguments: '*--name=[help]:value:action'. */
static void zsh_option(const struct option_spec *o, const char *dashes, const char *name)
{
    fputs("        ", stdout);
    fputs(o->kind == OPTION_LIST ? "'*'" : "", stdout);
    printf("%s%s%s", dashes, name, !o->value ? "" : dashes[1] ? "=" : "+");
    putchar('\'');
    putchar('[');
    for (const char *c = o->help; *c; c++) {
        if (*c == '\'') {
            fputs("'\\''", stdout);
            continue;
        }
        if (strchr("[]:\\", *c))
            putchar('\\');
        putchar(*c);
    }
    putchar(']');
    if (o->value) {
        fputs(o->kind == OPTION_LIST ? ":*-*:" : ":", stdout);
        for (const char *c = o->value; *c; c++)
            printf(*c == ':' ? "\\:" : "%c", *c);
        putchar(':');
        zsh_action(o);
    }
    puts("' \\");
}

static void zsh_command(const struct command *cmd)
{
    const char *followers = NULL;
    put_function(cmd->name);
    puts(
        "() {\n    local state line\n    typeset -A opt_args\n    _arguments -A '-*' \\");
    for (int i = 0; i < cmd->n_options; i++) {
        const struct option_spec *o = &cmd->options[i];
        char letter[] = {o->letter, 0};
        if (option_is_operand(o)) {
            printf("        '%s:%s:", o->kind == OPTION_OPERANDS ? "*" : "", o->name);
            zsh_action(o);
            puts("' \\");
            followers = alternatives(o);
        } else {
            zsh_option(o, "--", o->name);
            if (o->letter)
                zsh_option(o, "-", letter);
        }
    }
    if (followers)
        puts("        '*:: :->rest' \\");
    puts("        '--help[Show the options.]' '--version[Show the version.]'");
    if (followers)
        puts("    [[ $state != rest ]] || _trefoil_call _trefoil");
    puts("}");
}

static void zsh_group(const struct command_group *group, bool is_root)
{
    put_function(group->name);
    puts("() {\n    local state line\n    typeset -A opt_args\n    local -a commands=(");
    for (size_t i = 0; i < group->n_choices; i++) {
        char text[512];
        snprintf(text, sizeof text, "%s:%s", group->choices[i].name,
                 group->choices[i].summary);
        fputs("        ", stdout);
        put_quoted(text, "");
        putchar('\n');
    }
    puts("        'help:Show the options of a command.'");
    if (is_root)
        puts("        'version:Show the version.'");
    puts("    )\n    _arguments -C '1: :->command' '*:: :->rest' \\\n"
         "        '--help[Show the commands.]' '--version[Show the version.]'\n"
         "    case $state in\n    command) _describe command commands ;;");
    fputs("    rest) _trefoil_call ", stdout);
    put_function(group->name);
    puts(" ;;\n    esac\n}");
}

static void zsh_keys(void)
{
    struct config_hint hint;
    puts("typeset -ga _trefoil_keys=(");
    for (int i = 0; config_hint_at(&hint, i); i++) {
        char text[1024];
        snprintf(text, sizeof text, "%s:%s", hint.path, hint.meaning);
        fputs("    ", stdout);
        put_quoted(text, "");
        putchar('\n');
    }
    puts(")\ntypeset -gA _trefoil_key_words=(");
    for (int i = 0; config_hint_at(&hint, i); i++)
        if (hint.words[0])
            printf("    %s '%s'\n", hint.path, hint.words);
    puts(")");
}

/* -- fish ---------------------------------------------------------------------------- */

static void fish_begin(const char *command)
{
    printf("complete -c trefoil -n \"__trefoil_at '%s'\" ", command);
}

static void fish_option(const char *command, const struct option_spec *o)
{
    fish_begin(command);
    if (option_is_operand(o))
        fputs(is_path(o) ? "-F" : "-f", stdout);
    else
        printf("-l %s", o->name);
    if (o->letter)
        printf(" -s %c", o->letter);
    if (o->value && !option_is_operand(o))
        fputs(is_path(o) ? " -r -F" : " -x", stdout);
    if (alternatives(o)) {
        fputs(" -a '", stdout);
        put_spaced(alternatives(o));
        putchar('\'');
    } else if (is_value(o, "KEY=VALUE")) {
        fputs(" -a '(__trefoil_complete_key)'", stdout);
    } else if (is_value(o, "DIR")) {
        fputs(" -a '(__fish_complete_directories)'", stdout);
    }
    fputs(" -d ", stdout);
    put_quoted(o->help, "\\");
    putchar('\n');
}

static void fish_choice(const char *command, const char *name, const char *summary)
{
    fish_begin(command);
    printf("-a %s -d ", name);
    put_quoted(summary, "\\");
    putchar('\n');
}

static void fish_command(const struct command *cmd)
{
    printf("set -a __trefoil_commands '%s'\n", cmd->name);
    for (int i = 0; i < cmd->n_options; i++) {
        fish_option(cmd->name, &cmd->options[i]);
        if (option_is_operand(&cmd->options[i]) && alternatives(&cmd->options[i]))
            printf("set -a __trefoil_before '%s'\n", cmd->name);
    }
}

static void fish_group(const struct command_group *group, bool is_root)
{
    char help[128];
    snprintf(help, sizeof help, "%s help", group->name);
    printf("set -a __trefoil_commands '%s' '%s'\n", group->name, help);
    printf("set -a __trefoil_before '%s'\n", help);
    for (size_t i = 0; i < group->n_choices; i++) {
        const struct command_choice *c = &group->choices[i];
        fish_choice(group->name, c->name, c->summary);
        fish_choice(help, c->name, c->summary);
    }
    fish_choice(group->name, "help", "Show the options of a command.");
    if (is_root)
        fish_choice(group->name, "version", "Show the version.");
}

static void fish_keys(void)
{
    struct config_hint hint;
    puts("set -g __trefoil_keys");
    for (int i = 0; config_hint_at(&hint, i); i++) {
        char text[1024];
        snprintf(text, sizeof text, "%s=%s\t%s", hint.path, hint.words, hint.meaning);
        fputs("set -a __trefoil_keys ", stdout);
        put_quoted(text, "\\");
        putchar('\n');
    }
}

/* -- the walk ------------------------------------------------------------------------ */

static const struct shell {
    const char *question; // for the commands of a group
    void (*keys)(void);
    void (*group)(const struct command_group *group, bool is_root);
    void (*command)(const struct command *cmd);
} shells[N_HELP_FORMS] = {
    [HELP_BASH] = {"--help=bash", bash_keys, bash_group, bash_command},
    [HELP_ZSH] = {"--help=zsh", zsh_keys, zsh_group, zsh_command},
    [HELP_FISH] = {"--help=fish", fish_keys, fish_group, fish_command},
};

void shell_print(const struct command *cmd, enum help_form form)
{
    shells[form].command(cmd);
}

void shell_print_group(const struct command_group *group, enum help_form form)
{
    const struct shell *shell = &shells[form];
    bool is_root = !strchr(group->name, ' ');
    if (is_root)
        shell->keys();
    shell->group(group, is_root);
    for (size_t i = 0; i < group->n_choices; i++) {
        char name[64], question[32];
        snprintf(name, sizeof name, "%s", group->choices[i].name);
        snprintf(question, sizeof question, "%s", shell->question);
        char *words[] = {name, question, NULL};
        group->choices[i].run(2, words);
    }
}

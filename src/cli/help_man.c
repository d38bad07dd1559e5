/*
 * Manual pages in the macros of man(7), from the tables of options.
 *
 * All text goes through put_text(), which leaves nothing in it that troff would take for
 * a request, an escape or a hyphen.
 */
#include "base/base.h"
#include "cli/help.h"
#include "config/config.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#define LINE_BYTES 60 // of the source of a page; escapes make it longer, up to 80

static void put_text(const char *text)
{
    for (const char *c = text; *c; c++) {
        bool is_first = c == text || c[-1] == '\n';
        if (is_first && (*c == '.' || *c == '\''))
            fputs("\\&", stdout);
        if (*c == '\\')
            fputs("\\e", stdout);
        else if (*c == '-')
            fputs("\\-", stdout);
        else if (*c == '\'')
            fputs("\\(aq", stdout);
        else if (*c == '~')
            fputs("\\(ti", stdout);
        else if (*c == '^')
            fputs("\\(ha", stdout);
        else if (*c == '`')
            fputs("\\(ga", stdout);
        else
            putchar(*c);
    }
}

/* "trefoil tokenizer train" with dashes, as pages are called. */
static void put_page_name(const char *name, bool is_upper)
{
    for (; *name; name++)
        putchar(*name == ' ' ? '-' : is_upper ? toupper((unsigned char)*name) : *name);
}

/* A line of a list of pages: "trefoil-pretrain(1)", bold. */
static void put_reference(const char *name, int section, const char *end)
{
    char page[128];
    snprintf(page, sizeof page, "%s", name);
    for (char *space = strchr(page, ' '); space; space = strchr(space, ' '))
        *space = '-';
    fputs(".BR ", stdout);
    put_text(page);
    printf(" (%d)%s\n", section, end);
}

/* Words in lines of at most LINE_BYTES, each sentence on new ones, as troff likes them.
 * `used` bytes of the first line are there already. */
static void put_sentences(const char *text, size_t used)
{
    char word[512];
    while (*text) {
        size_t n = strcspn(text, " ");
        bool is_end = n && text[n - 1] == '.';
        if (used && used + 1 + n > LINE_BYTES) {
            putchar('\n');
            used = 0;
        }
        if (used)
            putchar(' ');
        snprintf(word, sizeof word, "%.*s", (int)n, text);
        put_text(word);
        used = is_end ? 0 : used + 1 + n;
        text += n;
        text += strspn(text, " ");
        if (is_end || !*text)
            putchar('\n');
    }
}

static void put_head(const char *name, int section, const char *summary)
{
    char first[512];
    fputs(".\\\" Made by the program from its own tables.\n.TH ", stdout);
    put_page_name(name, true);
    printf(" %d \"" TREFOIL_DATE "\" \"trefoil " TREFOIL_VERSION
           "\" \"Trefoil\"\n.SH NAME\n",
           section);
    put_page_name(name, false);
    // one line without a full stop, which is what whatis and apropos show
    snprintf(first, sizeof first, "%.*s", (int)strcspn(summary, ".:"), summary);
    if (islower((unsigned char)first[1]))
        first[0] = (char)tolower((unsigned char)first[0]);
    fputs(" \\-", stdout);
    put_sentences(first, strlen(name) + 3);
    puts(".SH SYNOPSIS");
}

static void put_exit_status(void)
{
    static const char *const rows[][2] = {
        {"0", "Done."},
        {"2", "Bad usage, configuration or input."},
        {"3", "The machine or the training failed."},
        {"4", "Restarted repeatedly without a newer checkpoint."},
        {"75", "Stopped on request, after saving a checkpoint."},
    };
    puts(".SH EXIT STATUS");
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        printf(".TP\n.B %s\n%s\n", rows[i][0], rows[i][1]);
}

/* -- a command ----------------------------------------------------------------------- */

static void put_synopsis(const struct command *cmd)
{
    puts(".nh");
    fputs(".B ", stdout);
    put_text(cmd->name);
    putchar('\n');
    for (int i = 0; i < cmd->n_options; i++) {
        const struct option_spec *o = &cmd->options[i];
        if (!o->is_required || option_is_operand(o))
            continue;
        fputs(".B ", stdout);
        put_text("--");
        put_text(o->name);
        if (o->value) {
            fputs("\n.I ", stdout);
            put_text(o->value);
        }
        putchar('\n');
    }
    puts(".RI [ options ]");
    for (int i = 0; i < cmd->n_options; i++) {
        const struct option_spec *o = &cmd->options[i];
        if (!option_is_operand(o))
            continue;
        printf(o->is_required ? ".I " : ".RI [ ");
        put_text(o->value);
        if (o->kind == OPTION_OPERANDS)
            put_text("...");
        puts(o->is_required ? "" : " ]");
    }
    puts(".hy");
}

static void put_option(const struct option_spec *o)
{
    puts(".TP");
    if (option_is_operand(o)) {
        fputs("\\fI", stdout);
        put_text(o->value);
        puts("\\fR");
    } else {
        if (o->letter)
            printf("\\fB\\-%c\\fR, ", o->letter);
        fputs("\\fB\\-\\-", stdout);
        put_text(o->name);
        fputs("\\fR", stdout);
        if (o->value) {
            fputs(" \\fI", stdout);
            put_text(o->value);
            fputs("\\fR", stdout);
        }
        puts(o->kind == OPTION_LIST ? "..." : "");
    }
    put_sentences(o->help, 0);
    if (o->is_required)
        puts("Required.");
}

void man_print(const struct command *cmd)
{
    put_head(cmd->name, 1, cmd->summary);
    put_synopsis(cmd);
    puts(".SH DESCRIPTION");
    put_sentences(cmd->summary, 0);
    bool has_list = false, has_keys = false;
    for (int i = 0; i < cmd->n_options; i++) {
        const struct option_spec *o = &cmd->options[i];
        has_list |= o->kind == OPTION_LIST;
        has_keys |= o->value && strcmp(o->value, "KEY=VALUE") == 0;
    }
    puts(".SH OPTIONS");
    for (int i = 0; i < cmd->n_options; i++)
        put_option(&cmd->options[i]);
    puts(".TP\n\\fB\\-\\-help\\fR\nShow the options.");
    puts(".TP\n\\fB\\-\\-version\\fR\nShow the version.");
    puts(".PP\nA value follows its option as the next word or after an equals sign.");
    if (has_list)
        puts("An option marked with dots takes several values, up to the next option,\n"
             "and may be repeated.");
    put_exit_status();
    puts(".SH SEE ALSO");
    if (has_keys && strcmp(cmd->name, "trefoil config") != 0)
        put_reference("trefoil config", 1, ",");
    put_reference("trefoil", 1, has_keys ? "," : "");
    if (has_keys)
        put_reference("trefoil.yaml", 5, "");
}

/* -- a group ------------------------------------------------------------------------- */

static void put_environment(void)
{
    static const char *const rows[][2] = {
        {"OMP_NUM_THREADS", "Threads of each process, where num_threads is 0."},
        {"TMPDIR", "Where selftest, and jobs that cannot use /dev/shm, put their files."},
        {"NO_COLOR", "If set, nothing is coloured on a terminal."},
        {"COLUMNS", "The width of a terminal that does not tell its own."},
    };
    puts(".SH ENVIRONMENT");
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        printf(".TP\n.B %s\n%s\n", rows[i][0], rows[i][1]);
}

static void put_examples(void)
{
    static const char *const lines[] = {
        "trefoil tokenizer train --input my_texts/ --vocab_size 2048 --output my_tokens",
        "trefoil prepare --input my_texts/ --tokenizer my_tokens --output data/mine",
        "trefoil pretrain -c run.yaml -o dataset.input_dir=data output_dir=output",
        "trefoil generate --ckpt output --prompt \"Once upon a time\"",
    };
    puts(".SH EXAMPLES\nFrom texts to a model, and to a text by the model:\n.PP\n.EX");
    for (size_t i = 0; i < ARRAY_LEN(lines); i++) {
        put_text(lines[i]);
        putchar('\n');
    }
    puts(".EE");
}

void man_print_group(const struct command_group *group)
{
    bool is_root = !strchr(group->name, ' ');
    put_head(group->name, 1, group->summary);
    fputs(".B ", stdout);
    put_text(group->name);
    puts("\n.I command\n.RI [ options ]\n.SH DESCRIPTION");
    put_sentences(group->summary, 0);
    puts(".SH COMMANDS");
    for (size_t i = 0; i < group->n_choices; i++) {
        char name[128];
        snprintf(name, sizeof name, "%s %s", group->name, group->choices[i].name);
        puts(".TP");
        put_reference(name, 1, "");
        put_sentences(group->choices[i].summary, 0);
    }
    puts(".TP\n\\fBhelp\\fR [\\fIcommand\\fR]\nShow the options of a command.");
    if (is_root) {
        puts(".TP\n\\fBversion\\fR\nShow the version, the build, the MPI library and the "
             "kernels in use.");
        puts(".SH OPTIONS\n.TP\n\\fB\\-\\-help\\fR\nShow the commands; of a command, its "
             "options.");
        puts(".TP\n\\fB\\-\\-help=man\\fR\nThe same as a manual page.");
        puts(".TP\n\\fB\\-\\-version\\fR\nAs the command.");
        put_environment();
        put_examples();
    }
    put_exit_status();
    puts(".SH SEE ALSO");
    for (size_t i = 0; i < group->n_choices; i++) {
        char name[128];
        snprintf(name, sizeof name, "%s %s", group->name, group->choices[i].name);
        put_reference(name, 1, ",");
    }
    if (is_root)
        put_reference("trefoil.yaml", 5, "");
    else
        put_reference("trefoil", 1, "");
}

/* -- the configuration --------------------------------------------------------------- */

void man_print_keys(void)
{
    struct config_hint hint;
    put_head("trefoil.yaml", 5, "Configuration of a run of trefoil.");
    puts(".B trefoil pretrain \\-c\n.I run.yaml\n.RB [ \\-o\n.IR key = value ...]");
    puts(".SH DESCRIPTION");
    put_sentences(
        "A run is described by one YAML file. A key is written here as for -o, with "
        "the sections it stands in, separated by dots; in the file, sections are "
        "maps. A key that is left out has its default. What is not known is "
        "refused, with the nearest name that is.",
        0);
    puts(".SH KEYS");
    for (int i = 0; config_hint_at(&hint, i); i++) {
        char standard[512];
        puts(".TP");
        fputs(".B ", stdout);
        put_text(hint.path);
        putchar('\n');
        put_sentences(hint.meaning, 0);
        if (hint.words[0]) {
            char values[256];
            snprintf(values, sizeof values, "Values: %s.", hint.words);
            put_sentences(values, 0);
        }
        snprintf(standard, sizeof standard, "Default: %s.", hint.standard);
        put_sentences(standard, 0);
    }
    puts(".SH SEE ALSO");
    put_reference("trefoil pretrain", 1, ",");
    put_reference("trefoil config", 1, "");
}

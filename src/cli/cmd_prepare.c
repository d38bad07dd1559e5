/*
 * trefoil prepare - text or JSON lines into token files.
 *
 * Input files are read one after the other, in pieces; each document's bytes become
 * tokens at once, and an end-of-document token follows it. SIGINT and SIGTERM are turned
 * into a descriptor that the reader watches, so that stopping goes through the same
 * clean-up as any error: nothing is left behind.
 */
#include "base/clock.h"
#include "base/fs.h"
#include "base/log.h"
#include "cli/cmd.h"
#include "cli/options.h"
#include "data/byte_tokenizer.h"
#include "data/dataset_writer.h"
#include "data/text_documents.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

#define MOST_BAD_LINES_SHOWN 10
#define PROGRESS_SECONDS 0.2
#define CHUNK 8192 // bytes encoded at once

struct settings { // as given on the command line
    struct option_list inputs;
    const char *output;
    const char *tokenizer;
    const char *json_key;
    const char *format;
    const char *doc_separator;
    bool is_json;
    bool is_strict;
};

struct prepare {
    struct settings set;
    enum dataset_format format;
    struct fs_names files; // to read, in order
    double total_bytes;    // of all files
    struct dataset_writer *writer;
    int stop_fd;
    int64_t document_bytes; // of the document that is being read
    int64_t n_bytes;        // read
    int64_t n_empty;
    int64_t n_bad_lines;
    double start_seconds, shown_seconds;
};

/* -- what text_documents calls --------------------------------------------------------
 */

static int append(void *context, const char *bytes, size_t n, struct error *err)
{
    struct prepare *p = context;
    int32_t tokens[CHUNK];
    p->document_bytes += (int64_t)n;
    while (n > 0) {
        size_t part = n < CHUNK ? n : CHUNK;
        byte_tokenizer_encode(bytes, part, tokens);
        if (dataset_writer_append(p->writer, tokens, (int64_t)part, err))
            return -1;
        bytes += part;
        n -= part;
    }
    return 0;
}

static int end_document(void *context, struct error *err)
{
    struct prepare *p = context;
    static const int32_t eos = BYTE_TOKENIZER_EOS;
    if (p->document_bytes == 0) {
        p->n_empty++;
        return 0;
    }
    p->document_bytes = 0;
    if (dataset_writer_append(p->writer, &eos, 1, err))
        return -1;
    return dataset_writer_end_document(p->writer, err);
}

static int bad_line(void *context, const char *path, int64_t line, const char *reason,
                    struct error *err)
{
    struct prepare *p = context;
    if (p->set.is_strict)
        return error_set(err, ERROR_INPUT, "%s:%lld: %s", path, (long long)line, reason);
    p->n_bad_lines++;
    if (p->n_bad_lines <= MOST_BAD_LINES_SHOWN)
        log_warning("%s:%lld: line skipped: %s", path, (long long)line, reason);
    if (p->n_bad_lines == MOST_BAD_LINES_SHOWN)
        log_warning("further bad lines are only counted; --strict stops at the first");
    return 0;
}

static int progress(void *context, size_t n, struct error *err)
{
    struct prepare *p = context;
    (void)err;
    p->n_bytes += (int64_t)n;
    double now = clock_seconds(), spent = now - p->start_seconds;
    if (now - p->shown_seconds < PROGRESS_SECONDS)
        return 0;
    p->shown_seconds = now;
    log_status("prepare: %.1f of %.1f MB, %.1f MB/s, %lld documents",
               (double)p->n_bytes / 1e6, p->total_bytes / 1e6,
               (double)p->n_bytes / 1e6 / (spent > 0 ? spent : 1),
               (long long)dataset_writer_n_documents(p->writer));
    return 0;
}

/* -- input files ----------------------------------------------------------------------
 */

static bool ends_with(const char *name, const char *suffix)
{
    size_t n = strlen(name), k = strlen(suffix);
    return n >= k && strcmp(name + n - k, suffix) == 0;
}

/* Names of files that are surely no text, and what to do about them. */
static int refuse_other_files(const char *path, struct error *err)
{
    static const char *const packed[] = {".gz", ".zst", ".bz2", ".xz", ".zip", ".tar"};
    static const char *const binary[] = {".bin", ".idx", ".npy", ".npz"};
    for (size_t i = 0; i < ARRAY_LEN(packed); i++)
        if (ends_with(path, packed[i]))
            return error_set(err, ERROR_INPUT, "'%s' is packed (%s); unpack it first",
                             path, packed[i]);
    for (size_t i = 0; i < ARRAY_LEN(binary); i++)
        if (ends_with(path, binary[i]))
            return error_set(err, ERROR_INPUT,
                             "'%s' is a token file (%s), not text; name the text files",
                             path, binary[i]);
    return 0;
}

/* What an earlier run with the same --output has left in a directory of inputs. */
static bool is_own_output(const struct prepare *p, const char *path)
{
    static const char *const suffixes[] = {
        ".bin",     ".idx",     "_ids.npy",     "_idx.npz",     ".meta.json",
        ".bin.tmp", ".idx.tmp", "_ids.npy.tmp", "_idx.npz.tmp", ".lens.tmp"};
    size_t n = strlen(p->set.output);
    if (strncmp(path, p->set.output, n) != 0)
        return false;
    for (size_t i = 0; i < ARRAY_LEN(suffixes); i++)
        if (strcmp(path + n, suffixes[i]) == 0)
            return true;
    return false;
}

static int add_file(struct prepare *p, const char *path, struct error *err)
{
    struct stat st;
    struct fs_names *list = &p->files;
    if (refuse_other_files(path, err))
        return -1;
    if (stat(path, &st))
        return error_set(err, ERROR_INPUT, "cannot open '%s': %s", path, strerror(errno));
    p->total_bytes += (double)st.st_size;
    char **larger =
        realloc(list->names, (size_t)(list->n_names + 1) * sizeof *list->names);
    if (larger)
        list->names = larger;
    char *copy = larger ? strdup(path) : NULL;
    if (!copy)
        return error_set(err, ERROR_RUNTIME, "out of memory");
    list->names[list->n_names++] = copy;
    return 0;
}

/* The files of a directory, sorted; hidden ones, directories in it and our own output are
 * left out. */
static int add_directory(struct prepare *p, const char *dir, struct error *err)
{
    struct fs_names names;
    int rc = -1;
    int64_t n_before = p->files.n_names;
    if (fs_list(dir, &names, err))
        return -1;
    for (int64_t i = 0; i < names.n_names; i++) {
        char path[PATH_MAX];
        if (fs_join(path, sizeof path, dir, names.names[i], err))
            goto done;
        if (names.names[i][0] == '.' || fs_is_directory(path) || is_own_output(p, path))
            continue;
        if (add_file(p, path, err))
            goto done;
    }
    if (p->files.n_names == n_before) {
        error_set(err, ERROR_INPUT, "the directory '%s' has no files in it", dir);
        goto done;
    }
    rc = 0;
done:
    fs_names_release(&names);
    return rc;
}

static int list_files(struct prepare *p, struct error *err)
{
    for (int i = 0; i < p->set.inputs.n_values; i++) {
        const char *path = p->set.inputs.values[i];
        if (fs_is_directory(path) ? add_directory(p, path, err) : add_file(p, path, err))
            return -1;
    }
    return 0;
}

static enum text_kind kind_of(const struct prepare *p, const char *path)
{
    if (p->set.is_json || ends_with(path, ".jsonl") || ends_with(path, ".json"))
        return TEXT_JSON_LINES;
    return strcmp(p->set.doc_separator, "file") == 0 ? TEXT_WHOLE_FILE : TEXT_BLANK_LINES;
}

/* -- the run ---------------------------------------------------------------------------
 */

static int check_choice(const char *option, const char *value, const char *a,
                        const char *b, struct error *err)
{
    if (strcmp(value, a) == 0 || strcmp(value, b) == 0)
        return 0;
    if (strcmp(a, b) == 0)
        return error_set(err, ERROR_INPUT, "--%s '%s' is not known; there is %s", option,
                         value, a);
    return error_set(err, ERROR_INPUT, "--%s '%s' is not known; there are %s and %s",
                     option, value, a, b);
}

static int check_settings(struct prepare *p, struct error *err)
{
    const struct settings *set = &p->set;
    if (check_choice("tokenizer", set->tokenizer, BYTE_TOKENIZER_NAME,
                     BYTE_TOKENIZER_NAME, err) ||
        check_choice("format", set->format, "megatron", "fleetx", err) ||
        check_choice("doc_separator", set->doc_separator, "blank", "file", err))
        return -1;
    p->format = strcmp(set->format, "fleetx") == 0 ? DATASET_FLEETX : DATASET_MEGATRON;
    return 0;
}

static int read_all_files(struct prepare *p, struct error *err)
{
    struct text_sink sink = {append, end_document, bad_line, progress, p};
    for (int64_t i = 0; i < p->files.n_names; i++) {
        const char *path = p->files.names[i];
        if (text_documents_read(path, kind_of(p, path), p->set.json_key, p->stop_fd,
                                &sink, err))
            return -1;
    }
    if (dataset_writer_n_documents(p->writer) == 0)
        return error_set(err, ERROR_INPUT,
                         "no documents in the %lld input files (%lld empty documents and "
                         "%lld bad lines skipped); nothing was written",
                         (long long)p->files.n_names, (long long)p->n_empty,
                         (long long)p->n_bad_lines);
    return 0;
}

static void print_summary(const struct prepare *p)
{
    double spent = clock_seconds() - p->start_seconds;
    log_info("prepared '%s' (%s): %lld documents, %lld tokens from %lld bytes in %.1f s "
             "(%.1f MB/s); %lld empty documents and %lld bad lines skipped; vocab_size "
             "%d, eos_token_id %d",
             p->set.output, p->set.format,
             (long long)dataset_writer_n_documents(p->writer),
             (long long)dataset_writer_n_tokens(p->writer), (long long)p->n_bytes, spent,
             (double)p->n_bytes / 1e6 / (spent > 0 ? spent : 1), (long long)p->n_empty,
             (long long)p->n_bad_lines, BYTE_TOKENIZER_VOCAB_SIZE, BYTE_TOKENIZER_EOS);
}

static int run(struct prepare *p, struct error *err)
{
    static const struct dataset_meta meta = {.tokenizer = BYTE_TOKENIZER_NAME,
                                             .vocab_size = BYTE_TOKENIZER_VOCAB_SIZE,
                                             .eos_token_id = BYTE_TOKENIZER_EOS};
    int rc = -1;
    if (check_settings(p, err) || list_files(p, err))
        goto done;
    p->start_seconds = clock_seconds();
    if (dataset_writer_open(&p->writer, p->set.output, p->format,
                            BYTE_TOKENIZER_VOCAB_SIZE, err) ||
        read_all_files(p, err) || dataset_writer_commit(p->writer, &meta, err))
        goto done;
    log_status_clear();
    print_summary(p);
    rc = 0;
done:
    log_status_clear();
    dataset_writer_close(p->writer);
    fs_names_release(&p->files);
    return rc;
}

/* Run with SIGINT and SIGTERM readable from p->stop_fd instead of deadly. */
static int run_stoppable(struct prepare *p, struct error *err)
{
    sigset_t stops, before;
    sigemptyset(&stops);
    sigaddset(&stops, SIGINT);
    sigaddset(&stops, SIGTERM);
    sigprocmask(SIG_BLOCK, &stops, &before);
    p->stop_fd = signalfd(-1, &stops, SFD_CLOEXEC | SFD_NONBLOCK);
    int rc = p->stop_fd < 0 ? error_set(err, ERROR_RUNTIME,
                                        "cannot watch for signals: %s", strerror(errno))
                            : run(p, err);
    if (p->stop_fd >= 0) {
        struct signalfd_siginfo taken; // a stop that was obeyed must not strike again
        while (read(p->stop_fd, &taken, sizeof taken) > 0)
            continue;
        close(p->stop_fd);
    }
    sigprocmask(SIG_SETMASK, &before, NULL);
    return rc;
}

int cmd_prepare(int argc, char **argv)
{
    struct prepare p = {.set = {.tokenizer = BYTE_TOKENIZER_NAME,
                                .json_key = "text",
                                .format = "megatron",
                                .doc_separator = "blank"}};
    struct settings *set = &p.set;
    // clang-format off
    const struct option_spec options[] = {
        {"input", 'i', OPTION_LIST, &set->inputs, true, "PATH",
         "Text files, JSON lines (*.jsonl, *.json), or directories of them, in order."},
        {"output", 0, OPTION_TEXT, &set->output, true, "PREFIX",
         "Where to write: PREFIX.bin and PREFIX.idx, or PREFIX_ids.npy and PREFIX_idx.npz."},
        {"format", 0, OPTION_TEXT, &set->format, false, "megatron|fleetx",
         "Which of the two pairs of files; megatron when not given."},
        {"tokenizer", 0, OPTION_TEXT, &set->tokenizer, false, "NAME",
         "How text becomes tokens: bytes, one token a byte, eos 256."},
        {"json", 0, OPTION_FLAG, &set->is_json, false, NULL,
         "Take every input for JSON lines, whatever its name."},
        {"json_key", 0, OPTION_TEXT, &set->json_key, false, "KEY",
         "The key of the text in a JSON line; text when not given."},
        {"doc_separator", 0, OPTION_TEXT, &set->doc_separator, false, "blank|file",
         "What ends a document of plain text: a blank line, or the end of the file."},
        {"strict", 0, OPTION_FLAG, &set->is_strict, false, NULL,
         "Stop at the first bad line instead of skipping it."},
    };
    // clang-format on
    const struct command cmd = {"trefoil prepare",
                                "Turn text or JSON lines into token files to train on.",
                                options, ARRAY_LEN(options)};
    struct error err;
    int rc = options_parse(&cmd, argc, argv, &err);
    if (rc == 0)
        rc = run_stoppable(&p, &err);
    options_list_release(&set->inputs);
    if (rc < 0) {
        log_error("%s", err.text);
        return error_exit_code(&err);
    }
    return 0;
}

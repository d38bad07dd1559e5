/* trefoil export - a checkpoint in a format that other programs load. */
#include "base/log.h"
#include "base/stop.h"
#include "ckpt/ckpt_tokenizer.h"
#include "cli/cmd.h"
#include "cli/options.h"
#include "hub/gguf.h"
#include "hub/hf_export.h"
#include "hub/hub_tensors.h"

#include <stdlib.h>
#include <string.h>

struct export
{
    const char *ckpt, *to, *output, *dtype_name, *tokenizer_name;
    int64_t max_file_bytes;

    enum dtype dtype;
    struct hub_source src;
    struct tokenizer *tokenizer; // NULL: not known
};

static int export_hf(struct export *ex, struct error *err)
{
    struct hf_export_options opt = {ex->dtype, ex->max_file_bytes, ex->tokenizer};
    if (!ex->tokenizer)
        log_warning("the tokenizer of '%s' is not known: no tokenizer files are written; "
                    "--tokenizer DIR names it",
                    ex->src.path);
    return hf_export(&ex->src, &opt, ex->output, err);
}

static int export_gguf(struct export *ex, struct error *err)
{
    return gguf_export(&ex->src, ex->tokenizer, ex->dtype, ex->output, err);
}

static const struct export_format {
    const char *name;
    int (*write)(struct export *ex, struct error *err);
    bool needs_tokenizer;
    bool has_bfloat16;
} formats[] = {
    {"hf", export_hf, false, true},
    {"gguf", export_gguf, true, false},
};

static const struct export_format *find_format(const char *name, struct error *err)
{
    for (size_t i = 0; i < ARRAY_LEN(formats); i++)
        if (strcmp(formats[i].name, name) == 0)
            return &formats[i];
    error_set(err, ERROR_INPUT, "trefoil export: --to '%s' is not known; hf and gguf are",
              name);
    return NULL;
}

static int find_dtype(struct export *ex, const struct export_format *format,
                      struct error *err)
{
    static const enum dtype dtypes[] = {DTYPE_F32, DTYPE_F16, DTYPE_BF16};
    size_t n = format->has_bfloat16 ? 3 : 2;
    for (size_t i = 0; i < n; i++)
        if (strcmp(dtype_name(dtypes[i]), ex->dtype_name) == 0) {
            ex->dtype = dtypes[i];
            return 0;
        }
    return error_set(err, ERROR_INPUT,
                     "trefoil export: --dtype '%s' cannot be written to %s; float32%s",
                     ex->dtype_name, format->name,
                     n == 3 ? ", float16 and bfloat16 can" : " and float16 can");
}

static int run_export(void *context, struct error *err)
{
    struct export *ex = context;
    stop_watch(STOP_COMMAND);
    const struct export_format *format = find_format(ex->to, err);
    if (!format || find_dtype(ex, format, err))
        return -1;
    if (ex->max_file_bytes < 1)
        return error_set(err, ERROR_INPUT,
                         "trefoil export: --max_file_bytes must be at least 1; it is "
                         "%lld",
                         (long long)ex->max_file_bytes);
    if (hub_source_open(&ex->src, ex->ckpt, err) ||
        ckpt_tokenizer_open(&ex->tokenizer, ex->tokenizer_name, ex->src.path,
                            ex->src.reader.manifest.progress.tokenizer_hash, &ex->src.cfg,
                            !format->needs_tokenizer, err) ||
        format->write(ex, err))
        return -1;
    log_info("exported '%s' to '%s'", ex->src.path, ex->output);
    return 0;
}

int cmd_export(int argc, char **argv)
{
    struct export ex = {.dtype_name = "float32", .max_file_bytes = HF_MAX_FILE_BYTES};
    const struct option_spec options[] = {
        {"ckpt", 0, OPTION_TEXT, &ex.ckpt, true, "DIR",
         "A checkpoint, or a directory of them (the one saved last that is valid)."},
        {"to", 0, OPTION_TEXT, &ex.to, true, "hf|gguf",
         "hf: a GPT-2 directory for transformers; gguf: a file for llama.cpp."},
        {"output", 0, OPTION_TEXT, &ex.output, true, "PATH",
         "The directory (hf) or file (gguf) to write."},
        {"dtype", 0, OPTION_TEXT, &ex.dtype_name, false, "TYPE",
         "float32 (the default), float16, or, for hf only, bfloat16."},
        {"tokenizer", 0, OPTION_TEXT, &ex.tokenizer_name, false, "DIR",
         "The tokenizer the model was trained with, if it cannot be found from the "
         "data."},
        {"max_file_bytes", 0, OPTION_INT, &ex.max_file_bytes, false, "N",
         "Split hf tensors into several files above this size (5000000000)."},
    };
    const struct command cmd = {"trefoil export",
                                "Write a checkpoint for transformers or llama.cpp.",
                                options, ARRAY_LEN(options)};
    int code = command_run(&cmd, argc, argv, run_export, &ex);
    tokenizer_close(ex.tokenizer);
    hub_source_close(&ex.src);
    return code;
}

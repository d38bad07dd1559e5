/*
 * trefoil eval - perplexity on tokens or text, and cloze accuracy, of a trained model.
 *
 * Every process of a job has the whole model and takes its share of the windows and
 * texts; rank 0 reports. The numbers do not depend on how many there are.
 */
#include "base/log.h"
#include "ckpt/ckpt.h"
#include "cli/ckpt_tokenizer.h"
#include "cli/cmd.h"
#include "cli/eval_data.h"
#include "cli/options.h"
#include "comm/grid.h"
#include "launch/worker.h"
#include "train/cloze_eval.h"
#include "train/offline_eval.h"

#include <jansson.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define DIGITS 9 // of the numbers that are printed: a float comes back with the same bits

struct eval {
    const char *ckpt, *data_name, *cloze_path, *tokenizer_name;
    int64_t stride; // 0: the whole window
    int64_t max_seq_len, batch_size, num_threads;
    bool is_json;

    struct comm *world;
    struct grid grid;
    char path[PATH_MAX]; // of the checkpoint
    int64_t step;
    struct config cfg;
    struct gpt gpt;
    struct gpt_decoder decoder; // of cloze texts
    struct tokenizer *tokenizer;
    struct eval_data data;
    struct text_list texts;

    struct eval_result result;
    int64_t n_correct;
};

/* -- opening ------------------------------------------------------------------------- */

static int check_options(const struct eval *ev, struct error *err)
{
    if (!ev->data_name && !ev->cloze_path)
        return error_set(err, ERROR_INPUT,
                         "trefoil eval: nothing to evaluate; give --data or --cloze");
    if (ev->batch_size < 1 || ev->num_threads < 0 || ev->stride < 0 ||
        ev->max_seq_len < 0)
        return error_set(err, ERROR_INPUT,
                         "trefoil eval: --batch_size must be at least 1; "
                         "--overlapping_eval, --max_seq_len and --num_threads must not "
                         "be negative");
    return 0;
}

/* The length of windows: as it was trained, unless told. */
static int choose_length(struct eval *ev, struct error *err)
{
    int64_t P = ev->cfg.model.max_position_embeddings;
    if (ev->max_seq_len > P)
        return error_set(err, ERROR_INPUT,
                         "--max_seq_len %lld is more than the %lld positions of "
                         "checkpoint '%s'",
                         (long long)ev->max_seq_len, (long long)P, ev->path);
    if (ev->max_seq_len > 0)
        ev->cfg.dataset.max_seq_len = ev->max_seq_len;
    ev->max_seq_len = ev->cfg.dataset.max_seq_len;
    if (ev->stride > ev->max_seq_len)
        return error_set(err, ERROR_INPUT,
                         "--overlapping_eval %lld is more than a window, which has %lld "
                         "tokens; tokens would be left out",
                         (long long)ev->stride, (long long)ev->max_seq_len);
    if (ev->stride == 0)
        ev->stride = ev->max_seq_len;
    return 0;
}

static int open_model(struct eval *ev, struct error *err)
{
    struct ckpt_info info;
    if (ckpt_resolve(ev->ckpt, ev->path, sizeof ev->path, err) ||
        ckpt_read_info(ev->path, &info, err))
        return -1;
    ev->step = info.progress.step;
    int rc = config_from_json(&ev->cfg, info.config_json, err);
    ckpt_info_release(&info);
    if (rc)
        return error_prefix(err, "checkpoint '%s'", ev->path);
    if (choose_length(ev, err) ||
        gpt_open(&ev->gpt, &ev->cfg, ev->data_name ? ev->batch_size : 1, false,
                 ev->grid.model, err) ||
        ckpt_load_params(ev->path, &ev->gpt.table, ev->gpt.params, err))
        return -1;
    return ev->cloze_path ? gpt_decoder_open(&ev->decoder, &ev->gpt, err) : 0;
}

static int open_inputs(struct eval *ev, struct error *err)
{
    bool is_text = ev->data_name && eval_data_is_text(ev->data_name);
    if ((is_text || ev->cloze_path) &&
        ckpt_tokenizer_open(&ev->tokenizer, ev->tokenizer_name, ev->path, &ev->cfg, false,
                            err))
        return -1;
    if (ev->data_name && eval_data_open(&ev->data, ev->data_name, ev->tokenizer, err))
        return -1;
    return ev->cloze_path
               ? text_list_read(&ev->texts, ev->cloze_path, TEXT_LIST_JSON, err)
               : 0;
}

/* -- reporting ----------------------------------------------------------------------- */

/* As the original: what the perplexity would be if words were tokens. */
static double adjusted_ppl(const struct eval *ev)
{
    return exp(ev->result.loss * (double)ev->result.n_scored /
               (double)(ev->data.n_words - 1));
}

static void set_real(json_t *object, const char *key, double value)
{
    if (isfinite(value)) // the perplexity of a loss over 709 is not
        json_object_set_new(object, key, json_real(value));
    else
        json_object_set_new(object, key, json_null());
}

static void print_json(const struct eval *ev)
{
    json_t *object =
        json_pack("{s:s, s:I}", "ckpt", ev->path, "step", (json_int_t)ev->step);
    if (ev->data_name) {
        set_real(object, "loss", ev->result.loss);
        set_real(object, "ppl", exp(ev->result.loss));
        json_object_set_new(object, "tokens", json_integer(ev->result.n_scored));
        json_object_set_new(object, "windows", json_integer(ev->result.n_windows));
        json_object_set_new(object, "max_seq_len", json_integer(ev->max_seq_len));
        json_object_set_new(object, "overlapping_eval", json_integer(ev->stride));
    }
    if (ev->data.n_words > 1) {
        json_object_set_new(object, "words", json_integer(ev->data.n_words));
        set_real(object, "adjusted_ppl", adjusted_ppl(ev));
    }
    if (ev->cloze_path) {
        int64_t n = ev->texts.n_items;
        set_real(object, "cloze_accuracy", (double)ev->n_correct / (double)n);
        json_object_set_new(object, "cloze_correct", json_integer(ev->n_correct));
        json_object_set_new(object, "cloze_texts", json_integer(n));
    }
    json_dumpf(object, stdout, JSON_COMPACT | JSON_REAL_PRECISION(DIGITS));
    putchar('\n');
    json_decref(object);
}

static void print_text(const struct eval *ev)
{
    const struct eval_result *r = &ev->result;
    printf("checkpoint %s, step %lld\n", ev->path, (long long)ev->step);
    if (ev->data_name)
        printf("loss %.9g nats a token, perplexity %.9g: %lld tokens in %lld windows of "
               "%lld, a new one every %lld\n",
               r->loss, exp(r->loss), (long long)r->n_scored, (long long)r->n_windows,
               (long long)ev->max_seq_len, (long long)ev->stride);
    if (ev->data.n_words > 1)
        printf("perplexity by words %.9g: %lld words\n", adjusted_ppl(ev),
               (long long)ev->data.n_words);
    if (ev->cloze_path)
        printf("last words right %.4f: %lld of %lld texts\n",
               (double)ev->n_correct / (double)ev->texts.n_items,
               (long long)ev->n_correct, (long long)ev->texts.n_items);
}

/* -- the command --------------------------------------------------------------------- */

static void set_threads(const struct eval *ev)
{
    if (ev->num_threads > 0)
        kernels_set_threads((int)ev->num_threads);
    else if (worker_threads() > 0)
        kernels_set_threads(worker_threads());
    else if (comm_size(ev->world) > 1 && !getenv("OMP_NUM_THREADS"))
        kernels_set_threads(kernels_processors() / comm_local_size(ev->world));
}

static int evaluate(struct eval *ev, struct error *err)
{
    if (ev->data_name) {
        struct eval_stream stream = eval_data_stream(&ev->data);
        if (offline_eval(&ev->result, &ev->gpt, ev->stride, &stream, ev->world, err))
            return -1;
    }
    if (ev->cloze_path && cloze_eval(&ev->n_correct, &ev->decoder, ev->tokenizer,
                                     &ev->texts, ev->world, err))
        return -1;
    if (comm_rank(ev->world) == 0)
        (ev->is_json ? print_json : print_text)(ev);
    return 0;
}

/* A grid of data ranks alone: the ranks that share a model are one. */
static int run(struct eval *ev, struct error *err)
{
    if (check_options(ev, err) || comm_world_open(&ev->world, err))
        return -1;
    set_threads(ev);
    struct grid_shape shape = {.dp = comm_size(ev->world), 1, 1, 1};
    if (grid_open(&ev->grid, ev->world, &shape, err))
        return -1;
    int rc = open_model(ev, err);
    if (rc == 0)
        rc = open_inputs(ev, err);
    return comm_agree(ev->world, rc, err) ? -1 : evaluate(ev, err);
}

static void release(struct eval *ev)
{
    text_list_release(&ev->texts);
    eval_data_close(&ev->data);
    tokenizer_close(ev->tokenizer);
    gpt_decoder_close(&ev->decoder);
    gpt_close(&ev->gpt);
    grid_close(&ev->grid);
    comm_world_close(ev->world);
}

/* As one of several processes, or alone. */
static int eval(struct eval *ev)
{
    struct error err;
    bool is_launched = comm_is_launched();
    int rc = is_launched ? worker_start(&err) : 0;
    if (comm_launch_info().rank > 0)
        log_set_level(LOG_WARNING); // rank 0 speaks for all
    if (rc == 0)
        rc = run(ev, &err);
    fflush(stdout);
    release(ev);
    if (is_launched)
        return worker_finish(rc, &err);
    if (rc)
        log_error("%s", err.text);
    return rc ? error_exit_code(&err) : 0;
}

int cmd_eval(int argc, char **argv)
{
    struct eval ev = {.batch_size = 8};
    const struct option_spec options[] = {
        {"ckpt", 0, OPTION_TEXT, &ev.ckpt, true, "DIR",
         "A checkpoint, or a directory of them (the newest valid one)."},
        {"data", 0, OPTION_TEXT, &ev.data_name, false, "PATH",
         "Perplexity on this: a prefix or directory of token files, or a text."},
        {"overlapping_eval", 0, OPTION_INT, &ev.stride, false, "N",
         "Begin a window every N tokens and score its last N (0: no overlap)."},
        {"cloze", 0, OPTION_TEXT, &ev.cloze_path, false, "FILE",
         "Last-word accuracy on JSON lines of {\"text\": ...}, as LAMBADA."},
        {"tokenizer", 0, OPTION_TEXT, &ev.tokenizer_name, false, "DIR",
         "The tokenizer the model was trained with, where its data does not tell."},
        {"max_seq_len", 0, OPTION_INT, &ev.max_seq_len, false, "N",
         "Tokens of a window (0: as in training)."},
        {"batch_size", 0, OPTION_INT, &ev.batch_size, false, "N",
         "Windows computed at a time (8); changes no result."},
        {"json", 0, OPTION_FLAG, &ev.is_json, false, NULL, "Print one JSON object."},
        {"num_threads", 0, OPTION_INT, &ev.num_threads, false, "N",
         "Threads (0: all cores)."},
    };
    const struct command cmd = {"trefoil eval",
                                "Measure perplexity and cloze accuracy of a trained "
                                "model, on one process or several (mpirun, srun, trefoil "
                                "launch).",
                                options, ARRAY_LEN(options)};
    struct error err;
    int rc = options_parse(&cmd, argc, argv, &err);
    if (rc == 0)
        return eval(&ev);
    if (rc > 0)
        return 0;
    log_error("%s", err.text);
    return error_exit_code(&err);
}

/*
 * Any bytes as the metrics.jsonl of a run that grows: a table with rising steps, events
 * that are JSON, facts that are text. What the board keeps does not depend on where the
 * file was cut when it was first read.
 *
 *     clang -fsanitize=fuzzer,address,undefined ... tests/fuzz/fuzz_metrics.c
 */
#include "base/fs.h"
#include "board/board.h"
#include "board/run_facts.h"

#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char buffer[RUN_LINE_BYTES_MOST];

static void append(const char *path, const uint8_t *data, size_t n)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    CHECK(fd >= 0 && fs_write_exact(fd, data, n) == 0, "no file");
    close(fd);
}

static void must_be_json(struct board_text *text)
{
    CHECK(!text->is_broken, "no memory");
    json_t *root = json_loadb(text->bytes, (size_t)text->n, JSON_ALLOW_NUL, NULL);
    CHECK(root, "no JSON: %.*s", (int)text->n, text->bytes);
    json_decref(root);
    board_text_reset(text);
}

static void check_run(const struct run *run)
{
    struct board_text text = {0};
    struct run_series series;
    struct run_facts facts;
    double last = -1;
    for (int64_t i = 0; i < run->steps.n_rows; i++) {
        double step = run_columns_at(&run->steps, i, RUN_STEP);
        CHECK(step > last, "step %g after %g", step, last);
        last = step;
    }
    for (int x = 0; x < RUN_N_AXES; x++) {
        CHECK(run_columns_series(&run->steps, RUN_LOSS, (enum run_column)x, -RUN_LOST,
                                 RUN_LOST, 3, &series) == 0,
              "no memory");
        CHECK(series.n_buckets <= 3, "%lld buckets", (long long)series.n_buckets);
        run_series_release(&series);
    }
    run_ring_write(&run->events.events, &text);
    must_be_json(&text);
    run_ring_write(&run->events.samples, &text);
    must_be_json(&text);
    run_ranks_write(&run->events, 5, &text);
    must_be_json(&text);
    run_facts_of(run, 1700000000, &facts);
    board_text_string(&text, facts.note, strlen(facts.note));
    json_t *note = json_loadb(text.bytes, (size_t)text.n, JSON_DECODE_ANY, NULL);
    CHECK(note, "no text: %s", facts.note);
    json_decref(note);
    board_text_release(&text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char dir[] = "/tmp/trefoil-fuzz-XXXXXX", path[64];
    struct run grown, whole;
    size_t n_first = size > 0 ? data[0] * size / 256 : 0;
    CHECK(mkdtemp(dir), "no directory");
    snprintf(path, sizeof path, "%s/" RUN_FILE_NAME, dir);
    run_init(&grown, dir);
    append(path, data, n_first);
    run_refresh(&grown, buffer, sizeof buffer, INT64_MAX);
    append(path, data + n_first, size - n_first);
    while (run_refresh(&grown, buffer, sizeof buffer, 1)) {
    }
    run_init(&whole, dir);
    run_refresh(&whole, buffer, sizeof buffer, INT64_MAX);
    check_run(&grown);
    check_run(&whole);
    CHECK(grown.steps.n_rows == whole.steps.n_rows &&
              grown.file.n_lines == whole.file.n_lines &&
              grown.file.n_bad == whole.file.n_bad &&
              grown.events.events.n == whole.events.events.n,
          "%lld rows or %lld, %lld lines or %lld", (long long)grown.steps.n_rows,
          (long long)whole.steps.n_rows, (long long)grown.file.n_lines,
          (long long)whole.file.n_lines);
    run_release(&grown);
    run_release(&whole);
    unlink(path);
    rmdir(dir);
    return 0;
}

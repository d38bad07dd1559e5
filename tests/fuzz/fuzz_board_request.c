/*
 * Any bytes as what a client asks the board, "/path?name=value&name=value", about two small
 * runs: an answer, or a refusal with a sentence, always of the type that it says.
 *
 *     clang -fsanitize=fuzzer,address,undefined ... tests/fuzz/fuzz_board_request.c
 */
#include "base/fs.h"
#include "board/board.h"
#include "board/board_guard.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define PARAMETERS_MOST 16

struct query {
    char *names[PARAMETERS_MOST], *values[PARAMETERS_MOST];
    int n;
};

static const char *value_of(void *context, const char *name)
{
    const struct query *q = context;
    for (int i = 0; i < q->n; i++)
        if (strcmp(q->names[i], name) == 0)
            return q->values[i];
    return NULL;
}

/* Takes the text apart in place. */
static void split(struct query *q, char *text)
{
    q->n = 0;
    for (char *next; text && q->n < PARAMETERS_MOST; text = next) {
        next = strchr(text, '&');
        if (next)
            *next++ = 0;
        char *equals = strchr(text, '=');
        if (equals)
            *equals++ = 0;
        q->names[q->n] = text;
        q->values[q->n++] = equals; // NULL, as the server has it for a name alone
    }
}

static void write_run(const char *dir, const char *name, const char *text)
{
    char path[256];
    struct error err;
    snprintf(path, sizeof path, "%s/%s", dir, name);
    CHECK(fs_make_directories(path, &err) == 0, "%s", err.text);
    snprintf(path, sizeof path, "%s/%s/" RUN_FILE_NAME, dir, name);
    CHECK(fs_write_atomic(path, text, strlen(text), &err) == 0, "%s", err.text);
}

/* Once: two runs, of which nothing but what is in memory is left. */
static struct board *the_board(void)
{
    static struct board board;
    static char dir[] = "/tmp/trefoil-fuzz-XXXXXX";
    static char *dirs[] = {dir};
    static bool is_there;
    struct error err;
    if (is_there)
        return &board;
    CHECK(mkdtemp(dir), "no directory");
    write_run(dir, "<one>",
              "{\"step\": 1, \"loss\": 2, \"tokens\": 10}\n"
              "{\"step\": 2, \"loss\": null, \"tokens\": 20}\n"
              "{\"step\": 2, \"eval_loss\": 1.5}\n"
              "{\"step\": 2, \"event\": \"sample\", \"prompt\": \"</script>\"}\n");
    write_run(dir, "two", "{\"step\": 1, \"ranks\": {\"step_seconds\": [1, 2]}}\n<\n");
    CHECK(board_init(&board, dirs, 1, &err) == 0, "%s", err.text);
    while (board_refresh(&board)) {
    }
    CHECK(fs_remove_tree(dir, &err) == 0, "%s", err.text);
    is_there = true;
    return &board;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct board_guard guard = {.is_local = true,
                                             .token = "0123456789abcdef"};
    struct query query = {.n = 0};
    struct board_answer answer;
    char *text = malloc(size + 1);
    CHECK(text, "no memory");
    memcpy(text, data, size);
    text[size] = 0;
    bool is_known = board_guard_knows_host(&guard, text);
    CHECK(!is_known || strlen(text) < 64, "a host of %zu bytes", strlen(text));
    CHECK(!board_guard_knows_token(&guard, text) || strcmp(text, guard.token) == 0,
          "a token that is another");
    int uri_status = board_guard_uri_status(text);
    CHECK(uri_status != 0 || !strstr(text, "%00"), "a NUL byte was accepted");
    char *mark = strchr(text, '?');
    if (mark)
        *mark++ = 0;
    split(&query, mark);
    const struct board_request request = {
        .path = text, .value = value_of, .context = &query};
    board_answer(the_board(), &request, &answer);
    CHECK(answer.status >= 200 && answer.status < 600 && answer.body.n > 0, "status %d",
          answer.status);
    if (strcmp(answer.type, "application/json") == 0) {
        json_t *root = json_loadb(answer.body.bytes, (size_t)answer.body.n, 0, NULL);
        CHECK(root, "no JSON: %.*s", (int)answer.body.n, answer.body.bytes);
        CHECK(answer.status == 200 || json_is_string(json_object_get(root, "error")),
              "a refusal without a sentence");
        json_decref(root);
    }
    board_text_release(&answer.body);
    free(text);
    return 0;
}

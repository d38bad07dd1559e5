#include "cli/selftest_layout.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_PROCESSES 1024 // on the one machine a self-test runs on

/* -- words --------------------------------------------------------------------------- */

static const struct {
    const char *word;
    size_t member; // int64_t for a degree, bool for a flag
    bool has_number;
} words_known[] = {
    {"dp", offsetof(struct selftest_layout, dp), true},
    {"mp", offsetof(struct selftest_layout, mp), true},
    {"pp", offsetof(struct selftest_layout, pp), true},
    {"sh", offsetof(struct selftest_layout, sharding), true},
    {"stage", offsetof(struct selftest_layout, stage), true},
    {"v", offsetof(struct selftest_layout, chunks), true},
    {"t", offsetof(struct selftest_layout, threads), true},
    {"fthenb", offsetof(struct selftest_layout, f_then_b), false},
    {"sp", offsetof(struct selftest_layout, sequence_parallel), false},
    {"recompute", offsetof(struct selftest_layout, recompute), false},
};

static bool parse_degree(const char *digits, int64_t *degree)
{
    char *end;
    if (!isdigit((unsigned char)digits[0]))
        return false;
    *degree = strtoll(digits, &end, 10);
    return *end == 0 && *degree >= 1 && *degree <= MOST_PROCESSES;
}

static bool take_word(struct selftest_layout *layout, const char *word)
{
    for (size_t i = 0; i < ARRAY_LEN(words_known); i++) {
        size_t n = strlen(words_known[i].word);
        char *member = (char *)layout + words_known[i].member;
        if (strncmp(word, words_known[i].word, n) != 0)
            continue;
        if (words_known[i].has_number &&
            parse_degree(word + n, (int64_t *)(void *)member))
            return true;
        if (!words_known[i].has_number && word[n] == 0)
            return *(bool *)(void *)member = true;
    }
    return strcmp(word, "1") == 0;
}

static int refuse_layout(const char *word, const char *words, size_t n_bytes,
                         struct error *err)
{
    return error_set(err, ERROR_INPUT,
                     "--layouts: '%s' in '%.*s' is no layout: use 1, or dpN, mpN, ppN, "
                     "vN (chunks), shN (sharding), stageN, tN (threads), fthenb, sp, "
                     "recompute, with N from 1 to %d, as in 'dp2 mp2 pp2 v2 fthenb'",
                     word, (int)i64_min((int64_t)n_bytes, 200), words, MOST_PROCESSES);
}

/* The next word of [*at, end), cut if it is too long to be one; false at the end. */
static bool next_word(const char **at, const char *end, char *word, size_t size)
{
    while (*at < end && isspace((unsigned char)**at))
        (*at)++;
    size_t n = 0;
    for (; *at < end && !isspace((unsigned char)**at); (*at)++)
        if (n + 1 < size)
            word[n++] = **at;
    word[n] = 0;
    return n > 0;
}

int selftest_layout_parse(struct selftest_layout *layout, const char *words,
                          size_t n_bytes, struct error *err)
{
    char word[16];
    const char *at = words, *end = words + n_bytes;
    size_t used = 0;
    *layout = (struct selftest_layout){
        .dp = 1, .mp = 1, .pp = 1, .chunks = 1, .threads = 1, .sharding = 1, .stage = 1};
    while (next_word(&at, end, word, sizeof word)) {
        if (!take_word(layout, word))
            return refuse_layout(word, words, n_bytes, err);
        int n = snprintf(layout->name + used, sizeof layout->name - used, "%s%s",
                         used > 0 ? " " : "", word);
        used += (size_t)n;
        if (used >= sizeof layout->name)
            return refuse_layout(word, words, n_bytes, err);
    }
    if (used == 0)
        return refuse_layout("", words, n_bytes, err);
    if (selftest_layout_processes(layout) > MOST_PROCESSES)
        return error_set(err, ERROR_INPUT,
                         "--layouts: '%s' has %lld processes; a self-test starts at most "
                         "%d",
                         layout->name, (long long)selftest_layout_processes(layout),
                         MOST_PROCESSES);
    return 0;
}

int64_t selftest_layout_processes(const struct selftest_layout *layout)
{
    return layout->dp * layout->mp * layout->pp * layout->sharding;
}

/* -- promises ------------------------------------------------------------------------ */

struct selftest_promise selftest_promise(const struct selftest_layout *layout)
{
    if (layout->mp > 1)
        return (struct selftest_promise){.first = 2e-6, .later = 1e-4};
    if (layout->dp * layout->sharding > 1)
        return (struct selftest_promise){.first = 0, .later = 1e-4};
    return (struct selftest_promise){0};
}

/* Not 0 wherever the numbers differ; infinite where one is none. */
static double difference(double a, double b)
{
    double apart = fabs(a - b) / fabs(b);
    if (a == b)
        return 0;
    return isfinite(apart) ? apart : HUGE_VAL;
}

struct selftest_verdict selftest_judge(struct selftest_promise promise,
                                       const struct selftest_curve *reference,
                                       const struct selftest_curve *run)
{
    struct selftest_verdict v = {.is_same = true, .is_kept = true};
    for (int64_t i = 0; i < reference->n_steps && i < run->n_steps; i++) {
        double apart = difference(run->loss[i], reference->loss[i]);
        double norms_apart = difference(run->grad_norm[i], reference->grad_norm[i]);
        if (apart > v.largest)
            v.largest = apart;
        if (apart > 0 || norms_apart > 0)
            v.is_same = false;
        if (apart > (i == 0 ? promise.first : promise.later) || isinf(norms_apart))
            v.is_kept = false;
    }
    if (reference->n_steps != run->n_steps || run->n_steps == 0)
        v.is_same = v.is_kept = false;
    if (promise.later == 0 && !v.is_same)
        v.is_kept = false;
    return v;
}

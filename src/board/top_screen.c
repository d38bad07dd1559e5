#include "board/top_screen.h"

#include "base/utf8.h"
#include "board/run_facts.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define LINE_BYTES 1024
#define COLUMNS_LEAST 20
#define CURVE_COLUMNS 60
#define BAR_COLUMNS 30

enum colour { PLAIN, GREEN, YELLOW, RED, BOLD };

struct writer {
    const struct top_screen *screen;
    struct board_text *out;
    int n_lines;
};

/* -- lines --------------------------------------------------------------------------- */

/* The bytes of `text` that fit into `columns`, one a character; control characters and
 * what is not UTF-8 as question marks. */
static void put_clean(struct board_text *out, const char *text, int columns)
{
    size_t n = strlen(text);
    for (size_t i = 0; i < n && columns > 0; columns--) {
        uint32_t code;
        size_t n_code = utf8_decode(text + i, n - i, &code);
        bool is_shown =
            n_code > 0 && code >= 0x20 && (code < 0x7F || code >= 0xA0) &&
            code != 0x2028 && code != 0x2029 && !(code >= 0x200B && code <= 0x200F) &&
            !(code >= 0x202A && code <= 0x202E) && !(code >= 0x2066 && code <= 0x2069);
        if (is_shown)
            board_text_add(out, text + i, n_code);
        else
            board_text_put(out, "?");
        i += n_code ? n_code : 1;
    }
}

static void PRINTF_LIKE(3, 4)
    line(struct writer *w, enum colour colour, const char *fmt, ...)
{
    static const char *const codes[] = {"", "\033[32m", "\033[33m", "\033[31m",
                                        "\033[1m"};
    char text[LINE_BYTES];
    va_list args;
    if (w->screen->rows > 0 && w->n_lines >= w->screen->rows)
        return;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    bool is_coloured = w->screen->is_coloured && colour != PLAIN;
    if (is_coloured)
        board_text_put(w->out, codes[colour]);
    put_clean(w->out, text, w->screen->columns > 0 ? w->screen->columns : LINE_BYTES);
    if (is_coloured)
        board_text_put(w->out, "\033[0m");
    board_text_put(w->out, "\n");
    w->n_lines++;
}

/* -- numbers for people -------------------------------------------------------------- */

/* "12.3 M"; "?" for what is not known. */
static const char *brief(char text[32], double x)
{
    static const char *const units[] = {"", " k", " M", " G", " T"};
    size_t unit = 0;
    if (!isfinite(x)) {
        snprintf(text, 32, "?");
        return text;
    }
    for (; fabs(x) >= 10000 && unit + 1 < ARRAY_LEN(units); unit++)
        x /= 1000;
    snprintf(text, 32, "%.4g%s", x, units[unit]);
    return text;
}

static const char *duration(char text[32], double seconds)
{
    if (!isfinite(seconds) || seconds > 1e9) {
        snprintf(text, 32, "?");
        return text;
    }
    int64_t s = (int64_t)(seconds + 0.5), days = s / 86400;
    if (days > 0)
        snprintf(text, 32, "%lld d %lld:%02lld h", (long long)days,
                 (long long)(s / 3600 % 24), (long long)(s / 60 % 60));
    else
        snprintf(text, 32, "%lld:%02lld:%02lld", (long long)(s / 3600),
                 (long long)(s / 60 % 60), (long long)(s % 60));
    return text;
}

/* -- a run --------------------------------------------------------------------------- */

static enum colour colour_of_state(enum run_state state)
{
    switch (state) {
    case RUN_DEAD:
    case RUN_UNREADABLE:
        return RED;
    case RUN_STOPPED:
    case RUN_EMPTY:
        return YELLOW;
    default:
        return GREEN;
    }
}

static enum colour colour_of_health(enum run_health health)
{
    return health == RUN_DIVERGED                        ? RED
           : health == RUN_SPIKING || health == RUN_FLAT ? YELLOW
           : health == RUN_HEALTHY                       ? GREEN
                                                         : PLAIN;
}

static void write_progress(struct writer *w, const struct run_facts *f)
{
    char bar[BAR_COLUMNS + 1], step[64], tokens[32], left[32];
    double part = f->step / f->steps_total;
    int n = part >= 0 && part <= 1 ? (int)(part * BAR_COLUMNS) : 0;
    memset(bar, '.', BAR_COLUMNS);
    memset(bar, '#', (size_t)n);
    bar[BAR_COLUMNS] = 0;
    if (isfinite(f->steps_total))
        snprintf(step, sizeof step, "%.0f/%.0f (%.0f %%)", f->step, f->steps_total,
                 100 * part);
    else
        snprintf(step, sizeof step, "%.0f", f->step);
    line(w, PLAIN, "  [%s] step %s, %s tokens, %s left", bar,
         isfinite(f->step) ? step : "?", brief(tokens, f->tokens),
         duration(left, f->seconds_left));
}

static void write_speed(struct writer *w, const struct run_facts *f)
{
    char speed[32], mfu[64] = "";
    if (isfinite(f->mfu))
        snprintf(mfu, sizeof mfu, ", %.0f %% of this machine's rate of products",
                 100 * f->mfu);
    line(w, PLAIN, "  %s tokens/s, %.3g s a step%s", brief(speed, f->tokens_per_second),
         f->step_seconds, mfu);
}

/* The whole run's loss, a block a column, high losses high. */
static void write_curve(struct writer *w, const struct run *run)
{
    static const char *const blocks[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
    char text[8 * CURVE_COLUMNS];
    struct run_series s;
    double low = RUN_LOST, high = -RUN_LOST;
    size_t n = 0;
    if (!w->screen->has_blocks || run->steps.n_rows < 2 ||
        run_columns_series(&run->steps, RUN_LOSS, RUN_STEP, -RUN_LOST, RUN_LOST,
                           CURVE_COLUMNS, &s))
        return;
    for (int64_t i = 0; i < s.n_buckets; i++)
        if (s.buckets[i].n > 0) {
            double mean = s.buckets[i].sum / (double)s.buckets[i].n;
            low = fmin(low, mean);
            high = fmax(high, mean);
        }
    for (int64_t i = 0; i < s.n_buckets; i++) {
        double mean = s.buckets[i].sum / (double)s.buckets[i].n;
        double part = high > low ? (mean - low) / (high - low) : 0;
        const char *block = s.buckets[i].n == 0 ? " " : blocks[(int)(7 * part + 0.5)];
        n += (size_t)snprintf(text + n, sizeof text - n, "%s", block);
    }
    run_series_release(&s);
    if (n > 0 && isfinite(low))
        line(w, PLAIN, "  %s  %.4g .. %.4g", text, high, low);
}

static void write_run(struct writer *w, const struct run *run, double now)
{
    struct run_facts f;
    char age[32];
    run_facts_of(run, now, &f);
    line(w, BOLD, "%s", run->name);
    if (isfinite(f.age))
        line(w, colour_of_state(f.state), "  %s; last line %s ago",
             run_state_name(f.state), duration(age, f.age));
    else
        line(w, colour_of_state(f.state), "  %s", run_state_name(f.state));
    if (f.note[0])
        line(w, YELLOW, "  %s", f.note);
    if (f.state == RUN_EMPTY || f.state == RUN_UNREADABLE)
        return;
    write_progress(w, &f);
    if (run->steps.n_rows == 0)
        return;
    if (isfinite(f.eval_loss))
        line(w, colour_of_health(f.health), "  loss %.5g, evaluation %.5g; %s", f.loss,
             f.eval_loss, f.health_text);
    else
        line(w, colour_of_health(f.health), "  loss %.5g; %s", f.loss, f.health_text);
    write_curve(w, run);
    write_speed(w, &f);
    if (f.limit[0])
        line(w, PLAIN, "  %s", f.limit);
}

void top_screen_write(const struct top_screen *screen, struct board *b,
                      struct board_text *out)
{
    struct top_screen used = *screen;
    struct writer w = {.screen = &used, .out = out};
    struct timespec now;
    if (used.columns > 0 && used.columns < COLUMNS_LEAST)
        used.columns = COLUMNS_LEAST;
    clock_gettime(CLOCK_REALTIME, &now);
    pthread_mutex_lock(&b->mutex);
    if (b->n_runs == 0)
        line(&w, PLAIN,
             "no run yet: there is no " RUN_FILE_NAME " in '%s', nor in a "
             "directory in it",
             b->dirs[0]);
    for (int64_t i = 0; i < b->n_runs; i++)
        write_run(&w, b->runs[i], (double)now.tv_sec + 1e-9 * (double)now.tv_nsec);
    pthread_mutex_unlock(&b->mutex);
}

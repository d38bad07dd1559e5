/*
 * Both pictures scale time so that the smallest cell holds its label; what a cell looks
 * like is all that differs.
 */
#include "parallel/schedule_draw.h"

#include "base/fs.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* -- shared -------------------------------------------------------------------------- */

static double cell_time(const struct schedule_draw *d, bool is_backward)
{
    return (is_backward ? d->backward : d->forward) / (double)d->shape->chunks;
}

/* Digits of the largest number of a micro-batch. */
static int n_digits(const struct schedule_draw *d)
{
    return snprintf(NULL, 0, "%lld", (long long)d->shape->micro_batches - 1);
}

/* "1F1B, 4 stages of 2 chunks, 8 micro-batches"; the first line of both pictures. */
static void write_title(const struct schedule_draw *d, char *text, size_t size)
{
    const struct schedule_shape *s = d->shape;
    const char *kind = s->kind == SCHEDULE_F_THEN_B ? "F-then-B"
                       : s->chunks > 1              ? "interleaved 1F1B"
                                                    : "1F1B";
    char chunks[48] = "";
    if (s->chunks > 1)
        snprintf(chunks, sizeof chunks, " of %lld chunks", (long long)s->chunks);
    snprintf(text, size,
             "%s, %lld stage%s%s, %lld micro-batch%s, forward %g, backward %g", kind,
             (long long)s->pp, s->pp == 1 ? "" : "s", chunks, (long long)s->micro_batches,
             s->micro_batches == 1 ? "" : "es", d->forward, d->backward);
}

/* -- text ---------------------------------------------------------------------------- */

#define STAGE_LABEL_COLUMNS 9 // "stage 12 "
#define STYLE_IDLE 0          // else 1 + 2 * chunk + is_backward

struct row {
    char *glyphs;
    uint8_t *styles;
    int64_t n_columns;
};

/* Columns per unit of time: a forward holds its label and a blank, a backward its label
 * in brackets; one more where cells do not end on a column and rounding may take one. */
static double columns_per_time(const struct schedule_draw *d)
{
    int label = n_digits(d) + (d->shape->chunks > 1);
    double forward = cell_time(d, false), backward = cell_time(d, true), scale = 0;
    for (int spare = 0; spare < 2; spare++) {
        scale = fmax((label + 1 + spare) / forward, (label + 2 + spare) / backward);
        double f = forward * scale, b = backward * scale;
        if (fabs(f - round(f)) < 1e-9 && fabs(b - round(b)) < 1e-9)
            break;
    }
    return scale;
}

static void fill_cell(const struct schedule_draw *d, struct row *row,
                      const struct simulate_span *span, double scale)
{
    int64_t first = llround(span->start * scale);
    int64_t end = i64_min(llround(span->end * scale), row->n_columns);
    char label[32], letter[2] = {(char)('a' + span->chunk), 0};
    snprintf(label, sizeof label, "%s%d%s", span->is_backward ? "(" : "", span->micro,
             d->shape->chunks > 1 ? letter : "");
    size_t n = strlen(label);
    for (int64_t i = first; i < end; i++) {
        row->glyphs[i] = (size_t)(i - first) < n ? label[i - first] : ' ';
        row->styles[i] = (uint8_t)(1 + 2 * span->chunk + span->is_backward);
    }
    if (span->is_backward && end > first)
        row->glyphs[end - 1] = ')';
}

/* Background colours of the 256-colour palette: blues forward, greens backward. */
static void set_style(FILE *out, uint8_t style)
{
    static const int forward[] = {117, 75, 153, 111}, backward[] = {120, 77, 157, 114};
    int chunk = (style - 1) / 2 % (int)ARRAY_LEN(forward);
    bool is_backward = (style - 1) % 2;
    if (style == STYLE_IDLE)
        fputs("\033[0m", out);
    else
        fprintf(out, "\033[0;30;48;5;%dm",
                is_backward ? backward[chunk] : forward[chunk]);
}

static void print_row(const struct schedule_draw *d, FILE *out, const struct row *row,
                      int stage, int64_t n_shown)
{
    uint8_t style = STYLE_IDLE;
    fprintf(out, "stage %-2d ", stage);
    for (int64_t i = 0; i < n_shown; i++) {
        if (d->has_colour && row->styles[i] != style)
            set_style(out, style = row->styles[i]);
        putc(row->glyphs[i], out);
    }
    if (style != STYLE_IDLE)
        set_style(out, STYLE_IDLE);
    fputs(n_shown < row->n_columns ? ">\n" : "\n", out);
}

static void print_key(const struct schedule_draw *d, FILE *out, int64_t n_shown,
                      int64_t n_columns)
{
    if (d->shape->chunks > 1)
        fputs("\n0a is the forward of micro-batch 0 in chunk a, (0a) its backward, . is "
              "idle.\n",
              out);
    else
        fputs("\n0 is the forward of micro-batch 0, (0) its backward, . is idle.\n", out);
    if (n_shown < n_columns)
        fprintf(out,
                "The rows are cut at the width of the terminal, %lld of %lld columns; "
                "--svg FILE draws them whole.\n",
                (long long)n_shown, (long long)n_columns);
}

int schedule_draw_text(const struct schedule_draw *d, FILE *out, struct error *err)
{
    CHECK(d->shape->chunks <= SCHEDULE_DRAW_MAX_CHUNKS, "%lld chunks",
          (long long)d->shape->chunks);
    double scale = columns_per_time(d);
    struct row row = {.n_columns = llround(d->sim->makespan * scale)};
    int64_t n_shown = row.n_columns, n_fit = d->n_columns - STAGE_LABEL_COLUMNS;
    if (d->n_columns > 0 && n_shown > n_fit)
        n_shown = i64_max(1, n_fit - 1); // and a mark that the row continues
    int rc = -1;
    char title[160];
    row.glyphs = malloc((size_t)row.n_columns);
    row.styles = malloc((size_t)row.n_columns);
    if (!row.glyphs || !row.styles) {
        error_set(err, ERROR_RUNTIME, "out of memory for a picture of %lld columns",
                  (long long)row.n_columns);
        goto done;
    }
    write_title(d, title, sizeof title);
    fprintf(out, "%s\n\n", title);
    for (int stage = 0; stage < d->sim->pp; stage++) {
        const struct simulate_stage *log = &d->sim->stages[stage];
        memset(row.glyphs, '.', (size_t)row.n_columns);
        memset(row.styles, STYLE_IDLE, (size_t)row.n_columns);
        for (int64_t i = 0; i < log->n_spans; i++)
            fill_cell(d, &row, &log->spans[i], scale);
        print_row(d, out, &row, stage, n_shown);
    }
    print_key(d, out, n_shown, row.n_columns);
    rc = 0;
done:
    free(row.glyphs);
    free(row.styles);
    return rc;
}

/* -- SVG ----------------------------------------------------------------------------- */

enum { // pixels
    MARGIN = 24,
    TITLE_HEIGHT = 56,
    LABEL_WIDTH = 72,
    ROW_HEIGHT = 28,
    ROW_GAP = 6,
    LEGEND_HEIGHT = 24,
    SWATCH = 18,
    SWATCH_STEP = 96,
    TITLE_LETTER = 10, // of its letters, on average
};

struct canvas {
    FILE *out;
    const struct schedule_draw *d;
    double scale; // pixels per unit of time
    int width, height, legend_top;
};

/* From the strong shade of chunk 0 to the pale one of the last. */
static void shade(const struct schedule_draw *d, int chunk, bool is_backward,
                  char text[8])
{
    static const int strong[2][3] = {{106, 165, 234}, {109, 191, 120}};
    static const int pale[2][3] = {{190, 217, 250}, {188, 229, 192}};
    int rgb[3], last = (int)d->shape->chunks - 1;
    for (int i = 0; i < 3; i++)
        rgb[i] = last == 0 ? strong[is_backward][i]
                           : (strong[is_backward][i] * (last - chunk) +
                              pale[is_backward][i] * chunk) /
                                 last;
    snprintf(text, 8, "#%02x%02x%02x", rgb[0] & 255, rgb[1] & 255, rgb[2] & 255);
}

static int row_top(int stage)
{
    return MARGIN + TITLE_HEIGHT + stage * (ROW_HEIGHT + ROW_GAP);
}

static void draw_head(const struct canvas *c)
{
    char title[160];
    write_title(c->d, title, sizeof title);
    fprintf(c->out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
            "viewBox=\"0 0 %d %d\" font-family=\"Helvetica, Arial, sans-serif\" "
            "font-size=\"12\" fill=\"#10233a\">\n<title>%s</title>\n"
            "<rect width=\"100%%\" height=\"100%%\" fill=\"#ffffff\"/>\n",
            c->width, c->height, c->width, c->height, title);
    fprintf(c->out,
            "<text x=\"%d\" y=\"%d\" font-size=\"16\" font-weight=\"bold\">%s</text>\n",
            MARGIN, MARGIN + 14, title);
    fprintf(c->out,
            "<text x=\"%d\" y=\"%d\">bubble: %.2f %% of the step, or %.2f %% of the time "
            "without it; time %g</text>\n",
            MARGIN, MARGIN + 36, 100 * simulate_bubble_of_total(c->d->sim),
            100 * simulate_bubble_of_ideal(c->d->sim), c->d->sim->makespan);
}

static void draw_cell(const struct canvas *c, int stage, const struct simulate_span *span)
{
    double x = MARGIN + LABEL_WIDTH + span->start * c->scale;
    double width = (span->end - span->start) * c->scale;
    char fill[8];
    shade(c->d, span->chunk, span->is_backward, fill);
    fprintf(c->out,
            "<rect x=\"%.2f\" y=\"%d\" width=\"%.2f\" height=\"%d\" fill=\"%s\" "
            "stroke=\"#ffffff\"/>",
            x, row_top(stage), width, ROW_HEIGHT, fill);
    fprintf(c->out, "<text x=\"%.2f\" y=\"%d\" text-anchor=\"middle\">%d</text>\n",
            x + width / 2, row_top(stage) + ROW_HEIGHT / 2 + 4, span->micro);
}

static void draw_rows(const struct canvas *c)
{
    for (int stage = 0; stage < c->d->sim->pp; stage++) {
        const struct simulate_stage *log = &c->d->sim->stages[stage];
        fprintf(c->out, "<text x=\"%d\" y=\"%d\">stage %d</text>\n", MARGIN,
                row_top(stage) + ROW_HEIGHT / 2 + 4, stage);
        fprintf(
            c->out,
            "<rect x=\"%d\" y=\"%d\" width=\"%.2f\" height=\"%d\" fill=\"#eceff2\"/>\n",
            MARGIN + LABEL_WIDTH, row_top(stage), c->d->sim->makespan * c->scale,
            ROW_HEIGHT);
        for (int64_t i = 0; i < log->n_spans; i++)
            draw_cell(c, stage, &log->spans[i]);
    }
}

static void draw_swatch(const struct canvas *c, int x, int y, const char *fill,
                        const char *label)
{
    fprintf(c->out,
            "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" fill=\"%s\"/>"
            "<text x=\"%d\" y=\"%d\">%s</text>\n",
            x, y, SWATCH, SWATCH, fill, x + SWATCH + 6, y + SWATCH - 5, label);
}

/* Two lines, forward and backward, a swatch per chunk; idle after the first. */
static void draw_legend(const struct canvas *c)
{
    int left = MARGIN + LABEL_WIDTH, chunks = (int)c->d->shape->chunks;
    for (int is_backward = 0; is_backward < 2; is_backward++) {
        int y = c->legend_top + is_backward * LEGEND_HEIGHT;
        fprintf(c->out, "<text x=\"%d\" y=\"%d\">%s</text>\n", MARGIN, y + SWATCH - 5,
                is_backward ? "backward" : "forward");
        for (int chunk = 0; chunk < chunks; chunk++) {
            char fill[8], label[32] = "micro-batch";
            shade(c->d, chunk, is_backward, fill);
            if (chunks > 1)
                snprintf(label, sizeof label, "chunk %c", 'a' + chunk);
            draw_swatch(c, left + chunk * SWATCH_STEP, y, fill, label);
        }
    }
    draw_swatch(c, left + chunks * SWATCH_STEP + SWATCH, c->legend_top, "#eceff2",
                "idle");
}

static void lay_out(struct canvas *c)
{
    double least = 14 + 8 * n_digits(c->d); // pixels of a cell with a number in it
    c->scale = least / fmin(cell_time(c->d, false), cell_time(c->d, true));
    double rows = LABEL_WIDTH + ceil(c->d->sim->makespan * c->scale);
    double legend = LABEL_WIDTH + (double)(c->d->shape->chunks + 1) * SWATCH_STEP;
    char title[160];
    write_title(c->d, title, sizeof title);
    double head = (double)strlen(title) * TITLE_LETTER;
    c->width = 2 * MARGIN + (int)fmax(head, fmax(rows, legend));
    c->legend_top = row_top(c->d->sim->pp) + ROW_GAP;
    c->height = c->legend_top + 2 * LEGEND_HEIGHT + MARGIN;
}

int schedule_draw_svg(const struct schedule_draw *d, const char *path, struct error *err)
{
    const struct schedule_shape *s = d->shape;
    int64_t n_cells = 2 * s->pp * s->chunks * s->micro_batches;
    if (n_cells > SCHEDULE_DRAW_MAX_CELLS)
        return error_set(err, ERROR_INPUT,
                         "the picture '%s' would have %lld cells, and no viewer is happy "
                         "with more than %d: draw fewer stages or micro-batches",
                         path, (long long)n_cells, SCHEDULE_DRAW_MAX_CELLS);
    char *data = NULL;
    size_t n_bytes = 0;
    struct canvas c = {.out = open_memstream(&data, &n_bytes), .d = d};
    if (!c.out)
        return error_set(err, ERROR_RUNTIME, "cannot draw '%s': %s", path,
                         strerror(errno));
    lay_out(&c);
    draw_head(&c);
    draw_rows(&c);
    draw_legend(&c);
    fputs("</svg>\n", c.out);
    int rc;
    if (fclose(c.out))
        rc = error_set(err, ERROR_RUNTIME, "out of memory for the picture '%s'", path);
    else
        rc = fs_write_output(path, data, n_bytes, err);
    free(data);
    return rc;
}

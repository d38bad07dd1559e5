/*
 * schedule_draw - a simulated pipeline step as a picture, in text and as SVG.
 *
 * One row per stage, time to the right, a cell for each forward and backward with the
 * number of its micro-batch. In text a backward stands in brackets and a chunk is a
 * letter, so that nothing depends on colour; in SVG chunks are shades, and a legend says
 * which.
 */
#ifndef PARALLEL_SCHEDULE_DRAW_H
#define PARALLEL_SCHEDULE_DRAW_H

#include "base/base.h"
#include "base/error.h"
#include "parallel/simulate.h"

#include <stdio.h>

#define SCHEDULE_DRAW_MAX_CHUNKS 26    // one letter each
#define SCHEDULE_DRAW_MAX_CELLS 100000 // of an SVG

struct schedule_draw {
    const struct schedule_shape *shape;
    const struct simulate *sim; // of schedules of that shape
    double forward, backward;   // the times it was simulated with, above zero
    int n_columns;              // text: rows are cut here, and a line says so; 0: never
    bool has_colour;            // text: with escape sequences of a terminal
};

/* The rows and the lines that explain them. */
MUST_CHECK int schedule_draw_text(const struct schedule_draw *d, FILE *out,
                                  struct error *err);

/* Write a self-contained SVG file; an existing file is replaced atomically. */
MUST_CHECK int schedule_draw_svg(const struct schedule_draw *d, const char *path,
                                 struct error *err);

#endif

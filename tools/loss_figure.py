#!/usr/bin/env python3
"""Draws the losses of several runs over their steps, as SVG:

tools/loss_figure.py OUTPUT.svg NAME=DIR/metrics.jsonl ...

Curves are drawn in order, thick to thin, so that those that lie on each other can all be
seen. Below the picture stands the largest difference between two of them."""

import json
import sys

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 720, 320, 52, 190, 14, 46
COLOURS = ("#b8c4d6", "#e5a336", "#3a7d44", "#c2447a", "#23395d", "#7a5195", "#ef5675")


def read_losses(path):
    with open(path, encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    return {row["step"]: row["loss"] for row in rows if "loss" in row}


def largest_difference(curves):
    steps = set.intersection(*(set(losses) for losses in curves.values()))
    spans = (
        [losses[step] for losses in curves.values()] for step in sorted(steps)
    )
    return max(max(span) - min(span) for span in spans)


def draw(curves):
    steps = max(max(losses) for losses in curves.values())
    highest = max(max(losses.values()) for losses in curves.values())
    top, bottom = int(highest) + 1, int(min(min(c.values()) for c in curves.values()))
    plot_width, plot_height = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM

    def place(step, loss):
        x = LEFT + plot_width * step / steps
        y = TOP + plot_height * (top - loss) / (top - bottom)
        return f"{x:.1f},{y:.1f}"

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
    ]
    for loss in range(bottom, top + 1):
        y = TOP + plot_height * (top - loss) / (top - bottom)
        parts.append(f'<path d="M{LEFT} {y:.1f}h{plot_width}" stroke="#e4e4e4"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{loss}</text>')
    for step in range(0, steps + 1, max(1, steps // 5)):
        x = LEFT + plot_width * step / steps
        parts.append(f'<text x="{x:.1f}" y="{HEIGHT - 28}" text-anchor="middle">{step}</text>')
    for i, (name, losses) in enumerate(curves.items()):
        colour = COLOURS[i % len(COLOURS)]
        width = 1.2 + 2.4 * (len(curves) - 1 - i)
        points = " ".join(place(*point) for point in sorted(losses.items()))
        parts.append(
            f'<polyline points="{points}" fill="none" stroke="{colour}" '
            f'stroke-width="{width:.1f}" stroke-linejoin="round"/>'
        )
        y = TOP + 12 + 20 * i
        x = WIDTH - RIGHT + 14
        parts.append(f'<path d="M{x} {y - 4}h22" stroke="{colour}" stroke-width="{width:.1f}"/>')
        parts.append(f'<text x="{x + 30}" y="{y}">{name}</text>')
    parts.append(
        f'<text x="{LEFT}" y="{HEIGHT - 8}">loss per token over {steps} steps; the largest '
        f"difference between two curves is {largest_difference(curves):.1e}</text>"
    )
    return "\n".join([*parts, "</svg>", ""])


def main():
    output, *runs = sys.argv[1:] or [None]
    if not output or len(runs) < 2:
        sys.exit(__doc__)
    curves = {}
    for run in runs:
        name, _, path = run.partition("=")
        curves[name] = read_losses(path)
    with open(output, "w", encoding="utf-8") as svg:
        svg.write(draw(curves))


if __name__ == "__main__":
    main()

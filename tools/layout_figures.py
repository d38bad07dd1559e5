#!/usr/bin/env python3
"""Draws the pictures of docs/layouts.md, as SVG:

  tools/layout_figures.py DIR [TREFOIL]

The schedules are drawn by `TREFOIL schedule` (build/trefoil)."""

import subprocess
import sys
from pathlib import Path

INK, PALE, LINE = "#1f2933", "#f4f6f8", "#52606d"
RANKS = ("#2f6db5", "#d9822b", "#3a7d44", "#a23b72")


class Picture:
    """Shapes, in the order in which they are drawn."""

    def __init__(self, width, height, title):
        self.width, self.height, self.title, self.shapes = width, height, title, []

    def box(self, x, y, w, h, fill, text="", ink="white", size=13, line="none", opacity=1):
        self.shapes.append(
            f'<rect x="{x:g}" y="{y:g}" width="{w:g}" height="{h:g}" rx="4" fill="{fill}"'
            f' stroke="{line}" fill-opacity="{opacity:g}"/>'
        )
        if text:
            self.text(x + w / 2, y + h / 2 + size * 0.35, text, ink, size, "middle")

    def text(self, x, y, text, ink=INK, size=13, anchor="start", weight="normal"):
        self.shapes.append(
            f'<text x="{x:g}" y="{y:g}" fill="{ink}" font-size="{size:g}"'
            f' text-anchor="{anchor}" font-weight="{weight}">{text}</text>'
        )

    def arrow(self, x1, y1, x2, y2, both=False):
        start = ' marker-start="url(#tip)"' if both else ""
        self.shapes.append(
            f'<line x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}" stroke="{LINE}"'
            f' stroke-width="1.5" marker-end="url(#tip)"{start}/>'
        )

    def save(self, path):
        body = "\n".join(self.shapes)
        path.write_text(
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}"'
            f' width="{self.width}" height="{self.height}" font-family="sans-serif">\n'
            f"<title>{self.title}</title>\n"
            '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7"'
            ' markerHeight="7" orient="auto-start-reverse">'
            f'<path d="M0 0L8 4L0 8z" fill="{LINE}"/></marker></defs>\n'
            f'<rect width="{self.width}" height="{self.height}" fill="white"/>\n'
            f"{body}\n</svg>\n",
            encoding="utf-8",
        )


def layers(p, x, y, w, n, fill_of, h=20):
    """A model as a pile of n layers."""
    for i in range(n):
        p.box(x, y + i * (h + 4), w, h, fill_of(i), f"layer {i}", size=11)


def overview():
    p = Picture(760, 214, "The four ways to divide a model and its batch, on two processes")
    for i, name in enumerate(("data", "sharding", "tensor", "pipeline")):
        x = 14 + i * 188
        p.text(x + 80, 24, f"{name}", INK, 15, "middle", "bold")
        if name == "pipeline":
            layers(p, x + 20, 40, 120, 4, lambda i: RANKS[i // 2])
        elif name == "tensor":
            for j in range(4):
                p.box(x + 20, 40 + j * 24, 59, 20, RANKS[0])
                p.box(x + 81, 40 + j * 24, 59, 20, RANKS[1])
        else:
            for rank in range(2):
                for j in range(4):
                    own = name == "data" or j // 2 == rank
                    p.box(x + 8 + rank * 76, 40 + j * 24, 68, 20, RANKS[rank], opacity=1 if own else 0.25)
        words = {
            "data": ("all layers everywhere,", "half of the batch each"),
            "sharding": ("each keeps a part,", "half of the batch each"),
            "tensor": ("half of every layer each,", "the whole batch"),
            "pipeline": ("half of the layers each,", "the whole batch in pieces"),
        }[name]
        for k, line in enumerate(words):
            p.text(x + 80, 160 + k * 17, line, LINE, 12, "middle")
    p.box(280, 193, 14, 14, RANKS[0])
    p.text(299, 205, "process 0", LINE, 12)
    p.box(390, 193, 14, 14, RANKS[1])
    p.text(409, 205, "process 1", LINE, 12)
    return p


def data():
    p = Picture(620, 230, "Data parallelism: copies of the model add up their gradients")
    p.text(20, 30, "batch", INK, 13, weight="bold")
    for rank in range(2):
        y = 44 + rank * 84
        p.box(20, y, 90, 56, PALE, f"samples {rank * 8} to {rank * 8 + 7}", INK, 10, LINE)
        p.arrow(114, y + 28, 156, y + 28)
        for i in range(4):
            p.box(162 + i * 54, y, 48, 56, RANKS[rank], str(i))
        p.arrow(380, y + 28, 422, y + 28)
        p.box(428, y, 110, 56, PALE, f"gradients of {rank}", INK, 12, LINE)
    p.text(162, 30, "the whole model, on each process", INK, 13, weight="bold")
    p.arrow(483, 100, 483, 128, both=True)
    p.text(494, 118, "added up", LINE, 12)
    p.text(20, 216, "The same sum arrives everywhere, so all copies make the same update.", LINE, 12)
    return p


def sharding():
    p = Picture(640, 250, "ZeRO: what one of four processes holds, by stage")
    kinds = (("parameters", 4, 3), ("gradients", 4, 2), ("optimizer state", 8, 1))
    p.text(20, 26, "bytes per parameter on each of 4 processes (float32)", INK, 13, weight="bold")
    for stage in range(4):
        y, x, total = 44 + stage * 44, 110, 0
        p.text(20, y + 20, "no sharding" if stage == 0 else f"stage {stage}", INK, 13)
        for i, (name, width, since) in enumerate(kinds):
            n = width / 4 if stage >= since else width
            p.box(x, y, n * 26, 30, RANKS[i], f"{n:g}", size=12)
            x, total = x + n * 26 + 2, total + n
        p.text(x + 8, y + 20, f"= {total:g}", INK, 13)
    for i, (name, _, _) in enumerate(kinds):
        p.box(110 + i * 150, 225, 14, 14, RANKS[i])
        p.text(130 + i * 150, 237, name, LINE, 12)
    return p


def tensor():
    p = Picture(660, 250, "Tensor parallelism: one layer on two processes")
    for rank in range(2):
        y = 50 + rank * 96
        p.box(20, y, 60, 70, PALE, "input", INK, 12, LINE)
        p.arrow(84, y + 35, 118, y + 35)
        for i in range(2):
            p.box(124 + i * 48, y, 44, 70, RANKS[rank], opacity=1 if i == rank else 0.15)
        p.arrow(222, y + 35, 256, y + 35)
        p.box(262, y, 60, 70, PALE, f"half {rank}", INK, 12, LINE)
        p.arrow(326, y + 35, 360, y + 35)
        for i in range(2):
            p.box(366, y + i * 36, 92, 34, RANKS[rank], opacity=1 if i == rank else 0.15)
        p.arrow(462, y + 35, 496, y + 35)
        p.box(502, y, 76, 70, PALE, "partial sum", INK, 12, LINE)
    p.text(20, 30, "the same rows", INK, 12)
    p.text(124, 30, "its columns (heads, units)", INK, 12)
    p.text(366, 30, "its rows", INK, 12)
    p.arrow(540, 124, 540, 142, both=True)
    p.text(552, 138, "added up", LINE, 12)
    p.text(20, 238, "Attention and feed-forward are both such a pair of matrices: two sums per layer.", LINE, 12)
    return p


def grid():
    p = Picture(660, 230, "Eight ranks: data 2 x pipe 2 x model 2")
    for data_rank in range(2):
        x0 = 30 + data_rank * 320
        p.box(x0 - 14, 40, 290, 164, PALE, line=LINE)
        p.text(x0, 30, f"data {data_rank}: its half of the batch", INK, 13, weight="bold")
        for stage in range(2):
            y = 70 + stage * 76
            words = "first layers" if stage == 0 else "last layers"
            p.text(x0, y - 8, f"pipe {stage}: {words}", LINE, 12)
            for model in range(2):
                rank = data_rank * 4 + stage * 2 + model
                p.box(x0 + model * 130, y, 124, 44, RANKS[model], f"rank {rank}: model {model}")
    p.text(16, 222, "Neighbours in number share each layer: they talk most.", LINE, 12)
    return p


def main():
    directory = Path(sys.argv[1])
    trefoil = sys.argv[2] if len(sys.argv) > 2 else "build/trefoil"
    pictures = {
        "layouts": overview(),
        "data": data(),
        "sharding": sharding(),
        "tensor": tensor(),
        "grid": grid(),
    }
    directory.mkdir(parents=True, exist_ok=True)
    for name, picture in pictures.items():
        picture.save(directory / f"{name}.svg")
    for name, chunks in (("pipeline", 1), ("interleaved", 2)):
        words = [trefoil, "schedule", "--pp", "4", "--micro", "8", "--chunks", str(chunks)]
        words += ["--svg", str(directory / f"{name}.svg")]
        subprocess.run(words, check=True, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    if not 2 <= len(sys.argv) <= 3:
        sys.exit(__doc__)
    main()

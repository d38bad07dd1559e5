#!/usr/bin/env python3
"""Checks links of the documents: every page, picture and anchor they name exists.

  tools/check_links.py

Addresses of other sites are not asked; pictures must be files of the project."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import markdown_text as md

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted(ROOT.glob("*.md")) + sorted((ROOT / "docs").rglob("*.md"))


def anchors(path):
    return {anchor for _, _, _, anchor in md.anchored_headings(md.read_lines(path))}


def check(page):
    name = page.relative_to(ROOT)
    lines = md.read_lines(page)
    images = {m for line in md.without_blocks(lines) for m in md.IMAGE.findall(line)}
    for target, line in md.links(lines):
        if md.is_external(target):
            if target in images:
                yield f"{name}:{line}: picture '{target}' is of another site"
            continue
        path = ROOT / md.resolve(name, target)
        if not path.exists():
            yield f"{name}:{line}: '{target}' leads nowhere: there is no {path.relative_to(ROOT)}"
        elif "#" in target and path.suffix == ".md":
            anchor = target.split("#", 1)[1]
            if anchor not in anchors(path):
                yield f"{name}:{line}: '{target}': that page has no heading '#{anchor}'"


complaints = [text for page in PAGES for text in check(page)]
print(*complaints, sep="\n", end="\n" if complaints else "")
sys.exit(1 if complaints else 0)

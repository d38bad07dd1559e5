#!/usr/bin/env python3
"""Takes the commands out of pages: doc_blocks.py TOOLS OUTPUT_DIR PAGE...

Every ```sh block becomes a file OUTPUT_DIR/NNN.sh, in order; its first line names page and
line. A block after '<!-- not run: REASON -->' is left out, and its reason printed."""

import re
import sys
from pathlib import Path

sys.path.insert(0, sys.argv[1])
import markdown_text as md

NOT_RUN = re.compile(r"^<!-- not run: (.+) -->$")


def blocks_of(page):
    """(line from 1, lines, reason not to run or None) of each sh block."""
    lines = md.read_lines(page)
    for i, line in enumerate(lines):
        if line != "```sh":
            continue
        end = lines.index("```", i)
        above = NOT_RUN.match(lines[i - 1]) if i else None
        yield i + 1, lines[i + 1 : end], above.group(1) if above else None


def main():
    output, n = Path(sys.argv[2]), 0
    output.mkdir()
    for page in sys.argv[3:]:
        for line, commands, reason in blocks_of(page):
            if reason:
                print(f"{page}:{line}: not run: {reason}")
                continue
            text = "\n".join([f"# {page}:{line}", *commands, ""])
            (output / f"{n:03}.sh").write_text(text, encoding="utf-8")
            n += 1


main()

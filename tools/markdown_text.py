"""Markdown as the project's documents have it: sections, blocks, links, anchors.

What tools/check_links.py, tools/check_translation.py, tools/site.py and
tests/cli/doc_commands.py know of the form of a page. Anchors are those of GitHub, and the
site's are made by the same rule."""

import re
from dataclasses import dataclass, field
from pathlib import Path

HEADING = re.compile(r"^(#{1,6}) +(.*?) *#*$")
FENCE = re.compile(r"^ {0,3}(```+|~~~+) *([A-Za-z]*)")
IMAGE = re.compile(r"!\[[^\]]*\]\(([^()\s]+)\)")
LINK = re.compile(r"!?\[(?:[^\[\]]|!\[[^\]]*\]\([^()]*\))*\]\(([^()\s]+)\)")


@dataclass
class Section:
    heading: str  # the whole line, with its #
    anchor: str
    line: int  # of the heading, from 1
    lines: list = field(default_factory=list)  # what follows the heading


def outside_code(lines):
    """(number from 0, line) of every line that is in no fenced block."""
    fence = None
    for i, line in enumerate(lines):
        match = FENCE.match(line)
        if fence is None and match:
            fence = match.group(1)
        elif fence is not None and match and match.group(1).startswith(fence):
            fence = None
        elif fence is None:
            yield i, line


def without_blocks(lines):
    return [line for _, line in outside_code(lines)]


def blocks(lines, language):
    """The fenced blocks of a language, each as a list of lines."""
    found, block, fence = [], None, None
    for line in lines:
        match = FENCE.match(line)
        if fence is None and match:
            fence = match.group(1)
            block = [] if match.group(2) == language else None
        elif fence is not None and match and match.group(1).startswith(fence):
            if block is not None:
                found.append(block)
            fence = block = None
        elif block is not None:
            block.append(line)
    return found


def slug(text):
    """The anchor of a heading: lower case, no punctuation, hyphens for spaces."""
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)
    text = re.sub(r"[^\w\- ]", "", text.strip().lower())
    return text.replace(" ", "-")


def anchored_headings(lines):
    """(number from 0, level, text, anchor); a repeated heading gets -1, -2, ..."""
    seen = {}
    for i, line in outside_code(lines):
        match = HEADING.match(line)
        if not match:
            continue
        anchor = slug(match.group(2))
        n = seen.get(anchor, 0)
        seen[anchor] = n + 1
        yield i, len(match.group(1)), match.group(2), f"{anchor}-{n}" if n else anchor


def read_lines(path):
    return Path(path).read_text(encoding="utf-8").splitlines()


def sections(path, deepest):
    """The sections of a page, by headings of at most that level; stamps are in none."""
    lines = read_lines(path)
    starts = [
        Section(lines[i], anchor, i + 1)
        for i, level, _, anchor in anchored_headings(lines)
        if level <= deepest
    ]
    for section, following in zip(starts, starts[1:] + [None]):
        end = following.line - 1 if following else len(lines)
        section.lines = [
            line for line in lines[section.line : end] if not line.startswith("<!-- en: ")
        ]
    return starts


def links(lines):
    """(target, line from 1) of links and pictures outside of code."""
    plain = [""] * len(lines)
    for i, line in outside_code(lines):
        plain[i] = re.sub(r"`[^`]*`", "``", line)
    text = "\n".join(plain)
    for match in LINK.finditer(text):
        line = text.count("\n", 0, match.end()) + 1
        yield match.group(1), line
        if match.group(0).startswith("[!["):
            for image in IMAGE.finditer(match.group(0)):
                yield image.group(1), line


def is_external(target):
    return re.match(r"[a-z][a-z0-9+.-]*:", target) is not None


def resolve(page, target):
    """The path, relative to the project, that a link on a page leads to, without its anchor."""
    name = target.split("#")[0]
    parts = list(Path(page).parent.parts) if name else list(Path(page).parts)
    for part in Path(name).parts:
        if part == "..":
            parts = parts[:-1]
        elif part != ".":
            parts.append(part)
    return Path(*parts)

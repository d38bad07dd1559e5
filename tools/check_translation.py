#!/usr/bin/env python3
"""Checks that the Chinese documents say what the English ones say.

  tools/check_translation.py              says what is missing or old; exit code 1 if anything is
  tools/check_translation.py --stamp      the same, but takes every section as it is now to be
          [PAGE...]                       a translation of its English one, and writes that down
  tools/check_translation.py --new PAGE   prints the headings of an English page with their
                                          stamps, to translate below them

README.md is translated by README.zh.md, docs/NAME.md by docs/zh/NAME.md. A section begins
at a heading of level 1 to 3. In a Chinese page each heading has a stamp on the line above:

  <!-- en: anchor-of-the-english-heading 0123456789ab -->
  ## Heading in Chinese

The number is a hash of the English section that was translated. White space does not count,
nor do tables that `make bench` or another program writes. Sections stand in the order of the
English page, with the same commands (comments may be translated), as many rows in tables and
as many pictures.
Links to pages that have a translation go to the translation.

Without any translation there is nothing to check."""

import hashlib
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import markdown_text as md

ROOT = Path(__file__).resolve().parent.parent
STAMP = re.compile(r"^<!-- en: (\S+)(?: ([0-9a-f]{12}))? -->$")
UNSTAMPED = "-" * 12


def pairs():
    """(English page, its translation), as paths relative to the project."""
    yield Path("README.md"), Path("README.zh.md")
    for page in sorted((ROOT / "docs").glob("*.md")):
        yield Path("docs") / page.name, Path("docs/zh") / page.name


def written(lines):
    """The lines without tables that were measured or made."""
    kept, skip = [], False
    for line in lines:
        begins = re.match(r" *<!-- (bench|made):", line)
        skip = bool(skip or begins) and not re.search("<!-- /(bench|made):", line)
        if not skip:
            kept.append(line)
    return kept


def digest(lines):
    """Of what a section says: its words."""
    words = " ".join(" ".join(written(lines)).split())
    return hashlib.sha256(words.encode()).hexdigest()[:12]


def english_sections(path):
    return [(s.anchor, digest([s.heading] + s.lines), s) for s in md.sections(path, 3)]


def commands(section):
    """Lines of its sh blocks, without comments."""
    lines = [line for block in md.blocks(section.lines, "sh") for line in block]
    lines = [re.sub(r"(^|\s+)#\s.*$", "", line).rstrip() for line in lines]
    return [line for line in lines if line]


def shape(section):
    """What a translation has as many of: (name, number)."""
    plain = md.without_blocks(written(section.lines))
    return {
        "rows of tables": sum(line.startswith("|") for line in plain),
        "pictures": sum(len(md.IMAGE.findall(line)) for line in plain),
        "items of lists": sum(bool(re.match(r" *([-*]|\d+\.) ", line)) for line in plain),
    }


def links_to_english(chinese_page, section):
    """Links that lead to an English page although there is a translation, the page that this
    one translates apart."""
    translated = {english: chinese for english, chinese in pairs() if (ROOT / chinese).exists()}
    for target, _ in md.links(section.lines):
        path = md.resolve(chinese_page, target)
        if path in translated and translated[path] != chinese_page and target.split("#")[0]:
            yield target, translated[path]


def compare(english_page, chinese_page, anchor, english, chinese):
    """Complaints about one section."""
    where = f"{chinese_page}:{chinese.line}: section '{anchor}'"
    if commands(english) != commands(chinese):
        yield f"{where} has other commands than {english_page}:{english.line}"
    theirs, ours = shape(chinese), shape(english)
    for name, n in ours.items():
        if theirs[name] != n:
            yield f"{where} has {theirs[name]} {name}, {english_page}:{english.line} has {n}"
    for target, better in links_to_english(chinese_page, chinese):
        yield f"{where} links to '{target}', of which there is a translation: {better}"


def stamps(path):
    """The anchor and the hash above each heading: {line of the heading: (anchor, hash)}"""
    found, lines = {}, path.read_text(encoding="utf-8").splitlines()
    for i, line in enumerate(lines):
        match = STAMP.match(line)
        if match:
            found[i + 2] = (match.group(1), match.group(2) or UNSTAMPED)
    return found


def check_page(english_page, chinese_page):
    """Complaints about a page."""
    if not (ROOT / chinese_page).exists():
        yield f"{chinese_page} is not there: {english_page} has no translation"
        return
    english = english_sections(ROOT / english_page)
    stamped = stamps(ROOT / chinese_page)
    chinese = []
    for section in md.sections(ROOT / chinese_page, 3):
        if section.line not in stamped:
            yield (
                f"{chinese_page}:{section.line}: no line '<!-- en: ANCHOR HASH -->' above"
                f" the heading '{section.heading.lstrip('# ')}'"
            )
            return
        chinese.append((*stamped[section.line], section))
    known, have = [a for a, _, _ in english], [a for a, _, _ in chinese]
    for anchor in have:
        if anchor not in known:
            yield f"{chinese_page}: section '{anchor}' is not in {english_page}: remove it"
    for anchor, _, section in english:
        if anchor not in have:
            yield f"{chinese_page}: section '{anchor}' ({english_page}:{section.line}) is missing"
    if sorted(have) == sorted(known) and have != known:
        yield f"{chinese_page}: its sections are in another order than those of {english_page}"
    by_anchor = {anchor: (value, section) for anchor, value, section in chinese}
    for anchor, value, section in english:
        if anchor not in by_anchor:
            continue
        stamp, translation = by_anchor[anchor]
        if stamp != value:
            yield (
                f"{chinese_page}:{translation.line}: section '{anchor}' is not that of"
                f" {english_page}:{section.line} as it is now: translate what changed, then"
                f" tools/check_translation.py --stamp {english_page}"
            )
        yield from compare(english_page, chinese_page, anchor, section, translation)


def write_stamps(english_page, chinese_page):
    path = ROOT / chinese_page
    if not path.exists():
        return
    values = {anchor: value for anchor, value, _ in english_sections(ROOT / english_page)}
    lines = path.read_text(encoding="utf-8").splitlines()
    for i, line in enumerate(lines):
        match = STAMP.match(line)
        if match and match.group(1) in values:
            lines[i] = f"<!-- en: {match.group(1)} {values[match.group(1)]} -->"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def print_skeleton(page):
    for anchor, value, section in english_sections(ROOT / page):
        print(f"<!-- en: {anchor} {value} -->\n{section.heading}\n")


def main(arguments):
    option = arguments[0] if arguments and arguments[0].startswith("--") else ""
    pages = [Path(name) for name in arguments[1 if option else 0 :]]
    everything = list(pairs())
    unknown = [str(p) for p in pages if p not in [english for english, _ in everything]]
    if option not in ("", "--stamp", "--new") or unknown or (option == "--new" and not pages):
        print(__doc__, file=sys.stderr)
        if unknown:
            print(f"not a page that is translated: {' '.join(unknown)}", file=sys.stderr)
        return 2
    if option == "--new":
        for page in pages:
            print_skeleton(page)
        return 0
    if not any((ROOT / chinese).exists() for _, chinese in everything):
        return 0
    asked = [(e, c) for e, c in everything if not pages or e in pages]
    if option == "--stamp":
        for english, chinese in asked:
            write_stamps(english, chinese)
    complaints = [text for english, chinese in asked for text in check_page(english, chinese)]
    orphans = sorted((ROOT / "docs/zh").glob("*.md")) if not pages else []
    for path in orphans:
        if not (ROOT / "docs" / path.name).exists():
            complaints.append(f"docs/zh/{path.name} translates docs/{path.name}, which is gone")
    for text in complaints:
        print(text)
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

#!/usr/bin/env python3
"""Prints docs/commands.md: every command with its options, from the tables behind --help.

  tools/commands_page.py TREFOIL > docs/commands.md"""

import re
import subprocess
import sys

INTRO = """# Commands

Made by `tools/commands_page.py` from `--help`; do not edit. `make docs` makes it again.

`trefoil help COMMAND` and `trefoil COMMAND --help` print the same. An option is written
`--name VALUE` or `--name=VALUE`; one that shows `...` takes several values and may be
repeated. Every command has `--help` and `--version`. Exit codes are in
[interface.md](interface.md#exit-codes).
"""


def help_of(words):
    run = subprocess.run(
        [sys.argv[1], *words, "--help"], check=True, capture_output=True, text=True
    )
    return run.stdout.splitlines()


def part(lines, title):
    """The lines below 'title:', up to an empty one."""
    if f"{title}:" not in lines:
        return []
    start = lines.index(f"{title}:") + 1
    end = lines.index("", start) if "" in lines[start:] else len(lines)
    return lines[start:end]


def table(lines):
    """Rows of (name, meaning); a name too long for its column is followed by one space."""
    rows = []
    for line in lines:
        match = re.match(r"  (\S.*?)(?: {2,}|(?<=\S) (?=[A-Z(]))(\S.*)$", line)
        if line.startswith("      ") and rows:
            rows[-1][1] += " " + line.strip()
        elif len(line) > 30 and line[29] != " " and match:
            rows.append([match.group(1), match.group(2)])
        else:
            rows.append([line[:30].strip(), line[30:].strip()])
    return rows


def cell(text):
    """As code in a table: nothing but the bar means anything there."""
    return text.replace("|", "\\|")


def prose(text):
    return cell(text).replace("*", "\\*").replace("_", "\\_").replace("<", "\\<")


def print_command(words):
    lines = help_of(words)
    choices = [name.split()[0] for name, _ in table(part(lines, "commands"))]
    if choices:
        if words:
            print(f"\n## {' '.join(words)}\n\n{lines[2]}")
        for choice in choices:
            print_command([*words, choice])
        return
    print(f"\n{'###' if len(words) > 1 else '##'} {' '.join(words)}\n\n{lines[2]}\n")
    print("```text\n" + lines[0].replace("usage: ", "") + "\n```\n")
    options = [row for row in table(part(lines, "options")) if row[0] not in ("--help", "--version")]
    if options:
        print("| option | meaning |\n|---|---|")
        for name, meaning in options:
            print(f"| `{cell(name)}` | {prose(meaning)} |")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    print(INTRO, end="")
    print_command([])

#!/usr/bin/env python3
"""Checks words of the documents against the sources: doc_words.py ROOT METRICS...

Messages quoted by docs/troubleshooting.md occur in src/; docs/environment.md has every
variable that src/ reads; docs/interface.md has every key and event of the metrics files
given, and of what src/ can write."""

import json
import re
import sys
from pathlib import Path

ROOT = Path(sys.argv[1])
sys.path.insert(0, str(ROOT / "tools"))
import markdown_text as md

STRING = r'"(?:[^"\\]|\\.)*"'
complaints = []


def source_strings():
    """All string literals of src/, those that follow each other joined."""
    joined = re.compile(rf"{STRING}(?:\s*(?:PRI[a-z0-9]+\s*)?{STRING})*")
    for path in sorted((ROOT / "src").rglob("*.[ch]")):
        for match in joined.finditer(path.read_text(encoding="utf-8")):
            yield "".join(re.findall(STRING, match.group(0))).replace('""', "")


def check_messages():
    said = "\n".join(source_strings())
    for line in md.read_lines(ROOT / "docs/troubleshooting.md"):
        cells = line.split(" | ")
        if not line.startswith("| `") or len(cells) < 2:
            continue
        for quoted in re.findall(r"`([^`]+)`", cells[0]):
            for words in re.split(r" ?\b(?:N|HOST|NAME)\b ?| ?\.\.\. ?| ?\d+$", quoted):
                if words.strip() and words.strip() not in said:
                    complaints.append(f"docs/troubleshooting.md: no message says '{words.strip()}'")


def check_environment():
    page = (ROOT / "docs/environment.md").read_text(encoding="utf-8")
    for path in sorted((ROOT / "src").rglob("*.[ch]")):
        text = path.read_text(encoding="utf-8")
        for name in re.findall(r'getenv\("([A-Z_]+)"\)|"(TREFOIL_[A-Z_]+)"', text):
            name = name[0] or name[1]
            if f"`{name}`" not in page and not name.startswith("OMPI_"):
                complaints.append(f"docs/environment.md lacks {name}, which {path.name} reads")


def keys_of(value):
    for key, inner in value.items():
        yield key
        if isinstance(inner, dict):
            yield from keys_of(inner)


def check_metrics(files):
    page = (ROOT / "docs/interface.md").read_text(encoding="utf-8")
    missing = set()
    for path in files:
        for line in Path(path).read_text(encoding="utf-8").splitlines():
            record = json.loads(line)
            names = list(keys_of(record)) + ([record["event"]] if "event" in record else [])
            missing |= {name for name in names if f"`{name}`" not in page}
    complaints.extend(f"docs/interface.md lacks '{name}' of metrics.jsonl" for name in sorted(missing))


check_messages()
check_environment()
check_metrics(sys.argv[2:])
print(*complaints, sep="\n", end="\n" if complaints else "")
sys.exit(1 if complaints else 0)

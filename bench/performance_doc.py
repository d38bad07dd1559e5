"""Puts the tables of reports into documents, between markers; a table for every processor,
and which kinds of processors were not measured:

<!-- bench:steps --> ... <!-- /bench:steps -->

What stands between them is replaced; the rest of the document is left alone."""

import re

from machine import KINDS
from tables import Table, as_markdown

MARKED = re.compile(
    r"^([ ]*)<!-- bench:([a-z_]+) -->\n.*?^[ ]*<!-- /bench:\2 -->$",
    re.DOTALL | re.MULTILINE,
)
EFFORT_WORDS = {
    "full": "all rounds",
    "quick": "one quick round",
    "tiny": "with toy sizes: the figures mean nothing",
}


def kind_words(kind):
    return KINDS.get(kind, kind)


def in_order(reports):
    """By kind of processor, as KINDS has them."""
    kinds = list(KINDS)
    return sorted(
        reports,
        key=lambda r: kinds.index(r["machine"]["kind"]) if r["machine"]["kind"] in kinds else 99,
    )


def missing_words(reports):
    """A sentence about the kinds that no report is of; "" when there are none."""
    there = {report["machine"]["kind"] for report in reports}
    missing = [words for kind, words in KINDS.items() if kind not in there]
    return f"Not measured: {'; '.join(missing)}." if missing else ""


def machine_text(reports):
    table = Table(
        "", ("processor", "kind", "cores", "threads used", "memory", "system", "PyTorch")
    )
    for report in in_order(reports):
        m = report["machine"]
        table.add(
            m["processor"],
            kind_words(m["kind"]),
            str(m["cores"]),
            str(report["threads"]),
            f"{m['memory_gb']} GB",
            m["system"],
            m["pytorch"] or "not installed",
        )
    missing = missing_words(reports)
    table.notes += [missing] if missing else []
    return as_markdown(table)


def how_measured(entry):
    """The sentence below the tables of a processor."""
    program = entry.get("program", {})
    how = EFFORT_WORDS.get(entry["effort"], entry["effort"])
    text = f"Measured on {entry['date'][:10]}, {how}"
    if program.get("version"):
        commit = f" at {program['commit']}" if program.get("commit") else ""
        text += f", with {program['version']}{commit}, kernels {program['kernels']}"
    return text + "."


def section_text(section, name, reports):
    """The tables of every processor that has the section; None when none has."""
    parts = []
    measured = [report for report in in_order(reports) if name in report["sections"]]
    for report in measured:
        entry, m = report["sections"][name], report["machine"]
        parts.append(f"*{kind_words(m['kind'])}: {m['processor']}, {report['threads']} threads*")
        parts += [as_markdown(table) for table in section.tables(entry["data"], m["kind"])]
        parts.append(how_measured(entry))
    missing = missing_words(measured)
    return "\n\n".join(parts + ([missing] if missing else [])) if measured else None


def rewrite(document, texts):
    """The document with every marked place filled; texts: name -> Markdown. A place whose
    name has no text keeps what it has. Names no text can have are an error."""

    def fill(match):
        indent, name = match.groups()
        if name not in texts:
            raise KeyError(name)
        if texts[name] is None:
            return match.group(0)
        lines = [
            f"<!-- bench:{name} -->",
            "",
            *texts[name].splitlines(),
            "",
            f"<!-- /bench:{name} -->",
        ]
        return "\n".join(indent + line if line else line for line in lines)

    return MARKED.sub(fill, document)

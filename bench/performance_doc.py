"""Puts the tables of a report into documents, between markers:

<!-- bench:steps --> ... <!-- /bench:steps -->

What stands between them is replaced; the rest of the document is left alone."""

import re

from tables import as_markdown

MARKED = re.compile(
    r"^([ ]*)<!-- bench:([a-z_]+) -->\n.*?^[ ]*<!-- /bench:\2 -->$",
    re.DOTALL | re.MULTILINE,
)
EFFORT_WORDS = {
    "full": "all rounds",
    "quick": "one quick round",
    "tiny": "with toy sizes: the figures mean nothing",
}


def machine_text(report):
    machine = report["machine"]
    lines = [
        f"- processor: {machine['processor']}, {machine['cores']} cores,"
        f" {report['threads']} threads used",
        f"- memory: {machine['memory_gb']:.0f} GB",
        f"- system: {machine['system']}",
        f"- PyTorch: {machine['pytorch'] or 'not installed'}",
    ]
    return "\n".join(lines)


def section_text(section, entry):
    tables = [as_markdown(table) for table in section.tables(entry["data"])]
    how = EFFORT_WORDS.get(entry["effort"], entry["effort"])
    how = f"Measured on {entry['date'][:10]}, {how}."
    return "\n\n".join([*tables, how])


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

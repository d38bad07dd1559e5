"""Tables that are printed on a terminal or in Markdown, from the same cells."""

import dataclasses


@dataclasses.dataclass
class Table:
    title: str  # "": the section has only this one
    columns: tuple
    rows: list = dataclasses.field(default_factory=list)  # of tuples of text
    notes: list = dataclasses.field(default_factory=list)

    def add(self, *cells):
        self.rows.append(cells)

    def add_failures(self, results):
        """What has no row because it did not run, as notes; {name: result}."""
        for name, result in results.items():
            for kind in ("failed", "skipped"):
                if kind in result:
                    self.notes.append(f"{name}: {result[kind]}")


def number(value, digits=2, unit=""):
    return "-" if value is None else f"{value:.{digits}f}{unit}"


def ratio(a, b):
    """a / b, or None where one of them was not measured."""
    return a / b if a and b else None


def bounded(value, at_most=None, at_least=None, digits=2, unit=""):
    """ "1.07 (at most 1.15)": the figure and what it is meant to be."""
    text = number(value, digits, unit)
    if value is None:
        return text
    if at_most is not None:
        return f"{text} (at most {at_most:g}{unit})"
    if at_least is not None:
        return f"{text} (at least {at_least:g}{unit})"
    return text


def as_text(table):
    lines = ["", table.title] if table.title else [""]
    widths = [max(map(len, column)) for column in zip(table.columns, *table.rows)]
    for row in (table.columns, *table.rows):
        first, *others = (cell.ljust(width) for cell, width in zip(row, widths))
        others = [cell.strip().rjust(width) for cell, width in zip(others, widths[1:])]
        lines.append("  " + "  ".join([first, *others]).rstrip())
    lines += ["  " + note for note in table.notes]
    return "\n".join(lines)


def as_markdown(table):
    lines = [f"**{table.title}**", ""] if table.title else []
    lines.append("| " + " | ".join(table.columns) + " |")
    lines.append("|" + "|".join(["---"] + ["--:"] * (len(table.columns) - 1)) + "|")
    lines += ["| " + " | ".join(row) + " |" for row in table.rows]
    for note in table.notes:
        lines += ["", note]
    return "\n".join(lines)

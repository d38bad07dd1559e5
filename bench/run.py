#!/usr/bin/python3
"""Measures the speed of Trefoil, section by section, next to what bounds it.

Contestants of a section take turns for several rounds, and the best round of each counts,
so a slow moment of the machine meets all of them. Tables go to the terminal with the
bound of each figure beside it; everything measured goes to a file of bench/results that is
named after the processor, where sections that were not run keep what they had on the same
machine; that of a quick run or of shapes of one's own stays in the build directory. With
--markdown nothing is measured: the tables of all processors that have a file
are put into the documents.

Exit code: 0 whatever the figures are, 1 when something failed to run.
"""

import argparse
import collections
import dataclasses
import datetime
import json
import os
import pathlib
import sys
import time

import efforts
import machine
import performance_doc
import section_checkpoint
import section_parallel
import section_products
import section_program
import section_quality
import section_scaling
import section_step
import shapes
from harness import Context, all_threads
from machine import BENCH
from tables import as_text

Section = collections.namedtuple("Section", "title measure tables")
SECTIONS = {  # in the order they are run
    "steps": Section(
        "A training step against the floor and PyTorch",
        section_step.measure_steps,
        section_step.step_tables,
    ),
    "products": Section(
        "Products against other libraries",
        section_products.measure_products,
        section_products.product_tables,
    ),
    "attention": Section(
        "Attention against the rate of products",
        section_products.measure_attention,
        section_products.attention_tables,
    ),
    "kernels": Section(
        "Where a step spends its time",
        section_step.measure_kernels,
        section_step.kernel_tables,
    ),
    "precision": Section(
        "16 bits against float32",
        section_step.measure_precision,
        section_step.precision_tables,
    ),
    "recompute": Section(
        "Recomputing activations",
        section_step.measure_recompute,
        section_step.recompute_tables,
    ),
    "switches": Section(
        "fused_linear and tensor_fusion",
        section_parallel.measure_switches,
        section_parallel.switch_tables,
    ),
    "parallel": Section(
        "Two processes against one",
        section_parallel.measure_parallel,
        section_parallel.parallel_tables,
    ),
    "scaling": Section(
        "Growing models, sequences, micro-batches and ranks",
        section_scaling.measure_scaling,
        section_scaling.scaling_tables,
    ),
    "adamw": Section(
        "AdamW against the speed of memory",
        section_program.measure_adamw,
        section_program.adamw_tables,
    ),
    "startup": Section(
        "From the command to the first step",
        section_program.measure_startup,
        section_program.startup_tables,
    ),
    "generate": Section(
        "Generating text",
        section_program.measure_generate,
        section_program.generate_tables,
    ),
    "checkpoint": Section(
        "Checkpoints against the disk",
        section_checkpoint.measure_checkpoint,
        section_checkpoint.checkpoint_tables,
    ),
    "quality": Section(
        "Losses of 16 bits against float32",
        section_quality.measure_quality,
        section_quality.quality_tables,
    ),
}
DOCUMENTS = ("docs/performance.md", "README.md")
TRANSLATIONS = ("docs/zh/performance.md", "README.zh.md")  # the same tables
RESULTS = BENCH / "results"
BUSY_LOAD = 0.5  # of the machine, from which on figures are not to be trusted


# -- options ---------------------------------------------------------------------------


def section_list(text):
    names = text.split(",")
    unknown = [name for name in names if name not in SECTIONS]
    if unknown:
        raise argparse.ArgumentTypeError(
            f"there is no section '{unknown[0]}'; the sections are {', '.join(SECTIONS)}"
        )
    return names


def count(text):
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"'{text}' is not a number of 1 or more")
    return int(text)


def parse_options():
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0],
        epilog="Sections: " + "; ".join(f"{n}: {s.title}" for n, s in SECTIONS.items()),
    )
    add = parser.add_argument
    add("shapes", nargs="*", metavar="SHAPE", type=shapes.parse,
        help="shapes such as 6L-384H-6A-V8192-B8-S256 in place of those of the sections "
        "steps, kernels, precision, recompute and parallel")
    add("--only", type=section_list, default=list(SECTIONS), metavar="SECTION,...")
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_const", dest="effort", const="quick",
                      help="one round of everything: a section and a shape in minutes")
    size.add_argument("--tiny", action="store_const", dest="effort", const="tiny",
                      help="toy sizes: shows that all of it runs, figures mean nothing")
    add("--rounds", type=count, help="in place of each section's")
    add("--steps", type=count, help="measured ones a round, in place of each section's")
    add("--threads", type=count, default=all_threads())
    add("--no-pytorch", action="store_true")
    add("--no-libraries", action="store_true", help="neither BLIS nor OpenBLAS")
    add("--build", type=pathlib.Path, default=BENCH.parent / "build",
        help="the build directory whose programs are measured")
    add("--output", type=pathlib.Path,
        help="the report, in place of bench/results/PROCESSOR.json; a quick one, or one of "
        "given shapes, is written to the build directory")
    add("--markdown", action="store_true",
        help="measure nothing, put the tables of all reports of bench/results, or of "
        f"--output, into {' and '.join(DOCUMENTS)}")
    add("--documents", nargs="+", type=pathlib.Path, metavar="FILE",
        default=[BENCH.parent / name for name in DOCUMENTS]
        + [BENCH.parent / name for name in TRANSLATIONS if (BENCH.parent / name).exists()],
        help="other ones")
    parser.set_defaults(effort="full")
    return parser.parse_args()


def effort_of(options):
    """The chosen one with what the options say instead."""
    effort = {"full": efforts.FULL, "quick": efforts.QUICK, "tiny": efforts.TINY}[
        options.effort
    ]
    if options.shapes:
        names = tuple(shape["name"] for shape in options.shapes)
        plans = tuple(
            efforts.StepPlan(name, effort.rounds, effort.measured_steps) for name in names
        )
        effort = dataclasses.replace(
            effort,
            steps=plans,
            kernels=names,
            precision=names,
            recompute=names,
            layouts=names,
        )
    if options.rounds:
        plans = tuple(dataclasses.replace(p, rounds=options.rounds) for p in effort.steps)
        effort = dataclasses.replace(
            effort,
            steps=plans,
            rounds=options.rounds,
            product_rounds=options.rounds,
            starts=options.rounds,
        )
    if options.steps:
        plans = tuple(dataclasses.replace(p, steps=options.steps) for p in effort.steps)
        effort = dataclasses.replace(effort, steps=plans, measured_steps=options.steps)
    return effort


# -- the report ------------------------------------------------------------------------


def read_report(path):
    """What the file holds, or None when there is no report of this form."""
    try:
        report = json.loads(path.read_text())
    except (OSError, ValueError):
        return None
    return report if isinstance(report, dict) and "sections" in report else None


def report_to_extend(options):
    """The file's, if it is about this machine with as many threads; else a new one."""
    here = {"machine": machine.describe(), "threads": options.threads}
    old = read_report(options.output)
    if old and {key: old.get(key) for key in here} == here:
        return old
    return {**here, "sections": {}}


def now():
    return datetime.datetime.now().astimezone().isoformat(timespec="seconds")


def write_report(report, path):
    """Written aside and renamed: a benchmark may well be interrupted."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_suffix(".tmp")
    aside.write_text(json.dumps(report, indent=1) + "\n")
    aside.replace(path)


def print_section(name, section, data):
    print(f"\n== {name}: {section.title}")
    for table in section.tables(data, machine.kind()):
        print(as_text(table))
    sys.stdout.flush()


def warn_if_busy():
    load = os.getloadavg()[0] / (os.cpu_count() or 1)
    if load > BUSY_LOAD:
        print(
            f"bench: the machine is busy (load {load:.1f} a core): figures will be off",
            file=sys.stderr,
        )


def measure(options):
    context = Context(options, effort_of(options))
    report = report_to_extend(options)
    program = machine.program(options.build.resolve() / "trefoil")
    warn_if_busy()
    try:
        for name in (name for name in SECTIONS if name in options.only):
            start = time.monotonic()
            data = SECTIONS[name].measure(context)
            report["sections"][name] = {
                "date": now(),
                "effort": options.effort,
                "seconds": round(time.monotonic() - start, 1),
                "program": program,
                "data": data,
            }
            print_section(name, SECTIONS[name], data)
            write_report(report, options.output)
    finally:
        context.close()
    print(f"\nwritten to {os.path.relpath(options.output)}")
    for failure in context.failures:
        print(f"bench: failed: {failure}", file=sys.stderr)
    return 1 if context.failures else 0


# -- documents -------------------------------------------------------------------------


def document_texts(reports):
    """name of a marked place -> Markdown, or None where nothing was measured."""
    texts = {
        name: performance_doc.section_text(section, name, reports)
        for name, section in SECTIONS.items()
    }
    summary = SECTIONS["steps"]._replace(tables=section_step.summary_tables)
    texts["summary"] = performance_doc.section_text(summary, "steps", reports)
    texts["machine"] = performance_doc.machine_text(reports)
    return texts


def reports_of(options):
    """Those of --output or of all processors."""
    paths = [options.output] if options.output else sorted(RESULTS.glob("*.json"))
    return [report for report in map(read_report, paths) if report]


def write_documents(options):
    reports = reports_of(options)
    if not reports:
        print(
            f"bench: '{options.output or RESULTS}' holds no report: run make bench first",
            file=sys.stderr,
        )
        return 1
    texts = document_texts(reports)
    for path in options.documents:
        try:
            path.write_text(performance_doc.rewrite(path.read_text(), texts))
        except OSError as e:
            print(f"bench: cannot rewrite '{path}': {e.strerror}", file=sys.stderr)
            return 1
        except KeyError as e:
            print(
                f"bench: '{path}' marks a place for {e}, which is no section;"
                f" the sections are {', '.join(texts)}",
                file=sys.stderr,
            )
            return 1
        print(f"tables of {len(reports)} processors -> {os.path.relpath(path)}")
    return 0


def main():
    options = parse_options()
    if options.markdown:
        return write_documents(options)
    if not options.output:
        is_whole = options.effort == "full" and not options.shapes
        directory = RESULTS if is_whole else options.build
        options.output = directory / machine.report_name(options.threads)
    if not (options.build / "trefoil").exists():
        print(f"bench: there is no '{options.build / 'trefoil'}': `make bench` builds it",
              file=sys.stderr)
        return 1
    try:
        return measure(options)
    except KeyboardInterrupt:  # sections that were complete are in the report
        return 130


if __name__ == "__main__":
    sys.exit(main())

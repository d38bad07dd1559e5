#!/usr/bin/env python3
"""The table of kernels for GPUs in docs/performance.md: registers, shared memory, spills.

  tools/kernel_table.py BUILD           says whether the documents have the table that was
                                        compiled in BUILD; exit code 1 if they do not
  tools/kernel_table.py BUILD --write   puts it there

Reads what ptxas said of every kernel (tools/nvcc.sh), and has the table of kernels say how much
shared memory they are launched with (tests/emulated/kernel_shared.c). Registers depend on the
compiler, so the table names its version, and a table by another version is not compared.
Tables stand between

  <!-- made:gpu_kernels --> ... <!-- /made:gpu_kernels -->"""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGES = ("docs/performance.md", "docs/zh/performance.md")
PLACE = re.compile(r"(<!-- made:gpu_kernels -->\n).*?(\n<!-- /made:gpu_kernels -->)", re.S)
KERNEL = re.compile(r"Compiling entry function '(\w+)' for 'sm_(\d+)'")
SPILL = re.compile(r"(\d+) bytes spill stores, (\d+) bytes spill loads")
USED = re.compile(r"Used (\d+) registers")
TYPES = ("_f32", "_f16", "_bf16")


def read_logs(build):
    """{(kernel, architecture): (registers, spilled bytes)}"""
    facts, kernel, spilled = {}, None, 0
    logs = sorted((build / "src/device/cuda").glob("*.ptxas"))
    for line in (line for log in logs for line in log.read_text().splitlines()):
        if found := KERNEL.search(line):
            kernel = found[1], int(found[2])
        elif found := SPILL.search(line):
            spilled = int(found[1]) + int(found[2])
        elif kernel and (found := USED.search(line)):
            facts[kernel] = int(found[1]), spilled
            kernel = None
    return facts


def shared_bytes(build):
    """{kernel: bytes of shared memory of a block, at most}"""
    said = subprocess.run([build / "tests/kernel_shared"], capture_output=True, text=True,
                          check=True).stdout
    most = {}
    for kernel, n in (line.split() for line in said.splitlines()):
        most[kernel] = max(most.get(kernel, 0), int(n))
    return most


def family(kernel):
    """gpu_norm_fwd_bf16 -> norm_fwd, and which type it is of."""
    for i, suffix in enumerate(TYPES):
        if kernel.endswith(suffix):
            return kernel[len("gpu_"):-len(suffix)], i
    return kernel[len("gpu_"):], None


def version_of(build):
    cache = (build / "CMakeCache.txt").read_text()
    nvcc = re.search(r"^TREFOIL_NVCC:\w+=(.+)$", cache, re.M)[1]
    said = subprocess.run([nvcc, "--version"], capture_output=True, text=True, check=True).stdout
    return re.search(r"V([\d.]+)", said)[1]


def table(build):
    facts, shared = read_logs(build), shared_bytes(build)
    if not facts:
        sys.exit(f"kernel_table: there is nothing of ptxas in '{build}': make cuda")
    architectures = sorted({arch for _, arch in facts})
    names = sorted({family(kernel)[0] for kernel, _ in facts})
    lines = [f"By nvcc {version_of(build)}.", "",
             "| kernel | " + " | ".join(f"sm_{arch}" for arch in architectures) +
             " | shared | spilled |", "|---" * (len(architectures) + 3) + "|"]
    for name in names:
        of = {(family(k)[1], arch): f for (k, arch), f in facts.items() if family(k)[0] == name}
        types = [None] if (None, architectures[-1]) in of else range(len(TYPES))
        cells = [" / ".join(str(of[t, arch][0]) if (t, arch) in of else "-" for t in types)
                 for arch in architectures]
        spilled = max(f[1] for f in of.values())
        most = max(n for kernel, n in [("gpu_" + name, 0), *shared.items()]
                   if family(kernel)[0] == name)
        lines.append(f"| `{name}` | " + " | ".join(cells) + f" | {most} | {spilled} |")
    return "\n".join(lines)


def main():
    if len(sys.argv) < 2 or sys.argv[1].startswith("-") or sys.argv[2:] not in ([], ["--write"]):
        sys.exit(__doc__)
    made, is_old = table(Path(sys.argv[1])), False
    for page in PAGES:
        path = ROOT / page
        text = path.read_text()
        found = PLACE.search(text)
        if not found:
            sys.exit(f"{page}:1: has no place for the table of kernels for GPUs")
        new = PLACE.sub(lambda m: f"{m[1]}\n{made}\n{m[2]}", text)
        if sys.argv[2:]:
            path.write_text(new)
        elif new != text and made.splitlines()[0] in found[0]:
            print(f"{page}:1: its table of kernels for GPUs is another one:"
                  f" tools/kernel_table.py {sys.argv[1]} --write")
            is_old = True
    sys.exit(is_old)


if __name__ == "__main__":
    main()

"""The processor that is measured: its name, its kind, and what runs on it.

Figures hold for one processor. A report is kept in a file that is named after it, and the
documents have a table for every kind of processor, or say that it was not measured."""

import os
import pathlib
import platform
import re
import subprocess

BENCH = pathlib.Path(__file__).resolve().parent
PYTHON = BENCH.parent / "build" / "python-pytorch" / "bin" / "python"  # tools/setup.sh makes it

KINDS = {  # by what it can compute with -> words, in the order of the documents
    "amx": "x86-64 with AVX-512 and AMX",
    "avx512": "x86-64 with AVX-512",
    "avx2": "x86-64 with AVX2",
    "neon": "AArch64",
}
FLAGS = {  # of /proc/cpuinfo, all of them; the first kind that has them
    "amx": {"amx_tile", "amx_bf16", "avx512f", "avx512dq", "avx512bw", "avx512vl"},
    "avx512": {"avx512f", "avx512dq", "avx512bw", "avx512vl", "fma", "f16c"},
    "avx2": {"avx2", "fma", "f16c"},
}
TOLD_FLAGS = ("avx2", "avx512f", "avx512_bf16", "avx512_fp16", "amx_bf16", "amx_fp16")


def value_in(path, key):
    """What follows `key` and a colon in a file of /proc; "" when it is not there."""
    try:
        with open(path) as f:
            for line in f:
                if line.startswith(key):
                    return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return ""


def cpu_flags():
    return set(value_in("/proc/cpuinfo", "flags").split())


def kind():
    """A key of KINDS, or the machine's name where it is none of them."""
    if platform.machine() == "aarch64":
        return "neon"
    flags = cpu_flags()
    return next((k for k, needed in FLAGS.items() if needed <= flags), platform.machine())


def processor():
    """Its own name and, since clouds shorten that, family and model."""
    name = value_in("/proc/cpuinfo", "model name") or platform.processor() or "unknown"
    family = value_in("/proc/cpuinfo", "cpu family")
    model = value_in("/proc/cpuinfo", "model\t")
    return f"{name} (family {family} model {model})" if family and model else name


def pytorch_version():
    """Without importing it, which takes seconds; "" when there is none."""
    for path in PYTHON.parent.parent.glob("lib/python3*/site-packages/torch/version.py"):
        match = re.search(r"^__version__ = '([^']*)'", path.read_text(), re.MULTILINE)
        return match.group(1) if match else "of unknown version"
    return ""


def system_name():
    try:
        name = platform.freedesktop_os_release()["PRETTY_NAME"]
    except (OSError, KeyError):
        name = platform.system()
    return f"{name}, kernel {platform.release().split('-')[0]}"


def describe():
    """What a report says of the machine; another one of these begins a new report."""
    kilobytes = value_in("/proc/meminfo", "MemTotal").split()
    flags = cpu_flags()
    return {
        "processor": processor(),
        "kind": kind(),
        "features": [flag for flag in TOLD_FLAGS if flag in flags],
        "cores": os.cpu_count(),
        "memory_gb": round(int(kilobytes[0]) * 1024 / 1e9) if kilobytes else 0,
        "system": system_name(),
        "pytorch": pytorch_version(),
    }


def report_name(threads):
    """ "amd-epyc-family-25-model-17_avx512_2-threads.json"."""
    words = re.sub(r"[^a-z0-9]+", "-", processor().lower()).strip("-")
    return f"{words}_{kind()}_{threads}-threads.json"


def program(trefoil):
    """What `trefoil --version` says, and the commit of the sources beside it, with a "+"
    when they were changed since; what is measured is told by that."""

    def first_lines(command):
        try:
            done = subprocess.run(
                command, cwd=BENCH, capture_output=True, text=True, check=False
            )
            return done.stdout.splitlines() if done.returncode == 0 else []
        except OSError:
            return []

    lines = first_lines([str(trefoil), "--version"])
    commit = first_lines(["git", "rev-parse", "--short=10", "HEAD"])
    if commit and first_lines(["git", "status", "--porcelain", "--untracked-files=no"]):
        commit[0] += "+"
    kernels = [line.split(":", 1)[1].strip() for line in lines if line.startswith("kernels:")]
    return {
        "version": lines[0] if lines else "",
        "commit": commit[0] if commit else "",
        "kernels": kernels[0] if kernels else "",
    }

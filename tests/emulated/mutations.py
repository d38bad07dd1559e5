#!/usr/bin/env python3
"""Mistakes that the emulated device has to find.

    tests/emulated/mutations.py BUILD [--quick] [--only NAME ...] [--jobs N]

Each mutation takes one thing out of the kernels or of the code around them: a barrier, a
wait, an event, a bound. Its sources are compiled by the commands of BUILD (made by Ninja)
and linked in place of the others, and the shortest test that should find it is run: it
has to fail. Fails when more than one in twenty is not found, or when a test fails without
any mutation. --quick: some of them, always the same, and no test without a mutation.
"""
import argparse
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
GPU = "src/device/gpu/"
BARRIER = "__syncthreads();"
OFFLOAD = "runs:offload"
STAGED = "runs:mp2 pp2 stage2"
SAVES = "runs:stage3 alone"

# name, file, what is taken out (and which of several, counted from 0), what comes in its
# place, the check that finds it; "*": of the quick ones
MUTATIONS = [
    ("attention: keys are waited for*", GPU + "gpu_attention.cu", "copy_async_wait(0);", 0, "",
     "kernels"),
    ("attention: threads meet at keys", GPU + "gpu_attention.cu", BARRIER, 0, "", "kernels"),
    ("attention: copies are a group", GPU + "gpu_attention.cu", "copy_async_commit();", 0, "",
     "kernels"),
    ("attention bwd: values are waited for", GPU + "gpu_attention_bwd.cu",
     "copy_async_wait(0);", 0, "", "kernels"),
    ("attention bwd: threads meet at values", GPU + "gpu_attention_bwd.cu", BARRIER, 0, "",
     "kernels"),
    ("attention bwd: keys are waited for", GPU + "gpu_attention_bwd.cu",
     "copy_async_wait(0);", 1, "", "kernels"),
    ("attention bwd: threads meet at keys", GPU + "gpu_attention_bwd.cu", BARRIER, 1, "",
     "kernels"),
    ("attention bwd: threads meet at queries", GPU + "gpu_attention_bwd.cu", BARRIER, 2, "",
     "kernels"),
    ("attention: rows end", GPU + "gpu_attention_tile.h", "r < n_rows ? a->D - c : 0", 0,
     "a->D - c", "kernels"),
    ("plain attention: columns were read", GPU + "gpu_attention_plain.cu", BARRIER, 0, "",
     "kernels"),
    ("plain attention: columns are there", GPU + "gpu_attention_plain.cu", BARRIER, 1, "",
     "kernels"),
    ("plain attention: rows were read", GPU + "gpu_attention_plain.cu", BARRIER, 2, "",
     "kernels"),
    ("plain attention: rows are there", GPU + "gpu_attention_plain.cu", BARRIER, 3, "",
     "kernels"),
    ("plain attention: p was read", GPU + "gpu_attention_plain.cu", BARRIER, 4, "", "kernels"),
    ("decoding: maxima are there", GPU + "gpu_decode.cu", BARRIER, 0, "", "kernels"),
    ("decoding: lanes meet at p", GPU + "gpu_decode.cu", "__syncwarp();", 0, "", "kernels"),
    ("decoding: p was read", GPU + "gpu_decode.cu", "__syncwarp();", 1, "", "kernels"),
    ("decoding: sums are there*", GPU + "gpu_decode.cu", BARRIER, 1, "", "kernels"),
    ("loss: logits were read*", GPU + "gpu_loss.cu", BARRIER, 0, ";", "kernels"),
    ("squares: lanes are there", GPU + "gpu_optim.cu", BARRIER, 0, "", "kernels"),
    ("squares: elements end", GPU + "gpu_optim.cu", "if (first + i < a.n)", 0, "", "kernels"),
    ("block sum: warps are there", GPU + "gpu_math.h", BARRIER, 0, "", "kernels"),
    ("block max: warps are there", GPU + "gpu_math.h", BARRIER, 1, "", "kernels"),
    ("norm: rows end", GPU + "gpu_norm.cu", "if (n >= a.N)\n        return;", 0, "",
     "kernels"),
    ("sum over ranks: elements end", GPU + "gpu_reduce.cu",
     "store_run(a.x, at, x, RUN, a.n - at", 0, "store_run(a.x, at, x, RUN, RUN", "kernels"),
    ("staged: what is sent was computed", "src/comm/comm_staging.c",
     "device_record(&flight->ready, device_stream(dev, STREAM_COMPUTE));", 0, "", STAGED),
    ("staged: what came is waited for", "src/comm/comm_staging.c",
     "device_wait(device_stream(job->dev, STREAM_COMPUTE), &flight->done);", 0, ";", STAGED),
    ("staged: copies follow what computed", "src/comm/comm_staging.c",
     "device_wait(comm_stream_of(c), &s->req->flight->ready);", 0, "", STAGED),
    ("staged: sums wait for copies*", "src/comm/comm_collective.c",
     "if (!device_happened(&s->copied))\n        return false;", 0, "", STAGED),
    ("staged: messages wait for copies", "src/comm/comm_staging.c",
     "if (req->chunk->copied.stream && !device_happened(&req->chunk->copied))\n"
     "                return false;", 0, "", "runs:pp2"),
    ("staged: a message follows what computed", "src/comm/comm_staging.c",
     "device_wait(comm_stream_of(req->comm), &req->flight->ready);", 0, "", "runs:pp2"),
    ("peers: messages follow what computed", "src/comm/comm_peers.c",
     "device_wait(s, &req->flight->ready);", 0, "", "runs:mp2_peers pp2_peers"),
    ("peers: what came is marked*", "src/comm/comm_peers.c",
     "device_record(&req->flight->done, s);", 0, "", "runs:mp2_peers pp2_peers"),
    ("saving: parameters follow the update*", "src/parallel/zero.c",
     "device_wait(s, &z->updated);", 0, "", SAVES),
    ("norm: squares are waited for", "src/optim/optimizer.c",
     "device_synchronize(compute(o));", 0, "", "runs:alone"),
    ("offload: gradients are waited for", "src/optim/optimizer.c",
     "device_synchronize(copy);", 0, "", OFFLOAD),
    ("downloads are waited for", GPU + "gpu_device.c", "gpu_synchronize(s);", 0, "",
     "runs:alone"),
]


def nth_replaced(text, old, nth, new):
    at = -1
    for _ in range(nth + 1):
        at = text.find(old, at + 1)
        if at < 0:
            return None
    return text[:at] + new + text[at + len(old):]


class Build:
    """What BUILD knows: how each source is compiled and each program linked."""

    def __init__(self, path):
        self.path = os.path.abspath(path)
        with open(os.path.join(self.path, "compile_commands.json"), encoding="utf-8") as f:
            self.entries = json.load(f)

    def link_command(self, target):
        out = subprocess.run(["ninja", "-C", self.path, "-t", "commands", target], check=True,
                             capture_output=True, text=True).stdout
        return out.strip().splitlines()[-1]

    def users_of(self, source, link):
        """Entries whose object is in the program or in the library, and that the source is
        part of: it is a file itself, or a header that they include."""
        def is_used(entry):
            path = os.path.relpath(entry["file"], ROOT)
            if path == source:
                return True
            return source.endswith(".h") and path.endswith(".cu") and self.includes(
                os.path.join(ROOT, path), source[len("src/"):])

        def output_of(entry):
            words = shlex.split(entry["command"])
            return words[words.index("-o") + 1]

        result = []
        for entry in self.entries:
            output = output_of(entry)
            is_linked = output in link
            is_library = "trefoil_lib.dir" in output
            if is_used(entry) and (is_linked or is_library):
                result.append((entry, output, is_linked))
        return result

    def includes(self, path, header, seen=None):
        seen = set() if seen is None else seen
        with open(path, encoding="utf-8") as f:
            for name in re.findall(r'#include "([^"]+)"', f.read()):
                if name == header:
                    return True
                inner = os.path.join(ROOT, "src", name)
                if name not in seen and os.path.exists(inner):
                    seen.add(name)
                    if self.includes(inner, header, seen):
                        return True
        return False

    def link_mutant(self, target, source, text, directory):
        """The program with the source as `text` is; None: it does not compile."""
        link = self.link_command(target)
        mutant = os.path.join(directory, "include", source[len("src/"):])
        os.makedirs(os.path.dirname(mutant), exist_ok=True)
        with open(mutant, "w", encoding="utf-8") as f:
            f.write(text)
        before_library = []
        for i, (entry, output, is_linked) in enumerate(self.users_of(source, link)):
            made = os.path.join(directory, f"{i}.o")
            words = shlex.split(entry["command"])
            words[words.index("-o") + 1] = made
            if source.endswith(".h"):
                words.insert(words.index("-o"), "-I" + os.path.join(directory, "include"))
                first = next(j for j, w in enumerate(words) if w.startswith("-I"))
                words.insert(first, words.pop(words.index("-o") - 1))
            else:
                words[words.index("-c") + 1] = mutant
            words += ["-Wno-error", "-w"]
            if subprocess.run(words, cwd=entry["directory"], check=False,
                              capture_output=True).returncode:
                return None
            if is_linked:
                link = link.replace(output, made)
            else:
                before_library.append(made)
        program = os.path.join(directory, os.path.basename(target))
        link = link.replace("-o " + target, "-o " + program)
        if before_library:
            link = link.replace("libtrefoil_lib.a",
                                " ".join(before_library) + " libtrefoil_lib.a", 1)
        done = subprocess.run(link, shell=True, cwd=self.path, check=False,
                              capture_output=True, text=True)
        if done.returncode:
            sys.exit("cannot link a mutant: " + done.stderr[-2000:])
        return program


TARGETS = {"kernels": "tests/test_gpu_kernels_checked", "runs": "tests/trefoil_checked"}


def passes(build, check, program, seconds):
    """Whether the check passes with that program, and the last it said."""
    kind, _, names = check.partition(":")
    environment = dict(os.environ, OMP_NUM_THREADS="2")
    command = [program]
    if kind == "runs":
        environment.update(CHECKED_PROGRAM=program, CHECKED_RUNS=names)
        command = [os.path.join(ROOT, "tests/cli/test_emulated_checked.sh"),
                   os.path.join(build.path, "trefoil")]
    try:
        done = subprocess.run(command, env=environment, timeout=seconds, check=False,
                              capture_output=True, text=True, errors="replace",
                              start_new_session=True)
    except subprocess.TimeoutExpired:
        return False, f"not over in {seconds} s"
    said = (done.stdout + done.stderr).strip().splitlines()
    told = [line for line in said if "internal error" in line or "FAILED" in line]
    # not as cmocka has it, which is how the suite counts what failed
    return done.returncode == 0, (told or said or [""])[0].replace("[  FAILED  ] ", "")[:150]


def try_mutation(build, mutation, seconds):
    name, source, old, nth, new, check = mutation
    with open(os.path.join(ROOT, source), encoding="utf-8") as f:
        text = nth_replaced(f.read(), old, nth, new)
    if text is None:
        sys.exit(f"{source} has no {old!r} any more ({name}): the table is out of date")
    directory = tempfile.mkdtemp(prefix="trefoil-mutant-")
    try:
        program = build.link_mutant(TARGETS[check.partition(":")[0]], source, text, directory)
        if program is None:
            sys.exit(f"{name}: does not compile")
        is_well, said = passes(build, check, program, seconds)
        return not is_well, said
    finally:
        shutil.rmtree(directory)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--seconds", type=int, default=300, help="that a check may take")
    args = parser.parse_args()
    build = Build(args.build)
    chosen = [m for m in MUTATIONS
              if (not args.quick or "*" in m[0]) and
              (not args.only or any(word in m[0] for word in args.only))]
    for check in sorted({m[5] for m in chosen}):
        program = os.path.join(build.path, TARGETS[check.partition(":")[0]])
        if not os.path.exists(program):
            print(f"no {program}: skipped")
            return 77
        if args.quick or args.only:
            continue
        start = time.time()
        is_well, said = passes(build, check, program, 4 * args.seconds)
        if not is_well:
            print(f"'{check}' fails without a mutation: {said}")
            return 1
        print(f"passes in {time.time() - start:.0f} s: {check}", flush=True)
    missed = []
    for mutation in chosen:
        start = time.time()
        is_found, said = try_mutation(build, mutation, args.seconds)
        name = mutation[0].rstrip("*")
        if not is_found:
            missed.append(name)
        print(f"{'found' if is_found else 'MISSED'} in {time.time() - start:.0f} s: {name}"
              f"{': ' + said if is_found else ''}", flush=True)
    print(f"{len(chosen) - len(missed)} of {len(chosen)} mutations found"
          + "".join(f"; missed: {name}" for name in missed))
    return 1 if 20 * len(missed) > len(chosen) else 0


sys.exit(main())

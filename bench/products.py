"""Bare products by every library there is, and the floor of a training step.

Each library multiplies in a process of its own that answers requests (bench_products.c,
bench_torch_products.py), so that all of them can take turns at every product. The floor of
a step is the sum of

  gemm_seconds       its bare dense products: forward, input gradient and weight gradient
                     of qkv, attention projection, both MLP layers and the head, each by
                     the library that is fastest at it. One layer is timed and counted L
                     times; the head in chunks of at most 1024 tokens;
  attention_seconds  the products of causal attention, 2 forward and 4 backward, each over
                     half of S x S, at the rate of the products above;
  adamw_seconds      one pass over parameters, gradients and both moments, 28 bytes a
                     parameter (so, too, with 16-bit gradients and a 16-bit copy of the
                     parameters), at copy bandwidth.

In 16 bits the products are Trefoil's own called alone."""

import collections
import json
import os
import subprocess
import time

import machine
from harness import (
    AVX2_ENVIRONMENT,
    BENCH,
    NO_AMX,
    PYTHON,
    SKIP_STATUS,
    died_of_sigill,
    last_line,
    progress,
)

PAUSE = 0.02  # seconds after an answer, in which the threads of a library stop spinning
OUT_OF_THE_RACE = 1.25  # times the best: no further round
HEAD_CHUNK_ROWS = 1024
BYTES_A_PARAMETER = 28

Product = collections.namedtuple("Product", "m n k form")
Library = collections.namedtuple("Library", "name command environment")


class Failure(Exception):
    """A library cannot be measured: kind "failed" or "skipped", and why."""

    def __init__(self, kind, why):
        super().__init__(why)
        self.kind = kind


class Server:
    """A process that multiplies on request; begun at the first one."""

    def __init__(self, library):
        self.library = library
        self.words = library.name
        self.process = None
        self.failure = None

    def start(self, environment):
        self.process = subprocess.Popen(
            [str(word) for word in self.library.command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **environment},
        )

    def read(self):
        line = self.process.stdout.readline()
        if line:
            return json.loads(line)
        errors = self.process.stderr.read()
        status = self.process.wait()
        if status == SKIP_STATUS:
            raise Failure("skipped", last_line(errors, "not here"))
        raise Failure("failed", last_line(errors, f"exit code {status}"))

    def ask_once(self, request):
        self.process.stdin.write(request + "\n")
        self.process.stdin.flush()
        return self.read()

    def ask(self, request):
        """The number that answers it. One that dies of AMX is begun again without."""
        if self.failure:
            raise self.failure
        try:
            if not self.process:
                self.start(self.library.environment)
                self.words = self.read()["words"]
            try:
                return self.ask_once(request)
            except (Failure, BrokenPipeError):
                if not died_of_sigill(self.process.wait()):
                    raise
                self.start({**self.library.environment, **NO_AMX})
                self.words = self.read()["words"] + ", without AMX: with it, it dies of SIGILL"
                return self.ask_once(request)
        except Failure as failure:
            self.failure = failure
        except (OSError, ValueError) as e:
            self.failure = Failure("failed", f"{self.library.name}: {e}")
        raise self.failure

    def close(self):
        if self.process and self.process.poll() is None:
            self.process.stdin.close()
            self.process.wait()


def own_library(context, dtype="float32", kernels="auto"):
    name = "Trefoil" if kernels == "auto" else f"Trefoil {kernels}"
    command = [context.program("bench_products"), "--dtype", dtype, "--kernels", kernels]
    return Library(f"{name} {dtype}", [*command, "--threads", context.threads], {})


def torch_library(context, dtype="float32", environment=None):
    name = "MKL" if dtype == "float32" else "oneDNN"
    command = [PYTHON, BENCH / "bench_torch_products.py", "--dtype", dtype]
    suffix = " AVX2" if environment else ""
    return Library(
        f"{name} {dtype}{suffix}",
        [*command, "--threads", context.threads],
        {"THP_MEM_ALLOC_ENABLE": "1", **(environment or {})},
    )


def blas_libraries(context, is_avx2):
    """BLIS and OpenBLAS as they choose, and told what the processor has: both know new
    processors by their names only. Numbers of BLIS 0.9: 0 skx, 3 haswell."""
    told = {"BLIS_ARCH_TYPE": "3", "OPENBLAS_CORETYPE": "Haswell"}
    if not is_avx2 and machine.kind() in ("avx512", "amx"):
        told = {"BLIS_ARCH_TYPE": "0", "OPENBLAS_CORETYPE": "SkylakeX"}
    for name, key in (("blis", "BLIS_ARCH_TYPE"), ("openblas", "OPENBLAS_CORETYPE")):
        command = [context.program("bench_products"), "--library", name]
        command += ["--threads", context.threads]
        if not is_avx2:
            yield Library(name, command, {})
        yield Library(f"{name} {told[key]}", command, {key: told[key]})


def float_libraries(context, is_avx2=False):
    """All that compute products of float32, by what AVX2 has where that is wanted."""
    libraries = [own_library(context, kernels="avx2" if is_avx2 else "auto")]
    if not context.options.no_libraries:
        libraries += blas_libraries(context, is_avx2)
    if not context.options.no_pytorch:
        libraries.append(torch_library(context, "float32", AVX2_ENVIRONMENT if is_avx2 else None))
    return libraries


class Race:
    """Products, and the best time of each library for each."""

    def __init__(self, context, subject, products, libraries):
        self.context = context
        self.subject = subject
        self.products = products
        self.libraries = libraries
        self.best = {library.name: {} for library in libraries}  # name -> product -> seconds
        self.rounds = 0

    def is_in(self, library, product):
        """After the first round those that are far behind are left out."""
        mine = self.best[library.name].get(product)
        others = [times[product] for times in self.best.values() if product in times]
        return mine is None or mine <= OUT_OF_THE_RACE * min(others)

    def run(self, n_rounds=1):
        for _ in range(n_rounds):
            self.rounds += 1
            for product in self.products:
                for library in [lib for lib in self.libraries if self.is_in(lib, product)]:
                    self.turn(library, product)
        return self

    def turn(self, library, product):
        server = self.context.server(library, Server)
        text = " ".join(str(part) for part in product)
        progress(f"{self.subject}, {library.name}, {text}, round {self.rounds}")
        try:
            seconds = server.ask(f"product {text}")
        except Failure:
            return
        time.sleep(PAUSE)
        times = self.best[library.name]
        times[product] = min(seconds, times.get(product, seconds))

    def results(self):
        """name -> {"words", "seconds": [of each product]}, {"failed"} or {"skipped"}."""
        results = {}
        for library in self.libraries:
            server = self.context.server(library, Server)
            if server.failure:
                results[library.name] = {server.failure.kind: str(server.failure)}
            else:
                times = self.best[library.name]
                seconds = [times.get(product) for product in self.products]
                results[library.name] = {"words": server.words, "seconds": seconds}
        return results


def step_products(shape):
    """[(product, how often it is in a step)]"""
    N, H, L = shape["batch"] * shape["seq"], shape["hidden"], shape["layers"]
    chunk = min(N, HEAD_CHUNK_ROWS)
    linears = [(N, H, 3 * H, L), (N, H, H, L), (N, H, 4 * H, L), (N, 4 * H, H, L)]
    linears.append((chunk, H, shape["vocab"], N / chunk))
    counted = collections.Counter()
    for n, i, o, count in linears:
        counted[Product(n, o, i, "forward")] += count
        counted[Product(n, i, o, "input")] += count
        counted[Product(o, i, n, "weight")] += count
    return list(counted.items())


def parameters(shape):
    """As many positions as the sequence has."""
    H = shape["hidden"]
    return shape["layers"] * (12 * H * H + 13 * H) + 2 * H + (shape["vocab"] + shape["seq"]) * H


class Floor:
    """The least time of a step; measured in as many rounds as it is asked."""

    def __init__(self, context, shape, dtype="float32", is_avx2=False):
        self.context = context
        self.shape = shape
        self.counted = step_products(shape)
        self.own = own_library(context, dtype, "avx2" if is_avx2 else "auto")
        libraries = [self.own]
        if dtype == "float32":
            libraries = float_libraries(context, is_avx2)
        products = [product for product, _ in self.counted]
        self.race = Race(context, f"{shape['name']}, floor", products, libraries)
        self.copy = 0.0

    def measure(self):
        """One more round; the floor as far as it is known."""
        self.race.run()
        try:
            server = self.context.server(self.own, Server)
            self.copy = max(self.copy, server.ask(f"copy {parameters(self.shape)}"))
        except Failure as failure:
            return {failure.kind: str(failure)}
        return self.result()

    def result(self):
        shape, best = self.shape, self.race.best
        gemm = sum(
            count * min(times[p] for times in best.values() if p in times)
            for p, count in self.counted
        )
        flops = sum(2.0 * p.m * p.n * p.k * count for p, count in self.counted)
        rate = flops / gemm
        size = shape["hidden"] * shape["batch"] * shape["layers"]
        attention = 6.0 * shape["seq"] ** 2 * size / rate
        adamw = BYTES_A_PARAMETER * parameters(shape) / self.copy
        alone = {
            name: sum(count * times[p] for p, count in self.counted)
            for name, times in best.items()
            if len(times) == len(self.counted)
        }
        return {
            "seconds": gemm + attention + adamw,
            "gemm_seconds": gemm,
            "attention_seconds": attention,
            "adamw_seconds": adamw,
            "gemm_gflops": rate * 1e-9,
            "copy_gb_per_s": self.copy * 1e-9,
            "parameters": parameters(shape),
            "libraries": alone,
        }

"""Sections about the heaviest kernels alone: "products" and "attention"."""

import machine
import shapes
from harness import is_measured
from products import Product, Race, float_libraries, own_library, torch_library
from tables import Table, bounded, number, ratio

OWN_BOUND = 0.97  # of the best library's rate, at least
# At least so much of the rate of large products, by what computes: without and with dropout.
ATTENTION_BOUNDS = {"float32": (0.80, 0.65), "bfloat16 on AMX": (0.45, 0.35)}
DROPOUTS = (0.0, 0.1)


# -- products --------------------------------------------------------------------------


def measure_products(context):
    products = [Product(*size, "forward") for size in context.effort.products]
    libraries = float_libraries(context)
    narrow = [own_library(context, "bfloat16")]
    if not context.options.no_pytorch:
        narrow.append(torch_library(context, "bfloat16"))
    races = {
        "float32": Race(context, "products", products, libraries),
        "bfloat16": Race(context, "products", products, narrow),
    }
    if machine.kind() in ("avx512", "amx"):
        races["float32, AVX2"] = Race(
            context, "products", products, float_libraries(context, is_avx2=True)
        )
    for _ in range(context.effort.product_rounds):
        for race in races.values():
            race.run()
    results = {name: race.results() for name, race in races.items()}
    for name, result in results.items():
        context.note_failures(f"products, {name}", result)
    return {"sizes": [list(p[:3]) for p in products], "results": results}


def gflops(size, seconds):
    m, n, k = size
    return 2e-9 * m * n * k / seconds if seconds else None


def product_tables(data, kind=None):
    for title, results in data["results"].items():
        measured = {name: r for name, r in results.items() if is_measured(r)}
        own = next((name for name in measured if name.startswith("Trefoil")), None)
        others = [name for name in measured if name != own]
        heads = [measured[name]["words"] for name in measured]
        last = ("Trefoil / best of the others",) if own and others else ()
        table = Table(f"{title}, GF/s, C = A B^T", ("m n k", *heads, *last))
        for i, size in enumerate(data["sizes"]):
            rates = {name: gflops(size, r["seconds"][i]) for name, r in measured.items()}
            cells = [number(rate, 0) for rate in rates.values()]
            if last:
                best = max((rates[name] or 0) for name in others)
                goal = OWN_BOUND if title.startswith("float32") else None
                cells.append(bounded(ratio(rates[own], best), at_least=goal))
            table.add(" ".join(map(str, size)), *cells)
        table.add_failures(results)
        yield table


# -- attention -------------------------------------------------------------------------


def measure_attention(context):
    """{"heads", "head", "results": {"float32, S 1024, dropout 0.1": result}}"""
    shape = shapes.parse(context.effort.attention_shape)
    head = shape["hidden"] // shape["heads"]
    contestants = {}
    for dtype in ("float32", "bfloat16"):
        for seq in context.effort.attention_seqs:
            for dropout in DROPOUTS:
                command = [context.program("bench_attention"), "--seq", seq]
                command += ["--heads", shape["heads"], "--head", head]
                command += ["--dropout", dropout, "--dtype", dtype]
                command += ["--rounds", context.effort.attention_rounds]
                command += ["--threads", context.threads]
                contestants[f"{dtype}, S {seq}, dropout {dropout:g}"] = (
                    lambda c=command: context.timed(c)
                )
    results = context.rounds("attention", contestants, context.effort.rounds)
    return {"heads": shape["heads"], "head": head, "results": results}


def attention_tables(data, kind=None):
    table = Table(
        f"{data['heads']} heads of {data['head']}",
        ("", "forward ms", "backward ms", "GF/s", "large product GF/s", "share of its rate")
        + ("forward", "backward"),
    )
    for name, result in data["results"].items():
        if not is_measured(result):
            continue
        unit = "bfloat16 on AMX" if result["kernels"] == "amx" else name.split(",")[0]
        bounds = ATTENTION_BOUNDS.get(unit, (None, None))
        table.add(
            name,
            number(result["forward_seconds"] * 1e3, 1),
            number(result["backward_seconds"] * 1e3, 1),
            number(result["gflops"], 0),
            number(result["product_gflops"], 0),
            bounded(result["share"], at_least=bounds[not name.endswith("dropout 0")]),
            number(result["forward_share"]),
            number(result["backward_share"]),
        )
    table.add_failures(data["results"])
    yield table

"""Section "scaling": the step against the floor over model size, sequence length and
micro-batch, and the tokens a second of more and more ranks of one thread each."""

import shapes
from harness import is_measured, seconds
from products import Floor
from tables import Table, number, ratio
from training import TrainingGround


def measure_shape(context, ground, name):
    """Of Trefoil and the floor; what the steps have measured is not measured again."""
    shape = shapes.parse(name)
    mine, floor = context.measured_shapes.get(name), context.floors.get(name)
    contestants = {
        "trefoil": lambda: mine or ground.train(shape, shape["batch"]),
        "floor": lambda f=Floor(context, shape): floor or f.measure(),
    }
    measured = context.rounds(name, contestants, 1)
    context.measured_shapes[name] = measured["trefoil"]
    context.floors[name] = measured["floor"]
    return measured


def rank_counts(n_cores):
    """1, 2, 4, ... and all: more ranks than cores would only measure the scheduler."""
    return sorted({1 << i for i in range(n_cores.bit_length())} | {n_cores})


def measure_ranks(context):
    shape = shapes.parse(context.effort.ranks_shape)
    with TrainingGround(context) as ground:
        contestants = {
            str(n): lambda n=n: ground.train(
                shape,
                n * shape["batch"],
                [f"Distributed.dp_degree={n}", "num_threads=1"],
            )
            for n in rank_counts(context.threads)
        }
        results = context.rounds("ranks", contestants, context.effort.rounds)
    return {"shape": shape, "results": results}


def measure_scaling(context):
    with TrainingGround(context) as ground:
        sizes = {
            axis: [
                {"shape": shapes.parse(name), "results": measure_shape(context, ground, name)}
                for name in names
            ]
            for axis, names in context.effort.scaling.items()
        }
    return {"sizes": sizes, "ranks": measure_ranks(context)}


def size_table(axis, entries):
    columns = ("", "step s", "tokens/s", "GF/s", "floor s", "time / floor", "MB")
    table = Table(f"growing {axis}", columns)
    for entry in entries:
        shape, results = entry["shape"], entry["results"]
        mine, floor = results["trefoil"], results["floor"]
        table.add_failures({f"{shape['name']}, {who}": r for who, r in results.items()})
        if not is_measured(mine):
            continue
        # what the floor counts: dense products and attention's, at the step's own time
        floor_flops = floor.get("gemm_gflops", 0) * (
            floor.get("gemm_seconds", 0) + floor.get("attention_seconds", 0)
        )
        table.add(
            shape["name"],
            number(mine["seconds"], 3),
            number(shapes.tokens(shape) / mine["seconds"], 0),
            number(ratio(floor_flops, mine["seconds"]), 1),
            number(floor.get("seconds"), 3),
            number(ratio(mine["seconds"], floor.get("seconds"))),
            number(mine.get("peak_rss_mb"), 0),
        )
    return table


def ranks_table(data):
    shape, results = data["shape"], data["results"]
    table = Table(
        f"growing number of ranks, one thread and {shape['name']} each",
        ("ranks", "step s", "tokens/s", "speed / one rank", "efficiency"),
    )
    for name, result in results.items():
        if not is_measured(result):
            continue
        speedup = ratio(result["tokens_per_s"], results["1"].get("tokens_per_s"))
        table.add(
            name,
            number(seconds(results, name), 3),
            number(result["tokens_per_s"], 0),
            number(speedup),
            number(speedup and speedup / int(name)),
        )
    table.add_failures(results)
    return table


def scaling_tables(data, kind=None):
    for axis, entries in data["sizes"].items():
        yield size_table(axis, entries)
    yield ranks_table(data["ranks"])

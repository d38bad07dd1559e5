"""Sections about several processes: "parallel" and "switches".

Layouts of two processes with half of the threads each are compared with one process of
all threads on the same samples, and data parallelism with PyTorch's over gloo. A pipeline
is also compared with its ideal: the time of its busiest stage for all micro-batches plus
one micro-batch of the other stage, from the trace of the run."""

import shapes
from harness import is_measured, seconds
from tables import Table, bounded, number, ratio
from training import TrainingGround

N_MICRO = 8  # micro-batches of a pipeline
SPEED_BOUND = 0.96  # dp2, mp2: at least, of one process
IDEAL_BOUND = 0.96  # pipelines: at least, of their ideal
DDP_BOUND = 1.15  # dp2: at least, of PyTorch's tokens a second
STAGE_BOUNDS = {"sharding2, stage 2": 1.05, "sharding2, stage 3": 1.25}  # of dp2's step

SHARDS = "sharding"
SHARD = "Distributed.sharding.sharding_degree=2"
STAGE = "Distributed.sharding.sharding_stage="
DP = "Distributed.dp_degree=2"
PP = "Distributed.pp_degree=2"
SIDE_BY_SIDE = {  # name -> settings; two samples a step
    "one process": [],
    "dp2": [DP],
    "sharding2, stage 1": [SHARD, STAGE + "1"],
    "sharding2, stage 2": [SHARD, STAGE + "2"],
    "sharding2, stage 3": [SHARD, STAGE + "3"],
    "mp2": ["Distributed.mp_degree=2"],
}
PIPELINES = {  # N_MICRO samples a step
    "one process": [],
    "pp2": [PP],
    "pp2, pp_balance": [PP, "Distributed.pp_balance=True"],
}
SWITCHES = {  # name -> (settings, what it is compared with)
    "one process": ([], None),
    "one process, fused_linear": (["fused_linear=True"], "one process"),
    "dp2": ([DP], None),
    "dp2, tensor_fusion": ([DP, "tensor_fusion=True"], "dp2"),
}


# -- parallel --------------------------------------------------------------------------


def pipeline_ideal(spans, n_micro):
    """Seconds: all micro-batches of the busiest stage and one of each other, from the
    compute spans of the last step."""
    stages = {}
    for span in spans:
        if span["name"] in ("forward", "backward"):
            stages.setdefault(span["pid"], []).append(span["dur"] * 1e-6)
    times = [sum(durations[-2 * n_micro :]) for durations in stages.values()]
    busiest = max(times)
    return busiest + (sum(times) - busiest) / n_micro


def run_pipeline(ground, shape, settings):
    samples = N_MICRO * shape["batch"]
    result = ground.train(shape, samples, settings, has_trace=bool(settings))
    if "trace" in result:
        ideal = pipeline_ideal(result.pop("trace"), N_MICRO)
        result["share_of_ideal"] = ideal / result["seconds"]
    return result


def measure_parallel(context):
    effort = context.effort
    side, pipe = shapes.parse(effort.layout_shape), shapes.parse(effort.pipeline_shape)
    with TrainingGround(context) as ground:
        contestants = {
            name: lambda s=settings: ground.train(side, 2 * side["batch"], s)
            for name, settings in SIDE_BY_SIDE.items()
        }
        if not context.options.no_pytorch:
            contestants["PyTorch DDP, 2 processes"] = lambda: context.pytorch(
                "bench_torch_ddp.py", side, effort.measured_steps
            )
        side_results = context.rounds("parallel", contestants, effort.rounds)
        contestants = {
            name: lambda s=settings: run_pipeline(ground, pipe, s)
            for name, settings in PIPELINES.items()
        }
        pipe_results = context.rounds("pipelines", contestants, effort.rounds)
    return {
        "side_by_side": {"shape": side, "results": side_results},
        "pipelines": {"shape": pipe, "results": pipe_results},
    }


def side_table(data):
    results = data["results"]
    table = Table(
        f"two samples a step, micro-batches of {data['shape']['name']}",
        ("", "step s", "tokens/s", "speed / one process", "time / dp2", "dp2's speed / its"),
    )
    for name, result in results.items():
        if not is_measured(result):
            continue
        speed = ratio(seconds(results, "one process"), result["seconds"])
        to_dp2 = ratio(result["seconds"], seconds(results, "dp2"))
        table.add(
            name,
            number(result["seconds"], 3),
            number(result["tokens_per_s"], 0),
            bounded(speed, at_least=SPEED_BOUND if name in ("dp2", "mp2") else None),
            bounded(to_dp2, at_most=STAGE_BOUNDS.get(name)) if SHARDS in name else "-",
            bounded(to_dp2, at_least=DDP_BOUND) if name.startswith("PyTorch") else "-",
        )
    table.add_failures(results)
    return table


def pipeline_table(data):
    results = data["results"]
    table = Table(
        f"{N_MICRO} micro-batches of {data['shape']['name']}",
        ("", "step s", "tokens/s", "speed / one process", "share of its ideal"),
        notes=[f"Equal stages would reach {N_MICRO / (N_MICRO + 1):.2f} of one process."],
    )
    for name, result in results.items():
        if not is_measured(result):
            continue
        table.add(
            name,
            number(result["seconds"], 3),
            number(result["tokens_per_s"], 0),
            number(ratio(seconds(results, "one process"), result["seconds"])),
            bounded(result.get("share_of_ideal"), at_least=IDEAL_BOUND),
        )
    table.add_failures(results)
    return table


def parallel_tables(data):
    yield side_table(data["side_by_side"])
    yield pipeline_table(data["pipelines"])


# -- switches --------------------------------------------------------------------------


def measure_switches(context):
    results = []
    with TrainingGround(context) as ground:
        for name in context.effort.switches:
            shape = shapes.parse(name)
            contestants = {
                switch: lambda s=shape, o=settings: ground.train(s, 2 * s["batch"], o)
                for switch, (settings, _) in SWITCHES.items()
            }
            measured = context.rounds(name, contestants, context.effort.rounds)
            results.append({"shape": shape, "results": measured})
    return results


def switch_tables(data):
    for entry in data:
        results = entry["results"]
        table = Table(
            f"two micro-batches of {entry['shape']['name']}",
            ("", "step s", "time / without the switch"),
        )
        for name, result in results.items():
            if is_measured(result):
                base = SWITCHES[name][1]
                without = ratio(result["seconds"], base and seconds(results, base))
                table.add(name, number(result["seconds"], 3), number(without))
        table.add_failures(results)
        yield table

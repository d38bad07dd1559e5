#!/usr/bin/env python3
"""TensorBoard's own reader and Prometheus' own parser on what a run writes.

A job of two ranks is killed (SIGKILL to one rank, so that the launcher ends the others) and
resumed from its checkpoint, after the end of its event file was torn. Then every scalar that
TensorBoard reads is that of metrics.jsonl as a float32, no more and no fewer; the sampled
texts, the histogram and the hyper-parameters are there; and the file for node_exporter parses.

    check_tensorboard.py TREFOIL
"""
import glob
import json
import os
import signal
import subprocess
import sys
import tempfile
import time

import numpy
from prometheus_client.parser import text_string_to_metric_families
from tensorboard.backend.event_processing import event_accumulator
from tensorboard.plugins.hparams import plugin_data_pb2
from tensorboard.util import tensor_util

PROMPT = "In the beginning"
N_LAYERS = 2
CONFIG = """
max_steps: 30
logging_freq: 1
eval_freq: 10
eval_iters: 1
eval_prompts: ["{prompt}"]
batch_size: {{global_batch_size: 4, micro_batch_size: 1}}
dataset: {{input_dir: {work}/data, split: '90,10,0', max_seq_len: 32}}
save_load: {{save_steps: 10, output_dir: {work}/out}}
prometheus_file: {work}/run.prom
Model: {{vocab_size: 257, hidden_size: 32, num_layers: {layers}, num_attention_heads: 2,
  max_position_embeddings: 32}}
Optimizer: {{lr: {{max_lr: 1.0e-3, min_lr: 1.0e-4, decay_steps: 30}}}}
Distributed: {{dp_degree: 2}}
"""
TAGS = {
    "loss": "train/loss", "grad_norm": "train/grad_norm", "lr": "train/lr",
    "loss_scale": "train/loss_scale", "tokens": "train/tokens",
    "ips_total": "speed/ips_total", "ips": "speed/ips", "mfu": "speed/mfu",
    "batch_cost": "time/batch_cost", "reader_cost": "time/reader_cost",
    "share_compute": "share/compute", "share_waiting": "share/waiting",
    "share_reader": "share/reader", "share_optimizer": "share/optimizer",
    "peak_memory_bytes": "memory/peak_memory_bytes",
    "eval_loss": "eval/loss", "eval_cost": "eval/cost",
}


def prepare(trefoil, work):
    text = os.path.join(work, "text.txt")
    with open(text, "w", encoding="utf-8") as out:
        for i in range(400):
            out.write(f"In the beginning was line {i}, and line {i} was with the text.\n\n")
    os.mkdir(os.path.join(work, "data"))
    subprocess.run([trefoil, "prepare", "--input", text, "--output",
                    os.path.join(work, "data", "text")], check=True, capture_output=True)
    config = os.path.join(work, "run.yaml")
    with open(config, "w", encoding="utf-8") as out:
        out.write(CONFIG.format(work=work, prompt=PROMPT, layers=N_LAYERS))
    return config


def lines_of(work):
    path = os.path.join(work, "out", "metrics.jsonl")
    if not os.path.exists(path):
        return []
    with open(path, encoding="utf-8") as lines:
        return [json.loads(line) for line in lines if line.endswith("\n")]


def rank_processes(job):
    """Descendants of the launcher that are ranks."""
    found, waiting = [], [job]
    while waiting:
        pid = waiting.pop()
        try:
            with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as children:
                waiting += [int(word) for word in children.read().split()]
            with open(f"/proc/{pid}/environ", "rb") as environment:
                is_rank = b"OMPI_COMM_WORLD_RANK=" in environment.read()
            with open(f"/proc/{pid}/comm", encoding="ascii") as name:
                if is_rank and name.read().strip() == "trefoil":
                    found.append(pid)
        except OSError:
            pass
    return found


def run_and_kill(trefoil, config, work):
    """Train until some steps behind the first checkpoint, then kill a rank."""
    with open(os.path.join(work, "first.log"), "w", encoding="utf-8") as log:
        job = subprocess.Popen([trefoil, "pretrain", "-c", config, "-o", "max_steps=100000"],
                               stderr=log, cwd=work)
        while not any(line.get("event") == "save" for line in lines_of(work)[:-5]):
            assert job.poll() is None, "the run ended before it was killed"
            time.sleep(0.02)
        os.kill(rank_processes(job.pid)[-1], signal.SIGKILL)
        assert job.wait() == 3, "a job whose rank was killed ends with 3"
    assert lines_of(work)[-1]["event"] == "failure"
    [events] = glob.glob(os.path.join(work, "out", "tensorboard", "*tfevents*"))
    with open(events, "rb+") as file:
        file.truncate(os.path.getsize(events) - 7)
    return events


def check_scalars(reader, lines):
    n = 0
    read = {}
    for tag in reader.Tags()["scalars"]:
        read[tag] = {e.step: e.value for e in reader.Scalars(tag)}
        assert len(read[tag]) == len(reader.Scalars(tag)), f"{tag}: a step came twice"
    for key, tag in TAGS.items():
        expected = {line["step"]: numpy.float32(line[key]) for line in lines
                    if "event" not in line and line.get(key) is not None}
        assert expected, f"metrics.jsonl has no {key}"
        assert read.pop(tag, {}) == expected, f"{tag} is not {key} of metrics.jsonl"
        n += len(expected)
    assert not read, f"tags that metrics.jsonl lacks: {sorted(read)}"
    return n


def check_tensors(reader, lines):
    samples = [line for line in lines if line.get("event") == "sample"]
    read = {e.step: tensor_util.make_ndarray(e.tensor_proto)[0].decode()
            for e in reader.Tensors("samples/1")}
    assert samples and sorted(read) == [line["step"] for line in samples], read
    for line in samples:
        lines_shown = [text[4:] for text in read[line["step"]].split("\n") if text[:4] == "    "]
        assert "\n".join(lines_shown) == PROMPT + "\n" + line["text"].rstrip("\n"), line
    layers = {line["step"]: line["grad_norms"] for line in lines
              if line.get("event") == "layers"}
    norms = {line["step"]: line["grad_norm"] for line in lines if "loss" in line}
    histograms = {e.step: tensor_util.make_ndarray(e.tensor_proto)
                  for e in reader.Tensors("gradients/norms_of_layers")}
    assert layers and sorted(histograms) == sorted(layers), "histograms of other steps"
    for step, values in layers.items():
        assert len(values) == N_LAYERS + 2
        whole = sum(x * x for x in values) ** 0.5
        assert abs(whole - norms[step]) <= 1e-6 * whole, "layers do not make up the norm"
        rows = histograms[step]
        assert rows[:, 2].sum() == len(values) and rows[0, 0] <= min(values) * (1 + 1e-8)
        assert rows[-1, 1] >= max(values) * (1 - 1e-8)
    return len(samples), len(layers)


def check_hparams(reader):
    def content(tag):
        data = reader.SummaryMetadata(tag).plugin_data
        assert data.plugin_name == "hparams"
        return plugin_data_pb2.HParamsPluginData.FromString(data.content)
    start = content("_hparams_/session_start_info").session_start_info.hparams
    assert start["Optimizer.lr.max_lr"].number_value == 1e-3, start
    assert start["Model.num_layers"].number_value == N_LAYERS
    assert start["Optimizer.name"].string_value == "AdamW"
    assert start["tensorboard"].bool_value is True
    assert content("_hparams_/session_end_info").session_end_info.status == 1
    return len(start)


def check_prometheus(work, lines):
    with open(os.path.join(work, "run.prom"), encoding="utf-8") as file:
        text = file.read()
    assert text.endswith("\n")
    families = {f.name: f for f in text_string_to_metric_families(text)}
    value = {name: f.samples[0].value for name, f in families.items()}
    last = [line for line in lines if "loss" in line][-1]
    for name, key in (("trefoil_loss", "loss"), ("trefoil_step", "step"),
                      ("trefoil_tokens", "tokens"), ("trefoil_learning_rate", "lr"),
                      ("trefoil_mfu_ratio", "mfu")):
        assert value[name] == last[key], (name, value[name], last[key])
    assert value["trefoil_running"] == 0 and value["trefoil_info"] == 1
    assert families["trefoil_tokens"].type == "counter"
    assert families["trefoil_loss"].samples[0].labels == {"run": os.path.join(work, "out")}
    for name in ("trefoil_step_seconds", "trefoil_wait_seconds", "trefoil_resident_bytes"):
        assert [s.labels["rank"] for s in families[name].samples] == ["0", "1"], name
    assert not glob.glob(os.path.join(work, "run.prom.*"))
    return len(families)


def main():
    trefoil = os.path.abspath(sys.argv[1])
    with tempfile.TemporaryDirectory() as work:
        work = os.path.realpath(work)
        config = prepare(trefoil, work)
        torn = run_and_kill(trefoil, config, work)
        n_torn = os.path.getsize(torn)
        saved = max(line["step"] for line in lines_of(work) if line.get("event") == "save")
        done = subprocess.run([trefoil, "pretrain", "-c", config, "-o",
                               f"save_load.ckpt_dir={work}/out", "-o",
                               f"max_steps={saved + 20}"], cwd=work,
                              capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert os.path.getsize(torn) < n_torn, "the torn end is still there"
        assert len(glob.glob(os.path.join(work, "out", "tensorboard", "*"))) == 2
        lines = lines_of(work)
        assert lines[-1]["event"] == "end" and lines[-1]["step"] == saved + 20
        reader = event_accumulator.EventAccumulator(
            os.path.join(work, "out", "tensorboard"), size_guidance={"scalars": 0, "tensors": 0})
        reader.Reload()
        n = check_scalars(reader, lines)
        n_samples, n_histograms = check_tensors(reader, lines)
        n_hparams = check_hparams(reader)
        n_families = check_prometheus(work, lines)
    print(f"TensorBoard reads {n} scalars, {n_samples} texts, {n_histograms} histograms and "
          f"{n_hparams} hyper-parameters, and Prometheus {n_families} families, as written")


if __name__ == "__main__":
    main()

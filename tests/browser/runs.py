"""The runs that the page is tried on: tiny models on a corpus of a dozen words."""

import json
import os
import pathlib
import random
import signal
import subprocess

WORDS = "leaf stem root soil rain wind seed bloom thorn clover field stone".split()

CONFIG = """
PreTraining:
  device: cpu
  seed: 7
  num_threads: 1
  logging_freq: 5
  eval_freq: 50
  eval_iters: 2
  max_steps: 100
  batch_size:
    global_batch_size: 8
    micro_batch_size: 4
  dataset:
    input_dir: data
    split: '90,8,2'
    max_seq_len: 64
  save_load:
    save_steps: 100
    keep_last: 1
    output_dir: out
  mix_precision:
    use_pure_fp16: False
  Model:
    vocab_size: 257
    hidden_size: 128
    num_layers: 4
    num_attention_heads: 4
    hidden_dropout_prob: 0.0
    attention_probs_dropout_prob: 0.0
    max_position_embeddings: 64
  Optimizer:
    lr:
      decay_steps: 1000
      warmup_rate: 0.1
      max_lr: 1.0e-3
      min_lr: 1.0e-4
"""

# As files can be: a directory and texts that are markup, a line that is none, one cut off.
HOSTILE_NAME = "<img src=x onerror=alert(1)>"
MARKUP = "</script><script>alert(2)</script><b>bold</b>"


class Runs:
    def __init__(self, trefoil, work):
        self.trefoil = pathlib.Path(trefoil).resolve()
        self.work = work
        self.children = []
        numbers = random.Random(7)
        lines = (" ".join(numbers.choices(WORDS, k=8)) for _ in range(2000))
        (work / "words.txt").write_text("\n\n".join(lines) + "\n", encoding="utf-8")
        (work / "data").mkdir()
        (work / "run.yaml").write_text(CONFIG, encoding="utf-8")
        self.call("prepare", "--input", "words.txt", "--output", "data/words")

    def start(self, *arguments, **options):
        child = subprocess.Popen(
            [self.trefoil, *arguments],
            cwd=self.work,
            stderr=open(self.work / "stderr.log", "ab"),
            **options,
        )
        self.children.append(child)
        return child

    def call(self, *arguments):
        if self.start(*arguments, stdout=subprocess.DEVNULL).wait() != 0:
            log = (self.work / "stderr.log").read_text(encoding="utf-8")
            raise SystemExit(f"trefoil {' '.join(arguments)}: {log[-800:]}")

    def arguments(self, name, settings):
        settings = {"save_load.output_dir": f"runs/{name}", **settings}
        pairs = [word for key, value in settings.items() for word in ("-o", f"{key}={value}")]
        return ["pretrain", "-c", "run.yaml", *pairs]

    def train(self, name, **settings):
        self.call(*self.arguments(name, settings))

    def train_on(self, name):
        """A run of two processes that goes on until it is killed, with fewer events than the
        page lists, and leaves the processors to the browser when that needs them."""
        settings = {"max_steps": 1000000, "Distributed.dp_degree": 2}
        settings |= {"eval_freq": 200, "save_load.save_steps": 1000}
        return self.start(*self.arguments(name, settings), preexec_fn=lambda: os.nice(10))

    def make_hostile(self):
        run = self.work / "runs" / HOSTILE_NAME
        run.mkdir(parents=True)
        lines = [
            {"step": 0, "event": "start", "host": MARKUP, "layout": MARKUP, "time": 1.7e9},
            {"step": 1, "loss": 3.5, "lr": 1e-3, "time": 1.7e9 + 1},
            {"step": 2, "loss": None, "lr": 1e-3, "time": 1.7e9 + 2},
            {"step": 2, "event": "sample", "prompt": MARKUP, "text": MARKUP, "time": 1.7e9 + 2},
            {"step": 3, "event": "failure", "rank": 0, "error": MARKUP, "time": 1.7e9 + 3},
        ]
        text = "\n".join(json.dumps(line) for line in lines)
        (run / "metrics.jsonl").write_text(text + '\nno JSON\n{"step": 4, "lo', encoding="utf-8")

    def open_board(self):
        """A board of all runs, at a port that is free; gives its address and token."""
        child = self.start("board", "--port", "0", "--token_file", "board.token", "runs",
                           stdout=subprocess.PIPE, text=True)
        address, token = child.stdout.readline().strip().split("?token=")
        return address, token

    def kill(self, child):
        """As the kernel does when memory runs out: the process and all below it, at once."""
        for pid in descendants(child.pid):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        child.wait()

    def close(self):
        for child in self.children:
            if child.poll() is None:
                self.kill(child)


def descendants(top):
    """The process and every process below it; stopped first, so that none is born unseen."""
    found = [top]
    for pid in found:
        try:
            os.kill(pid, signal.SIGSTOP)
            for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
                found.extend(map(int, (task / "children").read_text(encoding="ascii").split()))
        except (OSError, ProcessLookupError):
            pass
    return found

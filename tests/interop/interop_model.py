"""A small GPT trained by Trefoil on words, for the checks that take models elsewhere."""

import json
import random
import subprocess
import sys

WORDS = "leaf stem root soil rain wind seed bloom thorn clover field stone river cloud".split()
POSITIONS = 96

CONFIG = """
PreTraining:
  device: cpu
  seed: 11
  num_threads: 1
  max_steps: {steps}
  logging_freq: 50
  eval_freq: 0
  batch_size: {{global_batch_size: 8, local_batch_size: 8, micro_batch_size: 8}}
  dataset: {{input_dir: {data}, split: '1,0,0', max_seq_len: 64}}
  save_load: {{save_steps: 0, output_dir: {output}}}
  mix_precision: {{use_pure_fp16: False}}
  Model:
    vocab_size: {vocab_size}
    hidden_size: 64
    num_layers: 2
    num_attention_heads: 4
    ffn_hidden_size: 192
    hidden_dropout_prob: 0.0
    attention_probs_dropout_prob: 0.0
    max_position_embeddings: {positions}
  Optimizer:
    lr: {{decay_steps: {steps}, warmup_rate: 0.1, max_lr: 1.0e-2, min_lr: 1.0e-3}}
"""


def run(*command):
    """Its standard output; ends this program if it fails."""
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))} failed:\n{done.stderr[-4000:]}")
    return done.stdout


def train(trefoil, work, vocab_size, steps, tokenizer=None):
    """A checkpoint directory; words.txt and data/words are left in `work`."""
    rng = random.Random(5)
    lines = [" ".join(rng.choices(WORDS, k=rng.randint(3, 9))) for _ in range(1500)]
    # each word is followed by one of two, so that there is something to learn
    for i, line in enumerate(lines):
        words = line.split()
        for j in range(1, len(words)):
            at = WORDS.index(words[j - 1])
            words[j] = WORDS[(at * 3 + 1 + rng.randint(0, 1)) % len(WORDS)]
        lines[i] = " ".join(words) + (".\n" if i % 5 == 4 else ".")
    (work / "words.txt").write_text("\n".join(lines) + "\n")
    named = ["--tokenizer", tokenizer] if tokenizer else []
    run(trefoil, "prepare", "--input", work / "words.txt", "--output", work / "data" / "words", *named)
    config = work / "words.yaml"
    config.write_text(
        CONFIG.format(
            data=work / "data",
            output=work / "output",
            vocab_size=vocab_size,
            steps=steps,
            positions=POSITIONS,
        )
    )
    run(trefoil, "pretrain", "-c", config)
    return work / "output"


def evaluate(trefoil, *arguments):
    return json.loads(run(trefoil, "eval", "--num_threads", 1, "--json", *arguments))


def generate_ids(trefoil, checkpoint, prompt, n):
    """The n greedy tokens after a prompt, both as ids."""
    out = run(
        *(trefoil, "generate", "--ckpt", checkpoint, "--greedy", "--num_threads", 1),
        *("--max_tokens", n, "--prompt_ids", " ".join(map(str, prompt))),
    )
    return [int(word) for word in out.split()]

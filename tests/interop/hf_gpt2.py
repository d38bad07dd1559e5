"""GPT-2 by the transformers library, in double precision: the judge of what `trefoil export
--to hf` writes and `trefoil import` reads."""

import copy
import math
import os

os.environ["HF_HUB_OFFLINE"] = "1"  # everything is in the directories that it is given

import torch  # noqa: E402
import transformers  # noqa: E402


def load_as_stored(directory):
    return transformers.AutoModelForCausalLM.from_pretrained(directory, torch_dtype="auto")


def load(directory):
    return load_as_stored(directory).double().eval()


def complaints(directory):
    """What from_pretrained() would only warn of: names and shapes that do not fit."""
    _, info = transformers.AutoModelForCausalLM.from_pretrained(
        directory, output_loading_info=True, ignore_mismatched_sizes=True
    )
    return [f"{kind}: {name}" for kind, names in info.items() for name in names]


def copy_as(model, dtype):
    return copy.deepcopy(model).to(dtype)


def are_same(a, b):
    """Every tensor of two models, name by name."""
    ours, theirs = a.state_dict(), b.state_dict()
    return ours.keys() == theirs.keys() and all(torch.equal(t, theirs[n]) for n, t in ours.items())


@torch.no_grad()
def logits_of(model, tokens):
    """(S, V) of a list of tokens."""
    return model(torch.tensor([tokens])).logits[0]


def sliding_loss(model, tokens, S, stride):
    """Mean loss of all tokens but the first: a window of S every `stride`, of which the
    last `stride` targets are scored, the first window whole."""
    total, scored_to, first = 0.0, 0, 0
    while scored_to < len(tokens) - 1:
        window = tokens[first : first + S + 1]
        log_p = torch.log_softmax(logits_of(model, window[:-1]), -1)
        losses = -log_p.gather(-1, torch.tensor(window[1:])[:, None])[:, 0]
        total += float(losses[scored_to - first :].sum())
        scored_to = first + len(losses)
        first += stride
    return total / (len(tokens) - 1)


def greedy(model, prompt, n):
    """(n tokens, the least difference between the best and the second best logit)."""
    tokens, margin = list(prompt), math.inf
    for _ in range(n):
        best = logits_of(model, tokens)[-1].topk(2)
        margin = min(margin, float(best.values[0] - best.values[1]))
        tokens.append(int(best.indices[0]))
    return tokens[len(prompt) :], margin

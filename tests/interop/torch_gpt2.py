"""A GPT-2 as the transformers library stores it, read and computed without that library.

Knows its names and its Conv1D, whose weights are (in, out), from its documentation alone:
the judge of what `trefoil export --to hf` writes and `trefoil import` reads. Double
precision throughout.
"""

import json
import math
import pathlib
import struct

import numpy
import torch

PREFIX = "transformer."
NUMPY = {"F32": "<f4", "F16": "<f2"}


def read_safetensors(path):
    """name -> tensor in double precision."""
    data = pathlib.Path(path).read_bytes()
    (n_header,) = struct.unpack_from("<Q", data)
    header = json.loads(data[8 : 8 + n_header])
    if header.pop("__metadata__", {}).get("format") != "pt":
        raise ValueError(f"{path}: its metadata does not say that it is PyTorch's")
    tensors = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        raw = data[8 + n_header + begin : 8 + n_header + end]
        if entry["dtype"] == "BF16":  # the upper half of a float
            bits = numpy.frombuffer(raw, "<u2").astype("<u4") << 16
            array = bits.view("<f4")
        else:
            array = numpy.frombuffer(raw, NUMPY[entry["dtype"]])
        array = array.astype("f8").reshape(entry["shape"])
        tensors[name] = torch.from_numpy(array)
    return tensors


def write_safetensors(path, tensors, dtype):
    """dtype: F32, F16 or BF16; values are rounded as PyTorch rounds."""
    types = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
    header, body = {"__metadata__": {"format": "pt"}}, b""
    for name, t in tensors.items():
        stored = t.to(types[dtype]).contiguous()
        raw = stored.view(torch.int32 if dtype == "F32" else torch.int16).numpy().tobytes()
        shape = list(t.shape)
        header[name] = {
            "dtype": dtype,
            "shape": shape,
            "data_offsets": [len(body), len(body) + len(raw)],
        }
        body += raw
    text = json.dumps(header).encode()
    pathlib.Path(path).write_bytes(struct.pack("<Q", len(text)) + text + body)


def read_model(directory):
    """(config, name without prefix -> tensor) of a directory, in one file or several."""
    directory = pathlib.Path(directory)
    config = json.loads((directory / "config.json").read_text())
    index = directory / "model.safetensors.index.json"
    tensors = {}
    if index.exists():
        listed = json.loads(index.read_text())["weight_map"]
        for file in sorted(set(listed.values())):
            for name, t in read_safetensors(directory / file).items():
                if listed[name] != file:
                    raise ValueError(f"'{name}' is not in {file} by the index")
                tensors[name] = t
    else:
        tensors = read_safetensors(directory / "model.safetensors")
    return config, {name.removeprefix(PREFIX): t for name, t in tensors.items()}


def shapes_of(config):
    H, F = config["n_embd"], config["n_inner"] or 4 * config["n_embd"]
    shapes = {"wte.weight": (config["vocab_size"], H), "wpe.weight": (config["n_positions"], H)}
    for i in range(config["n_layer"]):
        block = {
            "ln_1.weight": (H,),
            "ln_1.bias": (H,),
            "attn.c_attn.weight": (H, 3 * H),
            "attn.c_attn.bias": (3 * H,),
            "attn.c_proj.weight": (H, H),
            "attn.c_proj.bias": (H,),
            "ln_2.weight": (H,),
            "ln_2.bias": (H,),
            "mlp.c_fc.weight": (H, F),
            "mlp.c_fc.bias": (F,),
            "mlp.c_proj.weight": (F, H),
            "mlp.c_proj.bias": (H,),
        }
        shapes.update({f"h.{i}.{name}": shape for name, shape in block.items()})
    shapes.update({"ln_f.weight": (H,), "ln_f.bias": (H,)})
    return shapes


def layer_norm(x, p, name, epsilon):
    return torch.nn.functional.layer_norm(
        x, x.shape[-1:], p[name + ".weight"], p[name + ".bias"], epsilon
    )


def conv1d(x, p, name):
    return x @ p[name + ".weight"] + p[name + ".bias"]


def gelu_new(x):
    return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def logits_of(config, p, tokens):
    """(B, S) tokens -> (B, S, V) logits."""
    B, S = tokens.shape
    A, epsilon = config["n_head"], config["layer_norm_epsilon"]
    mask = torch.full((S, S), -math.inf, dtype=torch.float64).triu(1)
    x = p["wte.weight"][tokens] + p["wpe.weight"][:S]
    for i in range(config["n_layer"]):
        h = f"h.{i}."
        qkv = conv1d(layer_norm(x, p, h + "ln_1", epsilon), p, h + "attn.c_attn")
        q, k, v = (t.reshape(B, S, A, -1).transpose(1, 2) for t in qkv.chunk(3, -1))
        scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1]) + mask
        y = (torch.softmax(scores, -1) @ v).transpose(1, 2).reshape(B, S, -1)
        x = x + conv1d(y, p, h + "attn.c_proj")
        y = gelu_new(conv1d(layer_norm(x, p, h + "ln_2", epsilon), p, h + "mlp.c_fc"))
        x = x + conv1d(y, p, h + "mlp.c_proj")
    return layer_norm(x, p, "ln_f", epsilon) @ p["wte.weight"].T


def sliding_loss(config, p, tokens, S, stride):
    """Mean loss of all tokens but the first: a window of S every `stride`, of which the
    last `stride` targets are scored, the first window whole."""
    total, scored_to, first = 0.0, 0, 0
    while scored_to < len(tokens) - 1:
        window = torch.tensor(tokens[first : first + S + 1])
        log_p = torch.log_softmax(logits_of(config, p, window[None, :-1])[0], -1)
        losses = -log_p.gather(-1, window[1:, None])[:, 0]
        total += float(losses[scored_to - first :].sum())
        scored_to = first + len(losses)
        first += stride
    return total / (len(tokens) - 1)


def greedy(config, p, prompt, n):
    """(n tokens, the least difference between the best and the second best logit)."""
    tokens, margin = list(prompt), math.inf
    for _ in range(n):
        best = logits_of(config, p, torch.tensor([tokens]))[0, -1].topk(2)
        margin = min(margin, float(best.values[0] - best.values[1]))
        tokens.append(int(best.indices[0]))
    return tokens[len(prompt) :], margin

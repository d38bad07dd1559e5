#!/usr/bin/python3
"""Errors of the gradients of one step, Trefoil's and PyTorch's, against double precision.

bench_torch_gradients.py CHECKPOINT TOKENS --batch B --seq S

CHECKPOINT is one of Trefoil after its first step, with a learning rate so small that the
parameters are still the first ones and adam_beta1 0, so that the first moments are the
gradient. TOKENS is a file of B * S + 1 numbers of 16 bits: all samples of the step. PyTorch
computes the same gradient from the same parameters in double precision, in float32, with
torch.autocast and with model.bfloat16(). Prints one JSON object: the norm of the error
divided by the norm of the gradient, over all parameters and at the worst tensor.
"""

import argparse
import json
import math
import pathlib
import struct

import numpy
import torch

import bench_torch

NAMES = {"embedding.word": "wte", "embedding.position": "wpe", "final_norm": "norm"}
PARTS = {"attn.qkv": "qkv", "attn.proj": "proj", "mlp.fc": "fc", "mlp.proj": "fc_proj"}


def load(path):
    """name -> tensor of a safetensors file of float32."""
    data = path.read_bytes()
    (n_header,) = struct.unpack_from("<Q", data)
    header = json.loads(data[8 : 8 + n_header])
    tensors = {}
    for name, entry in header.items():
        if name != "__metadata__":
            first = 8 + n_header + entry["data_offsets"][0]
            array = numpy.frombuffer(data, "<f4", math.prod(entry["shape"]), first)
            tensors[name] = torch.from_numpy(array.copy()).view(entry["shape"])
    return tensors


def torch_name(name):
    """ "layers.0.attn.qkv.bias" -> "blocks.0.qkv.bias"."""
    module, kind = name.rsplit(".", 1)
    if module in NAMES:
        return f"{NAMES[module]}.{kind}"
    _, layer, part = module.split(".", 2)
    return f"blocks.{layer}.{PARTS.get(part, part)}.{kind}"


def model_of(parameters, o, dtype):
    """The weights keep their shape but for qkv's, (3, A, D, H)."""
    word, qkv = parameters["embedding.word.weight"], parameters["layers.0.attn.qkv.weight"]
    o = argparse.Namespace(**vars(o), vocab=word.shape[0], hidden=word.shape[1])
    o.heads, o.dtype = qkv.shape[1], dtype
    o.layers = sum(name.endswith("attn.qkv.weight") for name in parameters)
    model = bench_torch.GPT(o)
    if dtype == "float64":
        model.double()
    mine = dict(model.named_parameters())
    with torch.no_grad():
        for name, tensor in parameters.items():
            theirs = mine[torch_name(name)]
            theirs.copy_(tensor.reshape(theirs.shape))
    return model, mine


def gradients_of(parameters, o, dtype, tokens):
    model, mine = model_of(parameters, o, dtype)
    model(tokens[:, :-1], tokens[:, 1:]).backward()
    return {name: mine[torch_name(name)].grad.double().flatten() for name in parameters}


def error(gradients, truth):
    """(of all, of the worst tensor); the keys' bias is noise, which a softmax does not
    feel, and is left out of the worst."""
    off = {name: float((gradients[name] - t).norm()) for name, t in truth.items()}
    norms = {name: float(t.norm()) for name, t in truth.items()}
    worst = max(
        off[name] / norms[name] for name in truth if not name.endswith("attn.qkv.bias")
    )
    return {"all": math.hypot(*off.values()) / math.hypot(*norms.values()), "worst": worst}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkpoint", type=pathlib.Path)
    parser.add_argument("tokens", type=pathlib.Path)
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--seq", type=int, required=True)
    o = parser.parse_args()
    parameters = load(o.checkpoint / "model.safetensors")
    moments = load(o.checkpoint / "optimizer.safetensors")
    ids = numpy.frombuffer(o.tokens.read_bytes(), "<u2").astype("i8")
    windows = numpy.stack([ids[i * o.seq : (i + 1) * o.seq + 1] for i in range(o.batch)])
    tokens = torch.from_numpy(windows)
    truth = gradients_of(parameters, o, "float64", tokens)
    mine = {name: moments[name + ".exp_avg"].double().flatten() for name in parameters}
    errors = {"Trefoil": error(mine, truth)}
    for dtype in bench_torch.DTYPES:
        errors[f"PyTorch {dtype}"] = error(gradients_of(parameters, o, dtype, tokens), truth)
    print(json.dumps(errors))


if __name__ == "__main__":
    main()

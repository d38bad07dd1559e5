"""A GPT written a second time, in PyTorch and in double precision: the judge of Trefoil's.

Shares no code and no random numbers with the program. Autograd gives the gradients, so
only the forward pass, AdamW, the clip and the learning rate are written out here.

Weights are (out, in). The fused qkv weight is logically [3, heads, head_dim, hidden].
The order of parameter_shapes() is the order of the parameter numbers of the golden file.
"""

import math
import typing

import numpy
import torch


def parameter_shapes(c):
    """name -> shape of every parameter, in order; c is the "config" of the golden file."""
    V, H, P = c["vocab_size"], c["hidden_size"], c["max_position_embeddings"]
    A, F = c["num_attention_heads"], c["ffn_hidden_size"]
    shapes = {"embedding.word.weight": (V, H), "embedding.position.weight": (P, H)}
    for i in range(c["num_layers"]):
        block = {
            "ln1.weight": (H,),
            "ln1.bias": (H,),
            "attn.qkv.weight": (3, A, H // A, H),
            "attn.qkv.bias": (3, A, H // A),
            "attn.proj.weight": (H, H),
            "attn.proj.bias": (H,),
            "ln2.weight": (H,),
            "ln2.bias": (H,),
            "mlp.fc.weight": (F, H),
            "mlp.fc.bias": (F,),
            "mlp.proj.weight": (H, F),
            "mlp.proj.bias": (H,),
        }
        shapes.update({f"layers.{i}.{name}": shape for name, shape in block.items()})
    shapes["final_norm.weight"] = (H,)
    shapes["final_norm.bias"] = (H,)
    return shapes


def config_of(params):
    """The "config" that a dict of parameters implies; the qkv weight knows the heads."""
    V, H = params["embedding.word.weight"].shape
    return {
        "vocab_size": V,
        "hidden_size": H,
        "num_layers": sum(name.endswith(".attn.qkv.weight") for name in params),
        "num_attention_heads": params["layers.0.attn.qkv.weight"].shape[1],
        "ffn_hidden_size": params["layers.0.mlp.fc.weight"].shape[0],
        "max_position_embeddings": params["embedding.position.weight"].shape[0],
    }


def is_norm(name):
    return ".ln" in name or name.startswith("final_norm")


def has_decay(name):
    return not (is_norm(name) or name.endswith(".bias"))


# -- numbers by a formula, so that C can build the same state ------------------------------


def golden_hash(stream, n):
    """n numbers of 32 bits: element i of a stream. tests/golden.h has the same in C."""
    i = numpy.arange(n, dtype=numpy.uint64)
    x = (i * 2654435761 + stream * 40503 + 12345) & 0xFFFFFFFF
    x ^= x >> 16
    x = (x * 0x85EBCA6B) & 0xFFFFFFFF
    x ^= x >> 13
    x = (x * 0xC2B2AE35) & 0xFFFFFFFF
    return x ^ (x >> 16)


def golden_parameter(name, number, shape):
    """Initial value of parameter `number`, every element exactly a float32."""
    u = golden_hash(number, math.prod(shape)) / 2.0**31 - 1.0
    if name.endswith(".bias"):
        value = 0.02 * u
    elif is_norm(name):
        value = 1.0 + 0.1 * u
    else:
        value = 0.05 * u
    value = value.astype(numpy.float32).astype(numpy.float64)
    return torch.from_numpy(value).reshape(shape)


def golden_parameters(c, dtype=torch.float64):
    shapes = parameter_shapes(c)
    return {
        name: golden_parameter(name, number, shape).to(dtype).requires_grad_()
        for number, (name, shape) in enumerate(shapes.items())
    }


def golden_windows(c, step):
    """The (B, S + 1) tokens of a step, counted from 0: inputs and, one later, targets."""
    B, S, V = c["batch_size"], c["seq_len"], c["vocab_size"]
    tokens = golden_hash(c["token_stream"] + step, B * (S + 1)) % V
    return torch.from_numpy(tokens.astype(numpy.int64)).reshape(B, S + 1)


# -- the model ------------------------------------------------------------------------------


def gelu_tanh(x):
    inner = math.sqrt(2.0 / math.pi) * (x + 0.044715 * x**3)
    return 0.5 * x * (1.0 + torch.tanh(inner))


class Form(typing.NamedTuple):
    """What the tensors do not show of a model."""

    activation: typing.Callable = gelu_tanh
    norm_epsilon: float = 1e-5


GPT2 = Form()


def layernorm(x, weight, bias, epsilon):
    mean = x.mean(-1, keepdim=True)
    variance = ((x - mean) ** 2).mean(-1, keepdim=True)
    return (x - mean) / torch.sqrt(variance + epsilon) * weight + bias


def attention(x, qkv_weight, qkv_bias):
    B, S, H = x.shape
    _, A, D, _ = qkv_weight.shape
    q, k, v = torch.einsum("bsh,cadh->cbasd", x, qkv_weight) + qkv_bias[:, None, :, None, :]
    scores = q @ k.transpose(-1, -2) / math.sqrt(D)
    future = torch.ones(S, S, dtype=torch.bool).triu(1)
    probabilities = torch.softmax(scores.masked_fill(future, -math.inf), dim=-1)
    return (probabilities @ v).transpose(1, 2).reshape(B, S, H)


def logits_of(params, tokens, form=GPT2):
    """(B, S) tokens -> (B, S, V) logits, no dropout."""
    p, epsilon = params, form.norm_epsilon
    wte = p["embedding.word.weight"]
    x = wte[tokens] + p["embedding.position.weight"][: tokens.shape[1]]
    n_layers = sum(name.endswith(".attn.qkv.weight") for name in p)
    for i in range(n_layers):
        b = f"layers.{i}."
        y = layernorm(x, p[b + "ln1.weight"], p[b + "ln1.bias"], epsilon)
        y = attention(y, p[b + "attn.qkv.weight"], p[b + "attn.qkv.bias"])
        x = x + y @ p[b + "attn.proj.weight"].T + p[b + "attn.proj.bias"]
        y = layernorm(x, p[b + "ln2.weight"], p[b + "ln2.bias"], epsilon)
        y = form.activation(y @ p[b + "mlp.fc.weight"].T + p[b + "mlp.fc.bias"])
        x = x + y @ p[b + "mlp.proj.weight"].T + p[b + "mlp.proj.bias"]
    return layernorm(x, p["final_norm.weight"], p["final_norm.bias"], epsilon) @ wte.T


def loss_of(params, windows, masked_token=None, form=GPT2):
    """Mean cross-entropy over the (B, S + 1) windows; positions whose input is
    masked_token do not count."""
    inputs, targets = windows[:, :-1], windows[:, 1:]
    log_p = torch.log_softmax(logits_of(params, inputs, form), dim=-1)
    losses = -log_p.gather(-1, targets[..., None])[..., 0]
    if masked_token is None:
        return losses.mean()
    counted = inputs != masked_token
    return losses[counted].sum() / counted.sum()


# -- one step -------------------------------------------------------------------------------


def learning_rate(lr, k):
    """Of update k = 1, 2, ...; lr has decay_steps, warmup_rate, max_lr, min_lr."""
    D = lr["decay_steps"]
    W = lr["warmup_rate"] * D
    if W > 0 and k <= W:
        return lr["max_lr"] * k / W
    if k > D:
        return lr["min_lr"]
    cosine = 0.5 * (1.0 + math.cos(math.pi * (k - W) / (D - W)))
    return lr["min_lr"] + cosine * (lr["max_lr"] - lr["min_lr"])


class AdamW:
    """The optimizer over a dict of parameters; `step` counts the updates done."""

    def __init__(self, params, options):
        self.params = params
        self.options = options
        self.step = 0
        self.m = {name: torch.zeros_like(p) for name, p in params.items()}
        self.v = {name: torch.zeros_like(p) for name, p in params.items()}

    def grad_norm(self):
        return math.sqrt(sum(float((p.grad**2).sum()) for p in self.params.values()))

    @torch.no_grad()
    def update(self):
        """Clip and apply the gradients; returns (norm before the clip, lr)."""
        o = self.options
        self.step += 1
        lr = learning_rate(o["lr"], self.step)
        norm = self.grad_norm()
        coefficient = o["grad_clip"] / max(norm, o["grad_clip"]) if o["grad_clip"] > 0 else 1.0
        bias1 = 1.0 - o["adam_beta1"] ** self.step
        bias2 = 1.0 - o["adam_beta2"] ** self.step
        for name, p in self.params.items():
            g = p.grad * coefficient
            m, v = self.m[name], self.v[name]
            if has_decay(name):
                p *= 1.0 - lr * o["weight_decay"]
            m.mul_(o["adam_beta1"]).add_(g, alpha=1.0 - o["adam_beta1"])
            v.mul_(o["adam_beta2"]).add_(g * g, alpha=1.0 - o["adam_beta2"])
            p -= lr / bias1 * m / (torch.sqrt(v / bias2) + o["adam_epsilon"])
        return norm, lr


def backward(params, windows, masked_token=None, form=GPT2):
    """Sets .grad of every parameter; returns the loss."""
    for p in params.values():
        p.grad = None
    loss = loss_of(params, windows, masked_token, form)
    loss.backward()
    return float(loss.detach())

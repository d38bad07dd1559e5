"""Which tokens the samples of a run consist of, by numpy: Megatron's and FleetX's order.

A second implementation of what src/data/sample_index.h describes, made of numpy's own
RandomState, arange and concatenate.
"""

import numpy


def split_bounds(weights, n_documents):
    """[0, ..., n]: part p has the documents from bound p to bound p + 1."""
    total = sum(weights)
    bounds = [0]
    for w in weights:
        bounds.append(bounds[-1] + int(round(w / total * n_documents)))
    excess = bounds[-1] - n_documents
    return [0] + [max(b - excess, 0) for b in bounds[1:]]


def train_windows(documents, weights, seq_len, n_samples, seed):
    """(n_samples, S + 1) tokens in training order; documents is a list of arrays."""
    part = numpy.arange(*split_bounds(weights, len(documents))[:2])
    S = seq_len
    T = sum(len(documents[d]) for d in part)
    E = 1
    while (E * T - 1) // S < n_samples:
        E += 1
    in_earlier_epochs = ((E - 1) * T - 1) // S
    needed_from_last = n_samples - in_earlier_epochs
    is_apart = E > 1 and needed_from_last < int(0.80 * ((T - 1) // S))

    rng = numpy.random.RandomState(seed)
    order = []
    for n_epochs in (E - 1, 1) if is_apart else (E,):
        piece = numpy.tile(part, n_epochs)
        rng.shuffle(piece)
        order.append(piece)
    stream = numpy.concatenate([documents[d] for d in numpy.concatenate(order)])

    n_windows = (E * T - 1) // S
    cut = in_earlier_epochs if is_apart else n_windows
    first, last = numpy.arange(cut), numpy.arange(cut, n_windows)
    rng.shuffle(first)
    if is_apart:
        rng.shuffle(last)
    shuffled = numpy.concatenate([first, last])[:n_samples]
    return numpy.stack([stream[k * S : k * S + S + 1] for k in shuffled])

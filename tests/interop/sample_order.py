"""Which tokens the samples of a run consist of, by numpy.

A second implementation of what src/data/samples/sample_index.h describes, made of numpy's own
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

    order, shuffled = [], []
    for e in range(E):
        rng = numpy.random.RandomState((seed + e) % 2**32)
        documents_of_epoch = part.copy()
        rng.shuffle(documents_of_epoch)
        order.append(documents_of_epoch)
        first = (e * T - 1) // S if e else 0
        samples_of_epoch = numpy.arange(first, ((e + 1) * T - 1) // S)
        rng.shuffle(samples_of_epoch)
        shuffled.append(samples_of_epoch)
    stream = numpy.concatenate([documents[d] for d in numpy.concatenate(order)])
    shuffled = numpy.concatenate(shuffled)[:n_samples]
    return numpy.stack([stream[k * S : k * S + S + 1] for k in shuffled])

"""Shapes of models and batches: "12L-768H-12A-V50304-B1-S1024"."""

import argparse

LETTERS = {
    "L": "layers",
    "H": "hidden",
    "A": "heads",
    "V": "vocab",
    "B": "batch",
    "S": "seq",
}


def parse(text):
    """{"name": text, "layers": 12, ...}; every part is a letter and a number."""
    shape = {}
    for part in text.split("-"):
        number, letter = part.strip("".join(LETTERS)), part.strip("0123456789")
        if letter not in LETTERS or not number.isdigit() or int(number) < 1:
            raise argparse.ArgumentTypeError(f"'{part}' in '{text}' is no part of a shape")
        shape[LETTERS[letter]] = int(number)
    missing = [letter for letter, name in LETTERS.items() if name not in shape]
    if missing:
        raise argparse.ArgumentTypeError(f"'{text}' lacks {' '.join(missing)}")
    return {"name": text, **shape}


def arguments(shape):
    """The shape as the options that every speed program takes."""
    return [word for name in LETTERS.values() for word in (f"--{name}", str(shape[name]))]


def tokens(shape):
    return shape["batch"] * shape["seq"]

"""Texts of every kind to cut into tokens, the same in every run."""

import pathlib
import random
import subprocess

RNG = random.Random(12345)

PIECES = [
    *(" ", "  ", "   ", "\n", "\n\n", "\t", "\r\n", "'s", "'t", "'re", "'ve", "'m", "'ll", "'d"),
    *("'S", "'", '"', "the", "The", "quick", " brown", "HTML", "x", "0", "1984", "3.14", "..."),
    *("!?", "<|endoftext|>", "\u00a0", "\u0085", "\u180e", "\u2009", "\u2028", "\u3000"),
    *("\ufeff", "\u200b", "\u200d", "caf\u00e9", "e\u0301", "\u00bd", "\u2167", "\u0663"),
    *("\ufffd", "\U0001f600", "\U0001f468\u200d\U0001f469", "\U00010330", "\U0001d7d8"),
    *map(chr, range(32)),
]
INVALID_PIECES = [
    *(b"\x80", b"\xff", b"\xc3", b"\xe4\xbd", b"\xf0\x9f\x98", b"\xc0\xaf", b"\xed\xa0\x80"),
    *(b"\xf4\x90\x80\x80", b"\xc3\xa9", b"\xe4\xbd\xa0", b"\xf0\x9f\x98\x80", b" ", b"  "),
    *(b"\n", b"word", b"'s", b"12", b"!", b"\xc2\x85", b"\xc2", b"\xa0", b"\xe3\x80\x80", b"\0"),
]


def english():
    """The King James Bible, by the program of Debian's bible-kjv."""
    return subprocess.run(
        ["bible", "Gen1:1-Rev22:21"], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True
    ).stdout


def foreign(ranges, n):
    """Words of letters from ranges of old code points: any encoder knows their class."""
    text = []
    while len(text) < n:
        first, last = RNG.choice(ranges)
        text += [chr(RNG.randint(first, last)) for _ in range(RNG.randint(1, 9))]
        text += RNG.choice([" ", " ", "  ", "\n", "\u3002", ", ", "!", " 12", "\u3000"])
    return "".join(text)


def mixture(n):
    return "".join(RNG.choices(PIECES, k=n // 2))


def invalid_bytes(n):
    """Some of it is UTF-8, most of it is not."""
    return b"".join(RNG.choices(INVALID_PIECES, k=n // 2))


def noise(n):
    return RNG.randbytes(n)


def all_texts(english_text):
    """name -> text"""
    code = "".join(p.read_text() for p in sorted(pathlib.Path(__file__).parent.glob("*.py")))
    return {
        "English": english_text[:3_000_000],
        "Chinese and Japanese": foreign(
            [(0x4E00, 0x9FA5), (0x3041, 0x3096), (0x30A1, 0x30FA)], 150_000
        ),
        "Arabic and Hebrew": foreign([(0x621, 0x63A), (0x641, 0x64A), (0x5D0, 0x5EA)], 150_000),
        "Greek, Cyrillic, Devanagari": foreign(
            [(0x3B1, 0x3C9), (0x430, 0x44F), (0x905, 0x939)], 150_000
        ),
        "emoji": foreign([(0x1F600, 0x1F64F), (0x1F300, 0x1F5FF), (0x2600, 0x26FF)], 100_000),
        "code": code * 4,
        "mixture": mixture(400_000),
        "control bytes": mixture(1000) + "".join(map(chr, RNG.choices(range(32), k=20_000))),
        "empty": "",
    }


LONG_WORDS = {  # tiktoken gives up on these
    "a million letters": "a" * 1_000_000,
    "long white space": " " * 200_000 + "x" + "\n" * 200_000 + " \t" * 50_000,
}

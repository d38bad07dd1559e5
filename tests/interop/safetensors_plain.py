"""Reads a safetensors file with numpy alone, checking what the format promises."""

import json
import math
import struct

import numpy

DTYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "U8": "u1"}


def load(path):
    """name -> array, in the order of the file's header."""
    with open(path, "rb") as f:
        data = f.read()
    (n_header,) = struct.unpack_from("<Q", data)
    header = json.loads(data[8 : 8 + n_header])
    header.pop("__metadata__", None)
    body, tensors, expected = 8 + n_header, {}, 0
    for name, entry in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        begin, end = entry["data_offsets"]
        dtype = numpy.dtype(DTYPES[entry["dtype"]])
        count = math.prod(entry["shape"])
        if begin != expected or end - begin != count * dtype.itemsize:
            raise ValueError(f"{path}: '{name}' has the offsets {begin}, {end}")
        array = numpy.frombuffer(data, dtype, count, body + begin)
        tensors[name] = array.reshape(entry["shape"])
        expected = end
    if body + expected != len(data):
        raise ValueError(f"{path}: {len(data) - body - expected} bytes after the tensors")
    return {name: tensors[name] for name in header}

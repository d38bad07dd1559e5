"""llama.cpp through its C interface, of which the package xllamacpp has all.

The structures are those of llama.h in the version of xllamacpp that tools/pypi-interop.txt
names; check_structures() finds out when they are not.
"""

import ctypes
import importlib.util
import pathlib
from ctypes import POINTER, Structure, c_bool, c_char_p, c_float, c_int8, c_int32, c_size_t, c_uint32, c_void_p

F32 = 0  # GGML_TYPE_F32
LOG_CALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_int, c_char_p, c_void_p)


class ModelParams(Structure):
    _fields_ = [
        *((name, c_void_p) for name in ("devices", "tensor_buft_overrides")),
        *((name, c_int32) for name in ("n_gpu_layers", "split_mode", "load_mode", "lazy_mode", "main_gpu")),
        *(
            (name, c_void_p)
            for name in ("tensor_split", "progress_callback", "progress_callback_user_data", "kv_overrides")
        ),
        *(
            (name, c_bool)
            for name in ("vocab_only", "check_tensors", "use_extra_bufts", "no_host", "no_alloc", "load_mtp")
        ),
    ]


class ContextParams(Structure):
    _fields_ = [
        *(
            (name, c_uint32)
            for name in ("n_ctx", "n_batch", "n_ubatch", "n_seq_max", "n_rs_seq", "n_outputs_max")
        ),
        ("n_outputs_max_per_seq", c_uint32),
        *((name, c_int32) for name in ("n_threads", "n_threads_batch", "ctx_type", "rope_scaling_type")),
        *((name, c_int32) for name in ("pooling_type", "attention_type", "flash_attn_type")),
        *((name, c_float) for name in ("rope_freq_base", "rope_freq_scale", "yarn_ext_factor")),
        *((name, c_float) for name in ("yarn_attn_factor", "yarn_beta_fast", "yarn_beta_slow")),
        ("yarn_orig_ctx", c_uint32),
        ("defrag_thold", c_float),
        *((name, c_void_p) for name in ("cb_eval", "cb_eval_user_data")),
        *((name, c_int32) for name in ("type_k", "type_v")),
        ("moe_cache_size", c_size_t),
        *((name, c_void_p) for name in ("abort_callback", "abort_callback_data")),
        *((name, c_bool) for name in ("embeddings", "offload_kqv", "no_perf", "op_offload")),
        *((name, c_bool) for name in ("swa_full", "kv_unified")),
        ("samplers", c_void_p),
        ("n_samplers", c_size_t),
        ("ctx_other", c_void_p),
    ]


class Batch(Structure):
    _fields_ = [
        ("n_tokens", c_int32),
        ("token", POINTER(c_int32)),
        ("embd", POINTER(c_float)),
        ("pos", POINTER(c_int32)),
        ("n_seq_id", POINTER(c_int32)),
        ("seq_id", POINTER(POINTER(c_int32))),
        ("logits", POINTER(c_int8)),
    ]


FUNCTIONS = {  # name -> (what it returns, its arguments)
    "llama_model_default_params": (ModelParams, []),
    "llama_context_default_params": (ContextParams, []),
    "llama_model_load_from_file": (c_void_p, [c_char_p, ModelParams]),
    "llama_model_free": (None, [c_void_p]),
    "llama_model_get_vocab": (c_void_p, [c_void_p]),
    "llama_model_n_ctx_train": (c_int32, [c_void_p]),
    "llama_init_from_model": (c_void_p, [c_void_p, ContextParams]),
    "llama_free": (None, [c_void_p]),
    "llama_get_memory": (c_void_p, [c_void_p]),
    "llama_memory_clear": (None, [c_void_p, c_bool]),
    "llama_batch_get_one": (Batch, [POINTER(c_int32), c_int32]),
    "llama_decode": (c_int32, [c_void_p, Batch]),
    "llama_get_logits_ith": (POINTER(c_float), [c_void_p, c_int32]),
    "llama_vocab_n_tokens": (c_int32, [c_void_p]),
    "llama_vocab_bos": (c_int32, [c_void_p]),
    "llama_vocab_eos": (c_int32, [c_void_p]),
    "llama_tokenize": (
        c_int32,
        [c_void_p, c_char_p, c_int32, POINTER(c_int32), c_int32, c_bool, c_bool],
    ),
    "llama_detokenize": (
        c_int32,
        [c_void_p, POINTER(c_int32), c_int32, c_char_p, c_int32, c_bool, c_bool],
    ),
    "llama_log_set": (None, [LOG_CALLBACK, c_void_p]),
}


def check_structures(library):
    """What llama.cpp sets by default must be found where it is looked for."""
    model, context = library.llama_model_default_params(), library.llama_context_default_params()
    found = (
        *(model.tensor_split, model.vocab_only, model.use_extra_bufts),
        *(context.n_ctx, context.n_batch, context.flash_attn_type, context.type_k, context.type_v),
        *(context.offload_kqv, context.n_samplers, context.ctx_other),
    )
    if found != (None, False, True, 512, 2048, -1, 1, 1, True, 0, None):
        raise RuntimeError(f"llama.cpp's structures are not those of llama_cpp.py: {found}")


def load_library():
    package = pathlib.Path(importlib.util.find_spec("xllamacpp").origin).parent
    library = ctypes.CDLL(str(next(package.glob("xllamacpp*.so"))))
    for name, (result, arguments) in FUNCTIONS.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    check_structures(library)
    return library


def tokens_array(ids):
    return (c_int32 * len(ids))(*ids)


class Model:
    """A GGUF file. Use it in a with statement."""

    library = None
    log = []  # what llama.cpp said, for messages

    @LOG_CALLBACK
    def keep_log(_level, text, _data):
        Model.log.append(text.decode(errors="replace"))

    def __init__(self, path, vocab_only=False):
        if not Model.library:
            Model.library = load_library()
            Model.library.llama_log_set(Model.keep_log, None)
        params = self.library.llama_model_default_params()
        params.vocab_only = vocab_only
        params.use_extra_bufts = False
        Model.log.clear()
        self.model = self.library.llama_model_load_from_file(str(path).encode(), params)
        if not self.model:
            raise RuntimeError(f"llama.cpp cannot load '{path}':\n{''.join(Model.log)[-4000:]}")
        self.vocab = self.library.llama_model_get_vocab(self.model)
        self.context = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.context:
            self.library.llama_free(self.context)
        self.library.llama_model_free(self.model)

    @property
    def bos(self):
        return self.library.llama_vocab_bos(self.vocab)

    @property
    def eos(self):
        return self.library.llama_vocab_eos(self.vocab)

    def encode(self, text):
        data = text.encode()
        ids = (c_int32 * (len(data) + 8))()
        n = self.library.llama_tokenize(self.vocab, data, len(data), ids, len(ids), False, False)
        if n < 0:
            raise RuntimeError(f"llama.cpp cuts {len(data)} bytes into {-n} tokens")
        return ids[:n]

    def decode(self, ids):
        text = ctypes.create_string_buffer(64 * len(ids) + 64)
        n = self.library.llama_detokenize(
            self.vocab, tokens_array(ids), len(ids), text, len(text), False, True
        )
        return text.raw[:n].decode()

    def open_context(self):
        """The cache in float32 and plain attention: the least rounding that it can do."""
        params = self.library.llama_context_default_params()
        params.n_ctx = self.library.llama_model_n_ctx_train(self.model)
        params.n_threads = params.n_threads_batch = 1  # they wait without sleeping
        params.type_k = params.type_v = F32
        params.flash_attn_type = 0
        self.context = self.library.llama_init_from_model(self.model, params)
        if not self.context:
            raise RuntimeError(f"llama.cpp makes no context:\n{''.join(Model.log)[-4000:]}")

    def greedy(self, prompt, n):
        """The n likeliest tokens after the prompt's."""
        if not self.context:
            self.open_context()
        self.library.llama_memory_clear(self.library.llama_get_memory(self.context), True)
        n_vocab = self.library.llama_vocab_n_tokens(self.vocab)
        found, fed = [], list(prompt)
        while len(found) < n:
            ids = tokens_array(fed)
            status = self.library.llama_decode(
                self.context, self.library.llama_batch_get_one(ids, len(ids))
            )
            if status != 0:
                raise RuntimeError(f"llama_decode() returned {status}")
            logits = self.library.llama_get_logits_ith(self.context, -1)[:n_vocab]
            fed = [logits.index(max(logits))]
            found += fed
        return found

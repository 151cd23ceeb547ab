"""Writes down every aten call that multiplies matrices: op, sizes, strides, dtypes, pass (forward or
grad) and the module that issued it.  Equal calls are merged with a count.  Used by record.py.
"""
import collections
import contextlib
import json
import os
import re

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

import torch
import torch.nn.functional as F
import transformers
from torch._prims_common import suggest_memory_format
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

DTYPES = {
    torch.bfloat16: "bf16", torch.float32: "f32", torch.float16: "f16", torch.float64: "f64",
    torch.int64: "i64", torch.int32: "i32", torch.bool: "bool", torch.uint8: "u8", torch.int8: "i8",
}
TWO_OPERANDS = {"mm", "bmm", "mv", "dot", "vdot", "_grouped_mm", "_int_mm"}
WITH_ADDEND = {"addmm", "baddbmm", "addbmm", "addmv"}
CONVOLUTIONS = {"convolution", "convolution_backward"}
RECORDED = TWO_OPERANDS | WITH_ADDEND | CONVOLUTIONS
# An op whose name looks like a product but is none of the above is reported, so that nothing is
# missed in silence.  The fused attention kernels are covered by the attention record.
SUSPECT = re.compile(r"(mm|matmul|linear|conv|einsum|mv|dot)")
KERNEL = re.compile(r"_scaled_dot_product_(\w+?)_attention")


def short(t):
    if t is None:
        return None
    return {"size": list(t.shape), "stride": list(t.stride()), "dtype": DTYPES.get(t.dtype, str(t.dtype))}


def collapse(path):
    """layers.17.mlp.up_proj -> layers.*.mlp.up_proj: every numeric part becomes a star."""
    return ".".join("*" if p.isdigit() else p for p in path.split("."))


# Three places of transformers look at the values of a mask or of the positions to see whether a batch
# is padded or packed.  Meta tensors have no values; every run here is unpadded and unpacked, so on meta
# they get the answer that such a batch gives: no padding mask, no packed sequences.
def without_values(name, answer):
    original = getattr(transformers.masking_utils, name)

    def wrapped(*args, **kwargs):
        tensors = [t for t in list(args) + list(kwargs.values()) if isinstance(t, torch.Tensor)]
        if any(t.device.type == "meta" for t in tensors):
            return answer(original, args, kwargs)
        return original(*args, **kwargs)

    setattr(transformers.masking_utils, name, wrapped)


def as_unpadded(original, args, kwargs):
    drop = lambda t: None if isinstance(t, torch.Tensor) else t
    return original(*map(drop, args), **{k: drop(v) for k, v in kwargs.items()})


without_values("find_packed_sequence_indices", lambda original, args, kwargs: None)
without_values("_ignore_causal_mask_sdpa", as_unpadded)
without_values("_ignore_bidirectional_mask_sdpa", as_unpadded)


class MetaAttention(torch.autograd.Function):
    """Stands in for the fused attention kernel on `meta`: right sizes, the layout of the CUDA flash
    kernel (results laid out like the operands, seen as batch, sequence, head, dim), no inner products."""

    @staticmethod
    def forward(ctx, q, k, v):
        ctx.save_for_backward(q, k, v)
        like = q.transpose(1, 2) if q.dim() == 4 else q
        out = torch.empty_like(like) if v.shape[-1] == q.shape[-1] else like.new_empty(*like.shape[:-1], v.shape[-1])
        return out.transpose(1, 2) if q.dim() == 4 else out

    @staticmethod
    def backward(ctx, grad):
        def like(t):
            return torch.empty_like(t.transpose(1, 2)).transpose(1, 2) if t.dim() == 4 else torch.empty_like(t)
        return tuple(like(t) for t in ctx.saved_tensors)


def cuda_layout(name, args, out):
    """cuDNN returns channels-last results when the input or the weight of a 2-D convolution is
    channels-last, contiguous ones otherwise; the meta kernels do not follow that."""
    x, w = (args[0], args[1]) if name == "convolution" else (args[1], args[2])
    if x.device.type != "meta" or x.dim() != 4:
        return out
    last = any(suggest_memory_format(t) == torch.channels_last for t in (x, w))
    layout = torch.channels_last if last else torch.contiguous_format
    fix = lambda t: t if t is None or t.dim() != 4 else torch.empty_like(t, memory_format=layout)
    return fix(out) if isinstance(out, torch.Tensor) else tuple(map(fix, out))


def dense(t):
    step = 1
    for stride, size in sorted((t.stride(i), t.shape[i]) for i in range(t.dim()) if t.shape[i] != 1):
        if stride != step:
            return False
        step *= size
    return True


def iterator_strides(operands, shape, numbers):
    """Strides that PyTorch's TensorIterator gives the result of a pointwise op."""
    n = len(shape)
    same = not numbers and all(t.shape == shape for t in operands)
    if same and all(t.is_contiguous() for t in operands):
        return None                                   # contiguous
    if same and all(t.stride() == operands[0].stride() for t in operands) and \
            dense(operands[0]):
        return operands[0].stride()
    strides = []
    for t in operands:
        lead = n - t.dim()
        strides.append([0] * lead + [0 if t.shape[i] == 1 and shape[lead + i] != 1 else t.stride(i)
                                     for i in range(t.dim())])

    def compare(x, y):                                # > 0: dimension x belongs outside of y
        for st in strides:
            if st[x] == 0 or st[y] == 0:
                continue
            if st[x] != st[y]:
                return -1 if st[x] < st[y] else 1
            if shape[x] > shape[y]:
                return 1
        return 0

    perm = list(range(n - 1, -1, -1))                 # innermost dimension first
    for i in range(1, n):
        at = i
        for j in range(i - 1, -1, -1):
            order = compare(perm[j], perm[at])
            if order > 0:
                perm[j], perm[at] = perm[at], perm[j]
                at = j
            elif order < 0:
                break
    out, step = [0] * n, 1
    for d in perm:
        out[d] = step
        step *= shape[d]
    return None if perm == list(range(n - 1, -1, -1)) else tuple(out)


def eager_layout(func, args, out):
    """The meta kernels of pointwise ops can differ from the real ones in the stride of a dimension of
    size 1 (seen with a single key-value head and with a single token); put the real one there."""
    if not isinstance(out, torch.Tensor) or out.device.type != "meta" or torch.Tag.pointwise not in func.tags:
        return out
    operands = [t for t in args if isinstance(t, torch.Tensor)]
    if 1 not in out.shape or out.numel() == 0 or not operands or any(t is out for t in operands):
        return out
    numbers = any(isinstance(t, (int, float)) for t in args) or any(t.dim() == 0 for t in operands)
    strides = iterator_strides([t for t in operands if t.dim()], out.shape, numbers)
    plain = torch.empty(out.shape, dtype=out.dtype, device="meta")
    if strides is not None:
        plain = torch.empty_strided(out.shape, strides, dtype=out.dtype, device="meta")
    differs = [i for i in range(out.dim()) if out.stride(i) != plain.stride(i)]
    return plain if differs and all(out.shape[i] == 1 for i in differs) else out


def math_on_cuda(q, k, v, mask, enable_gqa):
    """The two cases met here in which no fused CUDA kernel accepts the operands, so that attention
    falls back to separate products: fewer key heads than query heads without enable_gqa, and a mask
    whose last dimension is not contiguous.  Both seen on an H200."""
    if q.dim() == 4 and k.shape[1] != q.shape[1] and not enable_gqa:
        return True
    return mask is not None and mask.stride(-1) != 1


class Recorder(TorchDispatchMode):
    def __init__(self, model):
        super().__init__()
        self.calls = collections.OrderedDict()
        self.names = {m: n for n, m in model.named_modules()}
        self.stack = []
        self.where = {}          # autograd sequence number -> (module path, inside attention)
        self.inside = False      # inside scaled_dot_product_attention
        self.kernels = collections.Counter()
        self.suspects = collections.Counter()

    # module stack -----------------------------------------------------------------------------
    def enter(self, module, args):
        self.stack.append(self.names.get(module, "?" + type(module).__name__))

    def leave(self, module, args, out):
        self.stack.pop()

    def module(self):
        return collapse(self.stack[-1]) if self.stack else ""

    # calls ------------------------------------------------------------------------------------
    def add(self, call):
        key = json.dumps(call)
        self.calls[key] = self.calls.get(key, 0) + 1

    def result(self):
        return [dict(json.loads(k), count=n) for k, n in self.calls.items()]

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        name = func._schema.name.split("::")[-1]
        node = torch._C._current_autograd_node()
        if node is None:
            passed, module, inside = "forward", self.module(), self.inside
            # The autograd node of an op is created just before the op is dispatched, so the first op
            # seen after a new number is the node's own; later ops without a node must not take it over.
            if torch.is_grad_enabled():
                self.where.setdefault(torch.autograd._get_sequence_nr() - 1, (module, inside))
        else:
            passed = "grad"
            module, inside = self.where.get(node._sequence_nr(), ("?" + node.name(), False))
        out = func(*args, **kwargs)
        if name in CONVOLUTIONS:
            out = cuda_layout(name, args, out)
        elif not name.endswith("_"):
            out = eager_layout(func, args, out)
        kernel = KERNEL.search(name)
        if kernel:
            self.kernels[kernel.group(1) + ("_backward" if "backward" in name else "")] += 1
        if name in RECORDED:
            self.product(name, func, passed, module, inside, args, kwargs, out)
            if inside:
                self.kernels["math " + name + " " + passed] += 1
        elif SUSPECT.search(name) and not kernel and not name.startswith("_fused_sdp"):
            self.suspects[str(func)] += 1
        return out

    def product(self, name, func, passed, module, inside, args, kwargs, out):
        named = {a.name: v for a, v in zip(func._schema.arguments, args)}
        named.update(kwargs)
        call = {"op": name, "pass": passed, "module": module}
        if inside:
            call["inside"] = "scaled_dot_product_attention"
        if name in CONVOLUTIONS:
            call["a"] = short(named["input"])
            call["b"] = short(named["weight"])
            if name == "convolution":
                call["bias"] = short(named.get("bias"))
                call["out"] = short(out)
            else:
                call["grad"] = short(named["grad_output"])
                call["output_mask"] = list(named["output_mask"])
                call["out"] = [short(o) for o in out]
            for k in ("stride", "padding", "dilation", "output_padding"):
                call[k] = list(named[k])
            call["transposed"], call["groups"] = named["transposed"], named["groups"]
        else:
            addend = name in WITH_ADDEND
            operands = [a for a in func._schema.arguments if "Tensor" in str(a.type)]
            a, b = [named[x.name] for x in operands[1 if addend else 0:][:2]]
            call["a"], call["b"] = short(a), short(b)
            call["bias"] = short(args[0]) if addend else short(named.get("bias"))
            call["out"] = short(out)
            for k in ("alpha", "beta"):
                if named.get(k, 1) != 1:
                    call[k] = named[k]
            if name == "_grouped_mm":
                call["offs"] = short(named.get("offs"))
        self.add(call)

    def attention(self, func, args, kwargs):
        names = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal", "scale", "enable_gqa")
        named = dict(zip(names, args), **kwargs)
        q, k, v = named["query"], named["key"], named["value"]
        mask, gqa = named.get("attn_mask"), bool(named.get("enable_gqa", False))
        math = math_on_cuda(q, k, v, mask, gqa)
        call = {
            "op": "scaled_dot_product_attention", "pass": "forward", "module": self.module(),
            "kernel": "math" if math else "fused",
            "q": short(q), "k": short(k), "v": short(v), "mask": short(mask),
            "is_causal": bool(named.get("is_causal", False)), "enable_gqa": gqa,
            "scale": named.get("scale"), "dropout": named.get("dropout_p", 0.0),
        }
        self.add(call)
        self.inside = True
        try:
            if q.device.type == "meta" and not math:
                out = MetaAttention.apply(q, k, v)
                if mask is not None and mask.requires_grad:   # keep a learned bias in the graph
                    out = out + 0 * mask.sum()
            elif math and q.device.type == "cpu":             # the CPU has fused kernels that CUDA lacks
                with sdpa_kernel(SDPBackend.MATH):
                    out = func(*args, **kwargs)
            else:                                             # on meta this is the math path
                out = func(*args, **kwargs)
        finally:
            self.inside = False
        if out.requires_grad:
            back = dict(call, op="scaled_dot_product_attention_backward")
            back["pass"] = "grad"
            back["grad_size"] = list(out.shape)
            out.register_hook(lambda g: self.add(back))
        return out


class AttentionHook(TorchFunctionMode):
    def __init__(self, recorder):
        super().__init__()
        self.recorder = recorder

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func is F.scaled_dot_product_attention:
            with torch._C.DisableTorchFunction():
                return self.recorder.attention(func, args, kwargs)
        return func(*args, **kwargs)


@contextlib.contextmanager
def recording(model):
    rec = Recorder(model)
    pre = torch.nn.modules.module.register_module_forward_pre_hook(rec.enter)
    post = torch.nn.modules.module.register_module_forward_hook(rec.leave)
    try:
        with rec, AttentionHook(rec):
            yield rec
    finally:
        pre.remove()
        post.remove()


# models -------------------------------------------------------------------------------------------

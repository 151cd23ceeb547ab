#!/usr/bin/env python3
"""What PyTorch computes for the layers of crates/nn, in double precision over numbers that f32 and bf16 hold exactly.

    nn_goldens.py > crates/nn/tests/goldens.json      needs torch
    nn_goldens.py SEED                                other numbers; crates/nn/tests asks for them where torch is installed
"""

import json
import sys

import torch
import torch.nn.functional as F

torch.manual_seed(int(sys.argv[1]) if len(sys.argv) > 1 else 1)


def numbers(*shape):
    """Multiples of 1/8 below 2 in size: exact in bf16."""
    return torch.randint(-15, 16, shape, dtype=torch.float64) / 8


def flat(tensor):
    """Operands and sums of two factors are whole numbers of 64ths, and kept as such; others as they are."""
    tensor = tensor.detach().contiguous().flatten()
    whole = tensor * 64
    return [int(x) for x in whole.tolist()] if bool((whole == whole.round()).all()) else tensor.tolist()


cases = []
for rows, outputs, inputs, bias in [(1, 1, 1, True), (5, 7, 3, False), (17, 33, 65, True), (3, 20, 129, True), (40, 24, 16, False)]:
    x, w, b, dy = numbers(rows, inputs), numbers(outputs, inputs), numbers(outputs) if bias else None, numbers(rows, outputs)
    for t in (x, w, b):
        if t is not None:
            t.requires_grad_()
    y = F.linear(x, w, b)
    y.backward(dy)
    cases.append({"kind": "linear", "rows": rows, "outputs": outputs, "inputs": inputs, "x": flat(x), "w": flat(w), "b": flat(b) if bias else None,
                  "dy": flat(dy), "y": flat(y), "dx": flat(x.grad), "dw": flat(w.grad), "db": flat(b.grad) if bias else None})
for images, channels, height, width, filters, stride, padding, bias in [
    (1, 1, 3, 3, (1, 3, 3), (1, 1), (0, 0), False), (2, 3, 9, 7, (5, 3, 3), (1, 1), (1, 1), True), (1, 4, 11, 13, (6, 5, 2), (2, 3), (2, 0), True), (1, 2, 20, 20, (3, 1, 1), (1, 1), (0, 0), False)]:
    outputs, kh, kw = filters
    x, w, b = numbers(images, channels, height, width), numbers(outputs, channels, kh, kw), numbers(outputs) if bias else None
    y = F.conv2d(x, w, b, stride=stride, padding=padding)
    cases.append({"kind": "conv2d", "images": images, "image": [height, width], "filters": [outputs, channels, kh, kw], "stride": stride, "padding": padding,
                  "x": flat(x), "w": flat(w), "b": flat(b) if bias else None, "y": flat(y), "extents": list(y.shape[2:])})
for batch, heads, key_heads, queries, keys, width, causal in [(1, 1, 1, 1, 1, 1, False), (2, 4, 2, 5, 5, 8, True), (1, 6, 3, 1, 130, 4, True), (1, 2, 2, 70, 70, 3, True), (2, 3, 1, 4, 67, 5, False), (1, 4, 4, 3, 90, 8, True)]:
    q, k, v = numbers(batch, heads, queries, width), numbers(batch, key_heads, keys, width), numbers(batch, key_heads, keys, width)
    mask = torch.ones(queries, keys, dtype=torch.bool).tril(keys - queries) if causal else None
    y = F.scaled_dot_product_attention(q, k.repeat_interleave(heads // key_heads, 1), v.repeat_interleave(heads // key_heads, 1), attn_mask=mask)
    cases.append({"kind": "attention", "batch": batch, "heads": heads, "key_heads": key_heads, "queries": queries, "keys": keys, "width": width, "causal": causal,
                  "q": flat(q), "k": flat(k), "v": flat(v), "y": flat(y)})


def decoder(w, x, heads, key_heads, width):
    """A layer of LLaMA's shape, for one sequence."""
    norm = lambda x, w: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * w
    angles = torch.outer(torch.arange(len(x)).double(), 10000.0 ** (-torch.arange(width // 2).double() / (width // 2)))
    cos, sin = (torch.cat([f(angles)] * 2, -1) for f in (torch.cos, torch.sin))
    turned = lambda x: x * cos + torch.cat([-x[..., width // 2:], x[..., : width // 2]], -1) * sin
    h = norm(x, w["input_layernorm"])
    q, k, v = (F.linear(h, w[f"self_attn.{n}_proj"]).view(len(x), -1, width).transpose(0, 1) for n in "qkv")
    k, v = (t.repeat_interleave(heads // key_heads, 0) for t in (turned(k), v))
    attended = F.scaled_dot_product_attention(turned(q)[None], k[None], v[None], is_causal=True)[0]
    x = x + F.linear(attended.transpose(0, 1).reshape(len(x), -1), w["self_attn.o_proj"])
    h = norm(x, w["post_attention_layernorm"])
    return x + F.linear(F.silu(F.linear(h, w["mlp.gate_proj"])) * F.linear(h, w["mlp.up_proj"]), w["mlp.down_proj"])


for tokens, hidden, heads, key_heads, width, middle in [(5, 16, 4, 2, 6, 20), (1, 8, 2, 2, 4, 12)]:
    shapes = {"input_layernorm": (hidden,), "post_attention_layernorm": (hidden,), "self_attn.q_proj": (heads * width, hidden),
              "self_attn.k_proj": (key_heads * width, hidden), "self_attn.v_proj": (key_heads * width, hidden), "self_attn.o_proj": (hidden, heads * width),
              "mlp.gate_proj": (middle, hidden), "mlp.up_proj": (middle, hidden), "mlp.down_proj": (hidden, middle)}
    w, x = {name: numbers(*shape) / 4 for name, shape in shapes.items()}, numbers(tokens, hidden)
    cases.append({"kind": "decoder", "heads": heads, "key_heads": key_heads, "x": flat(x), "y": flat(decoder(w, x, heads, key_heads, width)),
                  "weights": {name: {"shape": list(t.shape), "numbers": flat(t)} for name, t in w.items()}})
print(json.dumps({"torch": torch.__version__, "cases": cases}, separators=(",", ":")))
print(f"{len(cases)} cases", file=sys.stderr)

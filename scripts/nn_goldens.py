#!/usr/bin/env python3
"""What PyTorch computes for the layers of crates/nn, in double precision over numbers that f32 and bf16 hold exactly.

    nn_goldens.py > crates/nn/tests/goldens.json      needs torch
"""

import json
import sys

import torch
import torch.nn.functional as F

torch.manual_seed(1)


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
print(json.dumps({"torch": torch.__version__, "cases": cases}, separators=(",", ":")))
print(f"{len(cases)} cases", file=sys.stderr)

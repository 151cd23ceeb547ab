#!/usr/bin/env python3
"""A decoder layer of LLaMA-2 7B's shape in bf16, ours beside PyTorch's, in turns.

    decoder_layer.py BINARY --rows 1,16,128,597 --threads 2 --record DIR

BINARY is the example of crates/nn (`cargo build --release -p gemwright-nn --example decoder_layer`). Both read the same
random weights and tokens; ours must be about as near to PyTorch's layer in f32 as its layer in bf16 is, first. Every
round runs each once; what is kept is every time, its median and the median of the paired ratios.
"""

import argparse
import json
import math
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch.nn import functional as F

HIDDEN, HEADS, MIDDLE, WIDTH = 4096, 32, 11008, 128


def drawn(seed, tokens):
    torch.manual_seed(seed)
    linear = lambda n, k: (torch.randn(n, k) / math.sqrt(k)).bfloat16()
    tensors = {f"layer.self_attn.{x}_proj.weight": linear(HIDDEN, HIDDEN) for x in "qkvo"}
    tensors |= {f"layer.mlp.{x}_proj.weight": linear(MIDDLE, HIDDEN) for x in ("gate", "up")}
    tensors["layer.mlp.down_proj.weight"] = linear(HIDDEN, MIDDLE)
    for norm in ("input_layernorm", "post_attention_layernorm"):
        tensors[f"layer.{norm}.weight"] = (1 + 0.1 * torch.randn(HIDDEN)).bfloat16()
    tensors["x"] = torch.randn(tokens, HIDDEN).bfloat16()
    return tensors


def normed(x, weight):
    wide = x.float()
    return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-5)).to(x.dtype) * weight


def turned(x):
    """[heads, tokens, width], each token by its place."""
    half = WIDTH // 2
    angles = torch.outer(torch.arange(x.shape[1]).float(), 10000.0 ** (-torch.arange(half).float() / half))
    cos, sin = (torch.cat([f(angles)] * 2, -1).to(x.dtype) for f in (torch.cos, torch.sin))
    return x * cos + torch.cat([-x[..., half:], x[..., :half]], -1) * sin


def layer(w, x):
    """As transformers has it, for one sequence."""
    h = normed(x, w["layer.input_layernorm.weight"])
    q, k, v = (F.linear(h, w[f"layer.self_attn.{n}_proj.weight"]).view(-1, HEADS, WIDTH).transpose(0, 1) for n in "qkv")
    attended = F.scaled_dot_product_attention(turned(q)[None], turned(k)[None], v[None], is_causal=True)[0]
    x = x + F.linear(attended.transpose(0, 1).reshape(-1, HIDDEN), w["layer.self_attn.o_proj.weight"])
    h = normed(x, w["layer.post_attention_layernorm.weight"])
    gated = F.silu(F.linear(h, w["layer.mlp.gate_proj.weight"])) * F.linear(h, w["layer.mlp.up_proj.weight"])
    return x + F.linear(gated, w["layer.mlp.down_proj.weight"])


class Ours:
    def __init__(self, binary, file, threads):
        words = [binary, file, HEADS, HEADS, threads]
        self.process = subprocess.Popen(list(map(str, words)), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout.readline() == "ready\n"

    def ask(self, words):
        self.process.stdin.write(words + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline().strip()
        assert answer, f"`{words}` was not answered"
        return answer


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("binary")
    parser.add_argument("--rows", default="1,16,128,597")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--record", type=Path, required=True)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    rows = [int(m) for m in options.rows.split(",")]
    weights = drawn(1, max(rows))
    wide = {name: tensor.float() for name, tensor in weights.items()}
    lines, raw = [], []
    say = lambda text: (lines.append(text), print(text, flush=True))
    with tempfile.TemporaryDirectory() as folder, torch.inference_mode():
        file = Path(folder) / "layer.safetensors"
        save_file(weights, file)
        ours = Ours(options.binary, file, options.threads)
        say(f"LLaMA-2 7B layer, bf16, {options.threads} threads, PyTorch {torch.__version__}, {platform.processor() or platform.machine()}")
        say(next((x.split(":")[1].strip() for x in open("/proc/cpuinfo") if x.startswith("model name")), ""))
        for m in rows:
            x = weights["x"][:m]
            theirs = layer(weights, x).float()
            out = Path(folder) / "y"
            ours.ask(f"write {m} {out}")
            found = torch.frombuffer(bytearray(out.read_bytes()), dtype=torch.float32).view(m, HIDDEN)
            exact = layer(wide, x.float())
            off = lambda y: float((y - exact).norm() / exact.norm())
            assert off(found) <= max(1.5 * off(theirs), 0.01), f"{m} rows: {off(found)} off, PyTorch {off(theirs)}"
            times = {"ours": [], "pytorch": []}
            for i in range(options.rounds + 1):
                time.sleep(0.02)
                mine = float(ours.ask(f"time {m}"))
                time.sleep(0.02)
                begin = time.perf_counter()
                layer(weights, x)
                other = time.perf_counter() - begin
                # The first round is not counted.
                if i > 0:
                    times["ours"].append(mine)
                    times["pytorch"].append(other)
            median = {name: statistics.median(values) for name, values in times.items()}
            ratio = statistics.median(y / x for x, y in zip(times["ours"], times["pytorch"]))
            spread = {name: (max(v) - min(v)) / statistics.median(v) for name, v in times.items()}
            say(
                f"{m:5} rows: ours {median['ours'] * 1e3:.2f} ms (spread {spread['ours']:.0%}), PyTorch {median['pytorch'] * 1e3:.2f} ms "
                f"(spread {spread['pytorch']:.0%}), {ratio:.3f} times as fast; off by {off(found):.2e}, PyTorch by {off(theirs):.2e}"
            )
            raw.append({"rows": m, "times": times, "ratio": ratio, "off": off(found), "off_pytorch": off(theirs)})
    options.record.mkdir(parents=True, exist_ok=True)
    (options.record / "summary.txt").write_text("\n".join(lines) + "\n")
    (options.record / "raw.json").write_text(json.dumps(raw, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())

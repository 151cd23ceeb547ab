#!/usr/bin/env python3
"""Fused layers on a GPU: gemwright's kernels beside PyTorch's ways, in turns.

    python3 benches/cuda/fused.py PATH/TO/gemwright --record DIR [--rounds 5]

For each shape: linear + bias + GELU (tanh), and SiLU(x gate') * (x up'). PyTorch runs each eagerly, compiled and compiled
with max-autotune; gemwright runs the layer and the bare product (SiLU: of width 2N), with cuBLASLt's default and best of
eight beside it. Every round takes one turn of each. A window is a CUDA graph of as many calls as take 1.5 ms, at full
clocks (8 ms of rest before each), bf16, normal numbers.
"""
import argparse, csv, json, pathlib, statistics

import torch
import torch.nn.functional as F

from windows import WINDOWS, gemwright, gpu, graph_of, windows

SHAPES = [(8192, 4096, 4096), (8192, 14336, 4096), (512, 14336, 4096)]
def torch_ways(layer, m, n, k):
    x, w, b = (torch.randn(*size, device="cuda", dtype=torch.bfloat16) for size in [(m, k), (n, k), (n,)])
    up = torch.randn(n, k, device="cuda", dtype=torch.bfloat16)
    both = torch.cat([w, up])

    def gelu(x, w, b):
        return F.gelu(F.linear(x, w, b), approximate="tanh")

    def silu_two(x, w, up):
        return F.silu(F.linear(x, w)) * F.linear(x, up)

    def silu_one(x, both):
        gate, other = F.linear(x, both).chunk(2, dim=-1)
        return F.silu(gate) * other

    plain = {"gelu": [("torch", gelu, (x, w, b))], "silu": [("torch", silu_two, (x, w, up)), ("torch one product", silu_one, (x, both))]}
    ways = {}
    for name, call, given in plain[layer]:
        for how, made in [
            ("eager", lambda c: c),
            ("compile", lambda c: torch.compile(c, fullgraph=True)),
            ("max-autotune", lambda c: torch.compile(c, fullgraph=True, mode="max-autotune-no-cudagraphs")),
        ]:
            torch._dynamo.reset()
            run = made(call)
            try:
                with torch.no_grad():
                    ways[f"{name} {how}"] = graph_of(lambda run=run, given=given: run(*given))
            except Exception as why:  # a way that does not work is named, the others go on
                print(f"{name} {how}: {why}", flush=True)
    width = {"gelu": n, "silu": 2 * n}[layer]
    bare = both if layer == "silu" else w
    with torch.no_grad():
        ways[f"torch bare product of width {width}"] = graph_of(lambda: F.linear(x, bare))
    return ways


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("binary")
    parser.add_argument("--record", required=True)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    folder = pathlib.Path(args.record)
    folder.mkdir(parents=True, exist_ok=True)
    rows = []
    for layer in ["gelu", "silu"]:
        for m, n, k in SHAPES:
            ways = torch_ways(layer, m, n, k)
            epilogue = {"gelu": "bias,gelu-tanh", "silu": "silu,gated"}[layer]
            width = n if layer == "gelu" else 2 * n
            times = {}
            for _ in range(args.rounds):
                for name, way in ways.items():
                    times.setdefault(name, []).extend(windows(*way))
                [fused] = gemwright(args.binary, "TN", (m, n, k), "--epilogue", epilogue, "--against", "none")
                times.setdefault("gemwright fused", []).extend(fused["us"])
                times.setdefault("gemwright fused kernel", fused["name"])
                for time_ in gemwright(args.binary, "TN", (m, width, k)):
                    name = "gemwright bare product" if time_["own"] else "cublaslt bare, default" if time_["name"] == "cublaslt" else "cublaslt bare, best of 8"
                    times.setdefault(name, []).extend(time_["us"])
            kernel = times.pop("gemwright fused kernel")
            median = {name: statistics.median(values) for name, values in times.items()}
            fused = median["gemwright fused"]
            torch_best = min((median[name], name) for name in median if name.startswith("torch") and "bare" not in name)
            bare = min((median[name], name) for name in median if "bare" in name)
            row = {
                "layer": layer, "M": m, "N": n, "K": k, "kernel": kernel, "fused us": round(fused, 2),
                "torch's best us": round(torch_best[0], 2), "way": torch_best[1], "times as fast": round(torch_best[0] / fused, 3),
                "fastest bare us": round(bare[0], 2), "by": bare[1], "over the bare": round(fused / bare[0] - 1, 4),
            }
            rows.append({**row, "raw": {name: [round(x, 2) for x in values] for name, values in times.items()}})
            print(json.dumps(row), flush=True)
    raw = {"torch": torch.__version__, "gpu": gpu(), "rounds": args.rounds, "windows": WINDOWS, "layers": rows}
    (folder / "raw.json").write_text(json.dumps(raw))
    with open(folder / "table.csv", "w", newline="") as file:
        writer = csv.DictWriter(file, [key for key in rows[0] if key != "raw"], extrasaction="ignore")
        writer.writeheader()
        writer.writerows(rows)


main()

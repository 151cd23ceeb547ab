#!/usr/bin/env python3
"""Products of experts on a GPU: gemwright's kernels beside PyTorch's `_grouped_mm`, in turns.

    python3 benches/cuda/grouped.py PATH/TO/gemwright --record DIR [--rounds 5] [--routing even] [--passes forward,input,weight]

Both products of a layer of Qwen3-30B-A3B (128 experts) and of Mixtral 8x7B (8), for 1024 and 16384 rows in all. Every round
takes one turn of each; bf16, normal numbers, where groups end is read on the device.
"""
import argparse, json, pathlib, statistics

import torch

from windows import WINDOWS, gemwright, gpu, graph_of, windows

SHAPES = [("Qwen3-30B-A3B gate and up", 128, 1536, 2048), ("Qwen3-30B-A3B down", 128, 2048, 768), ("Mixtral gate and up", 8, 28672, 4096), ("Mixtral down", 8, 4096, 14336)]
MASK = (1 << 64) - 1


def mix(x):
    """As gemwright deals rows out by chance."""
    x = (x + 0x9E3779B97F4A7C15) & MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return x ^ (x >> 31)


def ends(routing, rows, groups):
    if routing == "even":
        return [rows * (g + 1) // groups for g in range(groups)]
    counts = [0] * groups
    for row in range(rows):
        counts[mix(row) % groups] += 1
    return [sum(counts[: g + 1]) for g in range(groups)]


def torch_way(kind, groups, rows, n, k, offsets):
    def some(*size):
        return torch.randn(*size, device="cuda", dtype=torch.bfloat16)

    if kind == "forward":
        x, w = some(rows, k), some(groups, n, k)
        return lambda: torch._grouped_mm(x, w.transpose(-2, -1), offs=offsets)
    if kind == "input":
        dy, w = some(rows, n), some(groups, n, k)
        return lambda: torch._grouped_mm(dy, w, offs=offsets)
    dy, x = some(rows, n), some(rows, k)
    return lambda: torch._grouped_mm(dy.t(), x, offs=offsets)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("binary")
    parser.add_argument("--record", required=True, type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--routing", default="even", choices=["even", "random"])
    parser.add_argument("--passes", default="forward,input,weight")
    parser.add_argument("--models", default="Qwen3,Mixtral")
    args = parser.parse_args()
    args.record.mkdir(parents=True, exist_ok=True)
    rows = []
    for name, groups, n, k in SHAPES:
        if not name.startswith(tuple(args.models.split(","))):
            continue
        for m in [1024, 16384]:
            offsets = torch.tensor(ends(args.routing, m, groups), device="cuda", dtype=torch.int32)
            for kind in args.passes.split(","):
                flags, shape = {"forward": ("TN", (m, n, k)), "input": ("NN", (m, k, n)), "weight": ("NT", (n, k, m))}[kind]
                torch.cuda.empty_cache()
                way = graph_of(torch_way(kind, groups, m, n, k, offsets))
                times, kernel = {}, ""
                for _ in range(args.rounds):
                    times.setdefault("torch._grouped_mm", []).extend(windows(*way))
                    [own] = gemwright(args.binary, flags, shape, "--groups", str(groups), "--routing", args.routing, "--against", "none")
                    times.setdefault("gemwright", []).extend(own["us"])
                    kernel = own["name"]
                del way
                median = {who: statistics.median(values) for who, values in times.items()}
                row = {
                    "product": name, "pass": kind, "groups": groups, "rows": m, "N": n, "K": k, "kernel": kernel, "gemwright us": round(median["gemwright"], 2),
                    "torch us": round(median["torch._grouped_mm"], 2), "times as fast": round(median["torch._grouped_mm"] / median["gemwright"], 3),
                }
                rows.append({**row, "raw": {who: [round(x, 2) for x in values] for who, values in times.items()}})
                print(json.dumps(row), flush=True)
    raw = {"torch": torch.__version__, "gpu": gpu(), "rounds": args.rounds, "windows": WINDOWS, "routing": args.routing, "products": rows}
    (args.record / f"{args.routing}.json").write_text(json.dumps(raw))


main()

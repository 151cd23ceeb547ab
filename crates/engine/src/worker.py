"""PyTorch as a candidate: takes turns with the others, and times itself.

One request a line, one answer a line, both JSON. `prepare` builds the operands (random numbers, as many sets as
asked for) and holds a few rows against sums in double precision; `turn` runs some times and then times a number of runs.
"""
import json
import sys
import time

import torch

state = {}


def view(layout, batch, rows, cols, dtype):
    row, col, step = layout
    extents = (batch, rows, cols)
    if any(s < 0 for s in (row, col, step)):
        raise ValueError("negative strides")
    size = 1 + sum(s * (n - 1) for s, n in zip((step, row, col), extents) if n > 0)
    tensor = torch.rand(size, dtype=dtype) - 0.5
    return torch.as_strided(tensor, extents, (step, row, col))


def prepare(request):
    torch.set_num_threads(request["threads"])
    dtype = getattr(torch, request["dtype"])
    batch, m, n, k = request["extents"]
    sets = []
    for _ in range(request["sets"]):
        a = view(request["a"], batch, m, k, dtype)
        b = view(request["b"], batch, k, n, dtype)
        sets.append((a[0], b[0]) if batch == 1 else (a, b))
    if request["prepacked"]:
        if batch != 1 or dtype == torch.float64:
            raise ValueError("weights are laid out for single products in float32 and bfloat16")
        laid = [(a, torch.ops.mkldnn._reorder_linear_weight(b.T.contiguous(), m)) for a, b in sets]
        runs = [lambda a=a, w=w: torch.ops.mkldnn._linear_pointwise(a, w, None, "none", [], "") for a, w in laid]
    elif batch == 1:
        runs = [lambda a=a, b=b: torch.mm(a, b) for a, b in sets]
    else:
        runs = [lambda a=a, b=b: torch.bmm(a, b) for a, b in sets]
    a, b = (t.double() for t in sets[0])
    rows = min(m, 8)
    exact, bound = a[..., :rows, :] @ b, a[..., :rows, :].abs() @ b.abs()
    error = (runs[0]()[..., :rows, :].double() - exact).abs()
    sums = torch.float64 if dtype == torch.float64 else torch.float32
    allowed = (k + 2) * torch.finfo(sums).eps * bound + torch.finfo(dtype).eps * exact.abs() + 1e-30
    if bool((error > allowed).any()):
        raise ValueError("its result is wrong")
    state.update(runs=runs, at=0)
    return {}


def once():
    state["at"] += 1
    state["runs"][state["at"] % len(state["runs"])]()


def turn(request):
    for _ in range(1 + request["repeats"] // 4):
        once()
    begin = time.perf_counter()
    for _ in range(request["repeats"]):
        once()
    return {"seconds": (time.perf_counter() - begin) / request["repeats"]}


def main():
    torch.set_grad_enabled(False)
    print(json.dumps({"version": f"PyTorch {torch.__version__}"}), flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = prepare(request) if request["do"] == "prepare" else turn(request)
        except Exception as error:  # Whatever is wrong is said to who asked.
            answer = {"error": (str(error).splitlines() or [type(error).__name__])[0][:200]}
        print(json.dumps(answer), flush=True)


main()

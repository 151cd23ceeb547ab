"""PyTorch as a candidate: takes turns with the others, and times itself.

One request a line, one answer a line, both JSON, after one that says which version it is and one that says whether it
could be loaded. `prepare` builds the operands (random numbers, as many sets as asked for) and holds a few rows of every way
it has against sums in double precision; `choose` keeps the fastest of these ways, asked for when nothing else is at work;
`turn` runs some times and then times a number of runs.
"""
import importlib.metadata
import json
import sys
import time


def say(answer):
    print(json.dumps(answer), flush=True)


def first_line(error):
    return (str(error).splitlines() or [type(error).__name__])[0][:200]


# Whether it is here is said at once; loading it takes seconds, in which whoever asks has other things to do.
try:
    say({"version": f"PyTorch {importlib.metadata.version('torch')}"})
except importlib.metadata.PackageNotFoundError:
    # It may lie on the path without having been installed.
    import torch

    say({"version": f"PyTorch {torch.__version__}"})
try:
    import torch
except Exception as error:
    say({"error": f"it cannot be loaded: {first_line(error)}"})
    sys.exit(1)
say({})

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
    names = request["epilogue"]
    if names and batch != 1:
        raise ValueError("epilogues are asked of single products")
    sets = []
    for _ in range(request["sets"]):
        a = view(request["a"], batch, m, k, dtype)
        b = view(request["b"], batch, k, n, dtype)
        parts = {name: torch.rand(n if name in ("scale", "bias") else (m, n), dtype=dtype) - 0.5
                 for name in names if name in ("scale", "bias", "times", "residual")}
        sets.append((a[0], b[0], parts) if batch == 1 else (a, b, parts))
    if request["prepacked"] and (batch != 1 or dtype == torch.float64):
        raise ValueError("weights are laid out for single products in float32 and bfloat16")
    a, b, parts = sets[0]
    a, b, parts = a[..., :min(m, 8), :].double(), b.double(), {name: part.double() for name, part in parts.items()}
    parts = {name: part[:min(m, 8)] if part.dim() == 2 else part for name, part in parts.items()}
    exact, bound = finished(a @ b, names, parts), a.abs() @ b.abs()
    sums = torch.float64 if dtype == torch.float64 else torch.float32
    # An epilogue of several operations rounds after each of them.
    roundings = 1 + 2 * len(names)
    allowed = (k + 2) * torch.finfo(sums).eps * bound + roundings * torch.finfo(dtype).eps * (exact.abs() + bool(names)) + 1e-30
    found = [[way(*one) for one in sets] for way in ways(request, names)]
    for runs in found:
        error = (runs[0]()[..., :min(m, 8), :].double() - exact).abs()
        if bool((error > allowed).any()):
            raise ValueError("its result is wrong")
    state.update(ways=found, runs=found[0], at=0)
    return {"ways": len(found)}


def choose():
    def least(runs):
        times = []
        for number in range(5):
            begin = time.perf_counter()
            runs[number % len(runs)]()
            times.append(time.perf_counter() - begin)
        return min(times[1:])

    state["runs"] = min(state.pop("ways"), key=least)
    return {}


ACTIVATIONS = {
    "relu": torch.relu,
    "gelu": torch.nn.functional.gelu,
    "gelu-tanh": lambda x: torch.nn.functional.gelu(x, approximate="tanh"),
    "silu": torch.nn.functional.silu,
}
# The same in the words of oneDNN's product.
POINTWISE = {"relu": ("relu", ""), "gelu": ("gelu", "none"), "gelu-tanh": ("gelu", "tanh"), "silu": ("swish", "")}


def finished(y, names, parts, skip=()):
    """The epilogue, operation by operation."""
    for name in names:
        if name in skip:
            continue
        if name in ACTIVATIONS:
            y = ACTIVATIONS[name](y)
        elif name in ("scale", "times"):
            y = y * parts[name]
        else:
            y = y + parts[name]
    return y


def ways(request, names):
    """The ways PyTorch has for a product with this epilogue: each gives, for operands, what runs it."""
    if request["prepacked"]:
        m = request["extents"][1]
        return [pointwise(names, lambda b: torch.ops.mkldnn._reorder_linear_weight(b.T.contiguous(), m))]
    if request["extents"][0] != 1:
        return [lambda a, b, parts: lambda: torch.bmm(a, b)]
    if not names:
        return [lambda a, b, parts: lambda: torch.mm(a, b)]

    def product(a, b, parts):
        if names[0] == "bias":
            return finished(torch.addmm(parts["bias"], a, b), names, parts, ("bias",))
        return finished(torch.mm(a, b), names, parts)

    found = [lambda a, b, parts: lambda: product(a, b, parts)]
    if request["dtype"] != "float64" and request["b"][0] == 1:
        found.append(pointwise(names, lambda b: b.T))
    try:
        compiled = torch.compile(product, dynamic=False)
        compiled(torch.zeros(2, 2), torch.zeros(2, 2), {name: torch.zeros(2) for name in names})
        found.append(lambda a, b, parts: lambda: compiled(a, b, parts))
    except Exception:  # Without a compiler there is one way less.
        pass
    return found


def pointwise(names, laid):
    """oneDNN's product with bias and activation inside, the rest after it."""
    inside = names[:1] if names[:1] == ["bias"] else []
    if len(names) > len(inside) and names[len(inside)] in POINTWISE:
        inside = names[: len(inside) + 1]
    kind, how = POINTWISE.get(inside[-1], ("none", "")) if inside else ("none", "")

    def way(a, b, parts):
        weight, bias = laid(b), parts["bias"] if "bias" in inside else None
        run = torch.ops.mkldnn._linear_pointwise
        return lambda: finished(run(a, weight, bias, kind, [], how), names, parts, inside)

    return way


def once():
    state["at"] += 1
    state["runs"][state["at"] % len(state["runs"])]()


def turn(request):
    begin = time.perf_counter()
    once()
    while time.perf_counter() - begin < request["warm"]:
        once()
    begin = time.perf_counter()
    for _ in range(request["repeats"]):
        once()
    return {"seconds": (time.perf_counter() - begin) / request["repeats"]}


def main():
    torch.set_grad_enabled(False)
    for line in sys.stdin:
        request = json.loads(line)
        try:
            if request["do"] == "prepare":
                answer = prepare(request)
            else:
                answer = choose() if request["do"] == "choose" else turn(request)
        except Exception as error:  # Whatever is wrong is said to who asked.
            answer = {"error": first_line(error)}
        say(answer)


main()

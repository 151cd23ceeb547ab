#!/usr/bin/env python3
"""Exports through the tools' own readers, those that are on PyPI.

    exports.py BINARY       needs torch; and nvidia-matmul-heuristics for the second half

TunableOp: PyTorch's offline reader takes every line and builds its operands, on a device without memory; their sizes and
strides must be those of the product that was exported. nvMatmulHeuristics: every problem of the list gets a kernel.
CUTLASS's profiler, hipblaslt-bench and rocblas-bench are not on PyPI: their lines are taken apart here as their manuals
say, apart from the readers in crates/exchange, and must give the extents and strides that `model --format json` has.
"""

import inspect
import json
import os
import subprocess
import sys
import tempfile
import warnings

MODEL = ["opt-6.7b", "--layers", "1", "--phase", "train", "--batch", "2", "--seq", "64", "--attention", "eager"]


def run(binary, *words):
    return subprocess.run([binary, *words], capture_output=True, text=True, check=True).stdout


def tunableop(binary):
    import torch
    import torch.cuda.tunable as tunable

    # The reader as it is, but for the device it puts its operands on.
    source = inspect.getsource(tunable).replace('deviceid = "cuda:" + str(gpu_id)', 'deviceid = "meta"')
    reader = {"__name__": "reader", "__file__": tunable.__file__}
    exec(compile(source, "tunable.py", "exec"), reader)
    seen = []
    record = lambda *operands, **_: seen.append([(tuple(x.shape), x.stride()) for x in operands if x is not None])
    for name in ("mm", "bmm"):
        setattr(torch, name, record)
    torch.nn.functional.linear = lambda x, w, b=None: seen.append([(tuple(x.shape), x.stride()), (tuple(w.t().shape), w.t().stride())])
    good = skipped = 0
    with tempfile.NamedTemporaryFile("w", suffix=".csv") as file:
        text = run(binary, "export", *MODEL, "--to", "tunableop", "--quiet")
        for line in text.splitlines():
            seen.clear()
            with warnings.catch_warnings(record=True) as said:
                warnings.simplefilter("always")
                reader["_process_single_offline_gemm"](line, 0)
            if not seen:
                skipped += 1
                print("PyTorch leaves this to online tuning:", line, [str(w.message)[:60] for w in said][:1])
                continue
            words = line.split(",")[1].split("_")
            n, m, k = map(int, words[1:4])
            (a, _), (b, _) = seen[0][:2]
            assert (a[-2], a[-1], b[-1]) == (m, k, n), (line, seen)
            good += 1
    print(f"TunableOp: {good} lines read by PyTorch {torch.__version__} as they were meant, {skipped} left to online tuning")


def heuristics(binary):
    try:
        from nvMatmulHeuristics import NvMatmulHeuristicsInterface, NvMatmulHeuristicsNvidiaGpu, NvMatmulHeuristicsTarget
        from nvMatmulHeuristics import NvMatmulHeuristicsMatmulLayout as Layout
    except ImportError as missing:
        print("nvMatmulHeuristics: not here:", missing)
        return
    interface = NvMatmulHeuristicsInterface(NvMatmulHeuristicsTarget.CUTLASS3, precision="TST")
    hardware = interface.createHardwareDescriptor()
    interface.setHardwarePredefinedGpu(hardware, NvMatmulHeuristicsNvidiaGpu.H200_SXM)
    problems = json.loads(run(binary, "export", *MODEL, "--to", "nvmatmulheuristics", "--quiet"))
    # Column-major names: a row-major operand is a transposed one.
    layouts = {"tnt": Layout.TN_ROW_MAJOR, "ttt": Layout.TT_ROW_MAJOR, "nnt": Layout.NN_ROW_MAJOR, "ntt": Layout.NT_ROW_MAJOR}
    bf16 = [p for p in problems if p["dtype_a"] == "bf16"]
    for p in bf16:
        kernels = interface.get_with_mnk(p["m"], p["n"], p["k"], layouts[p["layout"]], 1, hardware)
        assert kernels, p
    print(f"nvMatmulHeuristics: {len(bf16)} problems, a kernel for each")
    return interface, hardware


def options(line):
    """--name=value and --name value, a flag alone is true."""
    words, found, i = line.split()[1:], {}, 0
    while i < len(words):
        name, equals, value = words[i].lstrip("-").partition("=")
        if not equals and i + 1 < len(words) and not words[i + 1].startswith("-"):
            value, i = words[i + 1], i + 1
        found[name], i = value or True, i + 1
    return found


def by_lines(binary):
    """Extents, and for both operands the strides of a row and of a column, of every product without a bias."""
    model = json.loads(run(binary, "model", *MODEL, "--format", "json"))["calls"]
    products = lambda *ops: [c for c in model if "product" in c and c["op"] in ops]
    strides = lambda c: tuple(tuple(c[x]["stride"][-2:]) for x in "ab")
    extents = lambda c: tuple(c["product"][x] for x in ("batch", "m", "n", "k"))
    of = lambda *ops: {(extents(c), strides(c)) for c in products(*ops)}
    expected = of("aten::mm", "aten::bmm")
    # Its library has no bias: what is left of a product with one is the product.
    everything = of("aten::mm", "aten::bmm", "aten::addmm")
    dense = {(e, s) for e, s in expected if all(1 in pair and max(pair) in e[1:] for pair in s)}

    def cutlass(line):
        o = options(line)
        m, n, k = (int(o[x]) for x in "mnk")
        a = (k, 1) if o["A"].endswith(":row") else (1, m)
        b = (n, 1) if o["B"].endswith(":row") else (1, k)
        return (int(o.get("batch_count", 1)), m, n, k), (a, b)

    def roc(line):
        o = options(line)
        # Column-major: its first operand is our second one.
        b = (1, int(o["lda"])) if o.get("transA", o.get("transposeA")) == "T" else (int(o["lda"]), 1)
        a = (int(o["ldb"]), 1) if o.get("transB", o.get("transposeB")) == "N" else (1, int(o["ldb"]))
        return (int(o.get("batch_count", 1)), int(o["n"]), int(o["m"]), int(o["k"])), (a, b)

    for name, parse, want in (("cutlass-profiler", cutlass, dense), ("hipblaslt-bench", roc, expected), ("rocblas-bench", roc, everything)):
        lines = run(binary, "export", *MODEL, "--to", name, "--quiet").splitlines()
        found = {parse(line) for line in lines if "bias_vector" not in line}
        assert found == want, (name, found ^ want)
        print(f"{name}: {len(lines)} lines, all {len(found)} different products as they are")


if __name__ == "__main__":
    by_lines(sys.argv[1])
    tunableop(sys.argv[1])
    # Kept until the end: beside torch, nvMatmulHeuristics falls when its library is closed.
    kept = heuristics(sys.argv[1])
    sys.stdout.flush()
    os._exit(0)

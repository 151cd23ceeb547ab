#!/usr/bin/env python3
"""Two traces that try a page hard: names that would like to be markup, and a table of 100,000 rows.

    traces.py FOLDER      writes hostile.json and large.json into it
"""

import json
import pathlib
import sys

HOSTILE = [
    "<script>document.title='ran'</script>",
    "</script><script>alert(1)</script>",
    "<img src=x onerror=alert(2)>",
    "\"'`${alert(3)}\\",
    "javascript:alert(4)//",
    "]]><!-- --><svg onload=alert(5)>",
    "line\nend\ttab\u0007bell\u0000nul\u001b[31mred",
    "\u202eright to left\u2028separator\u2029",
    "=HYPERLINK(\"http://127.0.0.1\")",
    "__proto__",
]


def trace(names, shapes):
    events = []
    for i, (name, (m, n, k)) in enumerate(zip(names, shapes)):
        at = 1000.0 + 20 * i
        args = {"External id": i, "Input Dims": [[m, k], [k, n]], "Input type": ["c10::BFloat16", "c10::BFloat16"],
                "Input Strides": [[k, 1], [n, 1]], "Concrete Inputs": ["", ""], "Sequence number": i}
        events.append({"ph": "X", "cat": "cpu_op", "name": name, "pid": 1, "tid": 1, "ts": at, "dur": 8, "args": args})
        launch = {"External id": i, "correlation": i}
        events.append({"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1, "ts": at + 2,
                       "dur": 3, "args": launch})
        kernel = {"External id": i, "correlation": i, "device": 0, "stream": 7, "grid": [1, 1, 1], "block": [128, 1, 1]}
        events.append({"ph": "X", "cat": "kernel", "name": "kernel of " + name, "pid": 0, "tid": 7, "ts": at + 6, "dur": 11,
                       "args": kernel})
    device = {"id": 0, "name": "NVIDIA H200", "totalGlobalMem": 150123708416, "numSms": 132}
    return {"deviceProperties": [device], "traceEvents": events}


if __name__ == "__main__":
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    names = [name for name in HOSTILE for _ in range(2)] + ["aten::mm"] * 4
    (folder / "hostile.json").write_text(json.dumps(trace(names, [(64 + i, 64, 64) for i in range(len(names))])))
    count = 100_000
    shapes = [(1 + i % 1000, 8 * (1 + i // 1000), 512) for i in range(count)]
    (folder / "large.json").write_text(json.dumps(trace(["aten::mm"] * count, shapes)))

#!/usr/bin/env python3
"""Turns a recording (scripts/record.py) into a golden of tests/golden.

  golden.py RECORDING.json ... --out tests/golden

A golden is text, one call a line, so that a change shows as a readable difference:

  config {...}            config.json as transformers saves it
  given {...}             the fields as the model's publisher writes them
  parameters N
  run {...}               what was run; then its calls in order
  mm forward MODULE A B BIAS OUT xCOUNT
  attention forward MODULE fused causal gqa scale=S Q K V MASK xCOUNT

A tensor is SIZExSIZE:STRIDE,STRIDE/DTYPE; row-major strides and bf16 are left out.
tests/golden.rs writes the program's answer the same way and compares.
"""
import argparse
import json
import os


def tensor(t):
    if t is None:
        return "-"
    size, stride = t["size"], t["stride"]
    row_major, step = [], 1
    for n in reversed(size):
        row_major.insert(0, step)
        step *= max(n, 1)
    text = "x".join(map(str, size))
    if stride != row_major:
        text += ":" + ",".join(map(str, stride))
    return text + ("" if t["dtype"] == "bf16" else "/" + t["dtype"])


def number(x):
    return "-" if x is None else f"{x:.9g}"


def line(call):
    words = [call["op"], call["pass"], call["module"] or "."]
    if "q" in call:
        words[0] = call["op"].replace("scaled_dot_product_attention", "attention")
        words.append(call["kernel"])
        words += [name for name, on in (("causal", call["is_causal"]), ("gqa", call["enable_gqa"])) if on]
        words.append("scale=" + number(call["scale"]))
        words += [tensor(call[k]) for k in ("q", "k", "v", "mask")]
    else:
        words += [tensor(call.get(k)) for k in ("a", "b", "bias")]
        words += [tensor(t) for t in (call["out"] if isinstance(call["out"], list) else [call["out"]])]
        words += [tensor(call["grad"])] if "grad" in call else []
        words += [f"{k}={','.join(map(str, call[k]))}" for k in ("stride", "padding", "dilation") if k in call]
        words += [f"groups={call['groups']}"] if call.get("groups", 1) != 1 else []
        words += [tensor(call["offs"])] if "offs" in call else []
        words += [f"{k}={number(call[k])}" for k in ("alpha", "beta") if k in call]
        if "inside" in call:
            words.append("inside")
    return " ".join(words) + f" x{call['count']}"


def golden(recording):
    js = lambda x: json.dumps(x, separators=(",", ":"))
    out = ["config " + js(recording["config"])]
    if recording.get("config_given", recording["config"]) != recording["config"]:
        out.append("given " + js(recording["config_given"]))
    out.append(f"parameters {recording['parameters']}")
    for run in recording["runs"]:
        out.append("run " + js({k: v for k, v in run.items() if k != "calls"}))
        out += [line(call) for call in run["calls"]]
    return "\n".join(out) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recordings", nargs="+")
    parser.add_argument("--out", default="tests/golden")
    options = parser.parse_args()
    for path in options.recordings:
        name = os.path.splitext(os.path.basename(path))[0]
        with open(path) as f, open(os.path.join(options.out, name + ".txt"), "w") as out:
            out.write(golden(json.load(f)))


if __name__ == "__main__":
    main()

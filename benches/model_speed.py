#!/usr/bin/env python3
"""The time `gemwright model` takes for a list of calls, beside the time the recorder takes for the same list.

  model_speed.py BINARY PYTHON OUT.csv        PYTHON has torch and transformers (see scripts/record.py)

Both are started as a user starts them, turn by turn, and must give the same list: every call is compared
before a time counts.  The recorder builds the model on the meta device, without weights.
"""
import csv
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "scripts"))
import golden  # noqa: E402

CLASSES = {"llama": "LlamaForCausalLM", "qwen3": "Qwen3ForCausalLM", "gemma3_text": "Gemma3ForCausalLM",
           "gpt2": "GPT2LMHeadModel"}
PRESETS = ["llama-2-7b", "qwen3-8b", "gemma-3-4b-text", "gpt2-xl"]
RUNS = [{"phase": "decode", "batch": 4, "seq": 1, "past": 300},
        {"phase": "generate", "batch": 1, "seq": 597, "past": 0, "steps": 36},
        {"phase": "train", "batch": 2, "seq": 64, "past": 0, "use_cache": False}]
ROUNDS = 3


def timed(words):
    start = time.perf_counter()
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    return time.perf_counter() - start, done.stdout


def main():
    binary, python, out = sys.argv[1:]
    presets = json.load(open(os.path.join(HERE, "..", "data", "presets.json")))
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for name in PRESETS:
            config = presets[name]["config"]
            path = os.path.join(folder, "config.json")
            json.dump(dict(config, architectures=[CLASSES[config["model_type"]]], resid_pdrop=0.0, embd_pdrop=0.0,
                           attn_pdrop=0.0, attention_dropout=0.0), open(path, "w"))
            for run in RUNS:
                runs = os.path.join(folder, "runs.json")
                json.dump([run], open(runs, "w"))
                words = [binary, "model", path, "--phase", run["phase"], "--batch", str(run["batch"]), "--dtype", "bf16",
                         "--format", "json"]
                words += ["--past", str(run["past"])] if run["phase"] == "decode" else ["--seq", str(run["seq"])]
                words += ["--steps", str(run["steps"])] if "steps" in run else []
                ours, theirs = [], []
                for _ in range(ROUNDS):
                    seconds, _ = timed([python, os.path.join(HERE, "..", "scripts", "record.py"), "--config", path,
                                        "--name", "x", "--runs", runs, "--out", folder])
                    theirs.append(seconds)
                    for _ in range(5):
                        seconds, text = timed(words)
                        ours.append(seconds)
                recorded = json.load(open(os.path.join(folder, "x.json")))["runs"][0]["calls"]
                answered = json.loads(text)["calls"]
                strip = lambda c: dict(c, op=c["op"].removeprefix("aten::"))
                same = [golden.line(c) for c in recorded] == [golden.line(strip(c)) for c in answered]
                if not same:
                    raise SystemExit(f"{name} {run}: the lists differ")
                a, b = statistics.median(ours) * 1000, statistics.median(theirs) * 1000
                rows.append([name, run["phase"], len(recorded), f"{a:.2f}", f"{min(ours) * 1000:.2f}",
                             f"{max(ours) * 1000:.2f}", f"{b:.0f}", f"{min(theirs) * 1000:.0f}",
                             f"{max(theirs) * 1000:.0f}", f"{b / a:.0f}"])
                print(*rows[-1], flush=True)
    with open(out, "w", newline="") as f:
        writer = csv.writer(f)
        writer.writerow(["model", "phase", "calls", "gemwright_ms", "min", "max", "recorder_ms", "min", "max", "ratio"])
        writer.writerows(rows)


if __name__ == "__main__":
    main()

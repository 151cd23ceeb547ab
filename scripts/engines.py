#!/usr/bin/env python3
"""Recorded lists of what serving engines multiply, as one compact file for the tests.

    engines.py FOLDER > tests/engines.txt

FOLDER has a JSON file for each engine, model, and number of GPUs: the config, and every weight the engine's own classes
make on rank 0. A line of a list is: kind, n, k, batch or experts, rows (t: tokens, s: sampled, p: prefill only,
d: decode only, or experts per token), bias, layers.
"""

import glob
import json
import os
import sys


def line(row):
    head = row["parallel"] == "vocab" or "tied lm_head" in row["module"]
    bias = "b" if row["bias"] else "-"
    if "experts" in row:
        return f"grouped {row['n']} {row['k']} {row['experts']} {row['top_k']} - {row['count']}"
    if "batch" in row:
        return f"batched {row['n']} {row['k']} {row['batch']} d - {row['count']}"
    who = "s" if head else "p" if row["module"].endswith("kv_b_proj") else "t"
    return f"plain {row['n']} {row['k']} 1 {who} {bias} {row['count']}"


def main():
    names = set()
    for path in sorted(glob.glob(os.path.join(sys.argv[1], "*.json"))):
        truth = json.load(open(path))
        if "quantization_config" in truth["config"]:
            continue
        if truth["model"] not in names:
            names.add(truth["model"])
            print("config", truth["model"], json.dumps(truth["config"], separators=(",", ":")))
        print("list", truth["engine"], truth["model"], truth["tp"], truth["ep"])
        for row in truth["linears"]:
            print(line(row))


if __name__ == "__main__":
    main()

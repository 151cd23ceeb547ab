#!/usr/bin/env python3
"""Our CPU kernels beside everything else, as the goals want it: fresh processes, paired ratios, limits in the rotation.

  cpu_speed.py BINARY SHAPES.csv [--processes 5] [--rounds 20] [--threads 1,2] [--best fma=355,amx=4650]
               [--seconds S] [--packed GROUP,...] --record DIR

Every process runs `gemwright bench` over the shapes of one element type, plain and then with weights laid out
beforehand. The figure of a product is the median over the processes of the paired ratio of ours to the best other of that
process; a group's is the geometric mean. `--best` gives what the machine has shown with two threads, in
G/s: a process whose limit loops do not reach 90 % of it (p10 over all its turns; half of it on one thread) is kept in the
raw times and left out of the figures; what they reached beside each product is a column. --seconds stops after that time with what there is;
--packed measures weights laid out beforehand for these groups alone. DIR gets raw.json (all times), figures.csv and
groups.csv, and prepacked.csv (ours, weights as they lie and laid out before: from how many rows on that pays); where it has a raw.json already, its processes count too.
"""
import argparse
import csv
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time


def quantile(values, share):
    ordered = sorted(values)
    return ordered[round((len(ordered) - 1) * share)]


def bench(binary, rows, dtype, epilogue, threads, rounds, prepacked):
    with tempfile.NamedTemporaryFile("w", suffix=".csv") as file:
        writer = csv.writer(file)
        writer.writerow(["M", "N", "K", "flags"])
        writer.writerows([row["M"], row["N"], row["K"], row["flags"]] for row in rows)
        file.flush()
        words = [binary, "bench", file.name, "--dtype", dtype, "--threads", str(threads), "--rounds", str(rounds)]
        words += ["--format", "json", "--quiet"] + (["--prepacked"] if prepacked else [])
        # What follows a product is compared with PyTorch, whose results have the type of its operands.
        words += ["--epilogue", epilogue.replace("+", ","), "--out-dtype", dtype] if epilogue else []
        done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr)
    return json.loads(done.stdout)


def reached(products, threads, best):
    """The least share of what the machine has shown that a limit loop reached over all turns of these products."""
    rates = {}
    for limit in (limit for product in products for limit in product["limits"]):
        name = "fma" if limit["name"] == "limit.fma-f32" else "amx" if "amx" in limit["name"] else None
        if name in best:
            rates.setdefault(name, []).extend(limit["values"])
    shares = [quantile(values, 0.9) / 1e9 / (best[name] * threads / 2) for name, values in rates.items() if values]
    return min(shares, default=1.0)


def rows_of(shapes, dtype, epilogue, prepacked, options):
    """The shapes of one process."""
    rows = [row for row in shapes if (row["dtype"], row.get("epilogue") or "") == (dtype, epilogue)]
    if prepacked and options.packed:
        rows = [row for row in rows if row["group"] in options.packed.split(",")]
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary")
    parser.add_argument("shapes")
    parser.add_argument("--processes", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--best", default="")
    parser.add_argument("--seconds", type=float, default=math.inf)
    parser.add_argument("--packed", default="")
    parser.add_argument("--record", required=True)
    options = parser.parse_args()
    best = {name: float(value) for name, value in (pair.split("=") for pair in options.best.split(",") if pair)}
    shapes = list(csv.DictReader(open(options.shapes)))
    begin, raw = time.monotonic(), []
    kept = os.path.join(options.record, "raw.json")
    if os.path.exists(kept):
        raw = json.load(open(kept))
    before = 1 + max((one["process"] for one in raw), default=-1)
    for process in range(before, before + options.processes):
        for threads in map(int, options.threads.split(",")):
            for dtype, epilogue in sorted({(row["dtype"], row.get("epilogue") or "") for row in shapes}):
                for prepacked in (False, True):
                    rows = rows_of(shapes, dtype, epilogue, prepacked, options)
                    if not rows or time.monotonic() - begin > options.seconds:
                        continue
                    answer = bench(options.binary, rows, dtype, epilogue, threads, options.rounds, prepacked)
                    raw.append({"process": process, "prepacked": prepacked, **answer})
                    keep(kept, raw)
                    print(f"process {process}, {dtype} {epilogue}, {threads} threads, prepacked {prepacked}", file=sys.stderr)
    figures = {}
    for answer in raw:
        threads, prepacked, products = answer["threads"], answer["prepacked"], answer["products"]
        dtype, epilogue = products[0]["dtype"], "+".join(products[0].get("epilogue", []))
        whole = reached(products, threads, best)
        for row, product in zip(rows_of(shapes, dtype, epilogue, prepacked, options), products):
            key = (row["group"], dtype, threads, prepacked, row["M"], row["N"], row["K"], row["flags"], epilogue)
            figures.setdefault(key, []).append((product, whole, reached([product], threads, best)))
    groups = {}
    with open(os.path.join(options.record, "figures.csv"), "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["group", "dtype", "threads", "prepacked", "M", "N", "K", "flags", "epilogue", "processes", "counted", "ratio",
                         "least", "largest", "best other", "ours p10 GFLOP/s", "share of limit p10", "limit loops p10",
                         "limit loops p10 beside it"])
        for key, found in figures.items():
            counted = [one for one in found if one[1] >= 0.9] if best else found
            used = counted or found
            ratios = [one[0]["ratio"] for one in used if one[0]["ratio"]]
            flops = 2 * math.prod(map(int, key[4:7]))
            own = [min(quantile(t["values"], 0.1) for t in one[0]["seconds"] if t["own"]) for one in used]
            limits = [least_time(one[0], flops) for one in used]
            others = [min((t for t in one[0]["seconds"] if not t["own"] and t["values"]), default={"name": ""},
                          key=lambda t: statistics.median(t["values"]))["name"] for one in used]
            ratio = statistics.median(ratios) if ratios else None
            share = statistics.median(limit / mine for limit, mine in zip(limits, own))
            writer.writerow([*key, len(found), len(counted), *(f"{x:.3f}" if x else "" for x in
                             (ratio, min(ratios, default=0), max(ratios, default=0))), statistics.mode(others),
                             f"{flops / statistics.median(own) / 1e9:.1f}", f"{share:.3f}",
                             *(f"{min(one[place] for one in found):.2f}" for place in (1, 2))])
            if ratio:
                groups.setdefault(key[:4], []).append((ratio, share, len(counted)))
    with open(os.path.join(options.record, "groups.csv"), "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["group", "dtype", "threads", "prepacked", "products", "geomean", "least", "share of limit p10",
                         "counted processes"])
        for key, found in groups.items():
            mean = [math.exp(statistics.fmean(math.log(one[i]) for one in found)) for i in (0, 1)]
            writer.writerow([*key, len(found), f"{mean[0]:.3f}", f"{min(one[0] for one in found):.3f}", f"{mean[1]:.3f}",
                             min(one[2] for one in found)])
    with open(os.path.join(options.record, "prepacked.csv"), "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["dtype", "threads", "M", "N", "K", "flags", "plain us", "laid out us", "plain over laid out"])
        for key, found in figures.items():
            plain = figures.get((*key[:3], False, *key[4:]))
            if key[3] and plain:
                before, after = (own_median([one[0] for one in side]) for side in (plain, found))
                writer.writerow([*key[1:3], *key[4:8], f"{before * 1e6:.2f}", f"{after * 1e6:.2f}", f"{before / after:.3f}"])
    print(open(os.path.join(options.record, "groups.csv")).read())


def keep(path, raw):
    """All times so far, whole at any moment: a run that is ended early keeps what it has."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path + ".part", "w") as file:
        json.dump(raw, file)
    os.replace(path + ".part", path)


def own_median(products):
    """Seconds of our best, the median over the processes of its median."""
    best = [min(statistics.median(t["values"]) for t in product["seconds"] if t["own"]) for product in products]
    return statistics.median(best)


def least_time(product, flops):
    """Seconds by the limits of the same rotation."""
    rate = {limit["name"].split("-")[0]: quantile(limit["values"], 0.9) for limit in product["limits"]}
    size = {"f64": 8, "f32": 4, "bf16": 2}
    m, n, k = product["m"], product["n"], product["k"]
    bytes_moved = size[product["dtype"]] * (m * k + k * n) + size[product["out_dtype"]] * m * n
    reading = bytes_moved / rate["limit.read"] if product["cold"] else 0
    return max(flops / rate["limit.amx" if product["dtype"] == "bf16" else "limit.fma"], reading)


if __name__ == "__main__":
    main()

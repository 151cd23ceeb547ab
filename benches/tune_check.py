#!/usr/bin/env python3
"""A tuned table held against further runs: is it as fast as every single candidate, and what does look-up lose?

    tune_check.py BINARY LIST.csv --dtype f32 --threads 2 --processes 5 --record DIR

Tunes once (DIR/table.csv), then measures the list again in so many fresh processes, every candidate in turns as in the
first, but without its further visits to those who may be the fastest. Of those runs only: the time end to end of the
table's choices beside that of each candidate alone, median of the processes. Then every other M is left out of the table,
and whom neighbours and cost model say for it is held against whom the whole table says, by their times in those processes
(median of the ratios); and, N and K by N and K, the cost model alone. What DIR has already is not measured again.
"""

import argparse
import csv
import json
import math
import shutil
import statistics
import subprocess
import sys
from pathlib import Path


def read(table):
    rows = {}
    for row in csv.DictReader(open(table.with_suffix(".ours.csv"))):
        times = {}
        for part in row["all"].split(";"):
            name, _, rest = part.rpartition("=")
            times[name] = float(rest.split("@")[0])
        rows[(row["prepacked"], int(row["M"]), int(row["N"]), int(row["K"]))] = (row["candidate"], times)
    return rows


def tune(options, table, visits):
    words = [options.binary, "tune", options.list, "-o", str(table), "--dtype", options.dtype, "--threads", str(options.threads), "--rounds", str(options.rounds), "--visits", str(visits)]
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)


def look_up(options, table, key):
    """Who the binary says multiplies, and by which way."""
    prepacked, m, n, k = key
    words = [options.binary, "explain", f"{m}x{k} @ {k}x{n}^T", "--dtype", options.dtype, "--table", str(table), "--format", "json"]
    sections = json.loads(subprocess.run(words, check=True, capture_output=True, text=True).stdout)["sections"]
    lines = next(s["lines"] for s in sections if s["title"] == "Dispatch")
    words = "laid out before" if prepacked == "True" else "as it lies"
    return next(line.split(" ")[0] for line in lines if words in line)


def without(options, table, folder, drop):
    """The table with rows left out."""
    folder.mkdir(parents=True, exist_ok=True)
    short = folder / "short.csv"
    shutil.copy(table.with_suffix(".meta.json"), short.with_suffix(".meta.json"))
    text = open(table.with_suffix(".ours.csv")).read().splitlines()
    heads = text[0].split(",")
    at = [heads.index(x) for x in ("prepacked", "M", "N", "K")]
    def key(line):
        cells = line.split(",")
        return (cells[at[0]], *(int(cells[i]) for i in at[1:]))
    short.with_suffix(".ours.csv").write_text("\n".join([text[0]] + [line for line in text[1:] if not drop(key(line))]) + "\n")
    short.write_text("")
    return short


def geomean(values):
    return math.exp(statistics.mean(map(math.log, values)))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("binary")
    parser.add_argument("list")
    parser.add_argument("--dtype", default="f32")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--processes", type=int, default=5)
    parser.add_argument("--record", type=Path, required=True)
    options = parser.parse_args()
    options.record.mkdir(parents=True, exist_ok=True)
    table = options.record / "table.csv"
    if not table.exists():
        tune(options, table, 4)
    chosen = read(table)
    runs = []
    for i in range(options.processes):
        again = options.record / f"run{i}.csv"
        if not again.exists():
            tune(options, again, 1)
        runs.append(read(again))
    counts = {(int(r["M"]), int(r["N"]), int(r["K"])): int(r.get("count") or 1) for r in csv.DictReader(open(options.list))}
    lines = []
    say = lambda text: (lines.append(text), print(text))
    for prepacked, what in (("False", "weights as they lie"), ("True", "weights that may be laid out")):
        keys = [key for key in chosen if key[0] == prepacked]
        own = {name for key in keys for name in chosen[key][1]}
        everywhere = [name for name in sorted(own) if all(name in run[key][1] for run in runs for key in keys)]
        say(f"\n{what}: {len(keys)} products, {options.processes} processes")
        # The table's time in a process is the time there of whom the table names.
        totals = [sum(counts[key[1:]] * run[key][1].get(chosen[key][0], math.inf) for key in keys) for run in runs]
        ratios = {}
        for name in everywhere:
            ratios[name] = statistics.median(sum(counts[key[1:]] * run[key][1][name] for key in keys) / total for run, total in zip(runs, totals))
        for name, ratio in sorted(ratios.items(), key=lambda x: x[1])[:12]:
            say(f"  {name}: the table is {ratio:.3f} times as fast, end to end")
        winners = {}
        for key in keys:
            winners.setdefault(chosen[key][0], []).append(key[1:])
        for name, where in sorted(winners.items(), key=lambda x: -len(x[1])):
            say(f"  won by {name}: {len(where)}, such as {' '.join('x'.join(map(str, w)) for w in where[:4])}")
        # Look-up: whom a table says that lacks the product, beside whom the whole one says.
        rows = sorted({key[1] for key in keys})
        odd = set(rows[1::2])
        folder = options.record / "left-out"
        def loss(short, key):
            found = look_up(options, short, key)
            return statistics.median(run[key][1].get(found, math.inf) / run[key][1][chosen[key][0]] for run in runs)
        short = without(options, table, folder, lambda key: key[1] in odd)
        lost = [loss(short, key) for key in keys if key[1] in odd]
        say(f"  neighbours, every other M left out: {geomean(lost):.3f} of the table's, geometric mean over {len(lost)}; worst {max(lost):.3f}")
        lost = []
        for n, k in sorted({key[2:] for key in keys}):
            short = without(options, table, folder, lambda key: key[2:] == (n, k))
            lost += [loss(short, key) for key in keys if key[2:] == (n, k)]
        say(f"  cost model, each N and K left out: {geomean(lost):.3f} of the table's, geometric mean over {len(lost)}; worst {max(lost):.3f}")
        shutil.rmtree(folder, ignore_errors=True)
    (options.record / "summary.txt").write_text("\n".join(lines).strip() + "\n")


if __name__ == "__main__":
    sys.exit(main())

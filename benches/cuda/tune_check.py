#!/usr/bin/env python3
"""A table of `tune --device cuda` held against further runs: is it as fast as every single candidate, and never much slower
than the vendor's default?

    tune_check.py BINARY LIST.csv --processes 5 --record DIR

Tunes once (DIR/table.csv), then measures the list in so many fresh processes: whom the table says, the vendor's default and
best of 8, the kernel of ours that the cost model picks, and every one that won somewhere, window by window. Of those runs
only: the time end to end of the table beside that of each candidate alone (median of the processes), and of every product
the table against the default (median of the processes; a product below 0.98 is measured once more).

Then look-up: every other M is left out of the table, and what it says for those is measured beside the same candidates;
and, N and K by N and K, the same without anything of that N and K.
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


def geomean(values):
    return math.exp(statistics.mean(map(math.log, values)))


def call(words):
    subprocess.run(list(map(str, words)), check=True, stdout=subprocess.DEVNULL)


def measured(options, products, kernels, folder, table=None):
    """The products of a list in a process of their own."""
    raw = folder / "raw.json"
    if not raw.exists():
        words = [options.binary, "bench", products, "--device", "cuda", "--quiet"]
        words += ["--table", table or options.record / "table.csv", "--rounds", options.rounds, "--record", folder]
        call(words + (["--kernel", ",".join(kernels)] if kernels else []))
    return {tuple(row["key"][:5]): row for row in json.loads(raw.read_text())["products"]}


def seconds(row, name):
    times = [t for t in row["burst"]["times"] if t["name"] == name]
    return statistics.median(times[0]["us"]) * 1e-6 if times else None


def of_products(path, keys):
    body = [f"{flags},{batch},{m},{n},{k}" for flags, batch, m, n, k in keys]
    path.write_text("\n".join(["flags,batch,M,N,K", *body]) + "\n")
    return path


def looked_up(options, table, kernels, keys, name):
    """What is lost against the fastest where the table has nothing of these products."""
    folder = options.record / name
    folder.mkdir(exist_ok=True)
    short = folder / "short.csv"
    shutil.copy(table.with_suffix(".meta.json"), short.with_suffix(".meta.json"))
    rows = list(csv.DictReader(open(table.with_suffix(".ours.csv"))))
    key = lambda row: (row["flags"], *(int(row[x]) for x in ("batch", "M", "N", "K")))
    with open(short.with_suffix(".ours.csv"), "w", newline="") as file:
        writer = csv.DictWriter(file, rows[0].keys(), lineterminator="\n")
        writer.writeheader()
        writer.writerows(row for row in rows if key(row) not in keys)
    short.write_text("")
    found = measured(options, of_products(folder / "list.csv", keys), kernels, folder / "run", short)
    def loss(row):
        others = [seconds(row, t["name"]) for t in row["burst"]["times"] if t["name"] != "table"]
        return seconds(row, "table") / min(others)
    rows = [found[key] for key in keys if key in found and "burst" in found[key]]
    return [loss(row) for row in rows if seconds(row, "table")]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("binary")
    parser.add_argument("list")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--processes", type=int, default=5)
    parser.add_argument("--record", type=Path, required=True)
    options = parser.parse_args()
    options.record.mkdir(parents=True, exist_ok=True)
    table = options.record / "table.csv"
    if not table.exists():
        call([options.binary, "tune", options.list, "--device", "cuda", "--quiet", "-o", table])
    rows = list(csv.DictReader(open(table.with_suffix(".ours.csv"))))
    winners = {}
    for row in rows:
        winners.setdefault(row["candidate"], []).append(f"{row['M']}x{row['N']}x{row['K']}")
    kernels = sorted({name.removeprefix("own.") for name in winners if name.startswith("own.")} - {"picked"}) + ["picked"]
    runs = [measured(options, options.list, kernels, options.record / f"run{i}") for i in range(options.processes)]
    lines = []
    say = lambda text: (lines.append(text), print(text))
    say(f"{len(rows)} products tuned, {options.processes} processes of {options.rounds} windows")
    for name, where in sorted(winners.items(), key=lambda x: -len(x[1])):
        say(f"  won by {name}: {len(where)}, such as {' '.join(where[:4])}")
    keys = [key for key in runs[0] if all(key in run and "burst" in run[key] for run in runs)]
    names = sorted({t["name"] for run in runs for key in keys for t in run[key]["burst"]["times"]} - {"table"})
    total = lambda run, name: sum(run[key]["count"] * seconds(run[key], name) for key in keys)
    for name in names:
        if all(seconds(run[key], name) is not None for run in runs for key in keys):
            ratio = statistics.median(total(run, name) / total(run, "table") for run in runs)
            say(f"  {name} alone: the table is {ratio:.3f} times as fast, end to end")
    compared = [key for key in keys if all(run[key]["burst"]["table_to_default"] is not None for run in runs)]
    of_default = {key: statistics.median(run[key]["burst"]["table_to_default"] for run in runs) for key in compared}
    slow = sorted((key for key in compared if of_default[key] < 0.98), key=of_default.get)
    if slow:
        again = of_products(options.record / "again.csv", slow)
        once_more = measured(options, again, [], options.record / "again")
        for key in slow:
            found = once_more[key]["burst"]["table_to_default"]
            say(f"  {'x'.join(map(str, key[2:]))} {key[0]}: {of_default[key]:.3f} of the default, once more {found:.3f}")
            of_default[key] = max(of_default[key], found)
    if compared:
        say(f"  least of {len(compared)} products against the vendor's default: {min(of_default.values()):.3f}")
    rows_of_x = sorted({key[2] for key in keys})
    without = [key for key in keys if key[2] in rows_of_x[1::2]]
    loss = looked_up(options, table, kernels, without, "neighbours") if without else []
    if loss:
        say(f"  neighbours, every other M left out: {geomean(loss):.3f} of the fastest, geometric mean over {len(loss)}; worst {max(loss):.3f}")
    loss = []
    for i, (n, k) in enumerate(sorted({key[3:] for key in keys})):
        loss += looked_up(options, table, kernels, [key for key in keys if key[3:] == (n, k)], f"model{i}")
    if loss:
        say(f"  cost model, each N and K left out: {geomean(loss):.3f} of the fastest, geometric mean over {len(loss)}; worst {max(loss):.3f}")
    (options.record / "summary.txt").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    sys.exit(main())

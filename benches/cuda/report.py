#!/usr/bin/env python3
"""What a record of `gemwright bench --device cuda` says, in a few lines.

    python3 benches/cuda/report.py DIR              ratios to cuBLASLt and to the best of ours, by rows
    python3 benches/cuda/report.py DIR --schedules  of a record with --schedules: where each of them wins
    python3 benches/cuda/report.py DIR --worst 20   products where we are farthest behind
    python3 benches/cuda/report.py DIR --list kept  of DIR/kept.jsonl.gz, shapes the cost model was not fitted to
"""
import argparse, collections, gzip, json, math, pathlib, statistics

GROUPS = [(64, "16 to 64"), (1024, "65 to 1024"), (math.inf, "more")]
KINDS = ["data-parallel", "persistent", "stream-k", "split-k"]


def shards(folder, name):
    plain = pathlib.Path(folder) / f"{name}.jsonl"
    text = plain.read_text() if plain.exists() else gzip.open(f"{plain}.gz", "rt").read()
    return [row for row in map(json.loads, text.splitlines()) if "burst" in row]


def mean(values):
    values = [x for x in values if x]
    return math.exp(statistics.fmean(map(math.log, values))) if values else math.nan


def group(row):
    return next(name for most, name in GROUPS if row["m"] <= most)


def median(time):
    return statistics.median(time["us"])


def kind(name):
    return next(kind for kind in KINDS if kind in name)


def ratios(rows):
    print("| rows | products | to the best of 8, full clocks | least | to the default, full clocks | to the best of 8, sustained | to the default, sustained | picked to the best of ours |")
    print("|---|---|---|---|---|---|---|---|")
    for _, name in GROUPS:
        some = [row for row in rows if group(row) == name]
        column = lambda clocks, what: [row[clocks][what] for row in some if clocks in row]
        best = [x for x in column("burst", "to_best") if x]
        if not some or not best:
            continue
        cells = [mean(best), min(best), mean(column("burst", "to_default")), mean(column("sustained", "to_best")), mean(column("sustained", "to_default")), mean(column("burst", "picked_to_own_best"))]
        print(f"| {name} | {len(some)} | " + " | ".join(f"{x:.3f}" for x in cells) + " |")
    for row in rows:
        if row["m"] == row["n"] == row["k"] == 8192:
            for clocks in ["burst", "sustained"]:
                rates = {time["name"]: row["flops"] / median(time) / 1e6 for time in row.get(clocks, {}).get("times", [])}
                print(f"8192 cubed, {clocks}: " + ", ".join(f"{name} {rate:.0f} TFLOP/s" for name, rate in rates.items()))


def schedules(rows):
    print("| rows | products | " + " | ".join(f"{kind} wins" for kind in KINDS) + " | " + " | ".join(f"{kind} to the best" for kind in KINDS) + " |")
    print("|---|" + "---|" * (2 * len(KINDS) + 1))
    for _, name in GROUPS:
        some = [row for row in rows if group(row) == name]
        wins, behind = collections.Counter(), collections.defaultdict(list)
        for row in some:
            times = {kind(time["name"]): median(time) for time in row["burst"]["times"]}
            best = min(times, key=times.get)
            wins[best] += 1
            for which, taken in times.items():
                behind[which].append(times[best] / taken)
        print(f"| {name} | {len(some)} | " + " | ".join(str(wins[k]) for k in KINDS) + " | " + " | ".join(f"{mean(behind[k]):.3f}" for k in KINDS) + " |")


def worst(rows, count):
    for row in sorted((row for row in rows if row["burst"]["to_best"]), key=lambda row: row["burst"]["to_best"])[:count]:
        own = [(median(time), time["name"]) for time in row["burst"]["times"] if time["own"]]
        others = [(median(time), time["name"]) for time in row["burst"]["times"] if not time["own"]]
        print(f"{row['burst']['to_best']:.3f} {row['flags']} {row['batch']}x{row['m']}x{row['n']}x{row['k']}  picked {own[0]}  best of ours {min(own)}  vendor {min(others)}")


parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("record")
parser.add_argument("--schedules", action="store_true")
parser.add_argument("--worst", type=int)
parser.add_argument("--list", default="shards")
args = parser.parse_args()
rows = shards(args.record, args.list)
if args.schedules:
    schedules(rows)
elif args.worst:
    worst(rows, args.worst)
else:
    ratios(rows)

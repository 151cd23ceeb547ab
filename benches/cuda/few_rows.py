#!/usr/bin/env python3
"""What a record of products with a few rows says, in a few lines.

    python3 benches/cuda/few_rows.py DIR

DIR has raw.json of `gemwright bench --device cuda` as single.json.gz (--single), early.json.gz, and chain*.json.gz (--chain);
fp8-weights.json.gz is of --single --against none --fp8 weights --scales rows, ours with weights of bf16 in turns with it (in
records before 2026-11-19-fourth in fp8-bf16.json.gz, run by itself); those with -early the same without --single.
"""
import gzip, json, math, pathlib, statistics, sys

SIZES = [(0, 50), (50, 100), (100, 200), (200, 1000), (1000, math.inf)]


def read(path):
    return json.loads(gzip.open(path, "rt").read())


def own(row):
    return next(time for time in row["burst"]["times"] if time["own"])


def mean(values):
    return math.exp(statistics.fmean(map(math.log, values)))


def of_weights(folder, way, said):
    rows = read(folder / f"fp8-weights{way}.json.gz")["products"]
    apart = folder / f"fp8-bf16{way}.json.gz"
    time = lambda row: statistics.median(own(row)["us"])
    if apart.exists():
        shares = [time(row) / time(whole) for row, whole in zip(rows, read(apart)["products"])]
    else:
        # Where no kernel of ours takes the weights there is nothing to hold against whole ones.
        both = [row for row in rows if row["burst"]["to_whole_weights"]]
        if len(both) < len(rows):
            print(f"{len(rows) - len(both)} products without a time of both")
        rows, shares = both, [1 / row["burst"]["to_whole_weights"] for row in both]
    print(f"weights of e4m3, of the time with bf16, {said}\n| weights in bf16 | products | geomean | most |\n|---|---|---|---|")
    for least, most in [(0, 50), (50, math.inf)]:
        pairs = [(share, row) for share, row in zip(shares, rows) if least <= row["n"] * row["k"] * 2 / 1e6 < most]
        print(f"| {least} to {most} MB | {len(pairs)} | {mean([x for x, _ in pairs]):.3f} | {max(x for x, _ in pairs):.3f} |")
        for ratio, row in sorted(pairs, key=lambda pair: -pair[0])[:3]:
            print(f"  {row['m']}x{row['n']}x{row['k']} {own(row)['name']}: {ratio:.3f}")


def main(folder):
    for way, said in [("", "one by one"), ("-early", "with early start")]:
        if (folder / f"fp8-weights{way}.json.gz").exists():
            of_weights(folder, way, said)
    for name in ["single", "early", "m16"]:
        if not (folder / f"{name}.json.gz").exists():
            continue
        record = read(folder / f"{name}.json.gz")
        rows, limit = record["products"], record["read_bytes_per_second"]
        print(f"{name}: {len(rows)} products, memory read at {limit / 1e12:.2f} TB/s")
        print("| rows | products | to the best of 8 | least | to the default |\n|---|---|---|---|---|")
        for m in sorted({row["m"] for row in rows}) + [None]:
            some = [row["burst"] for row in rows if m in (None, row["m"])]
            best = [row["to_best"] for row in some]
            print(f"| {m or 'all'} | {len(some)} | {mean(best):.3f} | {min(best):.3f} | {mean([row['to_default'] for row in some]):.3f} |")
        print("| weights | products | share of what is read at most, least | mean |\n|---|---|---|---|")
        for least, most in SIZES:
            size = lambda row: row["n"] * row["k"] * 2
            some = [row for row in rows if least <= size(row) / 1e6 < most]
            shares = [size(row) / (statistics.median(own(row)["us"]) * 1e-6) / limit for row in some]
            if shares:
                print(f"| {least} to {most} MB | {len(some)} | {min(shares):.3f} | {statistics.fmean(shares):.3f} |")
        for row in sorted(rows, key=lambda row: row["burst"]["to_best"])[:4]:
            print(f"  {row['m']}x{row['n']}x{row['k']} {own(row)['name']}: {row['burst']['to_best']:.3f}")
    for path in sorted(folder.glob("chain*.json.gz")):
        record = read(path)
        times = ", ".join(f"{time['name']} {statistics.median(time['us']):.1f} us (ours is {time['own_is']:.3f} times as fast)" for time in record["chain"])
        print(f"{record['products'][0]['m']} rows, all products in one graph: {times}")


main(pathlib.Path(sys.argv[1]))

#!/usr/bin/env python3
"""How long a trace takes to become tables: gemwright, gzip on the same file, and TraceLens where it is installed.

  trace_speed.py BINARY TRACE.json.gz [--python PYTHON] [--tracelens DIR] [--large MB] [--csv FILE]

The candidates take turns, five times each (TraceLens once); wall time and peak memory of each process are taken from
the operating system.  Before a time counts, the tables of `--compat tracelens` must exist.  --large adds a file
of so many MB, plain and as gzip: the same events over and over, their numbers left as they are, since only the reading
is meant to grow.  PYTHON has TraceLens's dependencies, DIR is its checkout.
"""
import argparse
import csv
import gzip
import multiprocessing
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time


def measured(words, **options):
    """Wall seconds and peak memory in MB."""
    start = time.perf_counter()
    child = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **options)
    _, status, usage = os.wait4(child.pid, 0)
    if status:
        sys.exit(f"{words[0]} failed: {status}")
    return time.perf_counter() - start, usage.ru_maxrss / 1024


def replicated(path, size, plain, packed):
    """The events over and over up to a size, plain and packed."""
    text = gzip.open(path).read()
    start = text.index(b'"traceEvents"')
    start = text.index(b"[", start) + 1
    end = text.rindex(b"]")
    with open(plain, "wb") as f:
        f.write(text[:start])
        while (left := size - f.tell()) > end - start:
            f.write(text[start:end] + b",")
        # The last one as far as it goes, up to the end of an event.
        f.write(text[start:text.rindex(b"\n  },", start, start + left) + 4])
        f.write(text[end:])
    with open(plain, "rb") as f, gzip.open(packed, "wb", compresslevel=6) as out:
        shutil.copyfileobj(f, out)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary")
    parser.add_argument("trace")
    parser.add_argument("--python")
    parser.add_argument("--tracelens")
    parser.add_argument("--large", type=int, default=0, metavar="MB")
    parser.add_argument("--csv")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "tables")
        ours = [options.binary, "trace", options.trace, "--csv", out]
        subprocess.run([*ours, "--compat", "tracelens"], check=True, stdout=subprocess.DEVNULL)
        assert os.path.getsize(os.path.join(out, "ops_unique_args.csv")) > 0
        candidates = {"gemwright": ours, "gemwright --compat tracelens": [*ours, "--compat", "tracelens"],
                      "gzip -dc": ["gzip", "-dc", options.trace]}
        if options.large:
            # In a process of its own: what this one holds would count as its children's memory.
            plain, packed = os.path.join(folder, "large.json"), os.path.join(folder, "large.json.gz")
            maker = multiprocessing.Process(target=replicated, args=(options.trace, options.large * 10**6, plain, packed))
            maker.start()
            maker.join()
            size = os.path.getsize(plain) / 1e6
            candidates[f"gemwright, {size:.0f} MB plain"] = [options.binary, "trace", plain, "--csv", out]
            candidates[f"gemwright, {size:.0f} MB as gzip"] = [options.binary, "trace", packed, "--csv", out]
            little = [options.binary, "trace", packed, "--csv", out, "--low-memory"]
            candidates[f"gemwright --low-memory, {size:.0f} MB"] = little
        runs = {name: [] for name in candidates}
        for _ in range(5):
            for name, words in candidates.items():
                runs[name].append(measured(words))
        if options.tracelens:
            words = [options.python, "-m", "TraceLens.Reporting.generate_perf_report_pytorch", "--profile_json_path",
                     os.path.abspath(options.trace), "--output_csvs_dir", os.path.join(folder, "theirs"),
                     "--enable_kernel_summary", "--short_kernel_study"]
            runs["TraceLens"] = [measured(words, cwd=options.tracelens)]
    rows = [(name, len(r), f"{statistics.median(t for t, _ in r):.3f}", f"{min(t for t, _ in r):.3f}",
             f"{max(t for t, _ in r):.3f}", f"{max(m for _, m in r):.0f}") for name, r in runs.items()]
    head = ("candidate", "runs", "median_s", "least_s", "largest_s", "peak_MB")
    for row in (head, *rows):
        print("  ".join(f"{cell!s:>10}" if i else f"{cell:32}" for i, cell in enumerate(row)))
    if options.csv:
        with open(options.csv, "w", newline="") as f:
            csv.writer(f).writerows([head, *rows])


if __name__ == "__main__":
    main()

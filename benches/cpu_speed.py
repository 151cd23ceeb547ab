#!/usr/bin/env python3
"""Our CPU kernels beside everything else, as the goals want it: fresh processes, paired ratios, limits in the rotation.

  cpu_speed.py BINARY SHAPES.csv [--processes 5] [--rounds 20] [--threads 1,2] [--best fma=355,amx=4650]
               [--cores 0-1,2-3,...] [--seconds S] [--packed GROUP,...] --record DIR

Every process runs `gemwright bench` over one product. The figure of a product is the median over the processes of the
paired ratio of ours to the best other of that process; a group's is the geometric mean. `--best` gives what the machine has
shown with two threads, in G/s: a process whose limit loop (of the unit that multiplies: amx for bf16, fma else) does not
reach 90 % of it (p10 over its turns; of half of it on one thread) is kept in the raw times, left out of the figures and run
again, until as many count as were asked for or --tries times as many have run. --cores has one process at a time on each of
these sets of cores, side by side. --seconds stops after that time with what there is; --packed measures weights laid out
beforehand for these groups alone. DIR gets raw.json (all times), figures.csv and groups.csv, and prepacked.csv (ours,
weights as they lie and laid out before: from how many rows on that pays); where it has a raw.json already, its processes
count too.
"""
import argparse
import collections
import csv
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time

Job = collections.namedtuple("Job", "group M N K flags dtype epilogue threads prepacked")


def quantile(values, share):
    ordered = sorted(values)
    return ordered[round((len(ordered) - 1) * share)]


def bench(binary, job, rounds, cores):
    with tempfile.NamedTemporaryFile("w", suffix=".csv") as file:
        writer = csv.writer(file)
        writer.writerow(["M", "N", "K", "flags"])
        writer.writerow([job.M, job.N, job.K, job.flags])
        file.flush()
        words = ["taskset", "-c", cores] if cores else []
        words += [binary, "bench", file.name, "--dtype", job.dtype, "--threads", str(job.threads), "--rounds", str(rounds)]
        words += ["--format", "json", "--quiet"] + (["--prepacked"] if job.prepacked else [])
        # What follows a product is compared with PyTorch, whose results have the type of its operands.
        words += ["--epilogue", job.epilogue.replace("+", ","), "--out-dtype", job.dtype] if job.epilogue else []
        done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(words)}: {done.stderr}")
    answer = json.loads(done.stdout)
    [product] = answer.pop("products")
    return {"job": list(job), **answer, "product": product}


def reached(one, best):
    """The share of what the machine has shown that the limit loop of the unit that multiplies reached."""
    job = Job(*one["job"])
    unit = "amx" if job.dtype == "bf16" else "fma"
    values = next(limit["values"] for limit in one["product"]["limits"] if limit["name"].startswith(f"limit.{unit}"))
    # Twice the FLOPs of one of f64 are one of f32's.
    wide = 2 if job.dtype == "f64" else 1
    return quantile(values, 0.9) * wide / 1e9 / (best[unit] * job.threads / 2) if best.get(unit) else 1.0


def ratio_of(product):
    """How much faster our best is than the best other: the median over the rounds of the paired ratio."""
    best = lambda own: min((t["values"] for t in product["seconds"] if t["own"] == own and t["values"]), key=statistics.median, default=[])
    pairs = list(zip(best(True), best(False)))
    return statistics.median(other / ours for ours, other in pairs) if pairs else None


def jobs_of(shapes, options):
    """Every product, by the number of threads and the way its weights lie."""
    for threads in map(int, options.threads.split(",")):
        for prepacked in (False, True):
            for row in shapes:
                if not prepacked or not options.packed or row["group"] in options.packed.split(","):
                    yield Job(*(row.get(name) or "" for name in ("group", "M", "N", "K", "flags", "dtype", "epilogue")), threads, prepacked)


class Runs:
    """What is still to be measured, and what has been; several streams take from it."""

    def __init__(self, jobs, options, best):
        self.options, self.best, self.lock = options, best, threading.Lock()
        self.kept = os.path.join(options.record, "raw.json")
        self.raw = json.load(open(self.kept)) if os.path.exists(self.kept) else []
        if not all("job" in one for one in self.raw):
            sys.exit(f"{self.kept} is of an earlier version of this program: another --record DIR begins anew")
        self.jobs, self.begun, self.running = list(jobs), collections.Counter(), collections.Counter()
        self.failed, self.begin = 0, time.monotonic()

    def counted(self, job):
        return sum(tuple(one["job"]) == job and reached(one, self.best) >= 0.9 for one in self.raw)

    def next(self):
        """The product that has the fewest processes so far, of those that want more."""
        with self.lock:
            if time.monotonic() - self.begin > self.options.seconds:
                return None
            most = self.options.processes * self.options.tries
            open_jobs = [job for job in self.jobs if self.begun[job] < most and self.counted(job) < self.options.processes]
            if not open_jobs:
                return None
            job = min(open_jobs, key=lambda job: (self.counted(job) + self.running[job], self.begun[job]))
            if self.counted(job) + self.running[job] >= self.options.processes:
                return None
            self.begun[job] += 1
            self.running[job] += 1
            return job

    def stream(self, cores):
        while job := self.next():
            try:
                one = bench(self.options.binary, job, self.options.rounds, cores)
            except (RuntimeError, OSError) as why:
                print(why, file=sys.stderr, flush=True)
                with self.lock:
                    self.failed += 1
                    self.running[job] -= 1
                continue
            with self.lock:
                self.running[job] -= 1
                self.raw.append({**one, "on": cores})
                keep(self.kept, self.raw)
                print(f"{time.monotonic() - self.begin:.0f} s, {cores or ''} {' '.join(map(str, job))}: "
                      f"{ratio_of(one['product'])} limit {reached(one, self.best):.2f}", file=sys.stderr, flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary")
    parser.add_argument("shapes")
    parser.add_argument("--processes", type=int, default=5)
    parser.add_argument("--tries", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--best", default="")
    parser.add_argument("--cores", default="")
    parser.add_argument("--seconds", type=float, default=math.inf)
    parser.add_argument("--packed", default="")
    parser.add_argument("--record", required=True)
    options = parser.parse_args()
    best = {name: float(value) for name, value in (pair.split("=") for pair in options.best.split(",") if pair)}
    runs = Runs(jobs_of(list(csv.DictReader(open(options.shapes))), options), options, best)
    streams = [threading.Thread(target=runs.stream, args=(cores,)) for cores in options.cores.split(",")]
    for stream in streams:
        stream.start()
    for stream in streams:
        stream.join()
    if not runs.raw:
        sys.exit("nothing was measured")
    write(runs.raw, best, options.record)
    if runs.failed:
        sys.exit(f"{runs.failed} processes failed: above")


def write(raw, best, folder):
    """What the times say, product by product and group by group."""
    figures = {}
    for one in raw:
        figures.setdefault(Job(*one["job"]), []).append((one["product"], reached(one, best)))
    groups = {}
    with open(os.path.join(folder, "figures.csv"), "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*Job._fields, "processes", "counted", "ratio", "least", "largest", "best other", "ours p10 GFLOP/s",
                         "share of limit p10", "limit loop p10, least", "limit loop p10, most"])
        for job, found in figures.items():
            found = [one for one in found if any(t["own"] and t["values"] for t in one[0]["seconds"])]
            if not found:
                continue
            counted = [one for one in found if one[1] >= 0.9]
            used = [product for product, _ in counted or found]
            ratios = [ratio for ratio in map(ratio_of, used) if ratio]
            flops = 2 * math.prod(map(int, (job.M, job.N, job.K)))
            own = [min(quantile(t["values"], 0.1) for t in product["seconds"] if t["own"]) for product in used]
            limits = [least_time(product, flops) for product in used]
            others = [min((t for t in product["seconds"] if not t["own"] and t["values"]), default={"name": ""},
                          key=lambda t: statistics.median(t["values"]))["name"] for product in used]
            ratio = statistics.median(ratios) if ratios else None
            share = statistics.median(limit / mine for limit, mine in zip(limits, own))
            writer.writerow([*job, len(found), len(counted), *(f"{x:.3f}" if x else "" for x in
                             (ratio, min(ratios, default=0), max(ratios, default=0))), statistics.mode(others),
                             f"{flops / statistics.median(own) / 1e9:.1f}", f"{share:.3f}",
                             *(f"{pick(whole for _, whole in found):.2f}" for pick in (min, max))])
            if ratio:
                groups.setdefault((job.group, job.dtype, job.threads, job.prepacked), []).append((ratio, share, len(counted)))
    with open(os.path.join(folder, "groups.csv"), "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["group", "dtype", "threads", "prepacked", "products", "geomean", "least", "share of limit p10",
                         "counted processes, least"])
        for key, found in groups.items():
            mean = [math.exp(statistics.fmean(math.log(one[i]) for one in found)) for i in (0, 1)]
            writer.writerow([*key, len(found), f"{mean[0]:.3f}", f"{min(one[0] for one in found):.3f}", f"{mean[1]:.3f}",
                             min(one[2] for one in found)])
    with open(os.path.join(folder, "prepacked.csv"), "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["dtype", "threads", "M", "N", "K", "flags", "plain us", "laid out us", "plain over laid out"])
        ran = lambda found: [one for one in found or [] if any(t["own"] and t["values"] for t in one[0]["seconds"])]
        for job, found in figures.items():
            plain, found = ran(figures.get(job._replace(prepacked=False))), ran(found)
            if job.prepacked and plain and any(t["own"] for product, _ in found for t in product["seconds"]):
                before, after = (own_median([product for product, _ in side]) for side in (plain, found))
                writer.writerow([job.dtype, job.threads, job.M, job.N, job.K, job.flags, f"{before * 1e6:.2f}", f"{after * 1e6:.2f}",
                                 f"{before / after:.3f}"])
    print(open(os.path.join(folder, "groups.csv")).read())


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
    # Without tiles bf16 goes through f32.
    tiles = rate["limit.amx"] if product["dtype"] == "bf16" else 0
    return max(flops / (tiles or rate["limit.fma"]), reading)


if __name__ == "__main__":
    main()

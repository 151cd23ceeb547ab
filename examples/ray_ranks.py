#!/usr/bin/env python3
"""Traces of many ranks under Ray: each is reduced where Ray runs the task, the parts are joined here.

  pip install ray
  ray_ranks.py GEMWRIGHT TABLES TRACE...        for example: ray_ranks.py gemwright tables/ rank*.json.gz

GEMWRIGHT is the program, TABLES the folder for the joined tables (CSV).  On a cluster the traces must lie where the
tasks run (a shared folder, or `ray.init(address=...)` with paths that every node knows); only the parts travel.
"""
import os
import re
import subprocess
import sys
import tempfile

import ray


@ray.remote
def part_of(program, trace, rank):
    """The bytes of one rank's part."""
    with tempfile.TemporaryDirectory() as folder:
        part = os.path.join(folder, "part.parquet")
        subprocess.run([program, "trace", "map", trace, "--rank", str(rank), "-o", part, "--quiet"], check=True)
        with open(part, "rb") as f:
            return f.read()


def main():
    program, tables, traces = sys.argv[1], sys.argv[2], [os.path.abspath(t) for t in sys.argv[3:]]
    ranks = [int(re.findall(r"\d+", os.path.basename(t).split(".json")[0])[-1]) for t in traces]
    ray.init(include_dashboard=False, log_to_driver=False)
    waiting = [part_of.remote(os.path.abspath(program), trace, rank) for trace, rank in zip(traces, ranks)]
    with tempfile.TemporaryDirectory() as folder:
        parts = []
        while waiting:
            # In the order they are done: the join does not mind.
            done, waiting = ray.wait(waiting)
            parts.append(os.path.join(folder, f"{len(parts)}.parquet"))
            with open(parts[-1], "wb") as f:
                f.write(ray.get(done[0]))
        subprocess.run([program, "trace", "join", *parts, "--csv", tables], check=True)


if __name__ == "__main__":
    main()

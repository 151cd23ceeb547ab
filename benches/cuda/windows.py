"""Calls of PyTorch in windows: a CUDA graph of as many calls as take 1.5 ms, at full clocks (8 ms of rest before each)."""
import json, pathlib, subprocess, tempfile, time

import torch

WINDOW, REST, WINDOWS = 1.5e-3, 8e-3, 3


def graph_of(call):
    """A window of a call, and how many calls it has."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            call()
    torch.cuda.current_stream().wait_stream(side)
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    for _ in range(3):
        call()
    end.record()
    end.synchronize()
    count = max(1, round(WINDOW / (begin.elapsed_time(end) / 3e3)))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(count):
            call()
    return graph, count


def windows(graph, count):
    """Microseconds of a call in each of a few windows."""
    found = []
    for _ in range(WINDOWS):
        torch.cuda.synchronize()
        time.sleep(REST)
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        found.append(begin.elapsed_time(end) * 1e3 / count)
    return found


def gemwright(binary, flags, shape, *options):
    """The same number of windows of gemwright's, in a process of its own: the times of every candidate."""
    with tempfile.TemporaryDirectory() as folder:
        table = pathlib.Path(folder) / "shape.csv"
        table.write_text("flags,batch,M,N,K\n{},1,{},{},{}\n".format(flags, *shape))
        command = [binary, "bench", "--device", "cuda", table, "--rounds", str(WINDOWS), "--quiet", "--format", "json", *options]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)["products"][0]["burst"]["times"]


def gpu():
    smi = subprocess.run(["nvidia-smi", "--query-gpu=name,driver_version,clocks.max.sm,power.limit", "--format=csv,noheader"], capture_output=True, text=True)
    return smi.stdout.strip()

"""Kernel graphs made by a law of time, without a compiler: what training must find again."""

import numpy as np

from phasepoint.learn.corpus.corpus import Corpus, CorpusKernels, CorpusProgram
from phasepoint.learn.hlo_graph.graphs import KERNEL_FEATURE_NAMES, NODE_FEATURE_NAMES, OPCODES, KernelGraph

PS_PER_ELEMENT = {"add": 300.0, "tanh": 4000.0, "divide": 900.0}


def made_kernel(draw, number, kind="loop-fusion"):
    """A chain of element-wise operations; its time is 2 µs and a price per element and opcode."""
    names = list(draw.choice(list(PS_PER_ELEMENT), draw.integers(1, 6)))
    elements = float(np.round(np.exp(draw.uniform(7, 12))))
    opcodes = [OPCODES.index(name) for name in ("parameter", *names)]
    nodes = np.zeros((len(opcodes), len(NODE_FEATURE_NAMES)), np.float32)
    nodes[:, NODE_FEATURE_NAMES.index("elements")] = elements
    kernel = np.zeros(len(KERNEL_FEATURE_NAMES), np.float32)
    kernel[KERNEL_FEATURE_NAMES.index("flop")] = elements * sum(name != "tanh" for name in names)
    kernel[KERNEL_FEATURE_NAMES.index("transcendentals")] = elements * sum(name == "tanh" for name in names)
    for name in ("bytes_read", "bytes_written"):
        kernel[KERNEL_FEATURE_NAMES.index(name)] = 4 * elements
    edges = np.array([(place, place + 1) for place in range(len(names))], np.int32)
    graph = KernelGraph(f"{number:012x}{0:020x}", kind, np.array(opcodes, np.int32), nodes, edges, kernel)
    return graph, 2e6 + elements * sum(PS_PER_ELEMENT[name] for name in names)


def made_kernels(n, *, seed=0):
    draw = np.random.default_rng(seed)
    graphs, times = zip(*(made_kernel(draw, number) for number in range(n)), strict=True)
    return graphs, np.array(times)


def made_corpus(path, *, programs=40, each=10, launch_ps=200_000, program_ps=3_000_000):
    """A corpus whose programs run `each` kernels, with a price per start and per run."""
    graphs, times = made_kernels(programs * each)
    time_ps = times.astype(np.int64)
    heads = []
    for row in range(programs):
        kernels = np.arange(row * each, (row + 1) * each, dtype=np.int32)
        executions = 1 + (kernels.astype(np.int64) % 3)
        wall = int((time_ps[kernels] * executions).sum() + launch_ps * executions.sum() + program_ps)
        name = f"p{row:03d}"
        heads.append(CorpusProgram(name, name, "", "forward", wall, wall, kernels, executions, time_ps[kernels]))
    owners = tuple((row // each,) for row in range(len(graphs)))
    kernels = CorpusKernels(graphs, time_ps, time_ps, np.full(len(graphs), 0.02), owners)
    return Corpus(path, {"name": "made", "kind": "cpu", "cores": 1}, tuple(heads), kernels, 0.02, (), 0.02)

"""A trained network's answers for many graphs, in NumPy."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from phasepoint.core.arrays import Floats
from phasepoint.learn.graph_batches import InputGraph, plain_batches
from phasepoint.learn.network import NetworkSettings, predict_network


def network_log_times(
    weights: Mapping[str, Any], network: NetworkSettings, graphs: Sequence[InputGraph], *, batch_nodes: int = 8192
) -> Floats:
    """What the network says of each graph, without the offset; NumPy alone."""
    said = np.zeros(len(graphs))
    for rows, batch in plain_batches(graphs, batch_nodes=batch_nodes):
        said[rows] = predict_network(np, weights, batch, network)
    return said

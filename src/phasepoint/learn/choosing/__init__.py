"""Models that choose: solvers of convolutions, tiles, configurations of kernels."""

"""The model of kernels of compiled programs."""

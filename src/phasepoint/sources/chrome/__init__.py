"""Chrome's trace format, as PyTorch's profiler (Kineto) writes it."""

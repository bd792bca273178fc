"""PyTorch's profiler as a capture session, and what a step of a PyTorch job tells of itself."""

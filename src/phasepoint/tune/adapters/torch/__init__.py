"""PyTorch's `DataLoader`: one over a dataset with indices, one over a stream, and what they share."""

"""Programs with measured times of their kernels: collected, stored, read, split."""

"""Steps of PyTorch jobs: optimizer steps, updates of parameters by hand, the job's own marks."""

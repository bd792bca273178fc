"""What runs a network: PyTorch as it is or compiled; one file a library, and a row in `runtimes.py`."""

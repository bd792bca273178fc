"""The TPU's own compiler, which needs no TPU: programs for any slice, with the cycles expected of each kernel."""

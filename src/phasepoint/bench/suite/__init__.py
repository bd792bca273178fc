"""A suite of models measured on devices: one process for each pair, one file for each result."""

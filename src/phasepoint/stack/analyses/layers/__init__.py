"""Analyses with a row for each layer, or for each type of layer."""

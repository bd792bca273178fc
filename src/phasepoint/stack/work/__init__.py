"""What every execution on a device did: time, layer, flop, bytes, and where each figure comes from."""

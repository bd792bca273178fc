"""HLO programs: modules decoded once, with shapes, layers, work, traffic, cost and fingerprint of each instruction."""

"""One shard as analyses see it: its spans with who stands above them, its layers, what its threads did."""

"""Performance models: graph features, corpora, training, prediction with intervals."""

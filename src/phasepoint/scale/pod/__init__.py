"""A program on a slice of a pod: what it computes, what it sends, and how long both take."""

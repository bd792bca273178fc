"""Step times in closed form: what a step would take at its devices' peaks, part by part, times fitted constants."""

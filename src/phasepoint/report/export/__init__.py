"""Results in formats of others: Chrome's trace, CSV, Markdown, notebooks."""

"""Results as JSON documents, a file for each kind of result."""

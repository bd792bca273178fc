"""See docs/design/0001-floors-and-contracts.md."""

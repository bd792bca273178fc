"""How far predictions are off: published and measured training runs, held against what the package says of them."""

"""What takes a data-parallel job to a pod: each technique is a function over JAX arrays, optax and a mesh."""

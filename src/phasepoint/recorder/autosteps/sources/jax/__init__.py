"""Steps of JAX jobs: executions of the program that trains, the job's own marks, updates by Optax."""

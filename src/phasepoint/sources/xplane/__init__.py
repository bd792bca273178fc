"""XPlane, the protocol buffers of JAX's and TensorFlow's profiler."""

"""Graphs in files, of ONNX and TensorFlow Lite: those that packages ship, and any other; what they take and hold."""

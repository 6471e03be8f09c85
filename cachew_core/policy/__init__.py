"""What the service decides, as pure functions of what was measured: no I/O, no clock, no
TensorFlow.
"""

"""The array types that signatures name, once: element type by name, shape in the docstring of whoever takes one.

Its own file: every floor imports it, and nothing but NumPy comes with it.
"""

import numpy as np
from numpy.typing import NDArray

Int64s = NDArray[np.int64]
Int32s = NDArray[np.int32]
Floats = NDArray[np.float64]
Float32s = NDArray[np.float32]
Bools = NDArray[np.bool_]
Bytes = NDArray[np.uint8]

"""Optional C kernels for blocks of couplings: the same map and gradient as XLA's, faster, in single precision.

`kernel` gives one, or None where XLA has to do the work; `status` says why. Nobody else knows how they are made.
"""

from isr.native.library import Blocks, Kernel, kernel, status

__all__ = ["Blocks", "Kernel", "kernel", "status"]

"""The optional C kernels: the same maps as the bijections, faster, in single precision."""

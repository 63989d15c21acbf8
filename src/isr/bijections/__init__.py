"""The invertible model: primitives, subnetworks, bijections and the flow made of them.

Direction, everywhere: *forward* takes data x to the latent z, *inverse* brings it back.
"""

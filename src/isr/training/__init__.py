"""Training: losses, penalties and the compiled loop that runs many restarts side by side."""

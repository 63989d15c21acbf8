"""``python -m isr.cli``, the same as ``isr``."""

from isr.cli import main

if __name__ == "__main__":
    main()

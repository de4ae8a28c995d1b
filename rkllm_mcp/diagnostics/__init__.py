"""The ``doctor``, ``probe`` and ``bench`` commands without their output."""

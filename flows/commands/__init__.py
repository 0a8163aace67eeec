"""The sub-commands of ``tfgrpo``, one module each, imported when they are called."""

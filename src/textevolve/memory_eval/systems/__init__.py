"""Memory systems that can be measured, one file each; `open_system` finds one by its name."""

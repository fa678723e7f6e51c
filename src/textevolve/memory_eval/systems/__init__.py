"""The memory systems that can be measured, one file each; `finding.open_system` opens one by its
name."""

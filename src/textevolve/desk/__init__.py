"""The desk: what a person does with agents, memories and labels outside a run."""

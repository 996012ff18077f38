"""Reading a run for those who look at it: how far it is, its curves, its state. No framework."""

"""How much memory a run will take, as a whole and by layer."""

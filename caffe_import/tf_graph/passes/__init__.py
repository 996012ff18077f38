"""Rules of a whole pass: devices, 16 bits, recomputed layers, overwritten memory."""

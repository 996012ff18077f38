"""Results of stages: small frozen objects that know their folder and read files when they are asked."""

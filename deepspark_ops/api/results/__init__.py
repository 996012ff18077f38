"""Results of stages: small frozen objects of a folder that read files on demand."""

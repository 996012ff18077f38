"""Damaged input for every reader of files and messages: only the project's own errors may come out.

    make fuzz SECONDS=600                                   all readers in turn
    python -m tests.fuzz --seconds 60 --seed 5 datum idx    some of them
    python -m tests.fuzz --repeat datum 5 1234              one input again, by its numbers
    make fuzz GUIDED=1                                      by coverage, with atheris in .venv/atheris

``corpus`` has the readers and small valid files, ``mutate`` damages the files, ``worker`` reads damaged files in a
child process with bounds on memory and time, ``hunt`` divides the time among readers, ``guided`` searches by coverage.
"""

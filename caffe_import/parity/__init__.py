"""Compares this importer with recorded outputs of Caffe: ``python -m caffe_import.parity FOLDER``.

A folder holds an ``index.json`` with a list of cases; one module here per kind of case, each a function
``run(case, findings)`` that records one finding per number or fact compared.
"""

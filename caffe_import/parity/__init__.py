"""Compares this importer with recorded outputs of Caffe: ``python -m caffe_import.parity FOLDER``.

A folder of cases holds an ``index.json`` with a list of cases; each kind of case has a module here, with a function
``run(case, findings)`` for a finding per compared number or fact.
"""

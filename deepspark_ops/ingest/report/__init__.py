"""The report of a dataset, ``report.html``: what is in it, and how it has drifted since the version before."""

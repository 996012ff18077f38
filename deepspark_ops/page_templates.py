"""Pages as HTML: the one way in which their templates are read, so that every value is escaped."""

from __future__ import annotations

from jinja2 import Environment, PackageLoader, StrictUndefined


def template_environment(package: str, folder: str = "", *, keeps_last_newline: bool = True) -> Environment:
    """Return a fresh environment for the templates of a package: it escapes, and refuses names that nobody gave.

    Args:
        package: Dotted name of the package that has the templates.
        folder: Where in it they are.
        keeps_last_newline: Whether a page ends as its template's file does; not for pieces of a page.
    """
    return Environment(
        loader=PackageLoader(package, folder),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=keeps_last_newline,
    )

"""Templates of HTML pages: all pages use this environment, so every value is escaped."""

from __future__ import annotations

from jinja2 import Environment, PackageLoader, StrictUndefined

from deepspark_ops.sizes import share_text


def template_environment(package: str, folder: str = "", *, keeps_last_newline: bool = True) -> Environment:
    """Return a fresh environment for a package's templates: escapes values and refuses undefined names.

    Args:
        package: Dotted name of the package with the templates.
        folder: Folder of the templates in the package.
        keeps_last_newline: Whether a page ends as its template's file does; not for pieces of a page.
    """
    environment = Environment(
        loader=PackageLoader(package, folder),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=keeps_last_newline,
    )
    environment.filters["percent"] = share_text
    return environment

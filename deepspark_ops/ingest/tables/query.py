"""The rows of a table by SQL: one SELECT that reads the table ``source``, tables of the catalog, and allowed files."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from deepspark_ops.config.shared_options.named_files import ListedFiles
from deepspark_ops.errors import ConfigError

VIEW: Final = "source"
"""The name by which a query reads the table of option source."""
NO_SUBSTITUTION: Final = ("spark.sql.variable.substitute", "false")
"""Spark's parser replaces ``${env:NAME}`` in a query by variables of the driver's environment, secrets included."""

_SELECT_NODES: Final = frozenset(
    """Aggregate AsOfJoin CTERelationDef Deduplicate Distinct Except Expand Filter Generate GlobalLimit Intersect Join
    LateralJoin LocalLimit LocalRelation Offset OneRowRelation PipeOperator Pivot Project Range RebalancePartitions
    Repartition RepartitionByExpression ResolvedInlineTable Sample Sort SubqueryAlias Tail Union UnresolvedHaving
    UnresolvedHint UnresolvedInlineTable UnresolvedRelation UnresolvedSubqueryColumnAliases UnresolvedTVFAliases
    UnresolvedTableValuedFunction UnresolvedWith Unpivot Window WithCTE WithWindowDefinition""".split()
)
"""Nodes of Catalyst's parsed plans that only read and compute. Spark executes every other statement while it parses."""
_CODE_FUNCTIONS: Final = frozenset({"java_method", "reflect", "try_reflect"})
"""Functions that call any static method of the JVM."""
_GLOB: Final = frozenset("*?[]{}\\")


@dataclass(frozen=True)
class ParsedQuery:
    """The parts of a parsed query that decide whether it may run.

    Attributes:
        nodes: Class names of the plan's nodes, subqueries included.
        functions: Names of called functions, in lower case.
        relations: Names of the tables and files that the query reads, in parts: ``("shop", "customers")``.
        has_relation_options: Whether a relation has options, ``FROM t WITH (path = ...)``.
    """

    nodes: frozenset[str]
    functions: frozenset[str]
    relations: tuple[tuple[str, ...], ...]
    has_relation_options: bool


def parse_query(session: Any, query: str) -> ParsedQuery:
    """Return the parts of a query as Spark (a SparkSession) parses it; nothing is executed or resolved.

    Raises:
        pyspark.errors.ParseException: Spark cannot parse the query.
    """
    session.conf.set(*NO_SUBSTITUTION)
    plan = session._jsparkSession.sessionState().sqlParser().parsePlan(query)
    nodes: set[str] = set()
    functions: set[str] = set()
    relations: list[tuple[str, ...]] = []
    has_options = False
    for node in _plan_nodes(plan):
        name = _class_name(node)
        nodes.add(name)
        if name == "UnresolvedRelation":
            relations.append(tuple(_elements(node.multipartIdentifier())))
            has_options = has_options or not node.options().isEmpty()
        for expression in _expressions(node):
            if _class_name(expression) == "UnresolvedFunction":
                functions.add(list(_elements(expression.nameParts()))[-1].lower())
    return ParsedQuery(frozenset(nodes), frozenset(functions), tuple(relations), has_options)


def check_query(parsed: ParsedQuery, files: ListedFiles, is_table: Callable[[tuple[str, ...]], bool]) -> None:
    """Refuse a query that does more than read allowed tables and files.

    Args:
        parsed: The query.
        files: Folders whose files a query may name where ``files.confined``.
        is_table: Returns whether the catalog has a table of this name. Spark takes ``format.path`` for a file only
            where the catalog has no such table.

    Raises:
        ConfigError: The query is no single SELECT, calls code of the JVM, or reads a file outside of the folders.
    """
    refusal = _statement_refusal(parsed)
    if refusal is None and files.confined:
        refusal = _file_refusal(parsed, files.allowed_root, is_table)
    if refusal is not None:
        reason, allowed = refusal
        msg = f"query: {reason}; allowed: {allowed}"
        raise ConfigError(msg)


def _statement_refusal(parsed: ParsedQuery) -> tuple[str, str] | None:
    if statements := sorted(parsed.nodes - _SELECT_NODES):
        return f"it has {', '.join(statements)}", "one SELECT statement that only reads"
    if functions := sorted(parsed.functions & _CODE_FUNCTIONS):
        return f"it calls {', '.join(functions)}", "SQL functions that run no code of the JVM"
    if parsed.has_relation_options:
        return "a table has options, WITH (...)", "tables without options"
    return None


def _file_refusal(
    parsed: ParsedQuery, folders: tuple[Path, ...], is_table: Callable[[tuple[str, ...]], bool]
) -> tuple[str, str] | None:
    for relation in parsed.relations:
        if len(relation) == 2 and not is_table(relation) and not _is_allowed(relation[1], folders):
            names = ", ".join(map(str, folders)) or "none"
            return (
                f"it reads {relation[0]}.`{relation[1]}`, which is no table of the catalog",
                f"{VIEW}, tables of the catalog, and files in these folders: {names}",
            )
    return None


def _is_allowed(address: str, folders: tuple[Path, ...]) -> bool:
    path = Path(address.removeprefix("file://").removeprefix("file:"))
    if not path.is_absolute() or _GLOB & set(address):
        return False  # another file system, the driver's working folder, or a pattern: {a,../..} leaves the folder
    resolved = path.resolve()
    return any(resolved.is_relative_to(folder.resolve()) for folder in folders)


def _plan_nodes(plan: Any) -> Iterator[Any]:
    """Yield each node of a parsed plan (a Java object), also of subqueries and common table expressions."""
    yield plan
    parts = list(_elements(plan.children()))
    if _class_name(plan) == "UnresolvedWith":
        parts += _elements(plan.innerChildren())
    parts += [expression.plan() for expression in _expressions(plan) if _is_subquery(expression)]
    for part in parts:
        yield from _plan_nodes(part)


def _expressions(plan: Any) -> Iterator[Any]:
    waiting = list(_elements(plan.expressions()))
    while waiting:
        expression = waiting.pop()
        yield expression
        waiting += _elements(expression.children())


def _is_subquery(expression: Any) -> bool:
    kind = expression.getClass()
    while kind is not None:
        if kind.getSimpleName() == "PlanExpression":
            return True
        kind = kind.getSuperclass()
    return False


def _class_name(node: Any) -> str:
    return str(node.getClass().getSimpleName()).removesuffix("$")


def _elements(sequence: Any) -> Iterator[Any]:
    """Yield the elements of a Scala Seq."""
    iterator = sequence.iterator()
    while iterator.hasNext():
        yield iterator.next()

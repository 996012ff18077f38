"""Constructor arguments of our operators: the fields of the stage's config models, all templates.

Only a config model declares an option. A class names the models; ``StageArguments`` makes the constructor's signature,
the template fields and the refusal of unknown names from the models.
"""

from __future__ import annotations

import difflib
import inspect
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, Final

import jinja2
from airflow.sdk import Asset
from pydantic.fields import FieldInfo

from deepspark_ops.config.base import Config, StageConfig, wrong_values
from deepspark_ops.config.flat_fields import solver_field_hint
from deepspark_ops.errors import ConfigError
from deepspark_ops.operators.form import config_from_params, form_schemas, is_left_out, refuse_unknown
from deepspark_ops.operators.lineage.facets import operator_lineage
from deepspark_ops.operators.lineage.stage_lineage import StageFacts, after_stage, before_stage
from deepspark_ops.operators.provider.airflow_names import (
    AirflowException,
    AirflowFailException,
    AirflowNotFoundException,
)
from deepspark_ops.operators.provider.store_connections import StoreAccess, store_access
from deepspark_ops.operators.tasks.installation import installed_places
from deepspark_ops.operators.tasks.run_plan import Places, read_decided
from deepspark_ops.operators.tasks.stage_run import (
    StageRun,
    is_running_task,
    plain_end,
    require_folder,
    require_training,
)
from deepspark_ops.stores.store_path import DataPath, StorePath, data_path

DECIDED: Final = {
    "run_dir": "run=, the output of another task or the path of a run's folder, says it",
    "master": "the Spark connection of conn_id says it",
    "named_files": "DEEPSPARK_ALLOWED_ROOTS and DEEPSPARK_PYTHON_LAYERS of the installation say it",
    "listed_files": "DEEPSPARK_ALLOWED_ROOTS of the installation says it",
    "previous": "the dataset's versions say it",
    "production": "the run says it: warm_start of its DeepSparkCheckOperator",
    "production_samples": "the run says it: warm_start of its DeepSparkCheckOperator",
    "ingest": "source and the options beside it say it",
}
"""Fields of config models that are no argument of an operator, and what decides them."""
_NOT_TAKEN: Final = {
    "deferrable": "a stage computes below its task, which holds a worker's slot; pool= limits how many run at a time",
}
"""Arguments of other operators, and what to use."""
_ATTRIBUTES: Final = {"output": "output_path"}
"""Arguments whose name is an attribute of Airflow's operators already, and the template field that holds them."""
_ENTRIES: Final = {"weights": "snapshot"}
"""Arguments that take another entry of a task's output than the one of their own name."""
_OF_LOGICAL_DATE: Final = ("logical_date", "ds", "ds_nodash", "ts", "ts_nodash", "ts_nodash_with_tz")
"""Airflow's values for templates that a run without a logical date lacks."""
_TEMPLATE_MARKS: Final = ("{{", "{%", "{#")
_EXPRESSION = re.compile(r"\s*\{\{((?:(?!\{\{|\}\}).)+)\}\}\s*", re.DOTALL)


def form_templates(*models: type[StageConfig]) -> dict[str, Any]:
    """Return arguments of an operator with the values of the DAG's form: a template for each field.

    Example:
        .. code-block:: python

            with DAG("ours", params=form_params([("Train", TrainConfig)])):
                DeepSparkTrainOperator(task_id="train", **form_templates(TrainConfig))
    """
    return {name: f"{{{{ params.{name} }}}}" for model in models for name in form_schemas(model)}


def argument_fields(operator_class: type[StageArguments]) -> dict[str, FieldInfo]:
    """Return name -> field of an operator's arguments from the config models, in their order."""
    fields: dict[str, FieldInfo] = {}
    for model in operator_class.config_models:
        for name, field in model.model_fields.items():
            if name not in DECIDED and name not in operator_class.not_arguments:
                fields.setdefault(name, field)
    return fields


class StageArguments:
    """Part of an operator whose constructor takes the fields of config models, and a run.

    A text as an argument is a template. A template with a single expression keeps the expression's type:
    ``"{{ params.n_workers }}"`` is a number. None or an empty text leaves the argument out. An argument for a
    path also takes the whole output of another task: ``dataset=ingest.output``.

    Attributes:
        config_models: Their fields are the arguments.
        required: Arguments that must be given.
        not_arguments: Fields of the models that are no arguments of this operator, beside ``DECIDED``.
        stage: Word for the stage, in the run's folder.
        takes_run: Whether there is an argument ``run``.
        trains: Whether a run that the operator starts is one that trains, which a DAG run's own folder is kept for.
        needs_training: Whether the stage needs a run with a training.
        makes_run: Whether the stage makes a missing folder of ``run``.
        returns_mapping: Whether the output is a mapping, whose entries are outputs of their own, too.
        more_templates: Template fields beside the run, the fields of the models and those of the classes above.
        refused: Arguments of Airflow's operators that the stage sets, with the reason.
    """

    config_models: ClassVar[tuple[type[StageConfig], ...]] = ()
    required: ClassVar[tuple[str, ...]] = ()
    not_arguments: ClassVar[frozenset[str]] = frozenset()
    stage: ClassVar[str] = ""
    takes_run: ClassVar[bool] = True
    trains: ClassVar[bool] = False
    needs_training: ClassVar[bool] = False
    makes_run: ClassVar[bool] = False
    returns_mapping: ClassVar[bool] = True
    more_templates: ClassVar[tuple[str, ...]] = ()
    refused: ClassVar[Mapping[str, str]] = {}
    template_fields: ClassVar[Collection[str]] = ()
    task_id: str

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Make the template fields, and the constructor's signature, which tells Airflow the arguments."""
        super().__init_subclass__(**kwargs)
        setattr(cls, "__init__", _with_signature(cls))  # noqa: B010 - to a type checker it is a method
        airflow_bases = (base for base in cls.__mro__ if not issubclass(base, StageArguments))
        inherited = next((base.template_fields for base in airflow_bases if hasattr(base, "template_fields")), ())
        class_fields = cls.__dict__.get("template_fields", ())
        more = [name for base in cls.__mro__ for name in base.__dict__.get("more_templates", ())]
        first = ["run"] if cls.takes_run else []  # so that the run of a wrong template is known
        fields = [*first, *inherited, *class_fields, *more, *_template_fields(cls)]
        cls.template_fields = tuple(dict.fromkeys(fields))

    def __init__(
        self,
        *,
        run: Any = None,
        places: Places | None = None,
        refuse_unknown_conf: bool = False,
        store_conn_id: str | None = None,
        **kwargs: Any,
    ) -> None:
        """Keep the arguments; everything else is decided when the task runs.

        Args:
            run: Output of another task of ours, or the path of a run's folder. Without it the task starts a new run.
            places: Where runs, datasets and models live; default: those of this Airflow.
            refuse_unknown_conf: Whether a run whose conf has keys that are no param of the DAG is refused.
            store_conn_id: Airflow connection with the credentials of an object store; default: aws_default,
                google_cloud_default or wasb_default, where an argument or the run's dataset is in such a store.
            kwargs: Fields of the config models, and Airflow's arguments.

        Raises:
            ConfigError: An argument is unknown or missing, or a value that is no template is wrong.
        """
        cls = type(self)
        connections = _connections_of([run, *(kwargs.get(name) for name in argument_fields(cls))])
        values = {name: _as_text(kwargs.pop(name, None)) for name in argument_fields(cls)}
        if run is not None and not cls.takes_run:
            kwargs["run"] = run
        _refuse_unknown(cls, kwargs)
        _refuse_missing(cls, values)
        _refuse_wrong(cls, values, kwargs.get("task_id"))
        connections |= {store_conn_id} if store_conn_id else set()
        if len(connections) > 1:
            msg = (
                f"{cls.__name__}, task {kwargs.get('task_id')}: paths and store_conn_id name the connections"
                f" {', '.join(sorted(connections))}; a task uses one: give store_conn_id, and paths without another"
            )
            raise ConfigError(msg)
        super().__init__(**{"multiple_outputs": cls.returns_mapping, **kwargs})
        self.output_of_task: Mapping[str, Any] = {}
        self.starts_run = run is None
        self.run = _as_text(run)
        self._places = places
        self._refuses_unknown_conf = refuse_unknown_conf
        self.store_conn_id = store_conn_id or next(iter(connections), None)
        for name, value in values.items():
            setattr(self, _ATTRIBUTES.get(name, name), value)
        # What is left out need not be shown among the rendered templates.
        left_out = {name for name in _template_fields(cls) if getattr(self, name) is None}
        fields = tuple(name for name in cls.template_fields if name not in left_out)
        object.__setattr__(self, "template_fields", fields)

    @classmethod
    def partial(cls, **kwargs: Any) -> Any:
        """Return the operator with some arguments, to be expanded over others.

        Raises:
            ConfigError: An argument is unknown, or a value that is no template is wrong.
        """
        _refuse_unknown(cls, kwargs)
        names = {"run", *argument_fields(cls)}
        kwargs = {name: _as_text(value) if name in names else value for name, value in kwargs.items()}
        _refuse_wrong(cls, kwargs, kwargs.get("task_id"))
        return PartialOperator(cls, super().partial(**kwargs), kwargs)  # type: ignore[misc]

    def render_template(self, content: Any, context: Any, jinja_env: Any = None, seen_oids: Any = None) -> Any:
        """Return a rendered template: a text, also in a DAG with native objects; a single expression keeps its type.

        A wrong template ends the task with a plain message.
        """
        if not isinstance(content, str):
            return super().render_template(content, context, jinja_env, seen_oids)  # type: ignore[misc]
        environment = jinja_env or self.get_template_env()  # type: ignore[attr-defined]
        expression = _EXPRESSION.fullmatch(content)
        end: type[AirflowException] = AirflowFailException
        try:
            if expression is None:
                return "".join(map(str, environment.from_string(content).generate(**context)))
            value = environment.compile_expression(expression[1], undefined_to_none=False)(**context)
            if not isinstance(value, jinja2.Undefined):
                return value
            message = _template_problem(content, value._undefined_message)
        except jinja2.TemplateError as error:
            message = _template_problem(content, str(error))
        except Exception as error:  # a template runs Airflow's code and its author's
            if isinstance(error, AirflowException) and not isinstance(error, AirflowNotFoundException):
                raise  # a skip, for example
            end = AirflowException  # in an outage of Airflow a Variable seems to be missing: the task's retries count
            message = f"template {content!r}: {_raised_text(error)}"
        if is_running_task():
            self.log.info("::endgroup::")  # type: ignore[attr-defined] # of Airflow's folded group Pre Execute
        # Airflow logs the traceback of every exception in a template.
        raise plain_end(self, context, end(message)) from None

    @property
    def places(self) -> Places:
        """Where runs, datasets and models live."""
        return self._places or installed_places()

    def values(self) -> dict[str, Any]:
        """Return the arguments with a value, after the rendering of templates."""
        fields = argument_fields(type(self))
        entries = {name: _as_text(_own_entry(name, getattr(self, _ATTRIBUTES.get(name, name)))) for name in fields}
        return {name: value for name, value in entries.items() if not is_left_out(value)}

    def path(self, name: str) -> DataPath | None:
        """Return the path of an argument; a relative path starts at the installation's root. None if left out."""
        value = self.values().get(name)
        return None if value is None else self.places.root / data_path(str(value))

    def config(self, model: type[Config], *, folder: Path | None = None, **decided: Any) -> Config:
        """Build a stage's config from the arguments.

        Args:
            model: One of ``config_models``.
            folder: Relative paths start there; default: the root of the installation.
            decided: Values that the operator decides. None leaves the argument's.

        Raises:
            ConfigError: One line per wrong field.
        """
        return config_from_params(model, self.values(), folder or self.places.root, **decided)

    def stage_run(self, context: Any) -> StageRun:
        """Return the paths of ``run``, or of a new run.

        Raises:
            AirflowFailException: The task whose output ``run`` is left no result, or the run's folder is missing.
        """
        run = (
            StageRun(self.run_dir(context), None, None) if self.starts_run else StageRun.of(self.run, self.places.root)
        )
        if not self.makes_run and not run.run_dir.is_dir():
            if self.needs_training:
                require_training(run.run_dir)
            elif not self.starts_run:
                require_folder(run.run_dir)
        return run

    def run_dir(self, context: Any) -> Path:
        """Return the folder of ``run``, or of a new run.

        Raises:
            AirflowFailException: The task whose output ``run`` is left no result.
        """
        if self.starts_run:
            return self.places.run_folder(context["dag_run"].dag_id, self._new_run_id(context))
        return StageRun.of(self.run, self.places.root).run_dir

    def _new_run_id(self, context: Any) -> str:
        """Return the id of the task's new run.

        The run has the DAG run's id, for Airflow's pages, if no other task of the DAG starts a run with a training. A
        run without a training has the DAG run's id only if no other task starts a run.
        """
        run_id = str(context["dag_run"].run_id)
        map_index = getattr(context["ti"], "map_index", -1)
        if map_index is not None and map_index >= 0:
            return f"{run_id}__{self.task_id}_{map_index}"
        other_tasks = (task for task in context["dag"].tasks if task.task_id != self.task_id)
        starting = [operator_class for task in other_tasks if (operator_class := _starting_class(task))]
        is_first = not any(operator_class.trains for operator_class in starting) if self.trains else not starting
        return run_id if is_first else f"{run_id}__{self.task_id}"

    def store_access(self) -> AbstractContextManager[StoreAccess]:
        """Return the context with the credentials of the task's stores, for this process and the child processes.

        Raises:
            ConfigError: On entry: a connection is missing, or a field of it cannot be used.
        """
        return store_access(self._texts(), self.store_conn_id)

    def _texts(self) -> Iterator[str]:
        """Yield the arguments and the paths of the run."""
        yield from map(str, self.values().values())
        run = getattr(self, "trial", self.run)  # a trial has the paths of its run
        if isinstance(run, Mapping):
            yield from map(str, run.values())
        elif isinstance(run, str):
            yield str(read_decided(self.places.root / run).dataset)

    def get_openlineage_facets_on_start(self) -> Any:
        """Return the stage's input, for Airflow's provider of OpenLineage."""
        with self.store_access():
            return operator_lineage(before_stage(self.stage, self._facts(self.run)))

    def get_openlineage_facets_on_complete(self, task_instance: Any) -> Any:
        """Return the stage's input and output, for Airflow's provider of OpenLineage."""
        del task_instance
        with self.store_access():
            return operator_lineage(after_stage(self.stage, self._facts(self.output_of_task)))

    def _facts(self, output: Any) -> StageFacts:
        entries = output if isinstance(output, Mapping) else {"run_dir": output} if isinstance(output, str) else {}
        dataset = self.path("dataset") if "dataset" in argument_fields(type(self)) else None
        return StageFacts(self.values(), {**entries, **({"dataset": dataset} if dataset else {})}, self.places.root)

    def refuse_unknown_conf(self, context: Any) -> None:
        """Refuse a run with unknown keys in the conf, if the operator has ``refuse_unknown_conf``.

        Raises:
            ConfigError: Names each key and, where one is near, the param that may be meant.
        """
        if self._refuses_unknown_conf:
            refuse_unknown(context["dag_run"].conf, list(context["dag"].params))


class PartialOperator:
    """Arguments of an operator before ``expand``; unknown and missing names are refused when Airflow reads the DAG.

    Airflow's own refusal comes without the nearest name, and for ``expand_kwargs`` when the task starts.
    """

    def __init__(self, operator_class: type[StageArguments], partial: Any, arguments: Mapping[str, Any]) -> None:
        """Wrap what Airflow's ``partial`` returned for the arguments."""
        self._operator_class = operator_class
        self._partial = partial
        groups = [group for group in (partial.kwargs.get("dag"), partial.kwargs.get("task_group")) if group]
        defaults = [*(group.default_args for group in groups), arguments.get("default_args"), arguments]
        self._arguments = {name: value for values in defaults for name, value in (values or {}).items()}

    def expand(self, **mapped: Any) -> Any:
        """Return the tasks, a task for each combination of the lists' elements.

        Raises:
            ConfigError: An argument is unknown or missing.
        """
        self._refuse_names([mapped])
        names = {"run", *argument_fields(self._operator_class)}
        for name, values in mapped.items():
            connections = _connections_of([values])
            if name in names and connections - {self._arguments.get("store_conn_id")}:
                msg = f"{name} names the connections {', '.join(sorted(connections))}: give store_conn_id to partial()"
                raise self._refused(ConfigError(msg))
        mapped = {name: _as_text(values) if name in names else values for name, values in mapped.items()}
        return self._partial.expand(**mapped)

    def expand_kwargs(self, kwargs: Any, *, strict: bool = True) -> Any:
        """Return the tasks, a task for each mapping of arguments.

        Raises:
            ConfigError: An argument is unknown or missing.
        """
        mappings = kwargs if isinstance(kwargs, Sequence) else ()
        self._refuse_names([names for names in mappings if isinstance(names, Mapping)])
        return self._partial.expand_kwargs(kwargs, strict=strict)

    def _refuse_names(self, mappings: Sequence[Mapping[str, Any]]) -> None:
        try:
            _refuse_unknown(self._operator_class, dict.fromkeys(name for names in mappings for name in names))
            for names in mappings:
                _refuse_missing(self._operator_class, {**self._arguments, **names})
        except ConfigError as error:
            raise self._refused(error) from None

    def _refused(self, error: ConfigError) -> ConfigError:
        self._partial._expand_called = True  # else Airflow warns of a task that was never mapped
        return error


def _starting_class(task: Any) -> type[StageArguments] | None:
    """Return the class of a task, or of mapped tasks, of ours that start a run of their own; else None."""
    if isinstance(task, StageArguments):
        return type(task) if task.starts_run else None
    mapped_class = getattr(task, "operator_class", None)
    if not (isinstance(mapped_class, type) and issubclass(mapped_class, StageArguments)):
        return None
    mapped = task.expand_input.value  # of expand: name -> values; of expand_kwargs: mappings, or the output of a task
    mappings = [mapped] if isinstance(mapped, Mapping) else mapped if isinstance(mapped, Sequence) else []
    has_run = any("run" in arguments for arguments in (task.partial_kwargs, *mappings))
    return None if has_run else mapped_class


def _template_fields(cls: type[StageArguments]) -> list[str]:
    return [
        *(["run"] if cls.takes_run else []),
        "store_conn_id",
        *(_ATTRIBUTES.get(name, name) for name in argument_fields(cls)),
    ]


def _with_signature(cls: type[StageArguments]) -> Callable[..., None]:
    """Return the constructor of a class, with every argument in the signature."""
    class_init = cls.__dict__.get("__init__")

    def __init__(self: Any, **kwargs: Any) -> None:
        if class_init is None:
            super(cls, self).__init__(**kwargs)
        else:
            class_init(self, **kwargs)

    # Airflow looks at the constructors of its own operators alone, not at those of our parts of operators.
    parts = [base for base in cls.__mro__[1:] if issubclass(base, StageArguments) and not hasattr(base, "execute")]
    inits = [*(vars(base)["__init__"] for base in reversed(parts)), *([] if class_init is None else [class_init])]
    declared = [parameter for init in inits for parameter in inspect.signature(init).parameters.values()]
    common = {name: parameter for name, parameter in _COMMON_PARAMETERS.items() if name != "run" or cls.takes_run}
    named = {
        parameter.name: parameter
        for parameter in declared
        if parameter.kind is parameter.KEYWORD_ONLY and parameter.name not in _COMMON_PARAMETERS
    }
    kinds = inspect.Parameter
    receiver, more = kinds("self", kinds.POSITIONAL_OR_KEYWORD), kinds("kwargs", kinds.VAR_KEYWORD, annotation=Any)
    # Otherwise Airflow would report a missing argument before our report of the misspelt argument.
    fields = {
        name: kinds(name, kinds.KEYWORD_ONLY, default=None, annotation=field.annotation)
        for name, field in argument_fields(cls).items()
    }
    by_name = {**fields, **common, **named}
    __init__.__signature__ = inspect.Signature([receiver, *by_name.values(), more])  # type: ignore[attr-defined]
    __init__.__doc__ = class_init.__doc__ if class_init is not None else StageArguments.__init__.__doc__
    __init__.__qualname__ = f"{cls.__qualname__}.__init__"
    return __init__


_COMMON_PARAMETERS: Final = {
    name: one
    for name, one in inspect.signature(StageArguments.__init__).parameters.items()
    if one.kind is inspect.Parameter.KEYWORD_ONLY
}


@cache
def known_arguments(cls: Any) -> frozenset[str]:
    """Return the names of all arguments of an operator's constructor, Airflow's included."""
    inits = (base.__dict__["__init__"] for base in cls.__mro__ if "__init__" in base.__dict__ and base is not object)
    names = {name for init in inits for name in inspect.signature(init).parameters}
    return frozenset(names - {"self", "args", "kwargs", *getattr(cls, "not_arguments", ())})


def _refuse_unknown(cls: type[StageArguments], names: Iterable[str]) -> None:
    """Refuse unknown arguments, with the nearest name.

    Raises:
        ConfigError: One line for each.
    """
    operator_class: Any = cls
    argument_names = known_arguments(operator_class)
    lines = []
    for name in sorted((set(names) - argument_names - {"default_args"}) | (set(names) & set(cls.refused))):
        nearest = difflib.get_close_matches(name, argument_names, n=1)
        if name in cls.refused:
            lines.append(f"{cls.__name__} does not take {name}: {cls.refused[name]}")
        elif name in DECIDED or name in _NOT_TAKEN:
            lines.append(f"{cls.__name__} has no argument {name}: {DECIDED.get(name) or _NOT_TAKEN[name]}")
        elif hint := solver_field_hint(name, argument_fields(cls)):
            lines.append(f"{cls.__name__} has no argument {name}: {hint}")
        elif nearest:
            lines.append(f"{cls.__name__} has no argument {name}; did you mean {nearest[0]}?")
        else:
            lines.append(f"{cls.__name__} has no argument {name}; allowed: {', '.join(argument_fields(cls))}")
    if lines:
        raise ConfigError("\n".join(lines))


def _refuse_missing(cls: type[StageArguments], values: Mapping[str, Any]) -> None:
    """Refuse a constructor call without a needed argument.

    Raises:
        ConfigError: One line for each.
    """
    fields = argument_fields(cls)
    lines = [
        f"{cls.__name__} needs argument {name}: {fields[name].description}"
        for name in cls.required
        if values.get(name) is None
    ]
    if lines:
        raise ConfigError("\n".join(lines))


def _refuse_wrong(cls: type[StageArguments], values: Mapping[str, Any], task_id: Any) -> None:
    """Refuse wrong values without a template when Airflow reads the DAG.

    Rules of several fields wait for the task, since a template may decide one of the fields. A running task makes
    mapped operators; the task's own check then ends with a plain message.

    Raises:
        ConfigError: One line for each value.
    """
    if is_running_task():
        return
    entries = {name: _own_entry(name, value) for name, value in values.items() if name in argument_fields(cls)}
    literals = {name: value for name, value in entries.items() if not is_left_out(value) and _is_literal(value)}
    lines = [*_misspelt_templates(entries), *_strategy_problems(literals)]
    for model in cls.config_models:
        lines += wrong_values(model, {name: literals.pop(name) for name in model.model_fields if name in literals})
    if lines:
        raise ConfigError("\n".join(f"{cls.__name__}, task {task_id}: {line}" for line in lines))


def _as_text(value: Any) -> Any:
    """Return a path, an Asset, or each of a list, as text, which is a template; another value unchanged."""
    if isinstance(value, list | tuple):
        return [_as_text(item) for item in value]
    if _is_object_storage_path(value):  # in Airflow 3.1 a Path, too
        return f"{value.protocol}://{value.path}"
    if isinstance(value, Path | StorePath):
        return str(value)
    return value.uri if isinstance(value, Asset) else value


def _is_object_storage_path(value: Any) -> bool:
    """Return whether a value is an ``ObjectStoragePath``; the import of Airflow's class takes a third of a second."""
    return hasattr(value, "protocol") and hasattr(value, "storage_options")


def _connections_of(values: Iterable[Any]) -> set[str]:
    """Return the Airflow connections of values that are an ``ObjectStoragePath``, or a list of them."""
    flat = [item for value in values for item in (value if isinstance(value, list | tuple) else [value])]
    stored = [item for item in flat if _is_object_storage_path(item)]
    # Airflow 3.1 keeps the connection among the options.
    return {getattr(item, "conn_id", None) or item.storage_options.get("conn_id") for item in stored} - {None}


def _is_literal(value: Any) -> bool:
    """Return whether a value has no template and no output of a task."""
    if isinstance(value, str):
        return not any(mark in value for mark in _TEMPLATE_MARKS)
    if isinstance(value, Mapping):
        return all(map(_is_literal, value.values()))
    if isinstance(value, list | tuple):
        return all(map(_is_literal, value))
    return isinstance(value, bool | int | float | Path | StorePath)


def _template_problem(text: Any, problem: str) -> str:
    if any(problem == f"'{name}' is undefined" for name in _OF_LOGICAL_DATE):
        return (
            f"template {text!r}: {problem}: the run has no logical date, since an Asset or a trigger without a date"
            " started the run; every run has {{ dag_run.run_after | ds }} and {{ run_id }}"
        )
    return (
        f"template {text!r}: {problem}; text between {{{{ and }}}}, {{% and %}} or {{# and #}} is Jinja's: without a"
        " template write a blank between the two characters"
    )


def _raised_text(error: Exception) -> str:
    """Return what an expression of a template raised; of a missing Variable the sentence in Airflow's answer."""
    detail = getattr(getattr(error, "error", None), "detail", None)
    return str(detail["message"]) if isinstance(detail, Mapping) else f"{type(error).__name__}: {error}"


def _misspelt_templates(entries: Mapping[str, Any]) -> list[str]:
    """Return the problem of each text that Jinja cannot read; a DAG may declare further tags."""
    lines = []
    for name, text in entries.items():
        try:
            if isinstance(text, str):
                jinja2.Environment(autoescape=False).parse(text)  # noqa: S701 - nothing is rendered
        except jinja2.TemplateSyntaxError as error:
            if "unknown tag" not in str(error.message):
                lines.append(f"{name}: {_template_problem(text, str(error.message))}")
    return lines


def _strategy_problems(literals: Mapping[str, Any]) -> list[str]:
    """Return the problem of an unknown strategy; the registry knows the names, and the config model does not."""
    from deepspark_ops.exchange.strategies.base import find_strategy
    from deepspark_ops.exchange.strategies.choice import AUTO

    strategy = literals.get("strategy", AUTO)
    try:
        if isinstance(strategy, str) and strategy != AUTO:
            find_strategy(strategy, other_choices=(AUTO,))
    except ConfigError as error:
        return [str(error)]
    return []


def _own_entry(name: str, value: Any) -> Any:
    """Return an argument's entry of a task's whole output; another value unchanged."""
    if not isinstance(value, Mapping):
        return value
    entry = _ENTRIES.get(name, name)
    return value[entry] if entry in value else value

"""The addresses of the server, with FastAPI."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from importlib.resources import files
from typing import Annotated, Any

from fastapi import FastAPI, Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException

from deepspark_ops.config.commands.serve import ServeConfig
from deepspark_ops.errors import DeepSparkError
from deepspark_ops.predict.samples import Parts
from deepspark_ops.serve.guard import PREDICT, SALIENCY, App, Guard, Limits
from deepspark_ops.serve.metrics import CONTENT_TYPE
from deepspark_ops.serve.refusal import RequestRefused
from deepspark_ops.serve.request import UNUSABLE, samples_of_json, samples_of_pictures
from deepspark_ops.serve.saliency import Method
from deepspark_ops.serve.service import Service

_PAGE = {
    "/": ("page.html", "text/html; charset=utf-8"),
    "/page.css": ("page.css", "text/css; charset=utf-8"),
    "/page.js": ("page.js", "text/javascript; charset=utf-8"),
}
_MAX_FILES = 1_000
_log = logging.getLogger(__name__)


def make_app(service: Service, config: ServeConfig, limits: Limits) -> App:
    """Return the application; the application's shutdown closes the service.

    Args:
        service: Answers.
        config: Time limits.
        limits: Bounds of a request.
    """

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        await run_in_threadpool(service.close)

    # FastAPI's pages are off: the pages load scripts from other hosts.
    app = FastAPI(title=service.model.manifest.net, openapi_url=None, docs_url=None, redoc_url=None, lifespan=lifespan)
    _add_page(app)
    _add_answers(app, service, config)
    _add_refusals(app)
    return Guard(app, limits, service.metrics)


def _add_page(app: FastAPI) -> None:
    for path, (name, kind) in _PAGE.items():
        app.add_api_route(path, _file_route(files("deepspark_ops.serve").joinpath(name).read_bytes(), kind))


def _file_route(content: bytes, kind: str) -> Callable[[], Awaitable[Response]]:
    async def shown() -> Response:
        return Response(content, media_type=kind)

    return shown


def _add_answers(app: FastAPI, service: Service, config: ServeConfig) -> None:
    @app.get("/health")
    async def health() -> dict[str, str]:
        return {"status": "ok"}

    @app.get("/metrics")
    async def metrics() -> Response:
        return Response(service.metrics.text(), media_type=CONTENT_TYPE)

    @app.get("/v1/model")
    async def model() -> JSONResponse:
        return JSONResponse(dict(service.about))

    @app.post(PREDICT)
    async def predict(
        request: Request, top_k: Annotated[int, Query(ge=1, le=1_000)] = 5, scores: bool = True
    ) -> JSONResponse:
        async with _deadline(config):
            samples = await _samples(request, service)
            outputs = await asyncio.wrap_future(service.submit(samples))
            return JSONResponse(
                await run_in_threadpool(_answer, service, samples, outputs, top_k=top_k, with_scores=scores)
            )

    map_turn = asyncio.Semaphore(1)  # a map costs as much as hundreds of predictions

    @app.post(SALIENCY)
    async def saliency(
        request: Request,
        method: Method = "gradient",
        position: Annotated[int | None, Query(alias="class", ge=0)] = None,
        output: str | None = None,
    ) -> JSONResponse:
        async with _deadline(config), map_turn:
            return JSONResponse(await _saliency(request, service, method, position, output))


@asynccontextmanager
async def _deadline(config: ServeConfig) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(config.timeout_s):
            yield
    except TimeoutError as error:
        text = f"no answer within {config.timeout_s:g} s; send fewer samples in a request, or fewer requests"
        raise RequestRefused(504, text) from error


async def _saliency(
    request: Request, service: Service, method: Method, position: int | None, output: str | None
) -> dict[str, Any]:
    samples = await _samples(request, service)
    if len(samples) != 1:
        raise RequestRefused(UNUSABLE, f"found {len(samples):,} pictures, expected a single picture")
    maps = service.saliency
    question = maps.question(samples[0], await asyncio.wrap_future(service.submit(samples)), output, position)
    maps.check(method, question.output)
    if method != "occlusion":
        return await run_in_threadpool(maps.gradients, method, question)
    # A batch at a time: predictions of others go in between.
    answers = [await asyncio.wrap_future(service.submit(batch)) for batch in maps.copies(question)]
    return await run_in_threadpool(maps.occlusion, question, answers)


def _answer(
    service: Service, samples: Sequence[Parts], outputs: Any, *, top_k: int, with_scores: bool
) -> dict[str, Any]:
    warnings = service.pixels.warnings(samples)
    predictions = service.rows(outputs, top_k, with_scores=with_scores)
    return {"predictions": predictions, **({"warnings": warnings} if warnings else {})}


async def _samples(request: Request, service: Service) -> Sequence[Parts]:
    kind = request.headers.get("content-type", "").split(";")[0].strip().lower()
    form = service.model.form
    if kind == "multipart/form-data":
        return await run_in_threadpool(samples_of_pictures, await _pictures(request), form)
    if kind.startswith("image/"):
        return await run_in_threadpool(samples_of_pictures, [("the picture", await request.body())], form)
    if kind == "application/json":
        return await run_in_threadpool(samples_of_json, await request.body(), form)
    text = f'found content type "{kind}", expected application/json, multipart/form-data or image/...'
    raise RequestRefused(415, text)


async def _pictures(request: Request) -> list[tuple[str, bytes]]:
    async with request.form(max_files=_MAX_FILES, max_fields=_MAX_FILES) as form:
        uploads = [value for _, value in form.multi_items() if isinstance(value, UploadFile)]
        return [(upload.filename or "picture", await upload.read()) for upload in uploads]


def _add_refusals(app: FastAPI) -> None:
    for kind in (RequestRefused, HTTPException, RequestValidationError, DeepSparkError, Exception):
        app.add_exception_handler(kind, _refusal)


async def _refusal(request: Request, error: Exception) -> Response:
    headers = None
    match error:
        case RequestRefused():
            text, status = str(error), error.status
        case HTTPException():
            text, status, headers = str(error.detail), error.status_code, error.headers
        case RequestValidationError():
            problems = (
                f"{problem['loc'][-1]}={problem.get('input')!r}: {problem['msg']}" for problem in error.errors()
            )
            text, status = "; ".join(problems), 422
        case DeepSparkError():
            text, status = str(error), 422
        case _:
            _log.error("%s %s failed", request.method, request.url.path, exc_info=error)
            text, status = f"{type(error).__name__}: the server's log has the place", 500
    return JSONResponse({"error": text}, status, headers=headers)

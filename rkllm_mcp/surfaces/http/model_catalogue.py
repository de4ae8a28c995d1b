"""The models that this board could have: catalogue, search at the hub, downloads and removal; for the owner alone.

GET /v1/models/catalogue ─▶ every model with its fitness, and the downloads
POST /v1/models:pull ─▶ a download that goes on in the service, with or without a client that looks at it
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from anyio import to_thread
from pydantic import Field
from starlette.requests import Request

from rkllm_mcp.catalogue import Catalogue, read_catalogue
from rkllm_mcp.config.section import DocumentedModel
from rkllm_mcp.config.sections import RIGHTS
from rkllm_mcp.errors import UsageError
from rkllm_mcp.models.downloads import Download, DownloadState, ModelState, by_recommendation, figures, state_of
from rkllm_mcp.surfaces.http import bodies
from rkllm_mcp.surfaces.http.errors import HTTPError
from rkllm_mcp.surfaces.http.route import Route, RouteResponse, shown
from rkllm_mcp.surfaces.http.state import OWNER, service_of, tenant_of
from rkllm_mcp.text import language_of_header

if TYPE_CHECKING:
    from rkllm_mcp.models.install import ModelSources

_MOST_REPOSITORIES = 20


class DownloadShown(DocumentedModel):
    """A download of a model."""

    name: str = Field(description="The name that was asked for.")
    folder: str = Field(description="The model's name, once it is here; empty before.")
    state: DownloadState = Field(description="A download that was stopped or failed is continued by the next one.")
    received: int = Field(description="Bytes that are here, of the files that have begun.")
    total: int = Field(description="Bytes of these files; the largest one comes first.")
    problem: str = Field(description="Why it failed, and the remedy; empty when it did not.")


class KnownModel(DocumentedModel):
    """A model of the catalogue, or one that was added."""

    name: str
    description: str
    task: Literal["chat", "embed", "rerank"]
    state: ModelState = Field(description="here, emulated and on the CPU can be used; to convert has no download.")
    fits: str = Field(description="yes, tight, no or unknown: whether this board can run it.")
    reason: str = Field(description="Why it does not fit, in a few words; empty when it does.")
    tokens_per_second: float | None = Field(description="Published speed of its answers.")
    memory_mb: int | None = Field(description="Published memory at run time.")
    context_tokens: int = Field(description="Its context window.")
    recommended: bool = Field(description="The one to begin with on this board.")
    loaded: bool = Field(description="It answers now.")
    removable: bool = Field(description="It is in the folder of the user's models.")
    partial_bytes: int = Field(description="What has arrived of a download that was not finished.")


class ModelCatalogue(DocumentedModel):
    """Every model that this board knows, those that are here first, and the downloads."""

    models: list[KnownModel]
    downloads: list[DownloadShown]


class DownloadList(DocumentedModel):
    """The downloads since the service began, the latest last."""

    downloads: list[DownloadShown]


class RepositoryQuery(bodies.RequestBody):
    """The words to look for."""

    search: str = Field(min_length=1, max_length=200, description="Words of the name of a repository.")


class Repositories(DocumentedModel):
    """Repositories of the hub."""

    hub: str = Field(description="The address of the hub that was asked.")
    repositories: list[str]


class ModelBody(bodies.RequestBody):
    """A model to download."""

    model: str = Field(min_length=1, max_length=300)
    """Its name in the catalogue, or a repository of the hub: OWNER/NAME or OWNER/NAME:FILE."""


class RemovedModel(DocumentedModel):
    """A model that was removed; OpenAI's clients find their fields."""

    id: str
    object: Literal["model"] = "model"
    deleted: Literal[True] = True


@Route("GET", "/v1/models/catalogue", answers=(RouteResponse(ModelCatalogue),), problems=(403,))
async def list_catalogue(request: Request) -> dict[str, Any]:
    """List the models that this board has or could have."""
    check_owner(request)
    service = service_of(request)
    # First, so that one that ends meanwhile is under way for who reads this, and is asked about again.
    downloads = [_shown(download) for download in service.tenants.downloads.by_name.values()]
    texts = read_catalogue(language_of_header(request.headers.get("accept-language", "")) or "en")
    models = await to_thread.run_sync(known_models, _sources(), service.model_host.name, texts)
    return {"models": [model.model_dump() for model in models], "downloads": downloads}


@Route("GET", "/v1/models/downloads", answers=(RouteResponse(DownloadList),), problems=(403,))
async def list_downloads(request: Request) -> dict[str, Any]:
    """List the downloads of models."""
    check_owner(request)
    return {"downloads": [_shown(download) for download in service_of(request).tenants.downloads.by_name.values()]}


@Route("GET", "/v1/models/hub", query=RepositoryQuery, answers=(RouteResponse(Repositories),), problems=(403, 503))
async def search_hub(request: Request) -> Repositories:
    """Search the hub for repositories; the words leave the board."""
    check_owner(request)
    words = bodies.query(request, RepositoryQuery).search
    hub = _sources().hub
    repositories = await to_thread.run_sync(partial(hub.search, words, _MOST_REPOSITORIES), abandon_on_cancel=True)
    return Repositories(hub=hub.endpoint, repositories=repositories)


@Route("POST", "/v1/models:pull", body=ModelBody, answers=(RouteResponse(DownloadShown, 202),), problems=(403, 409))
async def begin_download(request: Request) -> dict[str, Any]:
    """Begin or continue a download, which goes on without its client."""
    from rkllm_mcp.models.install import Pull

    check_owner(request)
    body = await bodies.read(request, ModelBody)
    tenants = service_of(request).tenants
    download = tenants.downloads.begin(Pull(body.model.strip()), _sources())
    if download is None:
        raise HTTPError(409, f"{body.model!r} is being downloaded already", param="model")
    tenants.tasks.start_soon(partial(tenants.downloads.run, download))
    return _shown(download)


@Route("POST", "/v1/models:stop", body=ModelBody, answers=(RouteResponse(status=204),), problems=(403, 404))
async def stop_download(request: Request) -> None:
    """Stop a download, or take one that is over from the list; what has arrived is kept."""
    check_owner(request)
    body = await bodies.read(request, ModelBody)
    try:
        service_of(request).tenants.downloads.stop(body.model.strip())
    except UsageError as error:
        raise HTTPError(404, str(error), param="model") from None


@Route("DELETE", "/v1/models/{model:path}", answers=(RouteResponse(RemovedModel),), problems=(403, 404, 409, 503))
async def remove(request: Request) -> RemovedModel:
    """Remove a model that was downloaded or added, and that is not in use."""
    check_owner(request)
    name: str = request.path_params["model"]
    await remove_model(request, name)
    return RemovedModel(id=name)


async def remove_model(request: Request, name: str) -> None:
    """Remove a model's folder.

    Raises:
        HTTPError: 403, it is not the service's to remove; 404, none exists; 409, it is in use.
    """
    sources = _sources()
    try:
        folder = await to_thread.run_sync(sources.removable, name)
    except UsageError as error:
        names = {folder.name for folder in await to_thread.run_sync(sources.models)}
        raise HTTPError(403 if name in names else 404, str(error)) from None
    try:
        await service_of(request).tenants.models.remove(folder, partial(sources.folders.remove, name))
    except UsageError as error:
        raise HTTPError(409, str(error), code="model_in_use") from None


def check_owner(request: Request) -> None:
    """Refuse a key that is not the owner's with all rights."""
    if tenant_of(request).name != OWNER or not set(RIGHTS) <= set(request.state.rights):
        raise HTTPError(403, "only a key of the owner with all rights installs and removes models", code="key_purpose")


def _sources() -> ModelSources:
    from rkllm_mcp.models.install import ModelSources

    return ModelSources()


def known_models(sources: ModelSources, loaded: str, texts: Catalogue) -> list[KnownModel]:
    """Return the models that this board has or could have, of which ``loaded`` answers, described in a language."""
    folders = sources.models()
    best = by_recommendation(sources, folders)[:1]
    models = list[KnownModel]()
    for folder in folders:
        fits, (speed, memory) = sources.fitness_of(folder), figures(folder)
        models.append(
            KnownModel(
                name=folder.folder.name,
                description=texts.translate_text("models.phrases", folder.card.description),
                task=folder.card.task,
                state=state_of(folder),
                fits=fits.verdict,
                reason=texts.translate_text("models.phrases", fits.reason),
                tokens_per_second=speed or None,
                memory_mb=memory or None,
                context_tokens=folder.card.context_tokens,
                recommended=folder in best,
                loaded=folder.name == loaded,
                removable=sources.folders.has(folder.folder.name) and not folder.missing,
                partial_bytes=sources.folders.partial_bytes(folder.folder.name),
            )
        )
    order = {"yes": 0, "tight": 1, "unknown": 2}
    # Of those to download the recommended one, then what fits; the catalogue's order otherwise.
    return sorted(
        models,
        key=lambda model: (
            model.state in {"to pull", "to convert"},
            not model.recommended,
            model.state == "to convert",
            order.get(model.fits, 3),
        ),
    )


def _shown(download: Download) -> dict[str, Any]:
    files = download.files.copy().values()
    received, total = sum(count for count, _ in files), sum(size for _, size in files)
    return shown(DownloadShown, download, name=download.wish.name, received=received, total=total)

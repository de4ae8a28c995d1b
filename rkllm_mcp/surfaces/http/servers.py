"""Servers of a tenant: state, switches and tests; logins and new servers for the owner alone.

    body ─▶ entry ─▶ checked ─▶ tried, or added to the configuration file ─▶ reload

A key that adds servers decides which programs run on the board and which addresses it asks. So this takes a key of the
owner with all rights, and ``install_servers`` in ``[security]``.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from anyio import to_thread
from pydantic import Field
from starlette.requests import Request

from rkllm_mcp.app.registry import search_registry
from rkllm_mcp.app.servers import Login, LoginState, ServerTest, start_apart, test_server
from rkllm_mcp.config.editing import add_server, checked_servers, names_in
from rkllm_mcp.config.gallery import gallery
from rkllm_mcp.config.registry import matching, registry_copy
from rkllm_mcp.config.section import DocumentedModel
from rkllm_mcp.config.sections import Config
from rkllm_mcp.config.servers import RemoteServer
from rkllm_mcp.diagnostics.doctor import gallery_server
from rkllm_mcp.diagnostics.programs import missing_programs, needed_programs
from rkllm_mcp.errors import ConfigError, RkllmMcpError, ServerUnavailableError
from rkllm_mcp.surfaces.http import bodies
from rkllm_mcp.surfaces.http.errors import HTTPError
from rkllm_mcp.surfaces.http.owner import refusal_of_adding, refusal_of_key
from rkllm_mcp.surfaces.http.route import Route, RouteResponse, shown
from rkllm_mcp.surfaces.http.state import ServiceState, run_work, service_of, tenant_of
from rkllm_mcp.surfaces.http.streaming import while_connected
from rkllm_mcp.surfaces.http.tools import SWITCHED, SwitchResult, ToolShown, shown_tool
from rkllm_mcp.text import language_of_header

# The longest wait for the progress of a login; proxies and the page wait longer for an answer, seconds.
_LOGIN_NEWS_S = 20.0
_HeaderName = Annotated[str, Field(pattern=r"^[!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}$")]
_HeaderValue = Annotated[str, Field(pattern=r"^[\x20-\x7e]{1,8192}$")]


class ServerShown(DocumentedModel):
    """A server."""

    name: str
    transport: str
    state: str = Field(description="ready, waiting, connecting, failed or died.")
    error: str = Field(description="Why it is not ready; empty when it is.")
    tools: int
    tokens: int = Field(description="What its tools cost in the list at the front of a prompt.")
    enabled: bool = Field(description="True if it is enabled.")
    can_log_in: bool = Field(description="It waits for a login with a browser, which this key may begin.")


class Servers(DocumentedModel):
    """All servers, in the order of the configuration."""

    servers: list[ServerShown]


@Route("GET", "/v1/servers", answers=(RouteResponse(Servers),))
async def list_servers(request: Request) -> dict[str, Any]:
    """List the servers and their state."""
    app, is_owner = tenant_of(request).app, refusal_of_key(request) is None
    tools = (*app.toolbox.tools(), *app.toolbox.tools(disabled=True))
    servers = [
        {
            "name": server.spec.name,
            "transport": server.spec.transport,
            "state": server.state,
            "error": server.explanation(),
            "tools": len(server.tools),
            "tokens": sum(
                app.model_host.listing.cost(tool)
                for tool in tools
                if tool.server == server.spec.name and not tool.on_demand
            ),
            "enabled": app.toolbox.switches.is_on(server.spec.name),
            "can_log_in": is_owner
            and server.failure == "login"
            and isinstance(server.spec, RemoteServer)
            and server.spec.auth == "oauth",
        }
        for server in app.toolbox.connections
    ]
    return {"servers": servers}


class GalleryServer(DocumentedModel):
    """A server that can be installed by name."""

    name: str
    title: str
    description: str
    description_ja: str
    version: str = Field(description="The version that is installed.")
    command: list[str] = Field(description="What runs on the board; FOLDER stands for a folder of its owner.")
    reaches: list[str] = Field(description="internet, folder: what it works with.")
    needs_folder: bool
    installed: bool
    missing: list[str] = Field(description="The programs that it needs and that are not usable on the board.")


class MissingProgram(DocumentedModel):
    """A program of another project that servers of the gallery need."""

    name: str
    command: str = Field(description="What installs it, in a terminal of the board.")


class OfferedEmbedder(DocumentedModel):
    """The recommended model that finds documents by meaning."""

    name: str
    download_mb: int
    memory_mb: int = Field(description="Of the process that uses it.")
    installed: bool = Field(description="An embedding model is chosen already.")


class Gallery(DocumentedModel):
    """The servers that are shipped as a list with the release."""

    servers: list[GalleryServer]
    missing: list[MissingProgram]
    embedder: OfferedEmbedder
    can_add: bool = Field(description="This key may add servers, of the gallery and by address.")


@Route("GET", "/v1/servers/gallery", answers=(RouteResponse(Gallery),))
async def list_gallery(request: Request) -> dict[str, Any]:
    """List the servers that can be installed by name."""
    names = {server.name for server in tenant_of(request).app.config.servers}
    missing = await to_thread.run_sync(missing_programs)
    servers = [
        {
            **{key: value for key, value in entry.items() if key != "is_sandboxed"},
            "installed": entry["name"] in names,
            "missing": [
                program
                for program in needed_programs(entry["command"][0], is_sandboxed=entry["is_sandboxed"])
                if program in missing
            ],
        }
        for entry in gallery()
    ]
    programs = [{"name": name, "command": command} for name, command in missing.items()]
    return {
        "servers": servers,
        "missing": programs,
        "embedder": await to_thread.run_sync(_offered_embedder),
        "can_add": refusal_of_adding(request) is None,
    }


def _offered_embedder() -> dict[str, Any]:
    # The import takes longer than the event loop may wait.
    from rkllm_mcp.models.embedders import CATALOGUE, RECOMMENDED, EmbedderSources

    card, chosen = CATALOGUE[RECOMMENDED], EmbedderSources().chosen_name()
    sizes = {"download_mb": card.download_mb, "memory_mb": card.memory_mb}
    return {"name": card.name, **sizes, "installed": bool(chosen)}


class RegistryQuery(bodies.RequestBody):
    """What to look for."""

    search: str = Field("", max_length=200)
    """Words of a name or a description; of a name alone in the registry itself."""
    live: bool = False
    """Ask the registry, which receives the words; else the dated copy of this release is searched."""
    cursor: str = Field("", max_length=500, description="Of a further page of the registry.")


class WantedValue(DocumentedModel):
    """A header or an environment variable that a server wants."""

    name: str
    description: str
    is_required: bool
    is_secret: bool


class RegistryServerShown(DocumentedModel):
    """A server of the registry."""

    name: str = Field(description="In the registry, such as io.github.owner/server.")
    short: str = Field(description="A name for the configuration.")
    title: str
    description: str
    version: str
    url: str = Field(description="Its address; empty for a program.")
    headers: list[WantedValue]
    command: str = Field(description="The program, to be added in a terminal; empty for an address, or for neither.")
    environment: list[WantedValue]


class RegistryServers(DocumentedModel):
    """Servers of the registry; they were not checked."""

    servers: list[RegistryServerShown]
    date: str = Field(description="Of the copy; empty for the registry itself.")
    origin: str = Field(description="Origin of the copy; empty for the registry itself.")
    registry: str = Field(description="Address of the registry.")
    cursor: str = Field(description="Of the next page; empty at the end.")


@Route(
    "GET",
    "/v1/servers/registry",
    query=RegistryQuery,
    answers=(RouteResponse(RegistryServers),),
    problems=(403, 503),
)
async def search_servers(request: Request) -> dict[str, Any]:
    """Search the dated copy of the MCP registry, or the registry itself; adds nothing."""
    query, address = bodies.query(request, RegistryQuery), service_of(request).config.service.registry_url
    if query.live:
        if refusal := refusal_of_key(request):
            raise refusal
        try:
            result = await search_registry(address, query.search, query.cursor)
        except ServerUnavailableError as error:
            raise HTTPError(503, str(error), code="registry") from None
        servers = result.servers
    else:
        result = registry_copy()
        servers = matching(result.servers, query.search)
    return {
        "servers": [asdict(server) for server in servers],
        "date": result.date,
        "origin": result.origin,
        "registry": address,
        "cursor": result.cursor,
    }


@Route("POST", "/v1/servers/{name}:enable", answers=SWITCHED, problems=(404,))
async def enable_server(request: Request) -> SwitchResult:
    """Switch a server on."""
    return await _switch_server(request, is_on=True)


@Route("POST", "/v1/servers/{name}:disable", answers=SWITCHED, problems=(404,))
async def disable_server(request: Request) -> SwitchResult:
    """Switch a server off."""
    return await _switch_server(request, is_on=False)


class ServerTested(DocumentedModel):
    """Result of the test of a server."""

    name: str
    state: str = Field(description="ready if it works.")
    problem: str = Field(description="Why it does not work, and the remedy; empty when it does.")
    failure: str
    """The same as a word: login, key, unreachable, not_mcp or slow; empty for all other reasons."""
    seconds: float = Field(description="From its start to its list of tools; of a ping if it is connected.")
    tokens: int = Field(description="What its tools cost in the list at the front of a prompt.")
    tools: list[ToolShown]
    output: list[str] = Field(description="The last lines that it wrote, if it does not work.")


_TESTED = (RouteResponse(ServerTested, says="What it came to; a server that does not work is no failure."),)


@Route("POST", "/v1/servers/{name}:test", answers=_TESTED, problems=(404,))
async def test(request: Request) -> dict[str, Any]:
    """Ping a server, or start and stop it if it is not connected."""
    app, name = tenant_of(request).app, _server_name(request)
    return await _run_test(request, name, partial(test_server, app.config, app.toolbox, name))


class NewServerBody(bodies.RequestBody):
    """A server of the gallery, or one by its address."""

    gallery: str = Field("", description="Its name in the gallery; empty for a server by its address.")
    without_sandbox: bool = Field(False, description="A person agreed that it runs without the sandbox.")
    embedder: bool = Field(False, description="Fetch the recommended embedding model before, unless one is chosen.")
    folder: str = Field("", max_length=4096)
    """The folder on the board that a server of the gallery may read and change, an absolute path."""
    command: list[str] = Field(default_factory=list[str], max_length=50)
    """The command of a server of the gallery as it was shown and approved: 409 if another one would run. It may be left
    out where the configuration has install_servers = true.
    """
    # Slashes end a part of an address, and a name is in the addresses of this module.
    name: str = Field("", pattern=r"^[^/\x00-\x1f\x7f]*$", max_length=64)
    """The name of a server by its address."""
    url: str = Field("", max_length=2048, description="Its address, http:// or https://; variables are not filled in.")
    headers: dict[_HeaderName, _HeaderValue] = Field(
        default_factory=dict[str, str], max_length=20, json_schema_extra={"additionalProperties": False}
    )
    """HTTP headers to send, such as Authorization. They are stored in the configuration file and never shown again."""
    oauth: bool = Field(False, description="A person logs in to it with a browser.")


class AddedServer(DocumentedModel):
    """A server that was added to the configuration."""

    name: str
    is_in_force: bool = Field(description="False: the service uses it after a restart.")
    problem: str = Field(description="Why it is not in force; empty when it is.")
    embedder_problem: str = Field(
        "", description="Why the embedding model is not there; empty if it is or if none was asked for."
    )


@Route("POST", "/v1/servers:try", body=NewServerBody, answers=_TESTED, problems=(403, 409))
async def try_server(request: Request) -> dict[str, Any]:
    """Start a server that is not in the configuration, list its tools and stop it."""
    body = await bodies.read(request, NewServerBody)
    if refusal := refusal_of_adding(request):
        raise refusal
    entry, new = _entry(body, service_of(request))
    config = tenant_of(request).app.config.model_copy(update={"servers": new.servers})
    return await _run_test(request, entry["name"], partial(start_apart, config, entry["name"]))


@Route("POST", "/v1/servers", body=NewServerBody, answers=(RouteResponse(AddedServer, 201),), problems=(403, 409))
async def add(request: Request) -> AddedServer:
    """Add a server to the configuration and use it."""
    body = await bodies.read(request, NewServerBody)
    if refusal := refusal_of_adding(request):
        raise refusal
    service = service_of(request)
    entry, _ = _entry(body, service)
    async with service.adding:
        # The server begins with it, so that vectors are made once.
        embedder_problem = await to_thread.run_sync(_fetch_embedder) if body.embedder else ""
        try:
            add_server(_file(service), entry)
        except ConfigError as error:
            raise _refusal_error(error) from None
        problem = "restart the service" if service.reload is None else ""
        if service.reload is not None:
            try:
                await service.reload()
            except RkllmMcpError as error:
                problem = str(error)
    return AddedServer(name=entry["name"], is_in_force=not problem, problem=problem, embedder_problem=embedder_problem)


def _fetch_embedder() -> str:
    """Fetch the recommended embedding model unless one is chosen; return why it is not there, or an empty string."""
    from rkllm_mcp.models.embedders import RECOMMENDED, EmbedderSources

    sources = EmbedderSources()
    if sources.chosen_name():
        return ""
    try:
        sources.pull(RECOMMENDED, None, None, lambda _name, _received, _total: None)
    except (RkllmMcpError, OSError) as error:
        return str(error)
    return ""


class LoginBody(bodies.RequestBody):
    """The end of a login that goes on, or nothing to begin one."""

    address: str = Field("", max_length=8192)
    """The address that the browser was sent to after the login, if the browser is not on the board's own machine."""


class LoginQuery(bodies.RequestBody):
    """What is known of a login."""

    known: str = ""
    """The state that is known: the answer waits for another one, for at most 20 seconds."""


class LoginShown(DocumentedModel):
    """A login to a server."""

    name: str
    state: LoginState = Field(description="starting; waiting for the person at the address; ready; failed.")
    address: str = Field(description="The address of the authorization server to open in a browser.")
    problem: str = Field(description="Why it failed, and the remedy.")


_LOGIN = (RouteResponse(LoginShown),)


@Route("POST", "/v1/servers/{name}:login", body=LoginBody, answers=_LOGIN, problems=(400, 403, 404, 409))
async def log_in(request: Request) -> dict[str, Any]:
    """Begin a login to a server, or hand over the address that the browser was sent to."""
    body = await bodies.read(request, LoginBody)
    if refusal := refusal_of_key(request):
        raise refusal
    name, tenants = _server_name(request), service_of(request).tenants
    remote = (server for server in tenant_of(request).app.config.servers if isinstance(server, RemoteServer))
    if not any(server.name == name and server.auth == "oauth" for server in remote):
        raise HTTPError(409, f'{name!r} has no login with a browser (auth = "oauth")', param="name")
    if not body.address:
        login = tenants.log_in(name)
        await login.wait_for_change("starting", _LOGIN_NEWS_S)
        return shown(LoginShown, login, name=login.server)
    login = _login(request)
    # Without a code or an error it is not what an authorization server sent the browser to.
    if not any(f"{word}=" in body.address for word in ("code", "error")) or not login.take(body.address):
        sentence = "this is not the address that the browser was sent to after the login; copy all of its address bar"
        raise HTTPError(422, sentence, param="address")
    await login.wait_for_change("waiting", _LOGIN_NEWS_S)
    return shown(LoginShown, login, name=login.server)


@Route("GET", "/v1/servers/{name}:login", query=LoginQuery, answers=_LOGIN, problems=(403, 404))
async def follow_login(request: Request) -> dict[str, Any]:
    """Wait for the progress of a login."""
    known_state = bodies.query(request, LoginQuery).known
    if refusal := refusal_of_key(request):
        raise refusal
    login = _login(request)
    if known_state == login.state:
        await while_connected(request, lambda: login.wait_for_change(login.state, _LOGIN_NEWS_S))
    return shown(LoginShown, login, name=login.server)


async def _switch_server(request: Request, *, is_on: bool) -> SwitchResult:
    app, name = tenant_of(request).app, _server_name(request)
    app.toolbox.switches.turn(name, is_on=is_on)
    await app.store.flush()
    return SwitchResult(name=name, enabled=is_on)


def _server_name(request: Request) -> str:
    name: str = request.path_params["name"]
    if name not in {server.spec.name for server in tenant_of(request).app.toolbox.connections}:
        raise HTTPError(404, f"there is no server {name!r}; GET /v1/servers lists them", param="name")
    return name


def _file(service: ServiceState) -> Path:
    if service.config_file is None:
        raise HTTPError(403, "this service has no configuration file to change", code="install_servers")
    return service.config_file


def _entry(body: NewServerBody, service: ServiceState) -> tuple[dict[str, Any], Config]:
    """Return the table of a new server, and a configuration with that server alone.

    Raises:
        HTTPError: 422, with the field.
        UsageError: a server of the gallery would not be started.
    """
    if bool(body.gallery) == bool(body.url):
        raise HTTPError(422, "a server has either an address or a name in the gallery", param="url")
    path = _file(service)
    must_be_shown = bool(body.command) or not service.config.security.install_servers
    commands = {entry["name"]: list(entry["command"]) for entry in gallery()}
    if body.gallery and must_be_shown and body.command != commands.get(body.gallery, body.command):
        message = "another command would run than the one that was shown; look at it again and approve it"
        raise HTTPError(409, message, param="command", code="another_command")
    if body.gallery:
        folder = Path(body.folder)
        if body.folder and ("${" in body.folder or not (folder.is_absolute() and folder.is_dir())):
            sentence = f"there is no folder {body.folder!r} on the board; write an absolute path"
            raise HTTPError(422, sentence, param="folder")
        is_sandboxed = not body.without_sandbox
        entry = gallery_server(body.gallery, body.folder or None, service.config, path, is_sandboxed=is_sandboxed)
    else:
        # Variables are those of the board's environment, which a client must not send anywhere.
        for field, values in (("name", [body.name]), ("url", [body.url]), ("headers", body.headers.values())):
            if any("${" in value for value in values):
                raise HTTPError(422, f"{field}: variables are not filled in here; write the value itself", param=field)
        if not body.name.strip():
            raise HTTPError(422, "name: is missing; choose a name for the server", param="name")
        entry = {"name": body.name.strip(), "url": body.url.strip()}
        entry |= {"headers_template": dict(body.headers)} if body.headers else {}
        entry |= {"auth": "oauth"} if body.oauth else {}
    try:
        new = checked_servers({"servers": [entry]}, "the new server", path)
        used_names = names_in(path)
    except ConfigError as error:
        raise _refusal_error(error) from None
    if entry["name"] in used_names:
        sentence = f"{path} has a server {entry['name']!r}; remove it first, or choose another name"
        raise HTTPError(422, sentence, param="name", code="name_taken")
    return entry, new


def _refusal_error(error: ConfigError) -> HTTPError:
    return HTTPError(422, str(error), param=error.key.rpartition(".")[2] or None, code="configuration")


async def _run_test(request: Request, name: str, run: Callable[[], Awaitable[ServerTest]]) -> dict[str, Any]:
    """Run a test when its turn has come, and return its result."""

    async def test_server() -> ServerTest:
        async with service_of(request).testing:
            return await run()

    result, app = await while_connected(request, test_server), tenant_of(request).app
    language = language_of_header(request.headers.get("accept-language", ""))

    # Their tokens are counted.
    tools = await run_work(request, lambda: [shown_tool(app, tool, language, enabled=True) for tool in result.tools])
    tokens = sum(tool["tokens"] for tool in tools)
    return shown(ServerTested, result, name=name, seconds=round(result.seconds, 3), tokens=tokens, tools=tools)


def _login(request: Request) -> Login:
    login = service_of(request).tenants.logins.get(request.path_params["name"])
    if login is None:
        raise HTTPError(404, "no login to this server was begun; POST begins one", param="name")
    return login

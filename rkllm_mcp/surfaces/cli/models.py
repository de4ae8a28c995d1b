"""The commands ``rkllm-mcp models`` and ``rkllm-mcp runtime``: lists, downloads, additions and removal."""

from __future__ import annotations

import sys
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from runpy import run_path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import rkllm_mcp
from rkllm_base.answers import AnswerLimits, AnswerRefusedError, fetch_now
from rkllm_mcp.catalogue import Catalogue
from rkllm_mcp.config.editing import set_value
from rkllm_mcp.config.loading import read_file
from rkllm_mcp.config.secrets import is_hashed
from rkllm_mcp.config.sections import web_address
from rkllm_mcp.errors import ConfigError, UsageError
from rkllm_mcp.models.cards import load_model
from rkllm_mcp.models.compatibility import gib
from rkllm_mcp.models.downloads import by_recommendation, figures, state_of
from rkllm_mcp.surfaces.chat.forms import TerminalApprover
from rkllm_mcp.surfaces.cli.options import (
    AsJson,
    Yes,
    argument,
    command,
    flag,
    may_proceed,
    model_names,
    option,
    usable_models,
)
from rkllm_mcp.surfaces.invocation import Session
from rkllm_mcp.surfaces.terminal import write_json

if TYPE_CHECKING:
    from rkllm_mcp.models.cards import ModelFolder
    from rkllm_mcp.models.hub import Report
    from rkllm_mcp.models.install import ModelSources


_HEADING = ("NAME", "STATE", "SPEED", "MEMORY", "TOOLS", "FITS", "DESCRIPTION")


def _as_dict(sources: ModelSources, folder: ModelFolder) -> dict[str, Any]:
    values = folder.card.model_dump(mode="json")
    return {
        **values,
        "state": state_of(folder),
        "fits": asdict(sources.fitness_of(folder)),
        "file": str(folder.file),
        "tokenizer": str(folder.tokenizer),
        "missing": [str(path) for path in folder.missing],
    }


def _phrases(session: Session) -> Catalogue:
    """Return the texts in the configured language, else the locale's."""
    # Models are listed all the same; perhaps the file names one that is looked for here.
    with suppress(ConfigError):
        session.config()
    return session.phrases


def _sources(session: Session) -> ModelSources:
    from rkllm_mcp.models.install import ModelSources

    return ModelSources(say=session.status)


def _print_folder(session: Session, folder: ModelFolder) -> None:
    from rkllm_mcp.models.llama import has_llama

    sys.stdout.write(f"{folder.name}: {folder.folder}\n")
    if folder.has_weights and not (has_llama() and session.config().origin.source):
        session.status(f"Next, fetch llama.cpp and write a configuration: rkllm-mcp --model {folder.name} setup --cpu")
    else:
        session.status(f"Try it: rkllm-mcp chat --model {folder.folder.name}")


@contextmanager
def download_progress(session: Session) -> Generator[Report]:
    """Show a progress bar for each file on standard error, if it is a terminal."""
    if not session.terminal.shows_progress:
        yield lambda _name, _received, _total: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TaskID,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True)) as progress:
        tasks: dict[str, TaskID] = {}

        def report(name: str, received: int, total: int | None) -> None:
            if name not in tasks:
                tasks[name] = progress.add_task(name.rpartition("/")[2], total=total)
            progress.update(tasks[name], completed=received, total=total)

        yield report


app = typer.Typer(no_args_is_help=True)
runtime_app = typer.Typer(no_args_is_help=True)


@command(runtime_app, "list")
def list_runtimes_command(session: Session, as_json: AsJson = False) -> None:
    """List the runtime libraries of this machine and the releases that can be downloaded."""
    from rkllm_mcp.models.runtimes import identified_libraries, library_in_use, pullable_releases

    libraries = identified_libraries()
    chosen = library_in_use(session.config().runtime.library)
    entries: list[dict[str, Any]] = [
        {
            "release": library.release,
            "state": "in use" if library.file.path == chosen else "here",
            "file": str(library.file.path),
            "checksum_known": library.official_release is not None,
            "problem": library.problem,
        }
        for library in libraries
    ]
    here = {library.official_release for library in libraries}
    pullable = ((version, state) for version, state in pullable_releases().items() if version not in here)
    entries += [{"release": version, "state": state} for version, state in pullable]
    summaries = [(entry["release"], entry["state"], (entry.get("file"), entry.get("problem"))) for entry in entries]
    rows = [
        (release, session.terminal.word(state), " ".join(map(session.terminal.word, filter(None, notes))))
        for release, state, notes in summaries
    ]
    session.show(entries, session.terminal.table(("RELEASE", "STATE", "FILE"), rows), as_json=as_json)
    if not as_json:
        session.status(
            "'rkllm-mcp runtime pull RELEASE' fetches one, 'rkllm-mcp runtime use PATH' takes a file of yours."
        )


@command(runtime_app, "pull")
def pull_runtime_command(
    session: Session,
    version: Annotated[
        str,
        argument("Release from 'runtime list', such as 1.3.0; or llama: llama.cpp for the CPU.", "RELEASE"),
    ],
) -> None:
    """Download a release from Rockchip's repository and verify its checksum; an interrupted download is resumed."""
    if version == "llama":
        from rkllm_mcp.models.llama import pull_llama

        sys.stdout.write(f"{pull_llama(session.status)}\n")
        return
    from rkllm_mcp.models.runtimes import library_in_use
    from rkllm_mcp.models.runtimes import pull_runtime as action

    messages: list[str] = []
    with download_progress(session) as report:
        path = action(version, progress=report, say=messages.append, licence=messages.append)
    # Lines among the bars would be taken apart.
    for text in messages:
        session.status(text)
    sys.stdout.write(f"{path}\n")
    if library_in_use(session.config().runtime.library) != path.resolve():
        session.status(f"Another one is in use; to take this one: rkllm-mcp runtime use {path}")


@command(runtime_app, "use")
def use_runtime_command(
    session: Session,
    path: Annotated[str, argument("librkllmrt.so, its folder, a release that was pulled, or auto.", "PATH")],
) -> None:
    """Use a library of this machine from now on; its release is named by its checksum."""
    from rkllm_mcp.models.runtimes import identify

    target = session.target_file()
    if path == "auto":
        set_value(target, "runtime", "library", path)
        session.result("auto: the first library of 'rkllm-mcp runtime list'")
    else:
        library = identify(path)
        if library.problem:
            raise UsageError(f"{library.problem.rstrip('.')}; 'rkllm-mcp runtime list' shows what there is")
        set_value(target, "runtime", "library", str(library.file.path))
        session.result(
            f"RKLLM {library.release} (by its checksum): {library.file.path}"
            if library.official_release
            else f"RKLLM {library.release} (not a published file by its checksum): {library.file.path}"
        )
    session.status(f"Written to {target} as [runtime] library.")


_AnyPlatform = Annotated[bool, flag("Accept a file that was converted for another SoC.", "--any-platform")]


@command(app, "list")
def list_command(session: Session, as_json: AsJson = False) -> None:
    """List known models: installed or not, their speed, and whether they fit this board."""
    sources = _sources(session)
    folders = sources.models()
    best = by_recommendation(sources, folders)[:1]
    if as_json:
        write_json([{**_as_dict(sources, folder), "recommended": folder in best} for folder in folders])
        return
    # Installed models first: the catalogue is longer.
    folders.sort(key=lambda folder: bool(folder.missing))
    phrases = _phrases(session)
    # What keeps every model of a board from running on a PC is told once.
    refused = [fits.reason for fits in map(sources.fitness_of, folders) if fits.verdict == "no"]
    common = refused[0] if len(refused) > 1 and len(set(refused)) == 1 else ""
    rows: list[tuple[str, ...]] = []
    for folder in folders:
        speed, memory = figures(folder)
        tools, fits = folder.card.tool_calls, sources.fitness_of(folder)
        reason = "" if fits.reason == common else phrases.translate_text("models.phrases", fits.reason)
        row = (
            f"{folder.name} *" if folder in best else folder.name,
            session.terminal.word(state_of(folder)),
            f"{speed:g} tok/s" if speed else "",
            f"{memory} MB" if memory else "",
            f"{tools.single_percent:.0f} %" if tools and tools.single_percent is not None else "",
            ": ".join(filter(None, (session.terminal.word(fits.verdict), reason))),
            phrases.translate_text("models.phrases", folder.card.description),
        )
        rows.append(row)
    sys.stdout.write(session.terminal.table(_HEADING, rows))
    if common:
        reason = phrases.translate_text("models.phrases", common)
        session.status(f"Models that do not fit: {reason}. For this machine's CPU: rkllm-mcp setup --cpu")
    for folder in best:
        use = f"models pull {folder.folder.name}" if folder.missing else f"models use {folder.folder.name}"
        session.status(f"* is the one to begin with on this board: rkllm-mcp {use}")
    if not folders:
        session.status(f"No models in {', '.join(str(directory) for directory in sources.directories)}.")
    elif any(folder.missing for folder in folders):
        session.status(
            "SPEED, MEMORY and TOOLS (right calls) are what others measured, and the repositories were not checked.\n"
            "'rkllm-mcp models pull NAME|OWNER/NAME[:FILE]' fetches a model, 'models convert' makes one on a PC."
        )


@command(app, "show")
def show_command(
    session: Session,
    name: Annotated[str, argument("Name of the model, or path of its folder.", autocompletion=model_names)],
    as_json: AsJson = False,
    only_path: Annotated[bool, flag("Print the path of its folder alone.", "--path")] = False,
) -> None:
    """Show one model's card and files."""
    sources = _sources(session)
    installed = next((folder for folder in sources.models() if folder.folder.name == name), None)
    if only_path:
        sys.stdout.write(f"{(installed or load_model(name)).folder}\n")
        return
    values = _as_dict(sources, installed or load_model(name))
    if not as_json:
        phrases = _phrases(session)
        values["description"] = phrases.translate_text("models.phrases", values["description"])
        values["fits"]["reason"] = phrases.translate_text("models.phrases", values["fits"]["reason"])
    session.show_value(values, as_json=as_json)


@command(app, "pull")
def pull_command(
    session: Session,
    name: Annotated[
        str,
        argument(
            "Name from 'models list', a repository on Hugging Face, or a new name with --repository and --file.",
            "NAME|OWNER/NAME[:FILE]",
            autocompletion=model_names,
        ),
    ],
    repository: Annotated[str | None, option("Repository on Hugging Face.", "OWNER/NAME")] = None,
    file: Annotated[str | None, option("Name of the .rkllm or GGUF file in the repository.", "FILE")] = None,
    any_platform: _AnyPlatform = False,
    cpu: Annotated[bool, flag("Fetch it as a GGUF file, which this machine's CPU computes.", "--cpu")] = False,
) -> None:
    """Download a model and its tokenizer; an interrupted download is resumed."""
    from rkllm_mcp.models.install import Pull, pull, pull_weights

    action = pull_weights if cpu else pull
    try:
        with download_progress(session) as report:
            folder = action(_sources(session), Pull(name, repository, file, any_platform), report)
    except KeyboardInterrupt:
        session.status("What has arrived is kept; the same command goes on with it.")
        raise
    _print_folder(session, folder)


@command(app, "add")
def add_command(
    session: Session,
    path: Annotated[str, argument(".rkllm file, or a GGUF file for this machine's CPU.", "PATH")],
    name: Annotated[str | None, option("Name of the model on this machine.", "NAME")] = None,
    tokenizer: Annotated[
        str | None, option("tokenizer.json, or the repository to download it from.", "PATH|hf:OWNER/NAME")
    ] = None,
    template: Annotated[str | None, option("Chat template, such as qwen3.", "NAME")] = None,
    encoder: Annotated[
        str | None, option("Vision encoder of the model; the only .rknn file beside it when not given.", "FILE.rknn")
    ] = None,
    copy: Annotated[bool, flag("Copy the file instead of linking to it.", "--copy")] = False,
    yes: Yes = False,
    any_platform: _AnyPlatform = False,
) -> None:
    """Add a local .rkllm or GGUF file; asks for whatever the file does not contain."""
    from rkllm_mcp.models.install import Addition, add

    wish = Addition(Path(path), name, tokenizer, template, encoder, copy=copy, sure=yes, any_platform=any_platform)
    with download_progress(session) as report:
        folder = add(_sources(session), wish, TerminalApprover(session.terminal), report)
    _print_folder(session, folder)


@app.command(
    "convert",
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
)
def convert_command(context: typer.Context) -> None:
    """Convert a Hugging Face folder or a GGUF file on a PC with Rockchip's toolkit; '-- --help' shows the options."""
    package = Path(rkllm_mcp.__file__).parent
    # A source tree has the program in scripts/; an installed package contains it.
    candidates = (package / "_convert_model.py", package.parent / "scripts" / "convert_model.py")
    program = next(candidate for candidate in candidates if candidate.is_file())
    raise typer.Exit(run_path(str(program))["main"](context.args))


@command(app, "use")
def use_command(
    session: Session, name: Annotated[str, argument("Name of an installed model.", autocompletion=usable_models)]
) -> None:
    """Use an installed model from now on: it is written into the configuration, and a running service loads it."""
    import httpx2

    folder, target, config = load_model(name), session.target_file(), session.config()
    section, limit_s = config.service, 2 * config.runtime.start_timeout_s
    host = "127.0.0.1" if section.host in {"0.0.0.0", "::", "localhost"} else section.host  # noqa: S104  # to connect to
    keys = [key for key in section.api_keys if not is_hashed(key)]
    headers = {"Authorization": f"Bearer {keys[0]}"} if keys else {}
    try:
        client = httpx2.Client(timeout=httpx2.Timeout(limit_s, connect=2.0), trust_env=False)
        with client:
            url, limits = f"{web_address(host, section.port)}/v1/models:load", AnswerLimits(limit_s, 65_536)
            answer = fetch_now(client, "POST", url, limits, json={"model": folder.name}, headers=headers)
    except (httpx2.TransportError, AnswerRefusedError):
        loaded = "No service runs here now."
    else:
        if answer.status == 200:
            loaded = "The running service has loaded it."
        elif answer.status in {401, 403, 404, 405}:
            loaded = "The running service takes it over with 'systemctl reload rkllm-mcp', or when it is started again."
        else:
            reason = answer.content[:500].decode(errors="replace")
            raise UsageError(f"the running service did not load {folder.name!r}: {reason}")
    file = read_file(target) if target.exists() else {}
    # A file with a path keeps that key: it may have only one of them.
    by_path = "path" in file.get("model", {})
    set_value(target, "model", "path" if by_path else "name", str(folder.folder) if by_path else folder.folder.name)
    sys.stdout.write(f"{folder.name}: {folder.folder}\n")
    written = f"Written to {target} as [model] path." if by_path else f"Written to {target} as [model] name."
    session.status(f"{written} {loaded}")


@command(app, "remove")
def remove_command(
    session: Session,
    name: Annotated[str, argument("Name of the model.", autocompletion=usable_models)],
    yes: Yes = False,
) -> None:
    """Remove a model that was downloaded or added."""
    sources = _sources(session)
    folder = sources.removable(name)
    if not may_proceed(session, f"Remove {folder} with everything in it?", yes=yes):
        return
    freed = sources.folders.remove(name)
    session.result(f"{name}: removed from {sources.folders.root}")
    session.status(f"{gib(freed)} became free.")

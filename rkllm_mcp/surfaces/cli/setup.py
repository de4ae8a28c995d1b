"""``rkllm-mcp setup``: from a bare board to a working assistant, in steps that can be repeated, resumed and undone.

    board ─▶ runtime ─▶ model ─▶ configuration ─▶ test ─▶ service ─▶ page

Everything that is created is first written into a journal; ``--undo`` removes what is still as it was created. A
configuration file that exists is never changed.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import anyio
import typer

from rkllm_base.addresses import is_loopback
from rkllm_base.folders import state_folder
from rkllm_base.installation import InstallationError, install_extra, module_words
from rkllm_mcp.app.gauges import read_gauges
from rkllm_mcp.catalogue import read_catalogue
from rkllm_mcp.config.editing import add_server
from rkllm_mcp.config.loading import load_config, search_order
from rkllm_mcp.config.secrets import hash_key, new_key
from rkllm_mcp.config.sections import Config
from rkllm_mcp.config.servers import is_knowledge
from rkllm_mcp.diagnostics import checks
from rkllm_mcp.diagnostics.doctor import gallery_server
from rkllm_mcp.diagnostics.programs import missing_programs
from rkllm_mcp.errors import GenerationError, ModelDownloadError, RkllmMcpError, RuntimeUnusableError, UsageError
from rkllm_mcp.events import End, Text, ToolFinished
from rkllm_mcp.generation import AnswerOptions
from rkllm_mcp.models.downloads import by_recommendation, figures
from rkllm_mcp.surfaces.chat.forms import TerminalApprover
from rkllm_mcp.surfaces.cli.config import NewConfiguration
from rkllm_mcp.surfaces.cli.files import write_whole
from rkllm_mcp.surfaces.cli.models import download_progress
from rkllm_mcp.surfaces.cli.options import command, flag
from rkllm_mcp.surfaces.cli.service import (
    ServiceControlError,
    UnitLocation,
    has_systemd,
    install,
    readiness,
    show_link,
    uninstall,
)
from rkllm_mcp.surfaces.invocation import EXIT_DONE, EXIT_INTERRUPTED, Session, run_async
from rkllm_mcp.surfaces.terminal import BOLD, DIM, is_interactive

if TYPE_CHECKING:
    from rkllm_mcp.models.install import ModelSources

_ALL_DEVICES = "0.0.0.0"  # noqa: S104  # after its own question, and with a key
_PORTS = range(8080, 8100)
_SHOWN_MODELS = 5
# The first that is offered for a processor.
_CPU_MODEL = "qwen2.5-1.5b"
# What answers on a machine without an NPU.
_ON_THE_CPU, _BY_A_SCRIPT = "--cpu", "--emulated"
_HASHED_BYTES = 1 << 20
_TICK_S = 5.0
# A large model takes minutes to load from a slow card.
_READY_WITHIN_S = 300.0
_POLL_S = 0.5
_ENDED_WITHIN_S = 30.0

Mark = dict[str, list[Any]]


class Journal:
    """The paths that setup created, oldest first, each with the marks of its files once it is complete."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.entries: dict[str, Mark | None] = {}
        try:
            self.entries = json.loads(file.read_text("utf-8"))
        except FileNotFoundError:
            pass
        except (OSError, ValueError) as error:
            raise UsageError(f"the journal {file} cannot be read ({error}); correct or remove it") from None

    def begin(self, path: Path) -> None:
        """Note that ``path`` is going to be created, unless it exists."""
        if not os.path.lexists(path) and str(path) not in self.entries:
            self.entries[str(path)] = None
            self.write()

    def done(self, path: Path) -> None:
        """Mark ``path`` as it is now, if setup created it and has not marked it before."""
        if self.entries.get(str(path), {}) is None:
            self.entries[str(path)] = _marks(path)
            self.write()

    def write(self) -> None:
        """Store the journal; an empty one is removed."""
        if self.entries:
            write_whole(self.file, json.dumps(self.entries, ensure_ascii=False, indent=1) + "\n")
        else:
            self.file.unlink(missing_ok=True)


def _marks(path: Path) -> Mark:
    """Return size, time and, of short files, SHA-256 by the place of each file of a path."""
    files = [path_inside for path_inside in path.rglob("*") if not path_inside.is_dir()] if path.is_dir() else [path]
    marks: Mark = {}
    for file in sorted(files):
        status = file.stat()
        is_short = status.st_size <= _HASHED_BYTES
        digest = hashlib.sha256(file.read_bytes()).hexdigest() if is_short else ""
        marks[str(file.relative_to(path))] = [status.st_size, status.st_mtime_ns, digest]
    return marks


class _Setup:
    def __init__(self, session: Session, *, yes: bool, lan: bool, emulated: bool, cpu: bool, no_service: bool) -> None:
        from rkllm_mcp.models.install import ModelSources

        self.session = session
        self.yes, self.lan, self.emulated, self.no_service = yes, lan, emulated or cpu, no_service
        self.cpu = cpu
        self.language = session.language(Config())
        self.texts = read_catalogue(self.language)
        self.asker = TerminalApprover(session.terminal)
        self.state = state_folder()
        self.journal = Journal(self.state / "setup.json")
        own_folder = search_order()[1]
        self.target = Path(session.config_path).expanduser().absolute() if session.config_path else own_folder
        self.sources: ModelSources = ModelSources(say=self.say)
        self.number = 0

    # --- words and questions ----------------------------------------------------------------------------------------

    def say(self, text: str, style: str = "") -> None:
        """A line for the person."""
        self.session.terminal.note(text, style)

    def tell(self, key: str, **values: object) -> None:
        """A line of the texts."""
        self.say(self.texts.sentence(key, **values))

    def step(self, key: str) -> None:
        """The heading of the next step."""
        self.number += 1
        self.say(f"── {self.number}/7 {self.texts.sentence(key)}", BOLD)

    def is_agreed(self, key: str, *, default: bool = True, **values: object) -> bool:
        """Ask; Enter and ``--yes`` mean ``default``."""
        if self.yes:
            return default
        return self.asker.confirm(self.texts.sentence(key, **values), "--yes", default=default)

    # --- steps ------------------------------------------------------------------------------------------------------

    def run(self) -> int:
        """Do all steps; returns the exit code."""
        self.tell("setup.intro")
        is_emulated = self._board()
        library = self._runtime(is_emulated=is_emulated)
        model = self._model(is_emulated=is_emulated)
        config = self._configuration(model, library)
        self._embedder(config)
        self.step("setup.step_test")
        code = run_async(lambda: self._ask_once(config))
        if code != EXIT_DONE:
            return code
        is_service = self._service(config)
        self._page(config, is_service=is_service)
        return EXIT_DONE

    def _board(self) -> bool:
        """Show the board; returns True if the NPU is to be emulated."""
        self.step("setup.step_board")
        machine = self.sources.machine
        findings = [*checks.check_soc(machine)]
        has_npu = findings[0].status != "fail"
        if has_npu:
            findings += [*checks.check_driver(machine), *checks.check_device(machine), *checks.check_gomp(machine)]
        for finding in findings:
            mark = {"ok": "✓", "fail": "✗" if has_npu else "·"}.get(finding.status, "!")
            self.say(f"{mark} {self.texts.translate_text('setup.findings', finding.found)}")
            if has_npu and finding.status != "ok":
                for line in (
                    self.texts.translate_text("setup.findings", finding.remedy),
                    f"$ {finding.command}" if finding.command else "",
                ):
                    self.say(f"    {line}" if line else "")
        gauges = read_gauges(machine)
        if gauges.memory_total and gauges.memory_available:
            total, available = (f"{count / 2**30:.1f} GiB" for count in (gauges.memory_total, gauges.memory_available))
            self.tell("setup.memory", total=total, available=available)
        is_emulated = self.emulated or self.session.runtime == "emulator"
        if not has_npu and not is_emulated:
            # A small model on the machine's CPU, or the script of the emulated NPU.
            from rkllm_mcp.models.llama import llama_package

            is_emulated = True
            self.tell("setup.no_npu")
            if self.session.model != "demo":
                choices = [_ON_THE_CPU, _BY_A_SCRIPT]
                try:
                    llama_package()
                except ModelDownloadError as error:
                    # What cannot be had at once is not what Enter means.
                    choices.reverse()
                    self.say(f"! {_ON_THE_CPU}: {self.texts.phrase(str(error))}")
                for count, choice in enumerate(choices, 1):
                    self.say(f"  {count}  {choice}  {self.texts.table('setup.without_npu')[choice]}")
                self.cpu = self._pick(choices, option=choices[0]) == _ON_THE_CPU
        if is_emulated:
            self.tell("setup.on_the_cpu" if self.cpu else "setup.emulated")
        elif any(result.status == "fail" for result in findings) and not self.is_agreed(
            "setup.ask_broken", default=False
        ):
            raise RuntimeUnusableError(self.texts.sentence("setup.refused_broken"))
        return is_emulated

    def _runtime(self, *, is_emulated: bool) -> str:
        """Get the runtime library; returns the value of ``library`` in the configuration."""
        from rkllm_mcp.models import runtimes

        self.step("setup.step_runtime")
        if is_emulated:
            self.tell("setup.building")
            try:
                with self._ticking():
                    path = runtimes.prepare_emulator()
            except RuntimeUnusableError:
                if importlib.util.find_spec("ziglang") is not None or not self.is_agreed("setup.ask_compiler"):
                    raise
                try:
                    install_extra("compiler")
                except InstallationError as error:
                    raise UsageError(str(error)) from None
                with self._ticking():
                    path = runtimes.prepare_emulator()
            self.say(f"✓ {path}")
            if self.cpu:
                from rkllm_mcp.models.llama import has_llama, llama_folder, pull_llama

                if not has_llama():
                    self.journal.begin(llama_folder())
                    pull_llama(lambda _: self.tell("setup.fetching_llama"))
                    self.journal.done(llama_folder())
                self.say(f"✓ {llama_folder()}")
            return "emulator"
        requested = self.session.runtime or "auto"
        path = runtimes.library_in_use(requested)
        if path is not None:
            library = runtimes.identify(str(path))
            if not library.problem:
                self.journal.done(path.parent)
                self.tell("setup.here", what=f"RKLLM {library.release}, {path}")
                return requested if requested == "auto" else str(path)
        version = runtimes.RECOMMENDED_VERSION
        folder = runtimes.runtime_folder() / version
        self._creates(folder)
        self.tell("setup.fetching_runtime", version=version)
        with download_progress(self.session) as progress:
            path = runtimes.pull_runtime(version, progress=progress, say=self.say)
        self.journal.done(folder)
        self.tell("setup.licence", path=path.parent / "LICENSE")
        self.say(str(path), DIM)
        # A library that ``auto`` would prefer was refused above.
        return "auto" if runtimes.library_in_use("auto") == path.resolve() else str(path)

    @contextmanager
    def _ticking(self) -> Generator[None]:
        """Print now and then how long the block has been running."""
        over = threading.Event()

        def tick() -> None:
            started = time.monotonic()
            while not over.wait(_TICK_S):
                self.tell("setup.still", seconds=round(time.monotonic() - started))

        ticker = threading.Thread(target=tick, daemon=True)
        ticker.start()
        try:
            yield
        finally:
            over.set()
            ticker.join()

    def _creates(self, folder: Path) -> None:
        """Note a folder of a download, and the one with its unfinished parts."""
        self.journal.begin(folder.with_name(f".{folder.name}.part"))
        self.journal.begin(folder)

    def _model(self, *, is_emulated: bool) -> str:
        """Choose and fetch the model; returns its name, or its path."""
        self.step("setup.step_model")
        name = self.session.model
        if self.cpu:
            return self._model_for_cpu(name)
        if is_emulated and name is None:
            name = "demo"
        if name is not None and ("/" in name or name == "demo"):
            self.say(f"✓ {name}")
            return name
        models = {folder.folder.name: folder for folder in self.sources.models() if not folder.card.emulated}
        if name is None:
            best = by_recommendation(self.sources, [*models.values()])[:_SHOWN_MODELS]
            if not best:
                raise UsageError(self.texts.sentence("setup.no_model"))
            self.tell("setup.models")
            for count, offered in enumerate(best, 1):
                speed, memory = figures(offered)
                published = f"{f'{speed:g}' if speed else '?'} tok/s, {memory or '?'} MB"
                description = self.texts.translate_text("models.phrases", offered.card.description)
                self.say(f"  {count}  {offered.folder.name}  ({published})  {description}")
            name = self._pick([offered.folder.name for offered in best], [*models])
        present = models.get(name)
        if present is not None and not present.missing:
            self.journal.done(present.folder)
            self.tell("setup.here", what=present.folder)
            return name
        from rkllm_mcp.models.install import Pull, pull

        folder = self.sources.folders.folder(name)
        self._creates(folder)
        self.tell("setup.fetching_model", name=name)
        try:
            with download_progress(self.session) as report:
                pull(self.sources, Pull(name), report)
        except KeyboardInterrupt:
            self.tell("setup.kept_download")
            raise
        self.journal.done(folder)
        self.say(f"✓ {folder}")
        return name

    def _model_for_cpu(self, name: str | None) -> str:
        """Fetch a GGUF file of the catalogue, or take one of the user's; returns the name of its folder."""
        from rkllm_mcp.models.install import CPU_SUFFIX, Addition, Pull, add, pull_weights

        models = self.sources.models()
        if name is None:
            here = [folder.name for folder in models if folder.has_weights]
            cards = {folder.name: folder.card.cpu for folder in models if folder.card.cpu is not None}
            names = [*here, *(name for name in sorted(cards, key=lambda name: name != _CPU_MODEL) if name not in here)]
            self.tell("setup.cpu_models")
            for count, offered in enumerate(names, 1):
                card = cards.get(offered)
                about = "" if card is None else f"  ({card.size_mb} MB, {card.licence})  {card.good_for}"
                self.say(f"  {count}  {offered}{about}")
            name = self._pick(names)
        present = next((folder for folder in models if folder.has_weights and folder.name == name), None)
        if present is not None:
            self.tell("setup.here", what=present.folder)
            return present.name
        with download_progress(self.session) as report:
            if name.endswith(".gguf"):
                folder = add(self.sources, Addition(Path(name)), self.asker, report)
            else:
                self._creates(self.sources.folders.folder(f"{name}{CPU_SUFFIX}"))
                self.tell("setup.fetching_model", name=name)
                folder = pull_weights(self.sources, Pull(name), report)
        self.journal.done(folder.folder)
        self.say(f"✓ {folder.folder}")
        return folder.name

    def _pick(self, names: Sequence[str], others: Sequence[str] = (), *, option: str = "--model") -> str:
        """Ask for one of the names, by its number or itself; the first with ``--yes``."""
        if self.yes:
            return names[0]
        answers = {"": names[0], **{str(count): name for count, name in enumerate(names, 1)}}
        answers |= {name: name for name in (*names, *others)}
        while (answer := self.asker.line(self.texts.sentence("setup.ask_model"), option)) not in answers:
            pass
        return answers[answer]

    def _configuration(self, model: str, library: str) -> Config:
        """Write the configuration, or show what to change in the one that exists; returns the one in force."""
        self.step("setup.step_config")
        self.journal.done(self.target)
        before = load_config(self.target) if self.target.exists() else None
        is_open = before is not None and not is_loopback(before.service.host)
        wants_lan = self.lan or (not is_open and before is None and self.is_agreed("setup.ask_lan", default=False))
        if before is not None:
            # The lines that it lacks for what was chosen.
            self.tell("setup.exists", path=self.target)
            chosen = str(before.model.path or before.model.name)
            is_same_model = model in (chosen, Path(chosen).name) or str(Path(model).absolute()) == chosen
            lines = [] if is_same_model else [f"[model]\n{'path' if '/' in model else 'name'} = {json.dumps(model)}"]
            if library not in (before.runtime.library, "auto"):
                lines.append(f"[runtime]\nlibrary = {json.dumps(library)}")
            if wants_lan and not is_open:
                lines.append(f'[service]\nhost = "{_ALL_DEVICES}"\n{self.texts.sentence("setup.exists_key")}')
            names = [f'name = "{server.name}"' for server in before.servers]
            text = NewConfiguration(model, folder=Path.home() / "rkllm-mcp-files").text()
            blocks = text[text.index("[[servers]]") :].split("\n\n")
            lines += [block[block.index("[[") :] for block in blocks if not any(name in block for name in names)]
            if lines:
                self.tell("setup.exists_change")
                self.say("\n".join(f"    {line}" for line in "\n".join(lines).splitlines()))
            return before
        key = new_key() if wants_lan else ""
        host = _ALL_DEVICES if wants_lan else "127.0.0.1"
        # The first port that nothing listens on; the first of all if all are taken.
        port = _PORTS[0]
        for free in _PORTS:
            with socket.socket() as probe, suppress(OSError):
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind((host, free))
                port = free
                break
        new = NewConfiguration(
            model=model,
            library=library,
            language="ja" if self.language == "ja" else "",
            host=host,
            port=port,
            key_entry=hash_key(key) if key else "",
            folder=self._folder(),
        )
        wants_documents = self.is_agreed("setup.ask_documents", default=False)
        self.journal.begin(self.target)
        write_whole(self.target, new.text())
        if wants_documents:
            add_server(self.target, gallery_server("knowledge", None, load_config(self.target), self.target))
        self.journal.done(self.target)
        self.tell("setup.wrote", path=self.target)
        if key:
            self.tell("setup.owner_key", secret=key)
        local = Path("mcp_config.toml").absolute()
        if local.is_file() and local != self.target and self.session.config_path is None:
            self.tell("setup.local_file", path=local)
        return load_config(self.target)

    def _embedder(self, config: Config) -> None:
        """Offer the model that finds documents by meaning, where documents are searched and none is set up."""
        from rkllm_mcp.models.embedders import CATALOGUE, RECOMMENDED, EmbedderSources

        sources, card = EmbedderSources(), CATALOGUE[RECOMMENDED]
        if sources.chosen_name() or not any(map(is_knowledge, config.servers)):
            return
        if not self.is_agreed("setup.ask_embedder", name=card.name, megabytes=card.download_mb, memory=card.memory_mb):
            self.tell("setup.embedder_later", name=card.name)
            return
        folder = sources.folders.folder(card.name)
        self._creates(folder)
        try:
            with download_progress(self.session) as report:
                sources.pull(card.name, None, None, report)
        except (RkllmMcpError, OSError) as error:
            self.say(f"! {error}")
            self.tell("setup.no_embedder", name=card.name)
            return
        self.journal.done(folder)
        self.say(f"✓ {folder}")

    def _folder(self) -> Path | None:
        """Ask for the folder of the files server, and make it."""
        usual = Path.home() / "rkllm-mcp-files"
        while True:
            text = "" if self.yes else self.asker.line(self.texts.sentence("setup.ask_folder", folder=usual), "--yes")
            if text == "-":
                return None
            folder = Path(text).expanduser().absolute() if text else usual
            self.journal.begin(folder)
            try:
                folder.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                if self.yes:
                    raise UsageError(f"{folder} cannot be made ({error.strerror}); name another folder") from None
                self.tell("setup.no_folder", folder=folder, reason=error.strerror)
                continue
            self.journal.done(folder)
            return folder

    async def _ask_once(self, config: Config) -> int:
        from rkllm_mcp.app.root import open_app

        results, answer, end = Counter[str](), "", End("failed")
        question = self.texts.sentence("setup.question")
        async with open_app(config, status=None, one_shot=True) as app:
            self.say(f"[NPU: {app.model_host.name}]", DIM)
            await app.ready()
            for server in app.toolbox.servers():
                is_there = server.state == "ready"
                state = self.texts.sentence("chat.tool_count", count=server.tool_count) if is_there else server.reason
                line = self.texts.sentence("setup.servers", name=server.name, state=state)
                self.say(f"{'✓' if is_there else '!'} {line}")
            self.tell("setup.asking", question=question)
            options = AnswerOptions(approvals="refuse", save=False)
            conversation = app.new_conversation()
            async for event in app.reply(conversation, question, options):
                if isinstance(event, Text):
                    answer += event.text
                elif isinstance(event, ToolFinished) and not event.is_error:
                    results[event.name] += 1
                elif isinstance(event, End):
                    end = event
        if end.reason not in ("answered", "token_limit"):
            raise GenerationError(self.texts.sentence("setup.failed", reason=(end.error or end.reason).rstrip(".")))
        self.say(f"◆ {answer.strip()}")
        # The first result of a tool that is listed by name alone is its parameters.
        used = next((name for name, count in results.items() if count > (name in conversation.revealed_tools)), "")
        self.tell("setup.used" if used else "setup.no_tool", tool=used)
        return EXIT_DONE

    def _service(self, config: Config) -> bool:
        """Offer the service; returns True if it runs."""
        self.step("setup.step_service")
        is_user = os.geteuid() != 0
        if self.no_service or not has_systemd():
            self.tell("setup.serve_yourself" if self.no_service else "setup.no_systemd")
            return False
        who = self.texts.sentence("setup.who_user" if is_user else "setup.who_system")
        if not self.is_agreed("setup.ask_service", who=who):
            self.tell("setup.serve_yourself")
            return False
        file = UnitLocation(is_user).file
        self.journal.begin(file)
        try:
            code = install(Session(str(config.origin.source)), is_user=is_user)
        except (ServiceControlError, UsageError) as error:
            self.say(f"! {error}")
            self.tell("setup.serve_yourself")
            return False
        finally:
            if file.is_file():
                self.journal.done(file)
        return code == EXIT_DONE

    def _page(self, config: Config, *, is_service: bool) -> None:
        """End with the address of the page and, if a phone reaches it, its QR code, once something listens there."""
        self.step("setup.step_page")
        program: subprocess.Popen[bytes] | None = None
        # Offer to start the assistant in this terminal.
        if not is_service and self.is_agreed("setup.ask_start", default=not self.yes):
            command = module_words("rkllm_mcp", "--quiet", "--config", str(config.origin.source), "serve")
            program = subprocess.Popen(command, stdin=subprocess.DEVNULL)
        try:
            is_ready = False
            if not is_service and program is None:
                self.tell("setup.link_later")
            else:
                self.tell("setup.waiting")
                end = time.monotonic() + _READY_WITHIN_S
                with self._ticking():
                    while not is_ready and time.monotonic() < end and (program is None or program.poll() is None):
                        time.sleep(_POLL_S)
                        # Another program may answer at that port, and the one that was started ends then.
                        is_ready = readiness(config) == "ok" and (program is None or program.poll() is None)
                if not is_ready and program is not None and program.poll() is not None:
                    raise GenerationError(self.texts.sentence("setup.not_started"))
                if not is_ready:
                    self.tell("setup.not_ready", seconds=round(_READY_WITHIN_S))
            if is_ready:
                self.tell("setup.page")
                anyio.run(show_link, config, is_service and os.geteuid() == 0)
                if is_loopback(config.service.host):
                    self.tell("setup.page_here")
            for name, line in missing_programs().items():
                self.tell("setup.missing", name=name, purpose=self.texts.table("programs")[name], command=line)
            self.tell("setup.done")
            if program is not None:
                self.tell("setup.serving")
                with suppress(KeyboardInterrupt):
                    program.wait()
        finally:
            # It may have had Ctrl-C as well.
            if program is not None and program.poll() is None:
                program.send_signal(signal.SIGINT)
                try:
                    program.wait(_ENDED_WITHIN_S)
                except subprocess.TimeoutExpired:
                    program.kill()
                    program.wait()

    # --- undo -------------------------------------------------------------------------------------------------------

    def undo(self) -> int:
        """Remove what setup created and nothing has changed since, and name the rest."""
        if not self.journal.entries:
            self.tell("setup.undo_nothing")
            return EXIT_DONE
        for name, marks in reversed([*self.journal.entries.items()]):
            path = Path(name)
            # A folder while it is removed; half of one would look as if its owner had changed it.
            undone = path.with_name(f".{path.name}.undone")
            shutil.rmtree(undone, ignore_errors=True)
            is_there, is_part = os.path.lexists(path), path.name.endswith(".part")
            obstacle, reason = "", ""
            try:
                if is_there and not is_part and marks == {} and path.is_dir() and any(path.iterdir()):
                    obstacle = "setup.undo_used"
                elif is_there and not is_part and _marks(path) != marks:
                    obstacle = "setup.undo_changed"
                elif is_there:
                    for is_user in (True, False):
                        if path == UnitLocation(is_user).file:
                            uninstall(self.session, is_user=is_user)
                    if path.is_dir():
                        path.rename(undone)
                        shutil.rmtree(undone)
                    else:
                        path.unlink(missing_ok=True)
            except (OSError, UsageError, ServiceControlError) as error:
                obstacle, reason = "setup.undo_failed", str(getattr(error, "strerror", None) or error)
            if obstacle:
                self.tell(obstacle, path=path, reason=reason)
                continue
            if is_there:
                with suppress(OSError):
                    for parent in (path.parent, path.parent.parent):
                        # Folders of our own that are empty now; rmdir takes no others.
                        if "rkllm-mcp" in (parent.name, parent.parent.name):
                            parent.rmdir()
                self.tell("setup.undo_removed", path=path)
            del self.journal.entries[name]
            self.journal.write()
        if self.state.is_dir() and any(self.state.iterdir()):
            self.tell("setup.undo_state", path=self.state)
        return EXIT_DONE


app = typer.Typer()


@command(app, "setup")
def setup_command(
    session: Session,
    yes: Annotated[bool, flag("Ask nothing: yes to everything but listening on the network.", "--yes")] = False,
    lan: Annotated[bool, flag("Let other devices of the network use the assistant, with a key.", "--lan")] = False,
    emulated: Annotated[bool, flag("Use the emulated NPU and its script instead of a model.", "--emulated")] = False,
    cpu: Annotated[bool, flag("Compute a language model on this machine's CPU instead of the NPU.", "--cpu")] = False,
    no_service: Annotated[bool, flag("Do not install a systemd service.", "--no-service")] = False,
    undo: Annotated[bool, flag("Remove what setup created and nothing has changed since.", "--undo")] = False,
) -> int:
    """Set up a working assistant: runtime, model, configuration, a test, and the page for your phone."""
    setup = _Setup(session, yes=yes, lan=lan, emulated=emulated, cpu=cpu, no_service=no_service)
    if not (yes or undo or is_interactive()):
        raise UsageError("setup asks a few questions; run it in a terminal, or with --yes")
    try:
        code = setup.undo() if undo else setup.run()
    except KeyboardInterrupt:
        code = EXIT_INTERRUPTED
    if code == EXIT_INTERRUPTED:
        setup.session.terminal.end_line()
        setup.tell("setup.interrupted")
    return code

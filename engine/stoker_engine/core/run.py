"""The engine process from start to end: signals, start-up deadline, the loop, the last words and the exit code."""

import gc
import logging
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import NoReturn

from stoker_engine.config import EngineConfig, seconds
from stoker_engine.core.engine_core_proc import EngineCoreProc
from stoker_engine.core.engine_link import EngineLink
from stoker_engine.core.health import HealthServer
from stoker_engine.core.input_thread import Wakeup
from stoker_engine.core.shutdown import Shutdown, ShutdownMode
from stoker_engine.core.stop_signals import StopSignals
from stoker_engine.core.watchdog import HangWatch, StartupDeadline, call_later
from stoker_engine.errors import ConfigError, ModelLoadError
from stoker_engine.executor.base import Executor
from stoker_engine.exit_codes import ExitCode
from stoker_engine.protocol import EnginePhase
from stoker_engine.supervisor_pipe import check_supervisor_fd
from stoker_engine.termination import TerminationMessage, write_termination_message

logger = logging.getLogger(__name__)

EXIT_SECONDS = 10.0
"""From the last words to the end of the process, which a device or a library may hold up."""


class EngineProcess:
    """One engine process. `make_executor` is called only after the signal handlers are in place."""

    def __init__(self, config: EngineConfig, make_executor: Callable[[EngineConfig], Executor]) -> None:
        self._config = config
        self._make_executor = make_executor
        self._started = time.monotonic()
        self._link: EngineLink | None = None
        self._health: HealthServer | None = None
        self._executor: Executor | None = None
        self._core: EngineCoreProc | None = None
        self._ending = threading.Lock()
        self._shutdown = Shutdown(seconds(config.lifecycle.drain_timeout), self._wake, self)

    def run(self) -> ExitCode:
        """Runs until the engine has shut down or failed, and returns the exit code."""
        threading.excepthook = self._thread_failed
        supervisor_fd = self._config.supervisor_fd
        try:
            if supervisor_fd is not None:
                check_supervisor_fd(supervisor_fd)
            StopSignals(self._shutdown)
            if supervisor_fd is not None:
                self._shutdown.watch_supervisor(supervisor_fd)
            return self._run()
        except SystemExit:
            return self._end(ExitCode.OK, "Aborted", f"{self._shutdown.cause} while {self._phase().value}")
        except ConfigError as error:
            return self._end(ExitCode.BAD_CONFIG, "BadConfig", str(error))
        except ModelLoadError as error:
            return self._end(ExitCode.MODEL_LOAD_FAILED, error.reason, str(error))
        except Exception as error:
            logger.exception("the engine failed")
            return self._end(ExitCode.FAILED, "EngineFailed", f"{type(error).__name__}: {error}")
        finally:
            self._free_device()

    def _run(self) -> ExitCode:
        self._link = EngineLink(self._config)
        if self._config.health_port is not None:
            self._health = HealthServer(self._config, self._link)
        deadline = StartupDeadline(seconds(self._config.lifecycle.startup_timeout), self._startup_timed_out)
        try:
            core = self._start(self._link)
        finally:
            deadline.met()
        self._serve(core, self._link)
        aborted = core.num_aborted_at_shutdown
        in_flight = core.num_in_flight_at_shutdown
        reason = "Aborted" if aborted or self._shutdown.mode is ShutdownMode.ABORT else "Drained"
        return self._end(ExitCode.OK, reason, "", in_flight_at_start=in_flight, completed=in_flight - aborted, aborted=aborted)

    def _start(self, link: EngineLink) -> EngineCoreProc:
        """Raises ConfigError or ModelLoadError, with the phase where anything else went wrong in it."""
        try:
            self._executor = self._make_executor(self._config)
            self._core = core = EngineCoreProc(self._config, self._executor, link, self._shutdown)
        except (ConfigError, ModelLoadError):
            raise
        except MemoryError as error:
            raise ModelLoadError(f"out of memory in phase {self._phase().value}") from error
        except Exception as error:
            logger.exception("the start failed")
            raise ModelLoadError(f"phase {self._phase().value} failed: {type(error).__name__}: {error}") from error
        # What start-up made lives as long as the engine: keep the collector from walking it in every full collection.
        gc.collect()
        gc.freeze()
        return core

    def _serve(self, core: EngineCoreProc, link: EngineLink) -> None:
        watch = HangWatch(link.pulse, seconds(self._config.lifecycle.engine_hang_timeout), self._hung)
        if self._health is not None:
            self._health.loop_begins(core.scheduler)
        try:
            core.run_busy_loop()
        except Exception:
            core.send_engine_dead()
            raise
        finally:
            watch.stop()

    def _end(self, code: ExitCode, reason: str, last_error: str, **counts: int) -> ExitCode:
        """The last words: to the termination message file, to the client and to the log. Before the device is freed, which may hang after a fault.

        The first thread to come here ends the process.
        """
        if not self._ending.acquire(blocking=False):
            time.sleep(2 * EXIT_SECONDS)
            os._exit(ExitCode.FAILED)
        self._shutdown.over()
        call_later(EXIT_SECONDS, lambda: os._exit(code))
        message = TerminationMessage(
            reason=reason, phase=self._phase().value, last_error=last_error, seconds=round(time.monotonic() - self._started, 3), **counts
        )
        write_termination_message(self._config.termination_message_path, message)
        if self._link is not None:
            if code is not ExitCode.OK:
                self._link.handshake.report_failure(last_error)
            self._link.close()
        if code is ExitCode.OK:
            logger.info("%s %s", reason, last_error)
        else:
            sys.stderr.write(f"stoker-engine: {last_error}\n")
            sys.stderr.flush()
        return code

    def _exit(self, code: ExitCode, reason: str, last_error: str, **counts: int) -> NoReturn:
        """Ends the process from another thread: the main thread may hang in native code."""
        os._exit(self._end(code, reason, last_error, **counts))

    def abort_start(self) -> NoReturn:
        self._exit(ExitCode.OK, "Aborted", f"{self._shutdown.cause} while {self._phase().value}")

    def kill(self) -> NoReturn:
        """At once: nothing is flushed and nobody is told, but a supervisor."""
        in_flight = self._core.scheduler.num_unfinished_requests if self._core is not None else 0
        message = TerminationMessage(reason="Killed", phase=self._phase().value, in_flight_at_start=in_flight, aborted=in_flight)
        write_termination_message(self._config.termination_message_path, message)
        os._exit(ExitCode.FAILED)

    def _startup_timed_out(self) -> None:
        limit = self._config.lifecycle.startup_timeout
        self._exit(ExitCode.STARTUP_TIMEOUT, "StartupTimeout", f"not ready after {limit} (startupTimeout): {self._describe_start()}")

    def _describe_start(self) -> str:
        """Where each party of the start is, and for how long."""
        if self._link is None:
            return "the handshake has not begun"
        report = self._link.handshake.phase_report
        api = "an api is connected" if self._link.handshake.has_client else "no api is connected"
        words = f": {report.message}" if report.message else ""
        return f"in phase {report.phase.value} ({report.progress:.0%}) for {report.seconds:.0f} s{words}; {api}"

    def _hung(self, what: str) -> None:
        limit = self._config.lifecycle.engine_hang_timeout
        self._exit(ExitCode.ENGINE_DEAD, "EngineHung", f"{what}, longer than {limit} (engineHangTimeout)")

    def _thread_failed(self, failure: threading.ExceptHookArgs) -> None:
        """A fault in one of the engine's own threads: without it the engine would be deaf or dumb."""
        error = failure.exc_value
        logger.critical("a thread failed", exc_info=error)
        name = failure.thread.name if failure.thread is not None else "unknown"
        self._exit(ExitCode.ENGINE_DEAD, "ThreadFailed", f"thread {name}: {type(error).__name__}: {error}")

    def _free_device(self) -> None:
        if self._executor is None:
            return
        try:
            self._executor.shutdown()
        except Exception:  # the exit code and the last words are said already
            logger.exception("the device could not be freed")
        gc.unfreeze()

    def _phase(self) -> EnginePhase:
        return self._link.handshake.phase if self._link is not None else EnginePhase.STARTING

    def _wake(self) -> None:
        if self._link is not None:
            self._link.inputs.put(Wakeup())

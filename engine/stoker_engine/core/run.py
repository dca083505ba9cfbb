"""The engine process from start to end: signals, start-up deadline, the loop, the last words and the exit code."""

import gc
import logging
import os
import sys
import threading
import time
from collections.abc import Callable

from stoker_engine.config import EngineConfig, seconds
from stoker_engine.core.engine_core_proc import EngineCoreProc
from stoker_engine.core.engine_link import EngineLink
from stoker_engine.core.input_thread import Wakeup
from stoker_engine.core.shutdown import Shutdown, ShutdownMode
from stoker_engine.core.watchdog import HangWatch, StartupDeadline
from stoker_engine.errors import ConfigError, ModelLoadError
from stoker_engine.executor.base import Executor
from stoker_engine.exit_codes import ExitCode
from stoker_engine.protocol import EnginePhase
from stoker_engine.termination import TerminationMessage, write_termination_message

logger = logging.getLogger(__name__)


class EngineProcess:
    """One engine process. `make_executor` is called only after the signal handlers are in place."""

    def __init__(self, config: EngineConfig, make_executor: Callable[[EngineConfig], Executor]) -> None:
        self._config = config
        self._make_executor = make_executor
        self._started = time.monotonic()
        self._link: EngineLink | None = None
        self._shutdown = Shutdown(seconds(config.lifecycle.drain_timeout), self._wake)

    def run(self) -> ExitCode:
        """Runs until the engine has shut down or failed, and returns the exit code."""
        threading.excepthook = self._thread_failed
        self._shutdown.install_signal_handlers()
        if self._config.supervisor_fd is not None:
            self._shutdown.watch_supervisor(self._config.supervisor_fd)
        try:
            return self._run()
        except SystemExit:
            return self._end(ExitCode.OK, "Aborted", f"{self._shutdown.cause} while {self._phase().value}")
        except ConfigError as error:
            return self._end(ExitCode.BAD_CONFIG, "BadConfig", str(error))
        except ModelLoadError as error:
            return self._end(ExitCode.MODEL_LOAD_FAILED, "ModelLoadFailed", str(error))
        except Exception as error:
            logger.exception("the engine failed")
            return self._end(ExitCode.FAILED, "EngineFailed", f"{type(error).__name__}: {error}")

    def _run(self) -> ExitCode:
        self._link = EngineLink(self._config)
        deadline = StartupDeadline(seconds(self._config.lifecycle.startup_timeout), self._startup_timed_out)
        executor = self._make_executor(self._config)
        try:
            core = self._start(executor, self._link)
            deadline.met()
            self._serve(core, self._link)
        finally:
            deadline.met()
            executor.shutdown()
        aborted = core.num_aborted_at_shutdown
        in_flight = core.num_in_flight_at_shutdown
        reason = "Aborted" if aborted or self._shutdown.mode is ShutdownMode.ABORT else "Drained"
        return self._end(ExitCode.OK, reason, "", in_flight_at_start=in_flight, completed=in_flight - aborted, aborted=aborted)

    def _start(self, executor: Executor, link: EngineLink) -> EngineCoreProc:
        try:
            core = EngineCoreProc(self._config, executor, link, self._shutdown)
        except MemoryError as error:
            raise ModelLoadError(f"out of memory in phase {self._phase().value}") from error
        # What start-up made lives as long as the engine: keep the collector from walking it in every full collection.
        gc.collect()
        gc.freeze()
        return core

    def _serve(self, core: EngineCoreProc, link: EngineLink) -> None:
        watch = HangWatch(link.pulse, seconds(self._config.lifecycle.engine_hang_timeout), self._hung)
        try:
            core.run_busy_loop()
        except Exception:
            # Told before the device is freed, which may hang after a fault of the device.
            core.send_engine_dead()
            raise
        finally:
            watch.stop()

    def _end(self, code: ExitCode, reason: str, last_error: str, **counts: int) -> ExitCode:
        """The last words: to the termination message file, to the client and to the log."""
        self._shutdown.ignore_signals()
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

    def _startup_timed_out(self) -> None:
        """On the deadline's own thread: the main thread may hang in native code."""
        limit = self._config.lifecycle.startup_timeout
        self._end(ExitCode.STARTUP_TIMEOUT, "StartupTimeout", f"not ready after {limit} (startupTimeout): still in phase {self._phase().value}")
        os._exit(ExitCode.STARTUP_TIMEOUT)

    def _hung(self, step_age: float) -> None:
        """On the watchdog's thread."""
        limit = self._config.lifecycle.engine_hang_timeout
        self._end(ExitCode.ENGINE_DEAD, "EngineHung", f"a step has been running for {step_age:.0f} s, longer than {limit} (engineHangTimeout)")
        os._exit(ExitCode.ENGINE_DEAD)

    def _thread_failed(self, failure: threading.ExceptHookArgs) -> None:
        """A fault in one of the engine's own threads: without it the engine would be deaf or dumb."""
        error = failure.exc_value
        logger.critical("a thread failed", exc_info=error)
        name = failure.thread.name if failure.thread is not None else "unknown"
        self._end(ExitCode.ENGINE_DEAD, "ThreadFailed", f"thread {name}: {type(error).__name__}: {error}")
        os._exit(ExitCode.ENGINE_DEAD)

    def _phase(self) -> EnginePhase:
        return self._link.handshake.phase if self._link is not None else EnginePhase.STARTING

    def _wake(self) -> None:
        if self._link is not None:
            self._link.inputs.put(Wakeup())

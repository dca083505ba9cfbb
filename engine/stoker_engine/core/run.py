"""The engine process from start to end: signals, start-up deadline, the loop, the last words and the exit code."""

import gc
import logging
import os
import sys
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
        self._core: EngineCoreProc | None = None
        self._shutdown = Shutdown(seconds(config.lifecycle.drain_timeout), self._wake)

    def run(self) -> ExitCode:
        """Runs until the engine has shut down or failed, and returns the exit code."""
        self._shutdown.install_signal_handlers()
        if self._config.supervisor_fd is not None:
            self._shutdown.watch_supervisor(self._config.supervisor_fd)
        try:
            return self._run()
        except SystemExit:
            return self._end(ExitCode.OK, "Aborted", f"{self._shutdown.cause} while {self._phase().value}")
        except ConfigError as error:
            return self._end(ExitCode.BAD_CONFIG, "BadConfig", str(error))
        except (ModelLoadError, MemoryError) as error:
            return self._end(ExitCode.MODEL_LOAD_FAILED, "ModelLoadFailed", str(error) or repr(error))
        except Exception as error:
            logger.exception("the engine failed")
            if self._core is not None:
                self._core.send_engine_dead()
            return self._end(ExitCode.FAILED, "EngineFailed", f"{type(error).__name__}: {error}")

    def _run(self) -> ExitCode:
        self._link = EngineLink(self._config)
        deadline = StartupDeadline(seconds(self._config.lifecycle.startup_timeout), self._startup_timed_out)
        executor = self._make_executor(self._config)
        try:
            core = self._core = EngineCoreProc(self._config, executor, self._link, self._shutdown)
            deadline.met()
            # What start-up made lives as long as the engine: keep the collector from walking it in every full collection.
            gc.collect()
            gc.freeze()
            watch = HangWatch(self._link.pulse, seconds(self._config.lifecycle.engine_hang_timeout), self._hung)
            core.run_busy_loop()
            watch.stop()
        finally:
            deadline.met()
            executor.shutdown()
        aborted = core.num_aborted_at_shutdown
        in_flight = core.num_in_flight_at_shutdown
        reason = "Aborted" if aborted or self._shutdown.mode is ShutdownMode.ABORT else "Drained"
        return self._end(ExitCode.OK, reason, "", in_flight_at_start=in_flight, completed=in_flight - aborted, aborted=aborted)

    def _end(self, code: ExitCode, reason: str, last_error: str, **counts: int) -> ExitCode:
        """The last words: to the client, to the log and to the termination message file."""
        message = TerminationMessage(
            reason=reason, phase=self._phase().value, last_error=last_error, seconds=round(time.monotonic() - self._started, 3), **counts
        )
        if self._link is not None:
            if code is not ExitCode.OK:
                self._link.handshake.report_failure(last_error)
            self._link.close()
        write_termination_message(self._config.termination_message_path, message)
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

    def _phase(self) -> EnginePhase:
        return self._link.handshake.phase if self._link is not None else EnginePhase.STARTING

    def _wake(self) -> None:
        if self._link is not None:
            self._link.inputs.put(Wakeup())

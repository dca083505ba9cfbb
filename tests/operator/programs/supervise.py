"""A supervisor in a process of its own: runs one replica of the stand-ins, with a gateway where the plan has a port for one.

Arguments: its plan as JSON, and a question or nothing.
"""

import asyncio
import json
import os
import sys
from pathlib import Path

from stoker_operator.display import PlainDisplay
from stoker_operator.plan import GatewayPlan, ProgramPlan, ReplicaPlan
from stoker_operator.supervisor import Supervisor

PROGRAMS = Path(__file__).parent
read_fd, write_fd = os.pipe()
settings = json.loads(sys.argv[1])
common = ("--events", settings["events"], "--supervisor-fd", str(read_fd))
engine_termination = settings["events"] + ".engine"
exit_code = ("--exit-code", str(settings["engine_exit_code"])) if "engine_exit_code" in settings else ()
behavior = ("--behavior", settings["behavior"], "--phase", settings["phase"])
plan = ReplicaPlan(
    title="demo",
    index=0,
    served_name="demo-model",
    host="127.0.0.1",
    port=settings["port"],
    grace=settings["grace"],
    api=ProgramPlan(
        "api",
        (
            sys.executable,
            str(PROGRAMS / "stand_in_api.py"),
            "--port",
            str(settings["port"]),
            "--behavior",
            settings["behavior"],
            "--phase",
            settings["phase"],
            *common,
        ),
        settings["events"] + ".api",
    ),
    engine=ProgramPlan(
        "engine",
        (sys.executable, str(PROGRAMS / "stand_in_engine.py"), "--termination-message-path", engine_termination, *exit_code, *common),
        engine_termination,
    ),
)


def plan_gateway(port: int) -> GatewayPlan:
    options = ("--component", "gateway", "--port", str(port), "--behavior", settings["behavior"])
    return GatewayPlan(
        host="127.0.0.1",
        port=port,
        grace=settings["grace"],
        program=ProgramPlan("gateway", (sys.executable, str(PROGRAMS / "stand_in_api.py"), *options, *common), settings["events"] + ".gateway"),
    )


async def run() -> int:
    gateway = plan_gateway(settings["gateway_port"]) if "gateway_port" in settings else None
    supervisor = Supervisor([plan], gateway, (read_fd,), PlainDisplay())
    return await (supervisor.answer(sys.argv[2]) if len(sys.argv) > 2 else supervisor.serve())


sys.exit(asyncio.run(run()))

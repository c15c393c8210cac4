"""A runner with everything around it: its page of metrics, its session of Spark, and the ways to end it."""

from __future__ import annotations

import random
from collections.abc import Callable

from polybus.pipelines.declaration import Declaration
from polybus.pipelines.page import METRICS_TYPE, Answer, Page, json_answer
from polybus.pipelines.runner import Runner
from polybus.pipelines.telling import BusTeller
from polybus.spark import session


def serve(
    declaration: Declaration,
    once: bool,
    port: int,
    rng: random.Random,
    say: Callable[[str], None],
    prepare: Callable[[Runner], None],
) -> bool:
    """Runs the pipelines to their end, or until the runner that `prepare` gets is told to stop; whether all went well."""
    running: list[Runner] = []
    page = Page(port, _answers(running))
    try:
        say(f"metrics http://{page.address}/metrics")
        spark = session(declaration.spark.master, "polybus-pipelines", declaration.spark.conf)
        try:
            with Runner(declaration, spark, once=once, say=say, rng=rng, address=page.address) as runner:
                running.append(runner)
                prepare(runner)
                say(f"ready pipelines={len(runner.pipelines)}")
                with BusTeller(runner):
                    return runner.run()
        finally:
            spark.stop()
    finally:
        page.close()


def _answers(running: list[Runner]) -> dict[str, Callable[[], Answer]]:
    def metrics() -> Answer:
        return 200, METRICS_TYPE, running[0].metrics.text() if running else ""

    def status() -> Answer:
        return json_answer({"pipelines": running[0].status() if running else []})

    def health() -> Answer:
        good = bool(running) and running[0].healthy()
        return json_answer({"healthy": good}, 200 if good else 503)

    return {"/metrics": metrics, "/status": status, "/health": health}

"""One simulation from beginning to end: a seed in, a history and a verdict out."""

from __future__ import annotations

from dataclasses import dataclass, field

from polybus.errors import BugError
from polybus.testing.history import History
from polybus.testing.verifier import Verdict, verify
from tests.support.simulation import nemesis as misfortunes
from tests.support.simulation.client import Client
from tests.support.simulation.ending import Ending
from tests.support.simulation.managers import Manager, Peeker, Purger
from tests.support.simulation.nemesis import Nemesis
from tests.support.simulation.pipelines import TARGET, Publisher, Tap
from tests.support.simulation.places import Place, Plan, make_plan
from tests.support.simulation.receivers import Receiver
from tests.support.simulation.rules_model import RulesModel
from tests.support.simulation.senders import FleetingSender, Sender
from tests.support.simulation.sessions import SessionClient
from tests.support.simulation.states import SessionStates
from tests.support.simulation.surroundings import NAMESPACE, Surroundings
from tests.support.simulation.transactors import Transactor
from tests.support.simulation.wishes import make_wishers
from tests.support.simulation.world import World

RUN_SECONDS = 16.0
"""How long clients and misfortunes have their way: several locks and outages long."""


@dataclass
class Outcome:
    """What came of one seed. `problems` is empty where all is well."""

    seed: int
    kinds: list[str]
    misfortunes: list[str]
    history: History
    problems: list[str] = field(default_factory=list)
    verdict: Verdict | None = None
    figures: dict[str, int] = field(default_factory=dict)
    error: Exception | None = None
    """What broke the run itself: a fault of the bus that no client could have been told."""

    @property
    def clean(self) -> bool:
        return not self.problems

    def summary(self) -> str:
        lines = [f"seed {self.seed}: {', '.join(self.kinds)}; misfortunes: {', '.join(self.misfortunes)}"]
        lines += [f"  {problem}" for problem in self.problems]
        return "\n".join(lines)


def simulate(
    seed: int,
    *,
    seconds: float = RUN_SECONDS,
    kinds: list[str] | None = None,
    troubles: list[str] | None = None,
    shuffle: bool = False,
    rests: bool = False,
) -> Outcome:
    """Plays a seed. What it would choose by itself can be given: which entities, and what goes wrong.

    With `rests` clients also abandon with a delay, and others purge, un-defer, reschedule, redrive and delete in
    batches; one queue more has a time-to-live for dead letters, or lets what is abandoned rest.
    """
    return Simulation(seed, seconds, kinds, troubles, shuffle, rests).run()


class Simulation:
    def __init__(
        self,
        seed: int,
        seconds: float,
        kinds: list[str] | None,
        troubles: list[str] | None,
        shuffle: bool,
        rests: bool = False,
    ) -> None:
        rng = World(seed, 1).rng("plan")
        self.world = World(seed, rng.choice((2, 3, 4)), shuffle)
        self.world.small = rng.random() < 0.5
        self.plan: Plan = make_plan(rng, kinds, self.world.rng("wishes") if rests else None)
        self.nemesis = Nemesis(self.world, troubles if troubles is not None else misfortunes.choose(rng))
        self.states = SessionStates()
        self.clients = make_clients(self.world, self.plan, self.states)
        self.taps = [
            Tap("tap", self.world, self.plan) for entrance in self.plan.entrances if entrance.entity == TARGET
        ]
        self._seconds = seconds
        self._rng = rng
        if rests:
            self.world.rests.enabled = True
            self.world.rests.retrying = {place.name for place in self.plan.places if place.retries_later}
            self.clients.append(Purger("purger", self.world, self.plan))
            self.clients += make_wishers(self.world, self.plan)

    def run(self) -> Outcome:
        world = self.world
        kinds = [described.path for described, _ in self.plan.entities]
        outcome = Outcome(world.seed, kinds, self.nemesis.kinds, world.history)
        try:
            self._play(outcome)
        except Exception as error:
            outcome.problems.append(f"{type(error).__name__}: {error}")
            outcome.error = error
        return outcome

    def _play(self, outcome: Outcome) -> None:
        self._set_up()
        clients = [*self.clients, *self.taps]
        working = [self.world.go(client.work()) for client in clients]
        self.nemesis.begin()
        self.world.run_for(self._seconds)
        self.nemesis.close()
        for client in clients:
            client.close()
        ending = Ending(self.world, self.plan, working)
        ending.rest()
        if not ending.findings:
            self._judge(outcome, ending)
        outcome.problems += [*ending.findings, *self.states.findings, *self.nemesis.findings]
        outcome.problems += [f"reported: {error}" for error in self.world.errors]

    def _set_up(self) -> None:
        async def set_up() -> None:
            await self.world.start()
            bus = self.world.bus
            assert bus is not None, "nothing goes wrong before it begins"
            await self.plan.create(bus, NAMESPACE)
            for tap in self.taps:
                await tap.begin()

        done = self.world.go(set_up())
        if not self.world.run_until(lambda: done.settled, 30, 0.05):
            raise BugError("the namespace cannot be set up")

    def _judge(self, outcome: Outcome, ending: Ending) -> None:
        drained = ending.drain(self._rng)
        for tap in self.taps:
            outcome.problems += ending.read_to_the_end(tap)
        final = ending.contents()
        verdict = verify([self.world.history], final)
        outcome.verdict = verdict
        outcome.problems += [f"{finding.kind}: {finding}" for finding in verdict.findings]
        ending.compare(final)
        ending.expire_orphans()
        ending.audit(drained)
        outcome.figures = {
            **verdict.report,
            "deaths": self.world.deaths,
            "fences": self.world.fences,
            "rerouted": self.world.rerouted,
        }


def make_clients(world: Surroundings, plan: Plan, states: SessionStates, prefix: str = "") -> list[Client]:
    """Senders, receivers of every place, a publisher, a manager and a peeker; their names begin with the prefix."""
    rules = RulesModel(("green",))
    clients: list[Client] = [Sender(f"{prefix}sender{index}", world, plan, rules) for index in range(4)]
    for place in plan.places:
        if not place.options.delivers_to:
            clients += _receivers(world, plan, place, states, prefix)
    for entrance in plan.entrances:
        if entrance.entity == TARGET:
            clients.append(Publisher(f"{prefix}publisher", world, plan, entrance))
    return [
        *clients,
        FleetingSender(f"{prefix}fleeting", world, plan),
        Manager(f"{prefix}manager", world, plan, rules),
        Peeker(f"{prefix}peeker", world, plan),
    ]


def _receivers(world: Surroundings, plan: Plan, place: Place, states: SessionStates, prefix: str) -> list[Client]:
    name = f"{prefix}{place.name}"
    found: list[Client] = []
    if place.options.sessions:
        found += [SessionClient(f"{name} {index}", world, plan, place, states) for index in range(2)]
    else:
        found.append(Receiver(f"{name} locks", world, plan, place, "locks"))
        found.append(Transactor(f"{name} transactor", world, plan, place))
        if place.name in ("plain", "last", "clippings"):
            found.append(Receiver(f"{name} deletes", world, plan, place, "deletes"))
    return [*found, Receiver(f"{name} dead", world, plan, place, "dead letters")]

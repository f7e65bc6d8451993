"""One run from a seed: begin, make trouble, mend everything, and see that the quorum gets well and nothing is missing.

    simulate(seed) -> Report         raises InvariantViolation

Safety is checked all the time (`checker`). Here is the order of a run, and what must be true after the trouble: there
is a leader soon (V1), all replicas catch up (V3, V8), stalled work goes on by itself (V7), a replica that joins by
itself votes (JOIN), the wanted voter leads (PRIORITY), an idle quorum is quiet (I20, V2), the log holds exactly the
values that callers were told of (I10), and in an order that fits (I21).
"""

from __future__ import annotations

import random as chance
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from typing import Any, Final

import attrs

from kraftlib.testing import draws, final_checks, histories, liveness
from kraftlib.testing.clock import MILLISECOND
from kraftlib.testing.drills import DRILLS
from kraftlib.testing.incremental import INCREMENTAL
from kraftlib.testing.judge import SIMULATE, Program
from kraftlib.testing.nemesis import Nemesis
from kraftlib.testing.node import SimulatedNode
from kraftlib.testing.process import Ending
from kraftlib.testing.profiles import Profile, profile_of
from kraftlib.testing.subject import DEFAULT, Subject
from kraftlib.testing.trace import Entry, Step
from kraftlib.testing.visitors import Visitors
from kraftlib.testing.world import ListenerFactory, World

NO_DRILL: Final = "none"

INCREMENTS_SHARE: Final = 0.2
"""Share of the seeds with a state machine that writes increments."""


@attrs.frozen(kw_only=True)
class Report:
    """The report of a run."""

    seed: int
    profile: str
    voters: int
    observers: int
    simulated_ms: int
    events: int
    elections: int
    appends: int
    acknowledged: int
    committed: int
    """Records, those of the protocol included."""
    faults: dict[str, int]
    messages_lost: int
    leader_after_ms: int
    """Time from the end of the faults until a leader committed something; -1 if none could be elected."""
    trace_hash: str
    pairs: dict[str, int] = attrs.field(factory=dict)
    """Counts of each situation with each event and answer, if the program has them counted."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON; of the pairs, how many there are."""
        return {**attrs.asdict(self), "pairs": len(self.pairs)}


class Simulation:
    """One run. `world` and `nemesis` may be looked at, and played with, between its phases."""

    def __init__(
        self,
        seed: int,
        profile: Profile,
        *,
        trouble_ms: int | None = None,
        only: Collection[int] | None = None,
        subject: Subject = DEFAULT,
        listener: ListenerFactory | None = None,
        on_entry: Callable[[Entry], None] | None = None,
        replay: str | None = None,
        program: Program = SIMULATE,
    ) -> None:
        draw = chance.Random(f"{profile.name}/{seed}")
        self.seed = seed
        self.profile = profile
        self.pace = draw.choice(profile.paces)
        drawn_ms = int(draw.uniform(*profile.trouble_ms) * self.pace)
        self.trouble_ms = drawn_ms if trouble_ms is None else trouble_ms
        own = chance.Random(f"increments/{profile.name}/{seed}")
        if subject is DEFAULT and profile.odd_configurations and own.random() < INCREMENTS_SHARE:
            subject = INCREMENTAL
        if replay is None:
            replay = replay_command(seed, profile.name, trouble_ms, only=only, program=program)
        voters, observers = draw.choice(profile.voters), draw.choice(profile.observers)
        self.world = World(
            draw.getrandbits(64),
            voters=voters,
            observers=observers,
            kraft_version=draw.choice(profile.kraft_versions),
            config={
                **draws.draw_config(draw, self.pace, odd=profile.odd_configurations),
                **draws.draw_housekeeping(own, self.pace),
                **draws.draw_reserve(chance.Random(f"reserve/{profile.name}/{seed}"), odd=profile.odd_configurations),
                **draws.draw_rounds(chance.Random(f"rounds/{profile.name}/{seed}")),
                **draws.draw_digests(
                    chance.Random(f"digests/{profile.name}/{seed}"),
                    self.pace,
                    odd=profile.odd_configurations and subject in (DEFAULT, INCREMENTAL),
                ),
            },
            priorities=draws.draw_priorities(draw, voters + observers) if profile.odd_configurations else {},
            subject=subject,
            snapshot_interval_records=own.choice((5, 10, 30) if subject is INCREMENTAL else (0, 20, 100)),
            listener=listener,
            judge=program.judge_of(seed, profile.name),
            recovery=program.recovery,
            replay=replay,
            on_entry=on_entry,
        )
        self.world.seed = seed
        draws.draw_upstreams(chance.Random(f"upstreams/{profile.name}/{seed}"), self.world)
        if profile.odd_configurations:
            self.world.turn_lag_us = draws.draw_lags(chance.Random(f"lags/{profile.name}/{seed}"), self.pace)
        kinds = draws.draw_kinds(draw, profile)
        self.nemesis = Nemesis(
            self.world,
            chance.Random(draw.getrandbits(64)),
            kinds=kinds,
            pace=self.pace,
            rarely=profile.rarely,
            only=only,
        )
        self.visitors = Visitors(self.world, chance.Random(f"visitors/{profile.name}/{seed}"), pace=self.pace)
        workload = self.world.workload
        workload.rate = draw.uniform(*profile.rate) / self.pace
        if profile.odd_configurations:
            workload.values_max = draw.choice((1, 3, 3, 10))
            workload.value_bytes = draw.choice((8, 16, 100, 1_000))
            draws.draw_environment(draw, self.world)
            config = next(iter(self.world.nodes.values())).config
            if min(config.fetch_max_bytes, config.disk_reserve_bytes // 4) < 10_000:
                # One batch a round trip is all that goes through then: a leader writes a quarter of its reserve.
                delay_us, jitter_us = self.world.link_us
                round_trip_us = 2 * delay_us + jitter_us + self.world.disk_spread_us
                workload.rate = min(workload.rate, 300_000 / round_trip_us)
        self.calm_start = draw.random() < 0.5
        self.stay_down: Sequence[SimulatedNode] = ()
        """A minority that is still down when the others must get well already."""
        self.drill = draw.choice(list(DRILLS)) if profile.faults else "E9"
        """The drill for the healthy quorum at the end."""
        if self.drill == "V4" and any(node.config.election_priority for node in self.world.nodes.values()):
            self.drill = NO_DRILL  # a wanted voter that hears too few is tried now and then, ever more rarely
        if draw.random() < profile.mixed:
            # A cluster in the midst of an upgrade. Without pre-votes its elections are those of Raft, and no drill's.
            numbers = list(self.world.nodes)
            self.world.network.older.update(draw.sample(numbers, draw.randint(1, len(numbers))))
            self.drill = NO_DRILL
        self._leaves_some_down = bool(self.nemesis.kinds) and draw.random() < 0.5
        self._draw = draw

    def run(self) -> Report:
        """Do all of it. Raises: InvariantViolation."""
        try:
            leader_after_ms = self._run()
        except liveness.StuckError:
            return self.report(-1)
        return self.report(leader_after_ms)

    def _run(self) -> int:
        world = self.world
        self._phase(1)
        world.start()
        if self.calm_start or not self.nemesis.kinds:
            liveness.v1_leader_soon(world, "at the start")
        world.workload.start()
        if self.nemesis.kinds:
            self.nemesis.start()
            self.visitors.start()
        self._phase(2)
        if self.profile.noise:
            liveness.v2_noise_elects_nobody(world, self.trouble_ms)
        else:
            world.run_for(self.trouble_ms)
        self.mend()
        self._phase(3)
        leader_after_ms = self.get_well()
        if self.stay_down:
            self._phase(4)
            world.start()
            self.stay_down = ()
            self.get_well()
        self._phase(5)
        world.workload.stop()
        liveness.last_burst(world)
        liveness.settle(world)
        liveness.whoever_joins_has_joined(world)
        liveness.whoever_is_wanted_leads(world)
        if self.drill != NO_DRILL:
            # Messages from amid the trouble may be late still, and nothing overtakes them: no drill is about that.
            late_us = max(0, world.network.all_arrived_us() - world.timeline.now_us)
            world.run_for(late_us // MILLISECOND + 1)
            DRILLS[self.drill](world, chance.Random(self._draw.getrandbits(64)))
        liveness.whoever_is_wanted_leads(world)
        liveness.settle(world)
        liveness.v6_changes_come_to_an_end(world)
        final_checks.v9_applications_are_told(world)
        final_checks.v11_old_snapshots_go(world)
        final_checks.v12_hashes_are_told(world)
        histories.i10_log_holds_what_callers_were_told(world)
        histories.i21_history_is_linearizable(world)
        histories.i14_snapshots_say_what_the_log_says(world)
        final_checks.i18_logs_are_equal(world)
        final_checks.l16_cores_know_their_logs(world)
        final_checks.u3_states_are_equal(world)
        final_checks.i19_nothing_is_left_over(world)
        final_checks.i20_idle_quorum_is_quiet(world)
        return leader_after_ms

    def get_well(self) -> int:
        """Check that every running node finds a leader, catches up and serves; return the ms until the first leader."""
        leader_after_ms = liveness.v1_leader_soon(self.world, "after the trouble")
        liveness.v8_observers_catch_up(self.world)
        liveness.v3_everybody_catches_up(self.world)
        liveness.v7_service_resumes(self.world)
        return leader_after_ms

    def mend(self) -> None:
        """End all trouble: every link works, every clock is right, and everything runs but for `stay_down`."""
        self.nemesis.stop()
        self.visitors.stop()
        world = self.world
        world.keeps_up, world.turn_lag_us = True, 0
        world.network.heal(world.network.links.values())
        for node in world.nodes.values():
            node.disk.failing = node.disk.full = False
            if node.process is not None:
                node.process.doom = None
                node.process.resume()
        if self._leaves_some_down:
            self.stay_down = self._minority()
        for node in self.stay_down:
            node.end(Ending.POWER_LOST, silently=True)
        for node in world.nodes.values():
            if node not in self.stay_down:
                node.start()

    def _minority(self) -> Sequence[SimulatedNode]:
        """Draw as many voters as can be missing: those whose disk is gone are missing already.

        None, while a voter has forgotten its votes or lost records: without it, all others may be needed. Nor while the
        voters are being changed: those that remain may need the drawn ones.
        """
        world = self.world
        voters = world.current_voters()
        if any(world.nodes[key.id].is_impaired for key in voters) or world.admin.is_changing:
            return ()
        kept = world.kept_voters()
        spare = len(kept) - (len(voters) // 2 + 1)
        return self._draw.sample(kept, min(spare, len(kept))) if spare > 0 else ()

    def report(self, leader_after_ms: int) -> Report:
        """Say what this run was."""
        world = self.world
        return Report(
            seed=self.seed,
            profile=self.profile.name,
            voters=len(world.voter_keys),
            observers=len(world.nodes) - len(world.voter_keys),
            simulated_ms=world.now_ms,
            events=world.timeline.events,
            elections=world.checker.elections,
            appends=len(world.workload.appends),
            acknowledged=world.workload.acknowledged,
            committed=world.committed_end,
            faults=dict(self.nemesis.counts + world.deeds + message_faults(world)),
            messages_lost=world.network.lost,
            leader_after_ms=leader_after_ms,
            trace_hash=world.trace.hash,
        )

    def _phase(self, number: int) -> None:
        self.world.trace.add(self.world.timeline.now_us, Step.PHASE, -1, number)


def replay_command(
    seed: int,
    profile: str,
    trouble_ms: int | None = None,
    subject: str | None = None,
    *,
    only: Collection[int] | None = None,
    program: Program = SIMULATE,
) -> str:
    """Return the one command that runs a seed again, with all of its strikes or only some."""
    parts = [program.command, f"--seed {seed}"]
    parts += [] if profile == "swarm" else [f"--profile {profile}"]
    parts += [] if trouble_ms is None else [f"--until-ms {trouble_ms}"]
    parts += [] if only is None else [f"--only {','.join(map(str, sorted(only))) or 'none'}"]
    parts += [] if subject is None else [f"--subject {subject}"]
    return " ".join(parts)


def message_faults(world: World) -> Counter[str]:
    """Return how many messages met with trouble, by its kind."""
    network = world.network
    return Counter(
        {
            "message lost": network.lost,
            "message repeated": network.repeated,
            "message overtaken": network.reordered,
            "message damaged": network.damaged,
        }
    )


def simulate(
    seed: int,
    profile: str = "swarm",
    *,
    trouble_ms: int | None = None,
    only: Collection[int] | None = None,
    subject: Subject = DEFAULT,
    listener: ListenerFactory | None = None,
    on_entry: Callable[[Entry], None] | None = None,
    replay: str | None = None,
    program: Program = SIMULATE,
) -> Report:
    """Run one seed, with all of its strikes or with `only` some. `program` may add judges.

    Raises: InvariantViolation; ConfigError for a profile that does not exist.
    """
    simulation = Simulation(
        seed,
        profile_of(profile),
        trouble_ms=trouble_ms,
        only=only,
        subject=subject,
        listener=listener,
        on_entry=on_entry,
        replay=replay,
        program=program,
    )
    return simulation.run()

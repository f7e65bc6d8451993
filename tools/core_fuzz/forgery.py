"""The messages of a liar, or of a replica that is misconfigured: steps of the core fuzzer.

    replay   a request comes once more, to the one that it was meant for or to another one
    forge    it comes with something changed, or is made up
    tamper   an answer is changed, or comes twice
    press    votes are asked for that no replica may have
    aim      an answer is changed that few replicas ask for: a piece of a snapshot, its hash, who has fetched when

What is changed, and what is not, say `forged_requests`, `made_up` and `forged_answers`.
"""

from __future__ import annotations

import random as chance
from collections import deque
from typing import TYPE_CHECKING, Any, Final

import attrs

from kraftlib.consensus.roles import Prospective, Unattached
from kraftlib.types import ReplicaId, ReplicaKey
from kraftlib.wire.messages.api_versions import ApiVersionsRequest
from kraftlib.wire.messages.fetch import FetchRequest, FetchResponse
from kraftlib.wire.messages.raft_voters import AddRaftVoterRequest
from kraftlib.wire.messages.vote import VoteRequest
from tools.core_fuzz import forged_answers, forged_requests, made_up
from tools.core_fuzz.forged_requests import STRANGE_DISK, STRANGER, only
from tools.core_fuzz.host import VERSIONS, CoreHost, Letter

if TYPE_CHECKING:
    from tools.core_fuzz.world import CoreWorld

REMEMBERED: Final = 24
"""So many requests, and so many answers, of each kind."""

OLDEST: Final = {FetchRequest: 12}
"""The oldest version of the requests of a kind: that of a Fetch which names its topic in another way, or 0."""


TRIES_MAX: Final = 30
"""So many answers of a kind are looked at, at most, to change one of them."""

AIMED_TRIES_MAX: Final = 150
"""The same of answers that are aimed at, of which few fit."""

SPARED: Final = 0.4
"""The share of answers that pass unchanged while one of their kind is to be changed: without a true one a download has
no end."""


@attrs.define
class Tampering:
    """The change of the next answers of a kind."""

    kind: type
    bend: forged_answers.Bend
    left: int
    tries: int = 0
    tries_max: int = TRIES_MAX
    target: ReplicaId | None = None
    sources: frozenset[ReplicaId] = frozenset()
    """The senders and the receiver of the answers; any, unless they are named."""

    def fits(self, letter: Letter) -> bool:
        """Whether it is about this answer."""
        is_here = self.target in (None, letter.target) and (not self.sources or letter.source in self.sources)
        return self.kind is type(letter.body) and is_here


class Forger:
    """Sends forged messages."""

    def __init__(self, world: CoreWorld) -> None:
        self._world = world
        self._seen: dict[type, deque[Letter]] = {}
        self._answered: dict[type, None] = {}
        """The kinds of answers that were sent."""
        self._answers: dict[str, deque[Any]] = {}
        """The latest answers of each kind, by the name of their requests."""
        self._tampering: dict[type, Tampering] = {}
        """By the kind of answer: a rare kind is waited for."""

    def note(self, letter: Letter) -> None:
        """Remember a request that was sent."""
        kind = type(letter.body)
        if kind not in self._seen:
            if kind is ApiVersionsRequest:  # it is not answered by the core
                return
            self._seen[kind] = deque(maxlen=REMEMBERED)
        self._seen[kind].append(letter)

    def _recall(self) -> Letter | None:
        random = self._world.random
        if not self._seen:
            return None
        kind = random.choice(list(self._seen))
        return random.choice(self._seen[kind])

    def remembered(self, random: chance.Random, kind: type | None = None) -> Letter | None:
        """Return a request that was sent a while ago, perhaps of this kind."""
        kinds = list(self._seen) if kind is None else [kind] * (kind in self._seen)
        return random.choice(self._seen[random.choice(kinds)]) if kinds else None

    def remembered_answer(self, random: chance.Random, request: Any) -> Any:
        """Return an answer that was sent a while ago to a request of this kind; None if there was none."""
        answers = self._answers.get(type(request).__name__)
        return random.choice(answers) if answers else None

    def _receiver(self, meant: int | None = None) -> CoreHost | None:
        random, up = self._world.random, self._world.up()
        hosts = [host for host in up if host.number == meant] if random.random() < 0.6 else []
        if not hosts and random.random() < 0.6:
            hosts = self._world.leaders()
        hosts = hosts or up
        return random.choice(hosts) if hosts else None

    def replay(self) -> None:
        """Let a request come once more."""
        letter = self._recall()
        host = None if letter is None else self._receiver(letter.target)
        if letter is not None and host is not None and self._is_true_still(letter, host):
            self._world.count("replayed request")
            self._deliver(letter, host, letter.body)

    def _is_true_still(self, letter: Letter, host: CoreHost) -> bool:
        """Whether the one that asked has lost nothing since of what the request vouches for, nor its disk."""
        if isinstance(letter.body, VoteRequest):
            is_over = only(letter.body).replica_epoch < host.running.epoch
            return is_over or self._world.hosts[letter.source].life == letter.life
        if isinstance(letter.body, AddRaftVoterRequest):
            voter = self._world.hosts.get(letter.body.voter_id)
            return voter is not None and voter.key.directory_id == letter.body.voter_directory_id
        return True

    def forge(self) -> None:
        """Let a request come that was never sent."""
        random = self._world.random
        letter = self._recall() if random.random() < 0.7 else None
        host = self._receiver(None if letter is None else letter.target)
        if host is None:
            return
        if letter is None:
            self._deliver_made_up(host)
            return
        bends = forged_requests.BENDS.get(type(letter.body), ())
        if not bends or not self._is_true_still(letter, host):
            return
        body, bend = letter.body, random.choice(bends)
        if isinstance(body, VoteRequest) and bend is not forged_requests.binding_or_not and random.random() < 0.7:
            body = forged_requests.pre_vote_of_now(host, body)
        self._deliver_bent(letter, host, bend(random, host, body))

    def forge_update(self, host: CoreHost, *, is_true: bool) -> None:
        """Let a voter say where it is reached, at one more place than before; or a liar."""
        update = made_up.new_place_of_a_voter if is_true else made_up.update_of_a_voter
        body = update(self._world.random, host)
        self._world.count("forged request")
        self._world.arrive(STRANGER, host, body)

    def press(self) -> None:
        """Ask for votes that no replica may have: in an epoch that has a leader, or in one whose vote is given away.

        The request says that the log of its sender is as long as any. That changes nothing: an epoch has one leader,
        and each voter one vote in it, also where a replica with the same id and another disk asks for it.
        """
        world = self._world
        for host in world.up():
            role, end = host.running.state.role_state, host.running.state.log.end
            if not isinstance(role, Unattached | Prospective) or end.epoch >= host.running.epoch:
                continue
            if role.voted_key is not None and role.voted_key.directory_id is not None:
                asker = ReplicaKey(role.voted_key.id, STRANGE_DISK)
            elif role.voted_key is None and role.leader_id not in (None, host.number):
                others = [one for one in world.hosts.values() if one.number not in (host.number, role.leader_id)]
                if not others:
                    continue
                asker = world.random.choice(others).key
            else:
                continue
            world.count("vote that no replica may have")
            world.arrive(asker.id, host, made_up.vote_for(asker, host.running.epoch, end))

    def _deliver_made_up(self, host: CoreHost) -> None:
        random, states = self._world.random, self._world.states
        if states.are_compared and states.random.random() < 0.4:
            failed = [one for one in self._world.up() if one.running.state.machine_failed_ms is not None]
            host = states.random.choice(failed) if failed and states.random.random() < 0.5 else host
            body = made_up.state_of_a_replica(states.random, host)
        else:
            body = random.choice(made_up.MADE_UP)(random, host)
        if body is not None:
            self._world.count("forged request")
            self._world.arrive(STRANGER, host, body)

    def _deliver_bent(self, letter: Letter, host: CoreHost, body: Any) -> None:
        if body is not None:
            self._world.count("forged request")
            self._deliver(letter, host, body)

    def _deliver(self, letter: Letter, host: CoreHost, body: Any) -> None:
        random, kind = self._world.random, type(body)
        version = VERSIONS.get(kind.__name__, 0)
        if random.random() < 0.1:
            version = random.randint(OLDEST.get(kind, 0), version)
        self._world.arrive(STRANGER if letter.source < 0 else letter.source, host, body, version=version)

    def tamper(self) -> None:
        """Change the next answer of some kind, or the next few, or let one come twice."""
        random = self._world.random
        if self._answered:
            kind = random.choice([*self._answered, FetchResponse, FetchResponse, FetchResponse])
            bend = random.choice((*forged_answers.BENDS[kind], doubled))
            self._tampering[kind] = Tampering(kind, bend, random.choice((1, 1, 1, 3)))

    def aim(self) -> None:
        """Change an answer to a question that few replicas ask, as soon as one does."""
        self.aim_at(self._world.random.choice(list(forged_answers.AIMED)))

    def aim_at(self, kind: type) -> None:
        """Change the next answer of a kind that few replicas ask for."""
        random = self._world.random
        bend = random.choice(forged_answers.AIMED[kind])
        self._tampering[kind] = Tampering(kind, bend, 1, tries_max=AIMED_TRIES_MAX)

    def mislead(self, host: CoreHost) -> None:
        """Let an answer to a Fetch name an epoch that has not begun: the answer of a voter, or of another replica."""
        voters = frozenset(host.running.voters.ids) - {host.number}
        strangers = frozenset(self._world.hosts) - voters - {host.number}
        bend = forged_answers.of_an_impossible_epoch
        sources = voters if self._world.random.random() < 0.5 else strangers
        if sources:
            self._tampering[FetchResponse] = Tampering(FetchResponse, bend, 1, target=host.number, sources=sources)

    def pass_on(self, letter: Letter) -> Letter:
        """Return an answer that is sent, or what has become of it."""
        kind = type(letter.body)
        if letter.body is not None:
            name = kind.__name__.replace("Response", "Request")
            self._answers.setdefault(name, deque(maxlen=REMEMBERED)).append(letter.body)
        tampering = self._tampering.get(kind)
        if kind in forged_answers.BENDS:
            self._answered[kind] = None
        world = self._world
        if kind is FetchResponse:
            if world.oddities.spoils_repairs:
                letter = self._spoil_repair(letter)
            letter = self._bend_rarely(letter)
        if tampering is None or not tampering.fits(letter) or world.random.random() < SPARED:
            return letter
        host = world.hosts.get(letter.target)
        tampering.tries += 1
        if tampering.tries >= tampering.tries_max:
            del self._tampering[kind]
        if host is None or host.core is None or host.life != letter.life:
            return letter
        body = tampering.bend(world.random, host, letter.body)
        if body is None:
            return letter
        tampering.left -= 1
        if not tampering.left:
            self._tampering.pop(kind, None)
        if tampering.bend is doubled:
            world.count("doubled answer")
            world.wire.append(letter)
            return letter
        world.count("tampered answer")
        return attrs.evolve(letter, body=body)

    def _spoil_repair(self, letter: Letter) -> Letter:
        """Let an answer to a replica that fetches missing records be of no use, now and then."""
        host, oddities = self._world.hosts.get(letter.target), self._world.oddities
        if host is None or host.core is None or host.life != letter.life or host.running.state.filling is None:
            return letter
        if not oddities.spoils_repair():
            return letter
        body = forged_answers.of_no_use_to_a_repair(oddities.random, host, letter.body)
        return letter if body is None else attrs.evolve(letter, body=body)

    def _bend_rarely(self, letter: Letter) -> Letter:
        """Bend the answer to a Fetch in ways that few answers can be bent in, now and then."""
        oddities, host = self._world.oddities, self._world.hosts.get(letter.target)
        if host is None or host.core is None or host.life != letter.life:
            return letter
        for share, bend in (
            (oddities.mixes_epochs, forged_answers.of_an_epoch_that_falls_later),
            (oddities.counts_others if self._world.static_voters else 0.0, forged_answers.from_a_leader_of_others),
            (oddities.strange_headers, forged_answers.of_a_strange_header),
        ):
            if oddities.bends_rarely(share):
                body = bend(oddities.random, host, letter.body)
                if body is not None:
                    return attrs.evolve(letter, body=body)
        return letter


def doubled(random: chance.Random, host: CoreHost, answer: Any) -> Any:
    """Let an answer come twice, as it is."""
    return answer

"""One accepted connection of `TcpTransport`: a client is unknown until its frames identify it.

An unknown client may send a byte a minute, announce a gigabyte, speak HTTP, or never read. None of it costs more than
`TcpLimits` says, and none of it reaches the engine: only whole frames do.

Deadlines are looked at by the sweep of the server, so that a frame costs no timer and no look at the clock.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, cast

import attrs

from kraftlib import forks
from kraftlib.runtime.net.answer_queue import AnswerQueue
from kraftlib.runtime.net.frame_turns import FrameTurns
from kraftlib.runtime.net.framing import BadFrameError, FrameReader, FrameWriter, describe_bad_frame
from kraftlib.runtime.net.freed_memory import FreedMemory
from kraftlib.runtime.net.newcomer import Newcomer
from kraftlib.runtime.net.notices import Notices
from kraftlib.runtime.net.tls_sink import TlsSink
from kraftlib.runtime.net.transport import Frame, FrameReceiver, Reply, TellRefusal
from kraftlib.security.admission import Standing
from kraftlib.security.answers import Account, AnswerBudget
from kraftlib.security.before_login import FRAME_MAX_BYTES
from kraftlib.security.contexts import Contexts, Validity, ends_at, unverified
from kraftlib.security.handshakes import Handshakes
from kraftlib.security.identity import certificate_names
from kraftlib.security.limits import TcpLimits
from kraftlib.security.password_checks import PasswordChecks
from kraftlib.security.sasl import USER_PREFIX

if TYPE_CHECKING:
    from kraftlib.security.sasl_server import SaslServer, Step
    from kraftlib.security.sasl_users import Login, SaslUsers

TURN_MAX_BYTES: Final = 64 * 1024
"""A connection that has sent larger frames than this waits for its next turn: a large one may be dear to read."""

FRAMES_TO_BE_KNOWN: Final = 6
"""The frames after which a replica is known: ApiVersions, four of SASL at most, and its first request."""

PACE_S: Final = 0.2
"""Over this long the rate of requests is taken."""

REFUSAL_PAUSE_S: Final = 0.1
"""Pause before a failed authentication is answered, as in Kafka (`connection.failed.authentication.delay.ms`)."""


CLOSED: Final = "closed the connection of %s: %s"


@attrs.define(kw_only=True)
class Shared:
    """The state and the neighbours that all connections of one server share."""

    receiver: FrameReceiver
    frame_max_bytes: int
    limits: TcpLimits
    notices: Notices
    loop: asyncio.AbstractEventLoop
    now: Callable[[], float]
    """The time of the loop, in s."""
    forget: Callable[[ServerConnection], None]
    """Told of a connection that is gone."""
    tls: Contexts
    budget: AnswerBudget
    freed_memory: FreedMemory
    turns: FrameTurns
    """Of connections that are not known to be voters'."""
    passwords: PasswordChecks
    handshakes: Handshakes
    tell_refusal: TellRefusal = lambda peer, name, reason: None
    """Told of a peer that was not let in."""
    sasl: SaslUsers | None = None
    """The users that may log in; only they may send requests. None: no SASL."""
    log_in: Callable[[], SaslServer] | None = None
    """Begins the login of a connection; None: no SASL."""
    unfinished_bytes: int = 0
    """The size of all frames that are not whole yet."""


class ServerConnection(asyncio.Protocol):
    """One accepted connection. `host` is the address that it shares slots with, on a Unix socket the user of `peer`."""

    def __init__(self, shared: Shared, newcomer: Newcomer) -> None:
        self.host: Final = newcomer.host
        self.peer = peer = newcomer.peer
        self.accepted_at: Final = newcomer.accepted_at
        self.standing = Standing.NEWCOMER
        self.of_voters = newcomer.of_voters
        self.handshake: asyncio.Task[None] | None = None
        """Makes the connection; over once it is made."""
        self.begun = False
        self._shared: Final = shared
        self._limits: Final = shared.limits
        # The system has told who is on a Unix socket.
        self._sasl = None if shared.log_in is None or peer.principals else shared.log_in()
        newcomer_max = min(shared.frame_max_bytes, shared.limits.newcomer_frame_max_bytes)
        self._login: tuple[str, Login] | None = None
        """The user that has logged in, and its login."""
        self._reader = FrameReader(newcomer_max if self._sasl is None else min(newcomer_max, FRAME_MAX_BYTES))
        self._writer = FrameWriter()
        self._answers = AnswerQueue(self._send, self.close, self._weigh)
        self.account: Final = Account(measure=self._unread, close=self._close_unread)
        self._transport: asyncio.Transport | None = None
        self._tls_sink: TlsSink | None = None
        """Takes what is sent, if the connection is encrypted."""
        self._held = False  # nothing is read or served, whatever the peer has sent
        self._awaits_turn = False
        self._frames = 0
        self._frames_allowed = 0
        self._pace_ends = 0.0
        self._unfinished_bytes = 0
        self._received_bytes = 0  # without frames that came alone, of a known peer
        self._made_at = shared.now()
        self._watched = (0, shared.now())
        self._rests = (0, shared.now())
        self._stalled_since: float | None = None
        self._closing_since: float | None = None
        self._descriptor = -1
        self._valid = Validity(None, shared.tls.trust)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin, after the handshake if there is one."""
        self._transport = cast(asyncio.Transport, transport)
        most = self._limits.send_buffer_max_bytes
        if transport.get_extra_info("sslcontext") is None:
            self._transport.set_write_buffer_limits(high=most)
            self._writer.attach(self._transport)
        else:
            self._tls_sink = TlsSink(
                self._transport, most, self._shared.loop, stalled=self._stalled, relieved=self._relieved
            )
            self._tls_sink.begin()
            self._writer.attach(self._tls_sink)
        self._descriptor = transport.get_extra_info("socket").fileno()
        forks.keep_from_children(self._descriptor)
        certificate = transport.get_extra_info("peercert")
        names = certificate_names(certificate)
        if names:
            self.peer = attrs.evolve(self.peer, principals=(*self.peer.principals, *names))
        self._valid = Validity(ends_at(certificate), self._valid.trust)
        self._made_at = self._shared.now()
        self._watched = (0, self._made_at)
        reason = unverified(transport.get_extra_info("sslcontext"), certificate) or self._valid.is_over(
            self._shared.tls
        )
        if reason is not None:
            self.refuse("certificate", reason)
            self.abort()
            return
        if self._sasl is None:
            if certificate:
                self._shared.handshakes.proven(self.host)
            if names:
                self.take_large_frames()

    def take_large_frames(self) -> None:
        """Take frames of the full size from now on: the peer is authenticated, or has shown that it is a replica."""
        self._reader.allow(self._shared.frame_max_bytes)

    def data_received(self, data: bytes) -> None:
        """Take bytes, and serve the frames that are whole with them."""
        if self._is_idle() and (frame := self._reader.only_frame(data)) is not None:
            # A replica waits for each answer before it asks again. So its answer needs no gathering.
            self._frames += 1
            self._frames_allowed -= 1
            self._shared.receiver.request_received(frame, self._answers.expect(), self.peer)
            return
        self._reader.feed(data)
        self._received_bytes += len(data)
        if not self._held:
            self._serve()

    def pause_writing(self) -> None:
        """Note that the peer does not read."""
        if self._tls_sink is not None:
            self._tls_sink.pause_writing()
        else:
            self._stalled()

    def resume_writing(self) -> None:
        """Note that the peer has read."""
        if self._tls_sink is not None:
            self._tls_sink.resume_writing()
        else:
            self._relieved()

    def _stalled(self) -> None:
        self._stalled_since = self._shared.now()

    def _relieved(self) -> None:
        self._stalled_since = None
        self._resume_soon()

    def connection_lost(self, error: Exception | None) -> None:
        """Forget everything."""
        forks.forget(self._descriptor)
        self._transport = None
        for task in self.peer.work:
            task.cancel()
        self._writer.detach()
        if self._tls_sink is not None:
            self._tls_sink.drop()
        self._answers.drop()
        self._reader.drop()  # this object is in a reference cycle, and may be there for long
        self._account_for(0)
        self._shared.freed_memory.gone_bytes += self._received_bytes
        self._shared.budget.forget(self.account)
        self._shared.forget(self)

    def close(self) -> None:
        """Serve nothing more; close once what was answered has left."""
        self._held = True
        self._writer.flush()
        self._answers.drop()  # later ones would go into a transport that is closing
        if self._closing_since is None:
            self._closing_since = self._shared.now()
        if self._transport is None:
            return
        if self._tls_sink is None:
            self._transport.close()
            return
        self._tls_sink.close()
        if not self._transport.is_closing():
            self._transport.pause_reading()  # it closes once what waits has left

    def abort(self) -> None:
        """Close, even amid a handshake, and drop the bytes that are left to send."""
        if self._transport is not None:
            self._transport.abort()
        elif self.handshake is not None:
            self.handshake.cancel()

    def refuse(self, kind: str, reason: str) -> None:
        """Count, tell the operator and break off. Answers that were written may still leave."""
        self._shared.notices.warn(kind, self.host, CLOSED, self.peer.address, reason)
        self.close()

    def overdue(self, now: float) -> tuple[str, str] | None:
        """Return the kind and the text of a step that has lasted too long. Called by the sweep."""
        limits = self._limits
        if (reason := self._valid.is_over(self._shared.tls)) is not None:
            return "certificate", reason
        sasl = self._shared.sasl
        if self._login is not None and sasl is not None and sasl.login_of(self._login[0]) != self._login[1]:
            return "sasl", f"its user {self._login[0]!r} was removed, or has another password"
        if self._frames != self._rests[0] or self._answers.unsent:
            self._rests = (self._frames, now)
        self._weigh()
        since = min((since for since in (self._stalled_since, self._closing_since) if since is not None), default=now)
        if now - since > limits.stall_ms / 1000:
            return "slow_reader", f"it has not read its answers for {limits.stall_ms} ms"
        if self.standing is not Standing.VOTER and self.idle_s(now) > limits.idle_max_ms / 1000:
            return "idle", f"it has asked nothing for {limits.idle_max_ms} ms"
        if self._sasl is not None and now - self._made_at > limits.handshake_ms / 1000:
            return "sasl", f"it has not authenticated within {limits.handshake_ms} ms"
        frames, since = self._watched
        waits = self._transport is not None and not self._held and (not self._frames or self._reader.held_bytes)
        if not waits or frames != self._frames:
            self._watched = (self._frames, now)
            return None
        if not frames:
            late = now - since > limits.first_frame_ms / 1000
            return ("no_first_frame", f"no request came within {limits.first_frame_ms} ms") if late else None
        late = now - since > limits.frame_ms / 1000
        return ("slow_sender", f"a request was not whole after {limits.frame_ms} ms") if late else None

    def idle_s(self, now: float) -> float:
        """Return for how long the peer has asked nothing, as of the last sweep; 0 while anything is under way."""
        if self._closing_since is not None:
            return now - self._closing_since
        frames, since = self._rests
        rests = self._transport is not None and not self._held and not self._reader.held_bytes and frames > 0
        return now - since if rests and frames == self._frames and not self._answers.unsent else 0.0

    def _has_room(self) -> bool:
        """Whether another request may be taken."""
        answers, limits = self._answers, self._limits
        return (
            len(answers) < limits.pipeline_max
            and answers.waiting_bytes <= limits.send_buffer_max_bytes
            and self._stalled_since is None
        )

    def _is_idle(self) -> bool:
        """Whether a known peer has no request here, and may send one."""
        return (
            not self._held
            and self._frames_allowed > 0
            and self._stalled_since is None
            and self._sasl is None
            and self.standing is not Standing.NEWCOMER
            and not self._answers.unsent
            and (self.standing is Standing.VOTER or self._shared.turns.is_free())
        )

    def _serve(self) -> None:
        """Hand on the frames that are whole, as far as the limits allow, and hold the rest."""
        if self.standing is Standing.VOTER or self._shared.turns.is_free():
            self._serve_now()
        elif self._transport is not None:
            self._held = self._awaits_turn = True
            self._transport.pause_reading()
            self._shared.turns.wait(self._take_turn, first=self.of_voters and self._frames < FRAMES_TO_BE_KNOWN)
            if self._reader.held_bytes != self._unfinished_bytes:
                self._account_for(self._reader.held_bytes)

    def _take_turn(self) -> None:
        self._awaits_turn = False
        self._resume(self._serve_now)

    def _serve_now(self) -> None:
        self._writer.gather()  # answers that are given at once leave together
        try:
            all_taken = self._take()
        except BadFrameError as error:
            self.refuse("bad_frame", describe_bad_frame(error))
            return
        finally:
            self._flush()
        if not all_taken:
            self._hold()
        if self._reader.held_bytes != self._unfinished_bytes:
            self._account_for(self._reader.held_bytes)

    def _take(self) -> bool:
        """Hand on the frames of one turn; return whether all that are whole were taken."""
        answers, reader = self._answers, self._reader
        receive = self._shared.receiver.request_received
        room = self._limits.pipeline_max - len(answers) if self._has_room() else 0
        taken_bytes = 0
        for _ in range(min(room, self._pace())):
            frame = reader.next_frame()
            if frame is None:
                return True
            taken_bytes += len(frame)
            self._frames += 1
            self._frames_allowed -= 1
            if self._sasl is None:
                receive(frame, answers.expect(), self.peer)
                if self.standing is Standing.NEWCOMER and self._closing_since is None:
                    self.standing = Standing.ASKED
            else:
                self._authenticate(self._sasl.receive(frame), frame, answers.expect())
            if self._held or taken_bytes > TURN_MAX_BYTES or not self._has_room():
                break
            if self.standing is not Standing.VOTER and not self._shared.turns.has_time():
                break
        return False

    def _authenticate(self, step: Step, frame: Frame, reply: Reply) -> None:
        """Do what SASL says of a frame of a peer that is not known yet."""
        shared = self._shared
        if step.failure is not None:
            shared.notices.warn(
                "sasl", self.host, "%s has not authenticated: %s; see [sasl]", self.peer.address, step.failure
            )
            shared.tell_refusal(self.peer, "SaslLogin", step.failure)
            if step.answer is None:
                reply(None)
                return
            self._wait()
            shared.loop.call_later(REFUSAL_PAUSE_S, self._answer_failure, step, reply)
        elif step.pass_on:
            shared.receiver.request_received(frame, reply, self.peer)
        elif step.check is not None:
            self._wait()
            then = step.check.then
            shared.passwords.submit(
                self.host, step.check.run, lambda is_right: self._authenticate(then(is_right), frame, reply)
            )
        else:
            if step.user is not None:
                self._sasl = None
                self._login = None if shared.sasl is None else (step.user, shared.sasl.login_of(step.user))
                self.peer = attrs.evolve(self.peer, principals=(USER_PREFIX + step.user, *self.peer.principals))
                self.take_large_frames()
                self._shared.handshakes.proven(self.host)
            reply(step.answer)

    def _wait(self) -> None:
        """Read and take nothing until the frame that was taken last is answered."""
        self._held = True
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def _answer_failure(self, step: Step, reply: Reply) -> None:
        """Answer after the pause; the client may begin again, unless that was its last try."""
        reply(step.answer)
        if step.close:
            self.close()

    def _pace(self) -> int:
        """Return how many requests may be taken now."""
        if self._frames_allowed <= 0 and (now := self._shared.now()) >= self._pace_ends:
            self._pace_ends = now + PACE_S
            self._frames_allowed = max(1, int(self._limits.requests_per_second * PACE_S))
        return self._frames_allowed

    def _hold(self) -> None:
        """Read and take nothing until there is room; `_resume` is called when there is."""
        if self._transport is None or self._held:
            return
        self._held = True
        self._transport.pause_reading()
        if self._frames_allowed <= 0:
            self._shared.notices.counts["paced"] += 1
            self._shared.loop.call_at(self._pace_ends, self._resume)
        elif self._has_room():
            self._resume_soon()  # it had its share of this turn: now the other connections

    def _resume_soon(self) -> None:
        # Never at once: the sender of an answer must not be handed the next request while it sends.
        if self._held:
            self._shared.loop.call_soon(self._resume)

    def _resume(self, serve: Callable[[], None] | None = None) -> None:
        if self._transport is None or self._transport.is_closing() or self._closing_since is not None:
            return
        if not self._held or self._awaits_turn:
            return
        self._held = False
        (serve or self._serve)()
        if not self._held and not self._transport.is_closing():
            self._transport.resume_reading()

    def _account_for(self, unfinished_bytes: int) -> None:
        """Tell the server how much of an unfinished frame is kept here, and break off if all of it is too much."""
        shared = self._shared
        shared.unfinished_bytes += unfinished_bytes - self._unfinished_bytes
        self._unfinished_bytes = unfinished_bytes
        alone = shared.unfinished_bytes == unfinished_bytes
        if shared.unfinished_bytes > self._limits.unfinished_max_bytes and not alone and unfinished_bytes:
            self.refuse("unfinished", f"unfinished requests take {shared.unfinished_bytes} bytes of memory")

    def _send(self, frames: Sequence[Frame]) -> None:
        writer, account = self._writer, self.account
        if not writer.gathering and self._answers.unsent:
            # Requests were pipelined: their answers often come in one turn, too.
            writer.gather()
            self._shared.loop.call_soon(self._flush)
        for frame in frames:
            writer.write(frame)
            account.sent_bytes += len(frame)
        if account.waiting_bytes or self._unread():
            self._shared.budget.update(account)
        if self._held:
            self._resume_soon()

    def _flush(self) -> None:
        self._writer.flush()
        self._weigh()

    def _weigh(self) -> None:
        """Tell the budget how many bytes of answers wait here."""
        self._shared.budget.update(self.account)

    def _unread(self) -> int:
        sink = self._tls_sink or self._transport
        buffered = 0 if self._transport is None or sink is None else sink.get_write_buffer_size()
        return buffered + self._answers.waiting_bytes

    def _close_unread(self) -> None:
        self.refuse("unread", "it does not read its answers, and all that wait take too much memory")
        self.abort()

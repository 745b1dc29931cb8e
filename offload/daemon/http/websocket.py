"""The route `/ws`: followers of many topics, appends and acks over one WebSocket. `socket_messages` has the messages.

A client C subscribes to a topic and appends to another one; the session S is the task of its connection:

    1  The handshake is a GET, and passes all checks of one. S becomes a follower, and accepts.
    2  C sends `subscribe`. S checks the role, finds where the topic begins, and answers `subscribed`: C gets all that
       is appended from then on. A task gets the news of the topic (offload.daemon.topic_news). For a replica, the task
       finds the begin and answers, because that may wait for the store.
    3  The task has a page. It waits for credit, and for one of four places; then it encodes the page and sends it.
    4  C sends `append`. S does the work of the POST that means the same, and answers `appended`. Then it takes the next
       message of C.
    5  The daemon stops, or the token of C lost a right: the tasks end between two messages, and C gets 1012 or 1008.

SOCKET-1  A client that takes nothing holds one page for each of its subscriptions, and four encoded ones at most. It
    delays its own messages and no other client. After `body_timeout_s` the guard cuts it off.
SOCKET-2  A message that is bad, or whose work fails, gets an `error`, and the connection stays. One of more than
    `max_body_bytes` closes it with 1009, before it is whole in memory. What came of one counts as a body (FRAMES-4).
SOCKET-3  S takes the messages of a client one after the other, so appends keep their order. Each append, ack and
    subscribe counts as a request, with a place and a rate of its own (`Guard`). Subscriptions to replicas begin beside
    the messages, one at a time: so a dead store holds one thread of cold reads for each connection, and no message.
SOCKET-4  After `unsubscribed` or `end`, no record of that subscription comes.
SOCKET-5  What a client has not got when its connection ends it gets by `last`: no record twice, and none left out.
SOCKET-6  `last` moves also over records that the client does not see. If it has moved for 15 s without a message, the
    client gets `records` without any. So retention may take what was hidden, and the client still resumes.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, aclosing, suppress
from dataclasses import field
from importlib.util import find_spec
from typing import Final, TypeAlias

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match

from offload.daemon.asgi import ABORT, WITHIN, Receive, Scope, Send
from offload.daemon.asgi import Message as AsgiMessage
from offload.daemon.feeds import Page
from offload.daemon.http import operations as api
from offload.daemon.http import socket_messages as messages
from offload.daemon.http.appends import APPEND, append_endpoint
from offload.daemon.http.followers import KEEP_ALIVE_S, chosen, unhidden
from offload.daemon.http.parameters import query_of
from offload.daemon.http.read_request import Choice
from offload.daemon.http.topics import is_replica, readable
from offload.daemon.problems import answer_of, refuse
from offload.daemon.request_places import Place, become_follower
from offload.daemon.service import Service
from offload.daemon.threads import SHORT_BYTES, in_threads
from offload.daemon.topic_news import Acked, Begin, EventId, News, Start, Truncation, begin_news, topic_news
from offload.errors import InvalidOption, Refused, Stopping
from offload.replica_topic import ReplicaTopic
from offload.token_rights import RIGHTS_KEY, Role, rights_of
from seglog import LogClosed, Record, SeglogError, Topic
from seglog.base.dataclasses import dataclass

MOST_SUBSCRIPTIONS: Final = 32
MOST_WAITING: Final = 4
"""The messages that wait for a client at most. A page is encoded once it has a place among them."""

_QUERY = frozenset({"ticket"})  # whoever checks the client has read it
_STOPPED = {"type": "websocket.close", "code": 1012, "reason": "stopping"}
_log = logging.getLogger("seglog.daemon")

SOCKET = api.Operation(
    "GET", "/ws", "webSocket", Role.READ, "records",
    "A WebSocket: subscriptions to topics, appends and acks over one connection.",
    {101: ("The connection is a WebSocket.", {})},
    errors=(426, 501),
)  # fmt: skip


class SocketRoute(api.RoledRoute):
    """A route that takes a GET, and the handshake of a WebSocket, which is one."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        return super().matches({**scope, "type": "http"} if scope["type"] == "websocket" else scope)

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await super().handle(scope, receive, send)
            return
        try:
            await super().handle(scope, receive, send)
        except SeglogError as error:  # before it accepts: later ones are messages
            await refuse(error, send)


def socket_routes(service: Service) -> list[api.RoledRoute]:
    return [SocketRoute(SOCKET.path, _Endpoint(service), {SOCKET.method: SOCKET.role})]


class _Endpoint:
    """The ASGI application behind the route."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._append = append_endpoint(service)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        query_of(Request({**scope, "type": "http"}), _QUERY)
        if scope["type"] == "http":
            await _no_socket()(scope, receive, send)
            return
        become_follower(scope)
        await receive()  # the begin of the handshake
        await send({"type": "websocket.accept"})
        await _Session(self._service, self._append, scope, receive, send).run()


def _no_socket() -> Response:
    """Return the answer to a GET that is no handshake, or that the daemon cannot take as one."""
    if find_spec("websockets") is None:
        hint = 'the operator installs it: pip install "seglog[ws]"'
        return answer_of(Refused(501, "websocket", "this daemon lacks the package websockets", hint=hint))
    hint = "connect with a client of WebSockets, over HTTP/1.1"
    answer = answer_of(Refused(426, "websocket", "this path is a WebSocket", hint=hint))
    answer.raw_headers += [(b"upgrade", b"websocket"), (b"connection", b"upgrade")]
    return answer


class _Gone(Exception):
    """The client takes nothing any more."""


@dataclass(slots=True)
class _Subscription:
    """One topic of a session. `credit` is the number of records that may be sent; None without a bound.

    `unsaid` is the place behind records that the client did not see, if no message has said it yet (SOCKET-6). It is
    said at `due_s`.
    """

    id: int
    topic: str
    choice: Choice
    credit: int | None
    begin: Begin
    acked: Acked | None = None
    task: asyncio.Task[None] | None = None
    more: asyncio.Event = field(default_factory=asyncio.Event)
    unsaid: EventId | None = None
    due_s: float = 0.0

    def move(self, place: EventId) -> None:
        """Note that the client is at a place without a message that says so."""
        if self.unsaid is None:
            self.due_s = time.monotonic() + KEEP_ALIVE_S
        self.unsaid = place

    def silence_s(self) -> float | None:
        """Return how long the client may go without a message; None if it has all that there is to say."""
        return None if self.unsaid is None else max(0.0, self.due_s - time.monotonic())

    @property
    def key(self) -> object:
        """Return the key of its message in the cache of a page: that of all with the same choice and number."""
        return "socket", self.choice, self.id

    def grant(self, records: int) -> None:
        if self.credit is not None:
            self.credit += records
            self.more.set()

    async def room(self) -> int | None:
        """Wait for credit. Return the number of records that may be sent, or None without a bound."""
        while self.credit is not None and self.credit <= 0:
            self.more.clear()
            await self.more.wait()
        return self.credit

    def places(self, page: Page, first: int) -> list[int]:
        """Return the places of the items of a page to send, from seq `first` on."""
        places = chosen(page, self.choice, first, None)
        return places if self.acked is None else unhidden(page, places, self.acked.in_epoch(page.epoch))


_Begun: TypeAlias = tuple[Topic | ReplicaTopic, Start]


class _Session:
    """The connection of one client, from its acceptance to its end."""

    def __init__(
        self,
        service: Service,
        append: Callable[[Request], Awaitable[Response]],
        scope: Scope,
        receive: Receive,
        send: Send,
    ) -> None:
        self._service = service
        self._append_records = append
        self._scope = scope
        self._receive = receive
        self._send = send
        self._waiting = asyncio.Semaphore(MOST_WAITING)
        self._cold_begin = asyncio.Lock()
        self._subscriptions: dict[int, _Subscription] = {}
        self._failure: OSError | None = None
        self._is_closed = False
        self._taken_chars = 0  # of the message that it takes just now

    async def run(self) -> None:
        """Take messages until the connection ends. Raises `TimeoutError` if the client takes nothing."""
        try:
            while (message := await self._receive())["type"] == "websocket.receive":
                await self._take(message)
        except _Gone:
            pass
        finally:
            tasks = [each.task for each in self._subscriptions.values() if each.task is not None]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        if isinstance(self._failure, TimeoutError):
            raise self._failure  # the guard counts it

    # ------------------------------------------------------------ messages of the client

    async def _take(self, message: AsgiMessage) -> None:
        """Do what a message asks for, and answer it (SOCKET-2)."""
        number: int | None = None
        begun: _Subscription | None = None
        try:
            number, found = await self._decoded(message.get("text"))
            answer = await self._answer(found)
            if isinstance(found, messages.Subscribe) and answer is not None:
                begun = self._subscriptions[found.id]
        except (Stopping, LogClosed):
            await self._close()
            return
        except Exception as error:
            if not isinstance(error, SeglogError):
                _log.error("a message of a WebSocket failed", exc_info=error)
            answer = messages.failed(number, messages.problem_of(error))
        if answer is not None:
            await self._tell(answer)
        if begun is not None:
            begun.more.set()  # its task waits for the answer

    async def _decoded(self, text: str | None) -> tuple[int | None, messages.Message | Exception]:
        if text is None:
            hint = "send JSON as a text message"
            return None, Refused(415, "type", "the daemon takes messages of text", hint=hint)
        self._taken_chars = len(text)
        if self._taken_chars <= SHORT_BYTES:
            return messages.decode(text)
        found: tuple[int | None, messages.Message | Exception] = await in_threads(
            self._service.local, messages.decode, text
        )
        return found

    async def _answer(self, message: messages.Message | Exception) -> str | None:
        if isinstance(message, Exception):
            raise message
        if isinstance(message, messages.Subscribe):
            return await self._subscribe(message)
        if isinstance(message, messages.Append):
            return await self._append(message)
        if isinstance(message, messages.Ack):
            return await self._ack(message)
        subscription = self._subscriptions.get(message.id)
        if subscription is None:
            raise InvalidOption("id", f"{message.id} is no subscription of this connection")
        if isinstance(message, messages.Credit):
            subscription.grant(message.records)
            return None
        del self._subscriptions[message.id]
        if subscription.task is not None:
            subscription.task.cancel()
            await asyncio.wait({subscription.task})  # no record comes behind the answer (SOCKET-4)
        return messages.said("unsubscribed", message.id)

    async def _subscribe(self, wanted: messages.Subscribe) -> str | None:
        """Begin a subscription. Return the answer; None if the task of the subscription gives it later."""
        rights_of(self._scope).check(Role.READ, wanted.topic)
        if self._taken_chars > SHORT_BYTES:  # the subscription keeps it
            raise InvalidOption("exclude_node", f"is too long: a subscribe has at most {SHORT_BYTES:,} characters")
        if wanted.id in self._subscriptions:
            raise InvalidOption("id", f"{wanted.id} is a subscription already", hint="take another number")
        if any(each.topic == wanted.topic for each in self._subscriptions.values()):
            raise InvalidOption("topic", f"{wanted.topic} has a subscription already", hint="unsubscribe first")
        if len(self._subscriptions) >= MOST_SUBSCRIPTIONS:
            hint = "open another connection"
            raise InvalidOption("topic", f"a connection has at most {MOST_SUBSCRIPTIONS} subscriptions", hint=hint)
        tail = 0 if wanted.start is None and wanted.tail is None else wanted.tail
        choice, begin = Choice(wanted.tag, None, frozenset(wanted.exclude_node)), Begin(wanted.start, tail, wanted.gaps)
        subscription = _Subscription(wanted.id, wanted.topic, choice, wanted.credit, begin)
        if await is_replica(self._service, wanted.topic):
            self._subscriptions[wanted.id] = subscription
            subscription.task = asyncio.create_task(self._follow(subscription, wanted))
            return None
        begun = await self._begun(subscription, wanted)  # at once: the next append of this client is news
        self._subscriptions[wanted.id] = subscription
        subscription.task = asyncio.create_task(self._follow(subscription, begun))
        return _subscribed(subscription, begun)

    async def _begun(self, subscription: _Subscription, wanted: messages.Subscribe) -> _Begun:
        """Return the topic of a subscription, and where it begins. For a replica, this may wait for the store."""
        with self._within() as place:
            place.take()
            topic = await readable(self._service, wanted.topic)
            last, subscription.acked = await self._position(topic, wanted)
            return topic, await begin_news(self._service, topic, subscription.begin, last)

    async def _position(
        self, topic: Topic | ReplicaTopic, wanted: messages.Subscribe
    ) -> tuple[EventId | None, Acked | None]:
        """Return what the client has, by its own word or by its cursor, and the acked seqs above that."""
        if wanted.cursor is not None:
            return await self._service.cursors.begin(topic, wanted.cursor)
        if wanted.last == "":
            raise InvalidOption("last", "is empty", hint="leave it out to begin behind the head")
        try:
            return EventId.of(wanted.last), None
        except InvalidOption as error:
            raise InvalidOption("last", error.reason) from None

    async def _append(self, wanted: messages.Append) -> str:
        """Append as a POST does (SAID-2)."""
        rights = rights_of(self._scope)
        rights.check(Role.APPEND, wanted.topic)
        is_short = self._taken_chars <= SHORT_BYTES
        body: bytes = (
            messages.body_of(wanted) if is_short else await in_threads(self._service.local, messages.body_of, wanted)
        )
        with self._within() as place:

            async def receive() -> AsgiMessage:
                await place.came(len(body), is_whole=True)
                return {"type": "http.request", "body": body, "more_body": False}

            scope: Scope = {
                "type": "http",
                "method": APPEND.method,
                "path": APPEND.path.replace("{topic}", wanted.topic),
                "path_params": {"topic": wanted.topic},
                "query_string": wanted.query,
                "headers": [*wanted.headers, (b"content-length", b"%d" % len(body))],
                RIGHTS_KEY: rights,
            }
            place.enter(scope)
            response = await self._append_records(Request(scope, receive))
        answer = bytes(response.body)
        is_in = response.status_code < 400
        return messages.appended(wanted.id, answer) if is_in else messages.failed(wanted.id, answer)

    async def _ack(self, wanted: messages.Ack) -> str:
        rights_of(self._scope).check(Role.READ, wanted.topic)
        with self._within() as place:
            await place.came(self._taken_chars, is_whole=True)
            position = await self._service.cursors.ack(wanted.topic, wanted.cursor, wanted.seqs, wanted.epoch)
        return messages.said("acked", wanted.id, last=str(position))

    def _within(self) -> AbstractContextManager[Place]:
        """Admit a request that comes as a message (SOCKET-3). Raises `Busy`."""
        admit: Callable[[], AbstractContextManager[Place]] | None = self._scope.get(WITHIN)
        return Place.of({}, self._service.settings) if admit is None else admit()

    # ------------------------------------------------------------ messages to the client

    async def _follow(self, subscription: _Subscription, begun: _Begun | messages.Subscribe) -> None:
        """Send what comes. Of a topic that has not begun, say first that it has, or why it cannot."""
        is_told = not isinstance(begun, messages.Subscribe)
        try:
            if isinstance(begun, messages.Subscribe):
                async with self._cold_begin:
                    begun = await self._begun(subscription, begun)
                await self._tell(_subscribed(subscription, begun))
                is_told = True
            else:
                await subscription.more.wait()  # `subscribed` comes first
            topic, start = begun
            following = topic_news(self._service, topic, subscription.begin, start, subscription.silence_s)
            async with aclosing(following) as news:
                async for found in news:
                    if isinstance(found, News):
                        await self._send_page(subscription, found)
                    elif isinstance(found, Truncation):
                        await self._send_truncation(subscription, found)
                    if subscription.silence_s() == 0:
                        await self._send_place(subscription)
        except (Stopping, LogClosed):
            with suppress(_Gone):
                await self._close()
        except _Gone:
            pass
        except Exception as error:
            if not isinstance(error, SeglogError):
                _log.error("a subscription of a WebSocket failed", exc_info=error)
            number = subscription.id
            said = messages.ended(number, error) if is_told else messages.failed(number, messages.problem_of(error))
            with suppress(_Gone):
                await self._tell(said)
            self._subscriptions.pop(subscription.id, None)  # not before: until then, the session ends this task

    async def _send_page(self, subscription: _Subscription, news: News) -> None:
        """Send the records of a page, as the credit allows: all in one message, or a part of it in each."""
        page = news.page
        is_shared = news.first_seq <= page.first_seq and subscription.acked is None
        if is_shared and subscription.credit is None and (text := page.cache.get(subscription.key)) is not None:
            await self._tell(text)  # the message that another client got
            subscription.unsaid = None
            return
        rest = subscription.places(page, news.first_seq)
        if not rest and page.next_seq > news.first_seq:
            subscription.move(EventId(page.epoch, page.next_seq - 1))
        while rest:
            places = _within_credit(page, rest, await subscription.room())
            rest = rest[len(places) :]
            is_shared = is_shared and not rest  # as most subscriptions want it: made once
            last = EventId(page.epoch, _last_seq(page, places) if rest else page.next_seq - 1)
            await self._say(functools.partial(_records, page, places, subscription, last, is_shared=is_shared))
            subscription.unsaid = None
            if subscription.credit is not None:
                subscription.credit -= page.count_records(places)

    async def _send_truncation(self, subscription: _Subscription, cut: Truncation) -> None:
        last = EventId(cut.epoch, cut.seq - 1)
        await self._tell(messages.said("truncated", subscription.id, last=str(last), **{"from": cut.seq}))
        subscription.unsaid = None

    async def _send_place(self, subscription: _Subscription) -> None:
        """Say how far the subscription is, without a record (SOCKET-6)."""
        last, subscription.unsaid = subscription.unsaid, None
        await self._tell(messages.records(subscription.id, last, b""))

    async def _tell(self, text: str) -> None:
        await self._say(lambda: text)

    async def _say(self, encode: Callable[[], str]) -> None:
        """Send a message, which is encoded when it has a place (SOCKET-1). Raises `_Gone`."""
        async with self._waiting:
            if self._is_closed:
                raise _Gone
            await self._pass({"type": "websocket.send", "text": encode()})

    async def _close(self) -> None:
        """Close the connection, because the daemon stops, or this tenant does."""
        if not self._is_closed:
            self._is_closed = True
            await self._pass(_STOPPED)

    async def _pass(self, message: AsgiMessage) -> None:
        try:
            await self._send(message)
        except OSError as error:  # it is gone, or took no byte in time
            if self._failure is None:
                self._failure = error
            self._is_closed = True
            if isinstance(error, TimeoutError):
                self._scope.get("state", {}).get(ABORT, lambda: None)()
            raise _Gone from error
        except RuntimeError as error:  # a message behind the close, which may be the server's: 1009, 1011
            self._is_closed = True
            raise _Gone from error


def _subscribed(subscription: _Subscription, begun: _Begun) -> str:
    follower, cut = begun[1]
    last = None if cut is not None else str(EventId(follower.epoch, follower.seq - 1))  # a cut tells its own `last`
    return messages.said("subscribed", subscription.id, topic=subscription.topic, last=last)


def _within_credit(page: Page, places: list[int], most: int | None) -> list[int]:
    """Return the first places, with at most so many records; all of them without a bound."""
    if most is None:
        return places
    for count, place in enumerate(places, 1):
        most -= isinstance(page.items[place], Record)
        if not most:
            return places[:count]
    return places


def _records(page: Page, places: list[int], subscription: _Subscription, last: EventId, *, is_shared: bool) -> str:
    if not is_shared:
        return messages.records(subscription.id, last, _joined(page, places))
    lines = page.cached(("socket", subscription.choice), lambda: _joined(page, places))
    return page.cached(subscription.key, lambda: messages.records(subscription.id, last, lines))


def _joined(page: Page, places: list[int]) -> bytes:
    """Return the JSON of items, with commas between. A line of a page ends with a line feed."""
    return b",".join(page.lines[place][:-1] for place in places)


def _last_seq(page: Page, places: list[int]) -> int:
    item = page.items[places[-1]]
    return item.seq if isinstance(item, Record) else item.gap_to

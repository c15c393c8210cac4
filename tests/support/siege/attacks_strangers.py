"""What somebody does who has not shown who it is."""

from __future__ import annotations

import socket
import time

from polybus.amqp.codec import encode
from polybus.amqp.frames import AMQP_HEADER, EMPTY_FRAME, SASL_FRAME, SASL_HEADER, frame
from polybus.amqp.performatives import Attach, Begin, Detach, End, Open
from polybus.amqp.sasl import Init
from polybus.amqp.terminus import Source, Target
from polybus.amqp.traffic import Disposition, Flow, Transfer
from polybus.amqp.types import Symbol
from polybus.client.sas import make_token
from tests.support.siege.attack import Attack, Scene
from tests.support.siege.peer import Peer, put_token, request

FOREVER_S = 4_000_000_000
WRONG = make_token("sb://localhost/", "RootManageSharedAccessKey", "wrong", FOREVER_S)


def _tokens(peer: Peer) -> None:
    peer.begin()
    peer.attach_sender("$cbs")
    peer.attach_receiver("$cbs")
    peer.credit(1, 1_000)


def _show(scene: Scene, name: str, token: str = WRONG, **options: object) -> None:
    with scene.stranger() as peer:
        _tokens(peer)
        peer.transfer(put_token(name, token, **options))
        peer.until("disposition", seconds=1)


def long_audience(scene: Scene) -> None:
    _show(scene, "a/" * 200_000)


def encoded_audience(scene: Scene) -> None:
    _show(scene, "%2F" * 100_000)


def deep_resource(scene: Scene) -> None:
    _show(scene, "q", make_token("sb://x/" + "a/" * 1_500, "RootManageSharedAccessKey", "wrong", FOREVER_S))


def long_token(scene: Scene) -> None:
    _show(scene, "q", "SharedAccessSignature " + "a=b&" * 100_000)


def token_of_percents(scene: Scene) -> None:
    _show(scene, "q", "SharedAccessSignature sr=" + "%25" * 1_300 + "&sig=a&se=1&skn=a")


def jwt_of_dots(scene: Scene) -> None:
    _show(scene, "q", "ey" + "." * 500_000)


def jwt_nested(scene: Scene) -> None:
    _show(scene, "q", "eyJhbGciOiJub25lIn0." + "W1tb" * 50_000 + ".x")


def long_reply_to(scene: Scene) -> None:
    _show(scene, "q", reply_to="r" * 900_000)


def long_message_id(scene: Scene) -> None:
    _show(scene, "q", message_id=b"m" * 900_000)


def nested_body(scene: Scene) -> None:
    body: object = None
    for _ in range(60):
        body = [body]
    with scene.stranger() as peer:
        _tokens(peer)
        for number in range(50):
            peer.transfer(request({"operation": "put-token"}, body), number=number)


def body_of_nulls(scene: Scene) -> None:
    nulls = b"\x00\x53\x77\xd0" + (100_004).to_bytes(4, "big") + (100_000).to_bytes(4, "big") + b"\x40" * 100_000
    with scene.stranger() as peer:
        _tokens(peer)
        for number in range(10):
            peer.transfer(nulls, number=number)


def many_properties(scene: Scene) -> None:
    with scene.stranger() as peer:
        _tokens(peer)
        application = {"operation": "put-token"} | {f"p{n}": n for n in range(7_000)}
        for number in range(5):
            peer.transfer(request(application, "x"), number=number)


def replies_without_credit(scene: Scene) -> None:
    with scene.stranger() as peer:
        peer.begin()
        peer.attach_sender("$cbs")
        peer.attach_receiver("$cbs")
        for number in range(2_000):
            if not peer.transfer(put_token("q", reply_to="r" * 2_000), number=number):
                break


def replies_without_window(scene: Scene) -> None:
    with scene.stranger() as peer:
        peer.begin(window=0)
        peer.attach_sender("$cbs")
        peer.attach_receiver("$cbs")
        peer.credit(1, 1_000_000, window=0)
        for number in range(2_000):
            if not peer.transfer(put_token("q", reply_to="r" * 2_000), number=number):
                break


def replies_unread(scene: Scene) -> None:
    with Peer(scene.amqp, buffer=4_096) as peer:
        _tokens(peer)
        peer.credit(1, 1_000_000, window=1_000_000)
        peer.socket.settimeout(1)
        for number in range(4_000):
            if not peer.transfer(put_token("q", reply_to="r" * 2_000), number=number):
                break


def unfinished_requests(scene: Scene) -> None:
    for _ in range(4):
        with scene.stranger() as peer:
            peer.begin()
            for handle in range(125):
                peer.attach_sender("$cbs", handle)
                if not peer.transfer(b"x" * 900_000, handle, handle, more=True):
                    break


def aborted_requests(scene: Scene) -> None:
    with scene.stranger() as peer:
        _tokens(peer)
        peer.send(b"".join(_aborted(number) for number in range(3_000)))


def _aborted(number: int) -> bytes:
    tag = number.to_bytes(4, "big")
    begun = frame(0, Transfer(0, number, tag, 0, False, True), payload=b"x" * 20)
    return begun + frame(0, Transfer(0, number, tag, 0, False, False, None, True))


def long_link_names(scene: Scene) -> None:
    with scene.stranger() as peer:
        peer.begin()
        for handle in range(200):
            peer.attach_sender("$cbs", handle, name="n" * 15_000 + str(handle))
            if peer.closed:
                break


def many_links(scene: Scene) -> None:
    with scene.stranger() as peer:
        for channel in range(20):
            peer.begin(channel)
            for handle in range(250):
                peer.attach_sender("$cbs", handle, channel)
            if peer.closed:
                break


def attach_and_detach(scene: Scene) -> None:
    with scene.stranger() as peer:
        peer.begin()
        one = frame(0, Attach("a", 0, False, Source("here"), Target("$cbs"), initial_delivery_count=0))
        peer.send((one + frame(0, Detach(0, True, None))) * 3_000)
        peer.until("close", seconds=1)


def refused_links(scene: Scene) -> None:
    with scene.stranger() as peer:
        peer.begin()
        one = frame(0, Attach("a", 0, True, Source("victim"), Target("here")))
        peer.send((one + frame(0, Detach(0, True, None))) * 3_000)
        peer.until("close", seconds=1)


def begin_and_end(scene: Scene) -> None:
    with scene.stranger() as peer:
        peer.send((frame(0, Begin(0, 100, 100)) + frame(0, End())) * 5_000)
        peer.until("close", seconds=1)


def many_sessions(scene: Scene) -> None:
    with scene.stranger() as peer:
        peer.send(b"".join(frame(channel, Begin(0, 100, 100)) for channel in range(4_000)))
        peer.until("close", seconds=1)


def heartbeats(scene: Scene) -> None:
    with scene.stranger() as peer:
        peer.send(EMPTY_FRAME * 200_000)


def flows_with_echo(scene: Scene) -> None:
    with scene.stranger() as peer:
        _tokens(peer)
        peer.send(frame(0, Flow(None, 5_000, 0, 5_000, 1, 0, 100, echo=True)) * 10_000)
        peer.until("close", seconds=0.2)


def flow_of_nulls(scene: Scene) -> None:
    with scene.stranger() as peer:
        _tokens(peer)
        fields = b"\x40" * 60_000
        body = b"\x00\x53\x13\xd0" + (len(fields) + 4).to_bytes(4, "big") + len(fields).to_bytes(4, "big") + fields
        peer.send(((len(body) + 8).to_bytes(4, "big") + b"\x02\x00\x00\x00" + body) * 10)
        peer.until("close", seconds=0.5)


def attach_of_maps(scene: Scene) -> None:
    properties: dict[object, object] = {Symbol(f"p{n}"): [] for n in range(5_000)}
    with scene.stranger() as peer:
        peer.begin()
        for handle in range(20):
            peer.say(Attach("a", handle, True, Source("$cbs"), Target("x"), properties=properties))
        peer.until("close", seconds=0.5)


def dispositions_of_everything(scene: Scene) -> None:
    with scene.stranger() as peer:
        _tokens(peer)
        peer.send(frame(0, Disposition(True, 0, 0x7FFF_FFFF, True)) * 5_000)


def byte_by_byte(scene: Scene) -> None:
    with scene.stranger() as peer:
        peer.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in frame(0, Begin(0, 100, 100)) * 20:
            peer.send(bytes((byte,)))


def half_a_frame(scene: Scene) -> None:
    with scene.stranger() as peer:
        peer.send((65_000).to_bytes(4, "big") + b"\x02\x00\x00\x00" + b"x" * 60_000)


def wrong_passwords(scene: Scene) -> None:
    for _ in range(20):
        with scene.socket() as client:
            client.sendall(SASL_HEADER + frame(0, Init("PLAIN", b"\x00root\x00" + b"x" * 3_000), SASL_FRAME))
            client.recv(1_000)


def open_of_properties(scene: Scene) -> None:
    with scene.socket() as client:
        properties: dict[object, object] = {Symbol(f"p{n}"): n for n in range(300)}
        client.sendall(AMQP_HEADER + frame(0, Open("c" * 1_000, properties=properties)))
        client.recv(1_000)


def frames_of_all_sizes(scene: Scene) -> None:
    for size in (0, 1, 7, 8, 9, 4_097, 65_537, 0xFFFF_FFFF):
        with scene.socket() as client:
            client.sendall(AMQP_HEADER + size.to_bytes(4, "big") + b"\x02\x00\x00\x00" + b"\xff" * 64)
            _answer(client)


def silent_sockets(scene: Scene) -> None:
    clients = [scene.socket() for _ in range(300)]
    time.sleep(0.1)
    for client in clients:
        client.close()


def tls_garbage(scene: Scene) -> None:
    for _ in range(20):
        with scene.socket() as client:
            client.sendall(b"\x16\x03\x01\x40\x00" + b"\x00" * 4_000)
            _answer(client, 0.1)


def reconnects(scene: Scene) -> None:
    for _ in range(50):
        scene.stranger().socket.close()


def _answer(client: socket.socket, seconds: float = 1.0) -> None:
    client.settimeout(seconds)
    try:
        client.recv(1_000)
    except OSError:
        return


def array_of_nothing(scene: Scene) -> None:
    value = b"\x00\x53\x77\xf0" + (5).to_bytes(4, "big") + (0xFFFF_FFFF).to_bytes(4, "big") + b"\x40"
    with scene.stranger() as peer:
        _tokens(peer)
        peer.transfer(value)
        peer.transfer(b"\x00\x53\x74" + encode({"operation": "put-token"}) + value, number=1)


ATTACKS = [
    Attack("a token's audience of 400 KB", long_audience),
    Attack("an audience of encoded slashes", encoded_audience),
    Attack("a token for 1,500 segments", deep_resource),
    Attack("a token of 400 KB", long_token),
    Attack("a token encoded again and again", token_of_percents),
    Attack("a JWT of dots", jwt_of_dots),
    Attack("a JWT of nested lists", jwt_nested),
    Attack("a reply-to of 900 KB", long_reply_to),
    Attack("a message-id of 900 KB", long_message_id),
    Attack("a request nested 60 deep", nested_body),
    Attack("a request of 100,000 nulls", body_of_nulls),
    Attack("a request with 7,000 properties", many_properties),
    Attack("an array of 4 billion nulls", array_of_nothing),
    Attack("replies without credit", replies_without_credit),
    Attack("replies without a session window", replies_without_window),
    Attack("replies that nobody reads", replies_unread),
    Attack("requests that never end", unfinished_requests),
    Attack("requests that are aborted", aborted_requests),
    Attack("names of links of 15 KB", long_link_names),
    Attack("5,000 links", many_links),
    Attack("attach and detach", attach_and_detach),
    Attack("links that are refused", refused_links),
    Attack("begin and end", begin_and_end),
    Attack("4,000 sessions", many_sessions),
    Attack("200,000 heartbeats", heartbeats),
    Attack("flows that ask for an echo", flows_with_echo),
    Attack("flows of 60,000 nulls", flow_of_nulls),
    Attack("attaches of 5,000 properties", attach_of_maps),
    Attack("dispositions of everything", dispositions_of_everything),
    Attack("frames byte by byte", byte_by_byte),
    Attack("half a frame", half_a_frame),
    Attack("wrong passwords", wrong_passwords),
    Attack("an open of 300 properties", open_of_properties),
    Attack("frames of impossible sizes", frames_of_all_sizes),
    Attack("300 silent sockets", silent_sockets, descriptors=320),
    Attack("TLS that is none", tls_garbage),
    Attack("connecting again and again", reconnects),
]

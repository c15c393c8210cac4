"""`polybus serve`: runs a bus until it is told to stop. Others rely on these words; they stay."""

from __future__ import annotations

import asyncio
import enum
import logging
import os
import signal
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import polybus
from polybus.cli.keys import gather_keys, key_variables
from polybus.cli.logs import configure_logs
from polybus.client.connection_string import broker_url, emulator_string
from polybus.errors import ConfigError, PolybusError
from polybus.namespace.entities.tiers import tier_named
from polybus.store.permissions import keep_to_ourselves

if TYPE_CHECKING:
    # A node loads the whole house; the other commands start without it.
    from polybus.cluster.options import ClusterOptions
    from polybus.node import Node, NodeOptions
    from polybus.workers.supervisor import Supervisor

log = logging.getLogger("polybus")

READY_PHRASE = "Emulator Service is Successfully Up!"
"""What tools wait for that were made for the emulator."""


STORES = 4
"""Messaging stores of a new data folder."""


class Profile(enum.StrEnum):
    DEVELOPMENT = "development"
    PRODUCTION = "production"


class ClockKind(enum.StrEnum):
    REAL = "real"
    MOVABLE = "movable"


class LogForm(enum.StrEnum):
    TEXT = "text"
    JSON = "json"


def serve(
    data: Annotated[Path, typer.Option(help="Folder for everything that is kept.")] = Path("polybus-data"),
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    amqp_port: Annotated[int, typer.Option(help="Port for AMQP; it speaks HTTP and TLS too. 0 picks one.")] = 5672,
    http_port: Annotated[int, typer.Option(help="Port for HTTP; it speaks AMQP and TLS too. 0 picks one.")] = 5300,
    tls_port: Annotated[int, typer.Option(help="Port for AMQP over TLS. 0 picks one.")] = 5671,
    port: Annotated[int | None, typer.Option(help="One port for everything, instead of the three.")] = None,
    config: Annotated[Path | None, typer.Option(help="Declared entities: the emulator's config.json.")] = None,
    store: Annotated[
        list[str] | None,
        typer.Option(help="A messaging store: rocksdb:PATH, postgresql://…, memory: (repeatable)."),
    ] = None,
    stores: Annotated[
        int | None,
        typer.Option(min=1, help="RocksDB stores in the data folder, without --store; 4 in a new one."),
    ] = None,
    workers: Annotated[
        str, typer.Option(help="Processes that share the work: a number, or auto for as many as there are cores.")
    ] = "1",
    catalogue: Annotated[str | None, typer.Option(help="Where the catalogue is kept.")] = None,
    cluster: Annotated[
        str | None,
        typer.Option(help="Runs as a node of a cluster: its database, postgresql://…?schema=NAME."),
    ] = None,
    node: Annotated[str | None, typer.Option(help="The node's name in its cluster.")] = None,
    advertise: Annotated[
        str | None,
        typer.Option(help="HOST:PORT at which other nodes reach this one; by default where it listens for them."),
    ] = None,
    key: Annotated[
        list[str] | None,
        typer.Option(help="A key: NAME=KEY[:Send,Listen,Manage] (repeatable). Other users of the machine see it."),
    ] = None,
    key_file: Annotated[
        list[Path] | None,
        typer.Option(help="A file of keys, one NAME=KEY[:Send,Listen,Manage] a line (repeatable)."),
    ] = None,
    partitions: Annotated[int, typer.Option(help="Partitions of new partitioned entities.")] = 16,
    tier: Annotated[str, typer.Option(help="basic, standard or premium.")] = "standard",
    premium_partitions: Annotated[int | None, typer.Option(help="Partitions of every premium entity.")] = None,
    cert: Annotated[Path | None, typer.Option(help="Certificate chain (PEM); without it a development CA.")] = None,
    cert_key: Annotated[Path | None, typer.Option(help="The certificate's key (PEM).")] = None,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(help="Another name under which web pages and WebSockets may reach the bus (repeatable)."),
    ] = None,
    cert_name: Annotated[
        list[str] | None,
        typer.Option(help="Another name in the development certificate, by which clients know the bus (repeatable)."),
    ] = None,
    tls: Annotated[
        str,
        typer.Option(
            help="offered: with and without; required: nothing without TLS; off: behind a proxy that has it."
        ),
    ] = "offered",
    client_ca: Annotated[
        Path | None, typer.Option(help="Authority (PEM) of which every client must show a certificate.")
    ] = None,
    jwt_keys: Annotated[
        str | None, typer.Option(help="Key set (JWKS) of an issuer of JSON web tokens: a file or an https address.")
    ] = None,
    jwt_issuer: Annotated[list[str] | None, typer.Option(help="Whose tokens count (repeatable).")] = None,
    jwt_audience: Annotated[
        list[str] | None, typer.Option(help="For whom they must be (repeatable); by default the cloud service.")
    ] = None,
    jwt_role: Annotated[
        list[str] | None,
        typer.Option(help="What a role opens: NAME=Send,Listen,Manage[@ENTITY] (repeatable), beside Azure's own."),
    ] = None,
    allow_ip: Annotated[
        list[str] | None,
        typer.Option(help="From where clients may connect: an address or a network (repeatable)."),
    ] = None,
    development_certificate: Annotated[
        bool, typer.Option(help="Take the development authority's certificate in production, too.")
    ] = False,
    profile: Annotated[
        Profile, typer.Option(help="production: no fault switches, no movable clock, no well-known key.")
    ] = Profile.DEVELOPMENT,
    clock: Annotated[
        ClockKind, typer.Option(help="movable: the clock can be moved forward by hand.")
    ] = ClockKind.REAL,
    on_demand_entities: Annotated[
        bool,
        typer.Option(
            "--on-demand-entities",
            help="Make what AMQP clients ask for: queues, topics, subscriptions, temporary nodes.",
        ),
    ] = False,
    namespace: Annotated[list[str] | None, typer.Option(help="A namespace's name (repeatable).")] = None,
    unsafe: Annotated[bool, typer.Option(help="Accept stores that confirm before they have synced.")] = False,
    log_form: Annotated[LogForm, typer.Option("--log", help="Form of the log lines.")] = LogForm.TEXT,
    verbose: Annotated[bool, typer.Option(help="Log every refusal and every connection.")] = False,
) -> None:
    """Runs a bus. Ready when it prints a line that starts with `ready`; SIGTERM or Ctrl-C stops it cleanly."""
    from polybus.gateway.config.file import load
    from polybus.gateway.jwt_tokens import jwt_settings
    from polybus.gateway.listener import networks_named
    from polybus.hosting.places import own_stores
    from polybus.node import NodeOptions, tls_named
    from polybus.workers.supervisor import Supervisor, run_workers, worker_count

    configure_logs(log_form is LogForm.JSON, verbose)
    keep_to_ourselves()
    read_keys = partial(gather_keys, key or [], key_file or [], key_variables(os.environ))
    try:
        given = {"stores": store or [], "catalogue": catalogue, "host": host, "workers": worker_count(workers) > 1}
        joined = _cluster(cluster, node, advertise, **given)
        options = NodeOptions(
            data=data,
            cluster=joined,
            stores=store or own_stores(data, stores) or own_stores(data, STORES),
            catalogue=catalogue,
            host=host,
            amqp_port=amqp_port if port is None else port,
            http_port=http_port if port is None else None,
            tls_port=tls_port if port is None else None,
            keys=read_keys(),
            key_files=key_file or [],
            read_keys=read_keys if key_file else None,
            tier=tier_named(tier, partitions=partitions, premium_partitions=premium_partitions),
            certificate=cert,
            certificate_key=cert_key,
            client_authority=client_ca,
            tls=tls_named(tls),
            development_certificate=development_certificate,
            jwt=jwt_settings(jwt_keys, jwt_issuer, jwt_audience, jwt_role),
            networks=networks_named(allow_ip or []),
            certificate_names=cert_name or [],
            allowed_hosts=allow_host or [],
            production=profile is Profile.PRODUCTION,
            movable_clock=clock is ClockKind.MOVABLE,
            unsafe=unsafe,
            on_demand_entities=on_demand_entities,
        )
        if profile is Profile.PRODUCTION and clock is ClockKind.MOVABLE:
            raise ConfigError("the production profile has no movable clock")
        if namespace:
            options.namespaces = namespace
        if config is not None:
            options.config = load(config.read_text(encoding="utf-8-sig"), str(config), options.tier)
            for warning in options.config.warnings:
                log.warning("%s", warning)
        count = worker_count(workers)
        if count == 1:
            code = asyncio.run(run_node(options))
        else:
            supervisor = Supervisor(options, count, log_form is LogForm.JSON, verbose)
            code = asyncio.run(run_workers(supervisor, announce_workers))
    except (PolybusError, OSError, ValueError) as error:
        cause = "" if error.__cause__ is None else f" {error.__cause__}"
        typer.echo(f"polybus: {error}{cause}", err=True)
        raise typer.Exit(2) from None
    raise typer.Exit(code)


def _cluster(cluster: str | None, node: str | None, advertise: str | None, **given: Any) -> ClusterOptions | None:
    """The options of a node of a cluster; its rooms are loaded only where there is one."""
    if cluster is None and node is None and advertise is None:
        return None
    from polybus.cluster.options import cluster_options

    return cluster_options(cluster, node, advertise, **given)


async def run_node(options: NodeOptions) -> int:
    """Serves until a signal comes; 0 when it stopped cleanly."""
    from polybus.memory import settle_memory

    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for name in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(name, stopped.set)
    node = _node(options)
    await node.start()
    loop.add_signal_handler(signal.SIGHUP, node.reload)
    settle_memory()
    announce(node)
    await stopped.wait()
    log.info("stopping")
    await node.stop()
    log.info("stopped")
    return 0


def _node(options: NodeOptions) -> Node:
    from polybus.node import Node

    if options.cluster is None:
        return Node(options)
    from polybus.nodes.cluster_node import ClusterNode

    return ClusterNode(options)


def announce(node: Node) -> None:
    stores = [
        (store.url, "unsafe: it confirms before it has synced" if store.unsafe else store.state.value)
        for store in [*node.bus.stores, *node.bus.missing]
    ]
    _announce(node, node.addresses, stores)


def announce_workers(supervisor: Supervisor) -> None:
    """Of several processes the one that leads knows all stores."""
    stores = [(url, state) for url, state in supervisor.workers[0].stores]
    _announce(supervisor.node, supervisor.addresses, stores)


def _announce(node: Node, addresses: dict[str, tuple[str, int]], stores: list[tuple[str, str]]) -> None:
    """The lines that people and scripts wait for."""

    (amqp_host, amqp_port), (http_host, http_port) = addresses["amqp"], addresses["http"]
    tls_host, tls_port = addresses["tls"]
    print(f"polybus {polybus.__version__} ({polybus.BUILD} build)")
    for url, state in stores:
        print(f"store {url}: {state}")
    if not node.options.keys and node.common_keys():
        print(f"connection string: {emulator_string(f'{amqp_host}:{amqp_port}')}")
        print(f"celery broker: {broker_url(f'{amqp_host}:{amqp_port}')}")
    if node.trust is not None:
        print(node.trust)
    print(f"console: http://{http_host}:{http_port}/")
    print(READY_PHRASE)
    print(f"ready amqp={amqp_host}:{amqp_port} http={http_host}:{http_port} tls={tls_host}:{tls_port}")
    sys.stdout.flush()

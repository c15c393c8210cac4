"""One process: its stores, its bus, its gateway and its listeners, started and stopped in order.

This is the only place that knows about threads, event loops and sockets together. It opens stores off the loop,
wraps them where faults may be switched, says when the bus is ready, and takes it down without losing anything.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import enum
import ipaddress
import logging
import resource
import shutil
import socket
import ssl
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from polybus import limits
from polybus.asyncio_bridge import run
from polybus.client import connection_string
from polybus.clock import Clock, MovableClock, RealClock
from polybus.cluster.options import ClusterOptions
from polybus.errors import ConfigError, PolybusError, StoreError
from polybus.gateway.config.file import ConfigFile
from polybus.gateway.gateway import Gateway
from polybus.gateway.http.faults import StoreFaults
from polybus.gateway.jwt_tokens import JwtSettings, JwtVerifier
from polybus.gateway.listener import Listener
from polybus.gateway.servers import amqp_protocol, http_protocol
from polybus.gateway.tls import certificate_names, ensure_certificates, server_context, trust_lines
from polybus.hosting.catalogue import Catalogue
from polybus.hosting.opener import Opener, shown_url
from polybus.hosting.places import address_of, place_of
from polybus.hosting.store_host import StoreHost
from polybus.memory import return_memory
from polybus.namespace.bus import Bus
from polybus.namespace.entities.description import AccessRight, AuthorizationRule
from polybus.namespace.entities.network_rules import Network
from polybus.namespace.entities.tiers import STANDARD, Tier
from polybus.provisioning import provision
from polybus.store.base import Store
from polybus.store.failing import Faults
from polybus.store.permissions import close_folder, make_folder

log = logging.getLogger(__name__)

OUTGOING = "outgoing"
_OURS = ("catalogue", "stores", "certificates", OUTGOING)
"""What the bus makes in its data folder."""

DEFAULT_NAMESPACE = "sbemulatorns"
EMULATOR_KEY = AuthorizationRule(
    key_name=connection_string.EMULATOR_KEY_NAME,
    rights=(AccessRight.MANAGE, AccessRight.SEND, AccessRight.LISTEN),
    primary_key=connection_string.EMULATOR_KEY,
    secondary_key=connection_string.EMULATOR_KEY,
)
"""The pair that every emulator user knows. It is good on loopback and nowhere else."""


class TlsUse(enum.StrEnum):
    """What listeners do about TLS."""

    OFFERED = "offered"
    REQUIRED = "required"
    OFF = "off"


def tls_named(name: str) -> TlsUse:
    try:
        return TlsUse(name)
    except ValueError:
        raise ConfigError(f"--tls is one of {', '.join(TlsUse)}") from None


@dataclass
class NodeOptions:
    """What a node is told; the command line and the test kit fill it in."""

    data: Path
    stores: list[str] = field(default_factory=list)
    catalogue: str | None = None
    cluster: ClusterOptions | None = None
    """The cluster of which this is a node; None where it is a bus of its own."""
    host: str = "127.0.0.1"
    amqp_port: int | None = 5672
    http_port: int | None = 5300
    tls_port: int | None = 5671
    keys: list[AuthorizationRule] = field(default_factory=list)
    key_files: list[Path] = field(default_factory=list)
    """Where some of the keys come from: they are read again when one is changed."""
    read_keys: Callable[[], list[AuthorizationRule]] | None = None
    """Gives the keys as they are now."""
    tier: Tier = STANDARD
    namespaces: list[str] = field(default_factory=lambda: [DEFAULT_NAMESPACE])
    config: ConfigFile | None = None
    certificate: Path | None = None
    certificate_key: Path | None = None
    client_authority: Path | None = None
    """Whose certificates clients must show; None where they need none."""
    tls: TlsUse = TlsUse.OFFERED
    networks: list[Network] = field(default_factory=list)
    """From where clients may connect; empty where from everywhere."""
    jwt: JwtSettings | None = None
    """Whose JSON web tokens count; None where only shared access signatures do."""
    development_certificate: bool = False
    """Whether a certificate of the development authority will do in production, too."""
    allowed_hosts: list[str] = field(default_factory=list)
    """More names under which web pages may reach the bus."""
    certificate_names: list[str] = field(default_factory=list)
    """More names for the development certificate than the host's own."""
    production: bool = False
    """No fault switches, no movable clock, no well-known key."""
    movable_clock: bool = False
    unsafe: bool = False
    on_demand_entities: bool = False
    """Whether clients that ask for an entity, a subscription or a temporary node have it made."""

    def ports(self) -> list[tuple[str, int]]:
        """What to listen on, by what each port is called."""
        given = (("amqp", self.amqp_port), ("http", self.http_port), ("tls", self.tls_port))
        return [(name, port) for name, port in given if port is not None]


def fill_addresses(addresses: dict[str, tuple[str, int]]) -> None:
    """Every port speaks everything: what has none of its own is at the first."""
    for name in ("http", "tls", "amqp"):
        addresses.setdefault(name, next(iter(addresses.values())))


class Node:
    def __init__(self, options: NodeOptions) -> None:
        self.options = options
        self.clock: Clock = MovableClock() if options.movable_clock else RealClock()
        self.faults: list[StoreSwitches] = []
        self.addresses: dict[str, tuple[str, int]] = {}
        self.trust: str | None = None
        self._listeners: list[Listener] = []
        self._watching: list[asyncio.Task[None]] = []

    # Start

    async def start(self) -> None:
        """Everything is up and a send works when this returns."""
        self.check_keys()
        self.check_certificates()
        _raise_file_limit()
        loop = asyncio.get_running_loop()
        _prepare_folder(self.options.data)
        self.catalogue = self._catalogue(loop)
        hosts = [self._store_host(url) for url in self.options.stores]
        self.bus = Bus(loop, self.clock, hosts, self.catalogue, self.options.tier)
        self.bus.find_store = self._find_store
        self.bus.on_error = lambda error: log.error("a store's contents cannot be used: %s", error)
        await self._join()
        await run(self.bus.start(self._namespaces()))
        if not any(store.available for store in self.bus.stores):
            problems = "; ".join(f"{store.url}: {store.last_error}" for store in self.bus.stores)
            raise ConfigError(f"no messaging store can be opened: {problems}")
        self._tell_of_missing()
        if self.options.config is not None and self.bus.leads:
            await run(provision(self.bus, self.options.config))
        self.gateway = Gateway(
            self.bus, self.common_keys(), own_keys=self._own_keys(), on_demand=self.options.on_demand_entities
        )
        if self.options.jwt is not None:
            self._jwt = JwtVerifier(self.options.jwt)
            await asyncio.to_thread(self._jwt.load)
            self.gateway.jwt_verifier = self._jwt
            self._watching.append(loop.create_task(self._watch_issuer(self._jwt)))
        await self._joined()
        self.gateway.outgoing = self.options.data / OUTGOING
        if self.bus.leads:
            shutil.rmtree(self.gateway.outgoing, ignore_errors=True)  # what a crash left of a copy
        self._listen()
        self._watching += [
            loop.create_task(self._watch_disks()),
            loop.create_task(self._delete_idle()),
            loop.create_task(self._watch_certificates()),
            loop.create_task(return_memory(lambda: self.gateway.stats.connections_closed)),
        ]

    async def _join(self) -> None:
        """For a process that is one of several: the bus is made and not started."""

    async def _joined(self) -> None:
        """The bus has started, and the gateway is there."""

    def check_keys(self) -> None:
        """The well-known key opens nothing to a network, and nothing in production."""
        own = self._own_keys()
        if not self._well_known and not self.options.keys and not all(own.get(name) for name in self._namespaces()):
            where = "the production profile" if self.options.production else f"listening on {self.options.host}"
            raise ConfigError(
                f"{where} needs keys of your own: give --key-file FILE, POLYBUS_KEY_NAME=KEY[:Send,Listen,Manage] in"
                " the environment, --key, or AuthorizationRules of every namespace in --config"
            )
        if self.options.production:
            self._refuse_well_known((*self.options.keys, *(rule for rules in own.values() for rule in rules)))

    def _refuse_well_known(self, rules: Iterable[AuthorizationRule]) -> None:
        for rule in rules:
            if EMULATOR_KEY.primary_key in (rule.primary_key, rule.secondary_key):
                raise ConfigError(f"the key {rule.key_name!r} is the emulator's, which everybody knows")

    @property
    def _well_known(self) -> bool:
        return self._on_loopback and not self.options.production

    @property
    def _on_loopback(self) -> bool:
        try:
            return ipaddress.ip_address(self.options.host).is_loopback
        except ValueError:
            return self.options.host == "localhost"

    def _namespaces(self) -> list[str]:
        config = self.options.config
        return [namespace.name for namespace in config.namespaces] if config is not None else self.options.namespaces

    def common_keys(self) -> list[AuthorizationRule]:
        """The keys of namespaces that have none of their own; one that no file declares may still be in the stores."""
        return self.options.keys or ([EMULATOR_KEY] if self._well_known else [])

    def _own_keys(self) -> dict[str, tuple[AuthorizationRule, ...]]:
        """The keys of single namespaces, by name."""
        config = self.options.config
        return {} if config is None else {one.name: one.authorization_rules for one in config.namespaces}

    def _store_host(self, url: str) -> StoreHost:
        faults = Faults()
        self.faults.append(faults)
        return self._host_with(url, faults)

    def _host_with(self, url: str, faults: Faults) -> StoreHost:
        """The host of a store that this process opens."""
        loop = asyncio.get_running_loop()
        place = place_of(shown_url(url), self.options.data)
        opener = self._opener(url, None if self.options.production else faults, place)
        host = StoreHost(opener.shown, loop, opener)
        host.place = place
        host.on_fenced = _report_fence
        return host

    def _opener(self, url: str, faults: Faults | None, place: str | None) -> Opener:
        loop = asyncio.get_running_loop()
        return Opener(url, loop, faults, self.options.unsafe, lambda: place in self.catalogue.places.values())

    def _find_store(self, place: str, store_id: bytes) -> StoreHost:
        """A store that the catalogue knows and that was not named."""
        host = self._store_host(address_of(place, self.options.data))
        host.store_id = store_id
        log.warning("%s: was not named, and belongs to the catalogue: it is opened, too", host.url)
        return host

    def _tell_of_missing(self) -> None:
        for store in (store for store in self.bus.stores if not store.available):
            log.error("%s: CANNOT BE OPENED, its messages are out of reach: %s", store.url, store.last_error)
        for store in self.bus.missing:
            names = sorted({self.bus.entities[entity_id].name for entity_id, _ in store.tenants})
            log.error(
                "%s: MISSING, with %d partitions of %s: their messages are out of reach. Name it with --store.",
                store.url,
                len(store.tenants),
                ", ".join(names[:5]) + (" and others" if len(names) > 5 else ""),
            )

    def _catalogue(self, loop: asyncio.AbstractEventLoop) -> Catalogue:
        url = self.options.catalogue
        if url is None:
            memory = all(store.startswith("memory:") for store in self.options.stores)
            url = "memory:catalogue" if memory else f"rocksdb:{self.options.data / 'catalogue'}"
        return Catalogue(Opener(url, loop, None, self.options.unsafe))

    def _listen(self) -> None:
        tls = self.tls_context()
        for name, port in self.options.ports():
            listener = self._listener(tls)
            self.addresses[name] = listener.bind(self.options.host, port)
            listener.start()
        self._know_addresses()

    def _listener(self, tls: ssl.SSLContext | None) -> Listener:
        panel = None if self.options.production else self
        listener = Listener(
            amqp_protocol(self.gateway),
            http_protocol(self.gateway, panel, self._on_loopback),
            tls,
            require_tls=self.options.tls is TlsUse.REQUIRED,
            admit=self.gateway.sockets.admit,
            networks=self.options.networks,
        )
        self._listeners.append(listener)
        return listener

    def _know_addresses(self) -> None:
        self.gateway.own_names.add(self._own_names())
        self.gateway.hosts += [host for host, _ in self.addresses.values()]
        fill_addresses(self.addresses)

    def _own_names(self) -> list[str]:
        """By which clients may know the bus; see `gateway.http.own_names`."""
        options = self.options
        given = [options.host, *options.certificate_names, *options.allowed_hosts, socket.gethostname()]
        if options.certificate is not None:
            given += certificate_names(options.certificate)
        return [*given, *(namespace.name for namespace in self.bus.namespaces.values())]

    def check_certificates(self) -> None:
        """A certificate is given whole or not at all, and production has one of its own."""
        options = self.options
        if (options.certificate is None) != (options.certificate_key is None):
            raise ConfigError("--cert and --cert-key go together")
        if options.tls is TlsUse.OFF:
            if options.certificate is not None or options.client_authority is not None:
                raise ConfigError("--tls off takes no certificates")
        elif options.client_authority is not None and options.tls is not TlsUse.REQUIRED:
            raise ConfigError("--client-ca needs --tls required: without TLS nobody would be asked for a certificate")
        elif options.production and options.certificate is None and not options.development_certificate:
            raise ConfigError(
                "the production profile needs --cert and --cert-key; --development-certificate takes one of the"
                " development authority all the same, and --tls off is for a bus behind a proxy that has one"
            )

    def tls_context(self) -> ssl.SSLContext | None:
        options = self.options
        if options.tls is TlsUse.OFF:
            return None
        if options.certificate is not None and options.certificate_key is not None:
            return server_context(options.certificate, options.certificate_key, options.client_authority)
        now = datetime.datetime.now(datetime.UTC)
        files = ensure_certificates(options.data / "certificates", now, [options.host, *options.certificate_names])
        self.trust = trust_lines(files.authority)
        return server_context(files.certificate, files.key, options.client_authority)

    def reload(self) -> None:
        """Takes certificates as they are on disk now, for those who connect from now on, and keys, for everybody. What
        cannot be used leaves everything as it is."""
        self._reload_keys()
        try:
            tls = self.tls_context()
        except PolybusError as error:
            log.error("the certificates stay as they were: %s", error)
            return
        for listener in self._listeners:
            listener.tls = tls
        log.warning("certificates were read again")

    def _reload_keys(self) -> None:
        """A key that is not in its file any more opens nothing, and ends the links that it has opened."""
        options, before = self.options, self.options.keys
        if options.read_keys is None:
            return
        try:
            options.keys = options.read_keys()
            self.check_keys()
        except (PolybusError, OSError) as error:
            options.keys = before
            log.error("the keys stay as they were: %s", error)
            return
        if options.keys != before:
            self.gateway.keys = self.common_keys()
            for namespace in list(self.bus.namespaces.values()):
                self.bus.access_changed(namespace)
            log.warning("keys were read again: %d", len(options.keys))

    def _times(self) -> list[float]:
        """When the files of certificates and keys were changed; 0 for one that cannot be looked at just now."""
        options = self.options
        files = (options.certificate, options.certificate_key, options.client_authority, *options.key_files)
        return [_changed_at(path) for path in files]

    async def _watch_issuer(self, verifier: JwtVerifier) -> None:
        """Issuers change their keys, and publish new ones before they sign with them."""
        while True:
            waited = 0
            while (waited < limits.JWKS_REFRESH_SECONDS and not (verifier.wanted or verifier.is_file)) or not waited:
                await asyncio.sleep(limits.JWKS_RETRY_SECONDS)
                waited += limits.JWKS_RETRY_SECONDS
            await asyncio.to_thread(verifier.load)

    async def _watch_certificates(self) -> None:
        """Whoever renews certificates replaces files; nobody need tell the bus."""
        known = self._times()
        while True:
            await asyncio.sleep(limits.CERTIFICATE_CHECK_SECONDS)
            if (found := self._times()) != known:
                known = found
                self.reload()

    # Watching

    async def _watch_disks(self) -> None:
        """Sends stop below a reserve of free space, so that receiving and settling can go on."""
        while True:
            await self.look_at_disks()
            await asyncio.sleep(limits.DISK_CHECK_SECONDS)

    async def look_at_disks(self) -> None:
        for store, faults in zip(self.bus.stores, self.faults, strict=True):
            driver = store.driver
            if driver is not None:
                if store.full:
                    await asyncio.to_thread(_reclaim, driver.store)
                free = await asyncio.to_thread(_free_bytes, driver.store)
                # A switch may have been turned while the disk was asked.
                full = faults.full or faults.low or (free is not None and free < limits.DISK_RESERVE_BYTES)
                if full != store.full:
                    log.warning("%s: %s", store.url, "is almost full; sends stop" if full else "has space again")
                store.full = full
                store.free_bytes = free

    async def _delete_idle(self) -> None:
        while True:
            await asyncio.sleep(limits.IDLE_CHECK_SECONDS)
            self.bus.delete_idle()

    def advance_clock(self, ms: int) -> None:
        """Moves the clock forward; whatever becomes due happens now."""
        if not isinstance(self.clock, MovableClock):
            raise ConfigError("the clock can only be moved where the bus was started with --clock movable")
        self.clock.advance(ms)
        self.bus.clock_moved()

    # What the fault switches need beside the stores'

    async def move_clock(self, ms: int) -> None:
        self.advance_clock(ms)

    async def throttle(self, namespace: str, path: str, on: bool) -> None:
        self.bus.namespace(namespace).entity(path).throttled = on

    async def refresh_faults(self) -> None:
        """The switches of stores of other processes are as they are there."""

    # Stop

    async def stop(self) -> None:
        """No new work, what is in flight is answered, clients are told to come back, stores are closed."""
        await self.let_clients_go()
        await self.close()

    async def let_clients_go(self) -> None:
        for task in self._watching:
            task.cancel()
        await asyncio.gather(*self._watching, return_exceptions=True)
        for listener in self._listeners:
            await listener.stop()
        self.gateway.stopping = True
        for connection in list(self.gateway.connections):
            connection.shut_down()
        await self._say_goodbye()
        for connection in list(self.gateway.connections):
            connection.hang_up()

    async def close(self) -> None:
        for faults in self.faults:
            faults.release()
        await run(self.bus.stop())

    async def _say_goodbye(self) -> None:
        """Waits for what is in flight, and less long for clients that only have to answer the close."""
        connections = self.gateway.connections
        now = asyncio.get_running_loop().time
        deadline = now() + limits.STOP_SECONDS
        told_at: float | None = None
        while connections and now() < deadline:
            if not all(connection.told for connection in connections):
                told_at = None
            elif told_at is None:
                told_at = now()
            elif now() - told_at > limits.STOP_GOODBYE_SECONDS:
                return
            await asyncio.sleep(0.01)


class StoreSwitches(StoreFaults, Protocol):
    """The fault switches of a store of this process, or of another one."""

    @property
    def full(self) -> bool: ...

    @property
    def low(self) -> bool: ...

    def release(self) -> None:
        """Lets go what hangs."""


def _prepare_folder(data: Path) -> None:
    """The data folder, closed to other users. One that holds other things, too, stays as open as it is: what of it is
    ours is closed all the same."""
    make_folder(data)
    ours = [data / name for name in _OURS]
    whole = all(entry in ours for entry in data.iterdir())
    for folder in [data] if whole else ours:
        if folder.is_dir():
            close_folder(folder)


def _changed_at(path: Path | None) -> float:
    try:
        return 0 if path is None else path.stat().st_mtime
    except OSError:
        return 0


def _report_fence(store: StoreHost) -> None:
    """Clients hear that a store is away; why, and which one, is for those who run it."""
    log.warning("%s: fenced: %s", store.url, store.last_error)


def _reclaim(store: Store) -> None:
    try:
        store.reclaim()
    except StoreError as error:
        # What keeps it from that keeps it from writing, too: its next commit says so to its owner.
        log.info("%s: no space was given back: %s", store.url, error)


def _free_bytes(store: Store) -> int | None:
    try:
        return store.free_bytes()
    except StoreError:
        return None


def _raise_file_limit() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = limits.OPEN_FILES if hard == resource.RLIM_INFINITY else min(limits.OPEN_FILES, hard)
    if soft < wanted:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))

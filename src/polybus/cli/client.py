"""Commands that are clients of a running bus: through the official SDK, and through HTTP for what it lacks.

The SDK is loaded only when a command needs it, for it takes longer to load than most commands take to run.
"""

from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Annotated, Any
from urllib.parse import quote

import typer

from polybus.cli.contexts import chosen_endpoint
from polybus.cli.endpoint import Endpoint
from polybus.cli.explaining import WRONG_KEY, explained, sdk_failure
from polybus.cli.options import AsJson
from polybus.cli.output import REFUSED, UNREACHABLE, CommandFailure, CommandOutput, one_line_errors
from polybus.limits import CLI_CONNECT_SECONDS, CLI_LOOK_SECONDS, CLI_RETRIES, CLI_SECONDS, CLI_STREAM_SECONDS

Connection = Annotated[
    str | None,
    typer.Option("--connection", envvar="POLYBUS_CONNECTION", show_default="the emulator's, on localhost:5672"),
]
Context = Annotated[str | None, typer.Option("--context", envvar="POLYBUS_CONTEXT", help="A saved connection.")]
Authority = Annotated[
    Path | None,
    typer.Option("--ca", envvar="POLYBUS_CA", help="Certificate authority to trust (PEM); asks for TLS."),
]
Insecure = Annotated[bool, typer.Option("--insecure", help="TLS with any certificate.")]
Verbose = Annotated[
    bool, typer.Option("--verbose", help="With what the bus said to a failure, tracking ids included.")
]


class Client:
    """One bus, for the time of one command."""

    def __init__(self, endpoint: Endpoint, out: CommandOutput) -> None:
        self.endpoint = endpoint
        self.out = out
        self._open = ExitStack()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.close()

    @functools.cached_property
    def admin(self) -> Any:
        """The SDK's administration client."""
        from azure.servicebus.management import ServiceBusAdministrationClient

        options: dict[str, Any] = {"retry_total": CLI_RETRIES, "connection_timeout": CLI_CONNECT_SECONDS}
        if self.endpoint.tls:
            options["connection_verify"] = self.endpoint.verify
        else:
            from polybus.client.plain_http import PlainHttp

            options["transport"] = PlainHttp(**options)
        made = ServiceBusAdministrationClient.from_connection_string(self.endpoint.connection, **options)
        # Whoever says --insecure need not be told at every request.
        self._open.enter_context(warnings.catch_warnings())
        warnings.filterwarnings("ignore", message="Unverified HTTPS request")
        return self._open.enter_context(made)

    @functools.cached_property
    def messaging(self) -> Any:
        """The SDK's client for messages."""
        from azure.servicebus import ServiceBusClient, TransportType

        options: dict[str, Any] = {"retry_total": CLI_RETRIES}
        if self.endpoint.tls:
            options["ssl_context"] = self.endpoint.ssl_context()
            if self.endpoint.port is not None:
                # The SDK drops a port where it speaks TLS, except in an endpoint of one's own.
                options["custom_endpoint_address"] = f"sb://{self.endpoint.authority}"
                options["transport_type"] = TransportType.Amqp
        made = ServiceBusClient.from_connection_string(self.endpoint.connection, **options)
        return self._open.enter_context(made)

    def sender(self, entity: str) -> Any:
        """The SDK's sender. A topic is sent to like a queue: only its address counts."""
        self.check_key(entity)
        return self.messaging.get_queue_sender(entity)

    def check_key(self, entity: str) -> None:
        """Over AMQP the SDK tells a wrong key late and without saying so; the management API tells it at once."""
        import httpx

        verify = self.endpoint.ssl_context() if self.endpoint.tls else False
        headers = {"Authorization": self.endpoint.token_for(entity)}
        try:
            with httpx.Client(verify=verify, timeout=CLI_LOOK_SECONDS, trust_env=False) as http:
                address = f"{self.endpoint.http_url}/{quote(entity)}"
                answer = http.get(address, params={"api-version": "2021-05"}, headers=headers)
        except httpx.HTTPError:
            return  # AMQP alone may be spoken here, and whatever else is wrong the SDK will tell
        if answer.status_code == 401 and WRONG_KEY in answer.text:
            raise CommandFailure(WRONG_KEY, REFUSED)

    def get_json(self, path: str, **query: str) -> Any:
        """What the bus answers to a GET, as JSON."""
        return json_of(self.get(path, **query))

    def get(self, path: str, **query: str) -> Any:
        return self.ask("GET", path, **query)

    def ask(self, method: str, path: str, body: Any = None, **query: str) -> Any:
        """What the bus answers to a request, with a body of JSON where there is one."""
        import httpx

        headers = {"Accept": "application/json"}
        if path != "/health":
            headers["Authorization"] = self.endpoint.token()
        verify = self.endpoint.ssl_context() if self.endpoint.tls else False
        try:
            with httpx.Client(verify=verify, timeout=CLI_SECONDS, trust_env=False) as http:
                options = {} if body is None else {"json": body}
                return http.request(
                    method, self.endpoint.http_url + path, params=query or None, headers=headers, **options
                )
        except httpx.HTTPError as error:
            text = f"{self.endpoint.http_url} does not answer: {error or type(error).__name__}"
            raise CommandFailure(text, UNREACHABLE) from error

    def stream(self, path: str) -> Iterator[Any]:
        """What the bus answers to a GET, once, to be read piece by piece while the loop's body runs."""
        import httpx

        headers = {"Authorization": self.endpoint.token(), "Accept": "application/json"}
        verify = self.endpoint.ssl_context() if self.endpoint.tls else False
        url = self.endpoint.http_url + path
        try:
            with (
                httpx.Client(verify=verify, timeout=CLI_STREAM_SECONDS, trust_env=False) as http,
                http.stream("GET", url, headers=headers) as answer,
            ):
                if answer.status_code >= 400:
                    answer.read()
                    raise CommandFailure(_refusal(answer), REFUSED)
                yield answer
        except httpx.HTTPError as error:
            text = f"{self.endpoint.http_url} does not answer: {error or type(error).__name__}"
            raise CommandFailure(text, UNREACHABLE) from error


def json_of(answer: Any) -> Any:
    if answer.status_code >= 400:
        raise CommandFailure(_refusal(answer), REFUSED)
    return answer.json()


def _refusal(answer: Any) -> str:
    try:
        error = answer.json()["error"]
        return str(error.get("detail") or error["message"])
    except (ValueError, KeyError, TypeError, AttributeError):
        return f"the bus answers {answer.status_code} to {answer.request.url.path}"


_COMMON = (
    inspect.Parameter("connection", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Connection),
    inspect.Parameter("context", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Context),
    inspect.Parameter("ca", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Authority),
    inspect.Parameter("insecure", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=Insecure),
    inspect.Parameter("as_json", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=AsJson),
    inspect.Parameter("verbose", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=Verbose),
)


def client_command(
    function: Callable[..., None], parameters: Sequence[inspect.Parameter] | None = None
) -> Callable[..., None]:
    """A command made of a function whose first argument is the client; it gets the options that all clients have.

    `parameters` are those of the command, where they are not the function's own.
    """
    if parameters is None:
        own = inspect.signature(function, eval_str=True).parameters.values()
        parameters = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in list(own)[1:]]

    @functools.wraps(function)
    def command(**given: Any) -> None:
        with one_line_errors():
            words = (given.pop(name) for name in ("connection", "ca", "insecure", "context"))
            endpoint, verbose = chosen_endpoint(*words), given.pop("verbose")
            try:
                with Client(endpoint, CommandOutput(given.pop("as_json"))) as client:
                    function(client, **given)
            except Exception as error:
                failure = error if isinstance(error, CommandFailure) else sdk_failure(error, endpoint.authority)
                if failure is None:
                    raise
                raise explained(failure, endpoint, verbose) from None

    shown = [*parameters, *_COMMON]
    command.__signature__ = inspect.Signature(shown)  # type: ignore[attr-defined]
    command.__annotations__ = {each.name: each.annotation for each in shown}
    del command.__wrapped__
    return command

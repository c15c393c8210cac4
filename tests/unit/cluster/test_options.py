"""Which options make a node, and the one line that refuses those which do not."""

from __future__ import annotations

import pytest

from polybus.cluster.options import ClusterOptions, cluster_options
from polybus.errors import ConfigError

CLUSTER = "postgresql://u:geheim@h/db?schema=c"
STORE = "postgresql://u:geheim@h/db?schema=s"
GIVEN = {
    "cluster": CLUSTER,
    "node": "a",
    "advertise": None,
    "stores": [STORE],
    "catalogue": None,
    "host": "127.0.0.1",
}


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"node": None}, "--cluster needs --node NAME"),
        ({"cluster": None}, "--node needs --cluster URL"),
        ({"cluster": None, "node": None, "advertise": "h:1"}, "--advertise needs --cluster URL"),
        ({"stores": ["rocksdb:/tmp/x"]}, "--cluster takes no rocksdb: store"),
        ({"stores": [STORE, "memory:"]}, "--cluster takes no memory: store"),
        ({"stores": []}, "--cluster needs --store postgresql://"),
        ({"stores": [STORE, STORE]}, "names the same messaging store twice"),
        ({"stores": [CLUSTER]}, "need schemas of their own"),
        ({"catalogue": "memory:"}, "--catalogue and --cluster do not go together"),
        ({"workers": True}, "--workers and --cluster do not go together"),
        ({"cluster": "rocksdb:x"}, "--cluster is postgresql://"),
        ({"node": "a/b"}, "--node 'a/b': a name has at most 63"),
        ({"node": "x" * 64}, "a name has at most 63"),
        ({"advertise": "host"}, "--advertise 'host' is not HOST:PORT"),
        ({"advertise": "host:99999"}, "is not HOST:PORT"),
        ({"advertise": "0.0.0.0:1"}, "no address that other nodes can reach"),
        ({"host": "0.0.0.0"}, "give --advertise HOST:PORT"),
        ({"host": "::"}, "give --advertise HOST:PORT"),
    ],
)
def test_options_that_cannot_be(changed: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        cluster_options(**{**GIVEN, **changed})  # type: ignore[arg-type]
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)
    assert "geheim" not in str(refused.value)


def test_no_option_is_no_cluster() -> None:
    assert cluster_options(None, None, None, stores=["memory:"], catalogue=None, host="127.0.0.1") is None


@pytest.mark.parametrize(
    ("advertise", "bound", "port", "address"),
    [
        (None, ("127.0.0.1", 4711), 0, "127.0.0.1:4711"),
        (None, ("::1", 4711), 0, "[::1]:4711"),
        ("db1.example:7000", ("0.0.0.0", 7000), 7000, "db1.example:7000"),
        ("db1.example:0", ("0.0.0.0", 4711), 0, "db1.example:4711"),
    ],
)
def test_where_others_find_a_node(advertise: str | None, bound: tuple[str, int], port: int, address: str) -> None:
    options = ClusterOptions("postgresql://h/db", "a", advertise)
    assert options.bind_port() == port
    assert options.address(*bound) == address

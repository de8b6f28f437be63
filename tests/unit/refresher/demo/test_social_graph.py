from unittest.mock import MagicMock

import numpy as np
import pytest
from neo4j.exceptions import ServiceUnavailable

from refresher.demo.errors import DemoError
from refresher.demo.graph.social_graph import SocialGraph, load


def load_into(replies: MagicMock) -> None:
    """Load two persons and an edge through a driver whose results are all ``replies``."""
    driver = MagicMock()
    driver.session.return_value.__enter__.return_value.run.return_value = replies
    load(driver, None, SocialGraph(["a", "b"], np.array([0]), np.array([1])))


def test_a_graph_half_written_is_an_error() -> None:
    counts = [{"n": 0}, {"n": 2}, {"n": 0}]  # before; persons and edges afterwards
    with pytest.raises(DemoError, match="wrote 2 persons and 1 edges, but the database counts 2 and 0"):
        load_into(MagicMock(**{"single.side_effect": counts}))


def test_a_driver_s_error_becomes_a_demo_error_with_its_cause() -> None:
    gone = ServiceUnavailable("the server went away")
    with pytest.raises(DemoError, match="loading stopped after 0 of 3: the server went away") as caught:
        load_into(MagicMock(**{"single.return_value": {"n": 0}, "consume.side_effect": gone}))
    assert caught.value.__cause__ is gone

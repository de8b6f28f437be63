from unittest.mock import MagicMock

import numpy as np
import pytest
from neo4j.exceptions import ServiceUnavailable

from refresher.demo.errors import DemoError
from refresher.demo.graph.social_graph import SocialGraph, load


def test_a_driver_s_error_becomes_a_demo_error_with_its_cause() -> None:
    gone, driver = ServiceUnavailable("the server went away"), MagicMock()
    driver.session.return_value.__enter__.return_value.run.return_value.consume.side_effect = gone
    with pytest.raises(DemoError, match="loading stopped after 0 of 3: the server went away") as caught:
        load(driver, None, SocialGraph(["a", "b"], np.array([0]), np.array([1])))
    assert caught.value.__cause__ is gone

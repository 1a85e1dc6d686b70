# SPDX-License-Identifier: Apache-2.0
import pytest
from regression_runs import TAKEN


@pytest.fixture(autouse=True)
def taken_are_told(record_property):
    """To conftest.py, which says how many they are."""
    TAKEN.clear()
    yield
    if TAKEN:
        record_property("kept runs", len(TAKEN))

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.plugin.conftest import MakeRefusal

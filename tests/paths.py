"""Where tests find the repository and the files that they read, whatever folder the test is in."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FIXTURES = ROOT / "tests" / "fixtures"

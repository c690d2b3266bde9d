"""What all tests share: no network, one thread, and the place of the optional sample data."""

import os
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"  # before anything imports datasets
os.environ["HF_DATASETS_OFFLINE"] = "1"

import pytest
import torch

torch.set_num_threads(1)


@pytest.fixture(scope="session")
def sample_data() -> Path:
    """Return the folder of small real data; the test is skipped where there is none."""
    default = Path(__file__).resolve().parents[1].parent / "shared" / "data"
    folder = Path(os.environ.get("REGIONFED_SAMPLE_DATA", default))
    if not folder.is_dir():
        pytest.skip(f"no sample data at {folder}; REGIONFED_SAMPLE_DATA names their folder")
    return folder

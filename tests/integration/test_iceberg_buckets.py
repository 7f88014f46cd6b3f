"""Iceberg tables whose files are in stores: data files and metadata by the same options, which no catalog is told."""

import uuid

import pytest

from millrace_pipelines.warehouse.formats import load_table
from millrace_pipelines.warehouse.iceberg.addresses import parse_address
from millrace_pipelines.warehouse.iceberg.catalogs import catalog_of
from millrace_pipelines.warehouse.iceberg.file_io import SyncedFileIO
from millrace_pipelines.warehouse.stores.options import use_store_options
from millrace_support.iceberg_catalogs import NAME, configured
from millrace_support.iceberg_tables import FS, each_once, load_range, made, offsets, other_engine
from millrace_support.stores.stand_ins import STAND_INS, missing, started


@pytest.fixture(scope="module", params=STAND_INS)
def store(request):
    if (reason := missing(request.param)) is not None:
        pytest.skip(reason)
    with started(request.param) as store:
        use_store_options({"": store.options})
        yield store
        use_store_options(None)


@pytest.fixture
def lake(store, tmp_path):
    """The settings of a catalog whose tables are in the store, and which knows nothing of its credentials."""
    return {"uri": f"sqlite:///{tmp_path}/catalog.sqlite", "warehouse": f"{store.address}/{uuid.uuid4().hex}"}


def test_data_files_and_metadata_are_written_with_one_set_of_options(lake):
    with configured(lake):
        address = f"iceberg:{NAME}/shop.events"
        table = made(address)
        assert table.location.startswith(lake["warehouse"])
        assert [load_range(address, until) for until in (10, 25)] == [1, 2]
        found = load_table(address, FS)
        assert offsets(found) == each_once(25)
        assert len(found.lineage()) == 2
        assert other_engine(address).scan().to_arrow().num_rows == 25


def test_the_settings_of_a_catalog_for_a_store_go_first(lake, store):
    if not store.address.startswith("s3://"):
        pytest.skip("the names of settings are those of S3")
    with configured({**lake, "s3.endpoint": "http://127.0.0.1:1", "s3.region": "eu-central-1"}):
        catalog = catalog_of(parse_address(f"iceberg:{NAME}/shop.events"))
        with pytest.raises(OSError, match=r"127.0.0.1:1|connect"):
            SyncedFileIO(catalog.properties).new_input(f"{lake['warehouse']}/x").open()

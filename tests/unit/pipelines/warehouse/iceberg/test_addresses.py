import pytest

from millrace.fs import OsFileSystem
from millrace_pipelines.warehouse.errors import AddressError
from millrace_pipelines.warehouse.formats import address_of
from millrace_pipelines.warehouse.iceberg.addresses import IcebergAddress, parse_address
from millrace_pipelines.warehouse.iceberg.file_io import address_in_stores
from millrace_pipelines.warehouse.stores.addresses import bucket_at, store_at

FS = OsFileSystem()


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("iceberg:shop.events", IcebergAddress("", "", ("shop", "events"))),
        ("iceberg:a.b.c-1", IcebergAddress("", "", ("a", "b", "c-1"))),
        ("iceberg:prod/shop.events", IcebergAddress("prod", "", ("shop", "events"))),
        ("iceberg:/srv/lake/shop.events", IcebergAddress("", "/srv/lake", ("shop", "events"))),
        ("iceberg:/srv/x.y/../lake/shop.events", IcebergAddress("", "/srv/lake", ("shop", "events"))),
    ],
)
def test_an_address_names_a_catalog_and_a_table(address, expected):
    assert parse_address(address) == expected
    assert parse_address(str(expected)) == expected
    assert address_of(address, FS) == str(expected)


def test_a_folder_is_that_of_the_working_directory_and_of_the_user(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/ann")
    assert parse_address("iceberg:./shop.events").folder == str(tmp_path)
    assert parse_address("iceberg:~/lake/shop.events").folder == "/home/ann/lake"


@pytest.mark.parametrize(
    "address",
    ["iceberg:", "iceberg:events", "iceberg:shop.", "iceberg:.events", "iceberg:shop/events", "iceberg:/shop.events",
     "iceberg:a b/shop.events", "iceberg:/srv/a%20b/shop.events", "iceberg:s3://bucket/shop.events",
     "iceberg:shop.ev ents"],
)  # fmt: skip
def test_what_names_no_table_is_refused(address):
    with pytest.raises(AddressError, match="iceberg"):
        parse_address(address)


@pytest.mark.parametrize("ask", [lambda address: store_at(address, FS), bucket_at])
def test_no_folder_is_made_of_an_address_in_a_catalog(ask):
    with pytest.raises(AddressError, match="catalog"):
        ask("iceberg:shop.events")


@pytest.mark.parametrize(
    ("location", "expected"),
    [("file:///srv/lake/t", "/srv/lake/t"), ("file:/srv/lake/t/", "/srv/lake/t"), ("/srv/lake/t", "/srv/lake/t"),
     ("s3://b/t/", "s3://b/t"), ("s3a://b/t", "s3://b/t"), ("gs://b/t", "gs://b/t")],
)  # fmt: skip
def test_a_location_of_icebergs_is_one_of_a_store(location, expected):
    assert address_in_stores(location) == expected

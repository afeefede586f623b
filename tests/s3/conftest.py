"""Servers, started once each; those that are not installed are skipped."""

import itertools

import boto3
import pytest
from certificates import Authority
from proxy import Proxy
from servers import KEY, SECRET, Driver, Moto, Rclone, SeaweedFS

numbers = itertools.count()


def serve(kind, tmp_path_factory):
    server = kind(tmp_path_factory.mktemp(kind.__name__))
    client = boto3.client("s3", endpoint_url=server.url, aws_access_key_id=KEY, aws_secret_access_key=SECRET,
                          region_name="us-east-1")
    client.create_bucket(Bucket="bucket")
    client.put_object(Bucket="bucket", Key="first", Body=b"")  # for which SeaweedFS makes room, for seconds
    server.boto = client
    return server


@pytest.fixture(scope="session", params=[SeaweedFS, Moto, Rclone], ids=["seaweedfs", "moto", "rclone"])
def server(request, tmp_path_factory):
    server = serve(request.param, tmp_path_factory)
    yield server
    server.close()


@pytest.fixture(scope="session")
def seaweedfs(tmp_path_factory):
    server = serve(SeaweedFS, tmp_path_factory)
    yield server
    server.close()


@pytest.fixture
def prefix():
    return f"job{next(numbers)}/a"


@pytest.fixture
def make(prefix):
    """make(endpoint, **environment): a driver below the test's prefix."""
    drivers = []

    def new(endpoint, **environment):
        drivers.append(Driver(f"s3://bucket/{prefix}", endpoint, **environment))
        return drivers[-1]

    yield new
    for driver in drivers:
        driver.close()


@pytest.fixture
def proxy(seaweedfs):
    proxy = Proxy(seaweedfs.port)
    yield proxy
    proxy.close()


@pytest.fixture(scope="session")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("authority"), "authority")


@pytest.fixture
def tls(seaweedfs, authority):
    """A proxy with TLS; its CA is in the file tls.bundle."""
    proxy = Proxy(seaweedfs.port, authority.issue("server"))
    proxy.bundle = str(authority.bundle)
    yield proxy
    proxy.close()

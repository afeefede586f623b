"""Servers with the interface of S3, each started on free ports of this machine, and the driver of our client."""

import json
import os
import pathlib
import random
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

BIN = pathlib.Path(sys.executable).parent
KEY, SECRET = "test-id", "test-secret-that-nobody-may-see"
ENVIRONMENT = {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_REGION": "us-east-1"}


def free_ports(count):
    socks = [socket.socket() for _ in range(count)]
    for sock in socks:
        sock.bind(("127.0.0.1", 0))
    ports = [sock.getsockname()[1] for sock in socks]
    for sock in socks:
        sock.close()
    return ports


def weed_ports(count):
    """Of SeaweedFS, whose services listen at their port + 10000 as well."""
    found = []
    while len(found) < count:
        port = random.randint(12000, 22000)
        with socket.socket() as a, socket.socket() as b:
            try:
                a.bind(("127.0.0.1", port))
                b.bind(("127.0.0.1", port + 10000))
                found.append(port)
            except OSError:
                continue
    return found


class Server:
    """A process that serves S3 at self.port."""

    def __init__(self, directory):
        self.directory = pathlib.Path(directory)
        self.directory.mkdir(parents=True, exist_ok=True)
        command, self.port = self.command()
        self.arguments = [str(word) for word in command]
        self.log = open(self.directory / "log", "w")
        self.url = f"http://127.0.0.1:{self.port}"
        self.start()

    def start(self):
        """Also once more, with what it has stored, after its end."""
        self.process = subprocess.Popen(self.arguments, stdout=self.log, stderr=self.log, env=self.environment())
        try:
            self.wait()
        except RuntimeError:
            self.process.kill()
            self.process.wait()
            raise

    def environment(self):
        return os.environ | {"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": ""}

    def wait(self):
        end = time.monotonic() + 60
        while time.monotonic() < end:
            if self.process.poll() is not None:
                break
            try:
                urllib.request.urlopen(self.url, timeout=2)
                return
            except urllib.error.HTTPError:
                return
            except OSError:
                time.sleep(0.2)
        raise RuntimeError(f"{type(self).__name__} does not serve: {(self.directory / 'log').read_text()[-2000:]}")

    def close(self):
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.log.close()


class SeaweedFS(Server):
    def command(self):
        actions = ["Admin", "Read", "Write", "List", "Tagging"]
        key = {"accessKey": KEY, "secretKey": SECRET}
        config = self.directory / "s3.json"
        config.write_text(json.dumps({"identities": [{"name": "t", "credentials": [key], "actions": actions}]}))
        data = self.directory / "data"
        data.mkdir()
        master, volume, filer, s3 = weed_ports(4)
        return [BIN / "weed", "server", f"-dir={data}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1",
                f"-master.port={master}", f"-volume.port={volume}", "-volume.max=50", "-filer", f"-filer.port={filer}",
                "-s3", "-s3.port.iceberg=0", "-s3.port.lance=0", f"-s3.port={s3}", f"-s3.config={config}"], s3


class Moto(Server):
    def command(self):
        port = free_ports(1)[0]
        return [BIN / "moto_server", "-H", "127.0.0.1", "-p", str(port)], port


class Rclone(Server):
    def command(self):
        port, data = free_ports(1)[0], self.directory / "data"
        data.mkdir()
        return [BIN / "rclone", "serve", "s3", "--addr", f"127.0.0.1:{port}", "--auth-key", f"{KEY},{SECRET}",
                "--config", "/dev/null", str(data)], port


class Driver:
    """s3_driver on a store."""

    def __init__(self, url, endpoint, **environment):
        program = pathlib.Path(os.environ["TCK_BUILD"]) / "tests/s3/s3_driver"
        clean = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
        self.process = subprocess.Popen([program, url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                        env=clean | ENVIRONMENT | {"AWS_ENDPOINT_URL_S3": endpoint} | environment)
        self.answers = []

    def send(self, op, key="", **arguments):
        self.process.stdin.write(json.dumps({"op": op, "key": key} | arguments) + "\n")
        self.process.stdin.flush()

    def receive(self):
        answer = json.loads(self.process.stdout.readline())
        assert SECRET not in answer["error"]
        return answer

    def __call__(self, op, key="", **arguments):
        self.send(op, key, **arguments)
        return self.receive()

    def ok(self, op, key="", **arguments):
        answer = self(op, key, **arguments)
        assert answer["status"] == "success", answer
        return answer

    def close(self):
        self.process.stdin.close()
        assert self.process.wait(60) == 0

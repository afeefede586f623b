# SPDX-License-Identifier: Apache-2.0
"""G13.drain: a drain of 1 GiB into a bucket of SeaweedFS on this machine, beside other ways to upload the same bytes
from memory: AWS's common runtime, as boto3 uses it, and s5cmd. The ways take turns."""

import argparse
import contextlib
import json
import os
import pathlib
import resource
import statistics
import subprocess
import sys
import tempfile
import time

TOP = pathlib.Path(__file__).resolve().parent.parent
SERVERS = TOP / "build/s3/bin/python"
SKIPPED = 77
GIB, GB, PART_BYTES = 1 << 30, 1e9, 16 << 20
ID = "G13.drain"


def skip(why):
    print(json.dumps({"id": ID, "skipped": why}), flush=True)
    sys.exit(SKIPPED)


def use_servers():
    """Goes on in the environment that has the servers."""
    if not SERVERS.exists():
        skip("there are no servers in build/s3: deploy/check --only s3 installs them")
    if pathlib.Path(sys.prefix) != SERVERS.parent.parent:
        os.execv(SERVERS, [SERVERS, *sys.argv])
    sys.path.insert(0, str(TOP / "tests/s3"))


def use_server(server):
    """All ways find it, and nothing of the user's account, in the environment."""
    import servers
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        del os.environ[name]
    os.environ.update(servers.ENVIRONMENT, AWS_ENDPOINT_URL_S3=server.url, AWS_EC2_METADATA_DISABLED="true")


class Drain:
    name = "drain"

    def __init__(self, work):
        program = pathlib.Path(os.environ["TIERCKPT_BUILD_DIR"], "bench/bench_drain")
        self.process = subprocess.Popen([program, "s3://bench/ours", work], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)

    def go(self):
        self.process.stdin.write("go\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise EOFError("bench_drain has ended")  # close says how
        seconds, cpu = line.split()
        return float(seconds), float(cpu)

    def close(self):
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        if self.process.wait() != 0:
            raise RuntimeError(f"bench_drain failed with status {self.process.returncode}; its error is above")


class CommonRuntime:
    """What boto3 uploads with if awscrt is installed. boto3 itself uses that only with TLS."""

    name = "awscrt"

    def __init__(self, server, source):
        import boto3
        import botocore.session
        from s3transfer import crt
        session, region = botocore.session.get_session(), os.environ["AWS_REGION"]
        provider = crt.BotocoreCRTCredentialsWrapper(session.get_credentials()).to_crt_credentials_provider()
        # No higher target than its default, 10 Gbit/s: with the additional connections, uploads to SeaweedFS stalled.
        client = crt.create_s3_crt_client(region, provider, part_size=PART_BYTES, use_ssl=False)
        settings = {"region_name": region, "endpoint_url": server.url}
        self.manager = crt.CRTTransferManager(client, crt.BotocoreCRTRequestSerializer(session, settings))
        self.client, self.source = boto3.client("s3", endpoint_url=server.url), source

    def go(self):
        before, begun = resource.getrusage(resource.RUSAGE_SELF), time.monotonic()
        self.manager.upload(self.source, "bench", "crt").result()
        seconds, after = time.monotonic() - begun, resource.getrusage(resource.RUSAGE_SELF)
        self.client.delete_object(Bucket="bench", Key="crt")
        return seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    def close(self):
        self.manager.shutdown(cancel=True)


class S5cmd:
    name = "s5cmd"

    def __init__(self, server, source):
        program = SERVERS.parent / "s5cmd"
        if not program.exists():
            raise FileNotFoundError(f"there is no {program}")
        self.source, self.base = source, [program, "--endpoint-url", server.url]

    def run(self, *arguments):
        subprocess.run([*self.base, *arguments], check=True, stdout=subprocess.DEVNULL)

    def go(self):
        before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
        self.run("cp", "--part-size", str(PART_BYTES >> 20), "--concurrency", "8", self.source, "s3://bench/s5cmd")
        seconds, after = time.monotonic() - begun, resource.getrusage(resource.RUSAGE_CHILDREN)
        self.run("rm", "s3://bench/s5cmd")
        return seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    def close(self):
        pass


def peers(server, source, opened):
    """Those that are installed and can upload to this server, to be closed by `opened`, and the names of the others."""
    found, missing = [], []
    for peer in (CommonRuntime, S5cmd):
        try:
            one = opened.enter_context(contextlib.closing(peer(server, source)))
            one.go()
            found.append(one)
        except Exception as why:  # each has errors of its own
            print(f"{ID} without {peer.name}: {why or type(why).__name__}", file=sys.stderr)
            missing.append(peer.name)
    if not found:
        skip("neither awscrt nor s5cmd can upload here, for the reasons above: deploy/check --only s3 installs both")
    return found, missing


def take_turns(ways, rounds):
    """Seconds and processor seconds of each go, by way; the first round warms up."""
    goes = {way.name: [] for way in ways}
    for i in range(rounds + 1):
        for j in range(len(ways)):
            way = ways[(i + j) % len(ways)]
            goes[way.name].append(way.go())
    return {name: list(zip(*of[1:])) for name, of in goes.items()}


def spread(values):
    low, _, high = statistics.quantiles(values, n=4)
    return (high - low) / statistics.median(values)


def print_rows(goes, ours, missing):
    times = {name: statistics.median(seconds) for name, (seconds, _) in goes.items()}
    best = min((name for name in times if name != ours), key=times.get)
    gb, rounds = GIB / GB, len(goes[ours][0])
    value = times[best] / times[ours]
    without = f" (without {', '.join(missing)})" if missing else ""
    ratios = [theirs / mine for theirs, mine in zip(goes[best][0], goes[ours][0])]
    print(json.dumps({"id": ID, "what": f"drain of 1 GiB into SeaweedFS, published / the best other upload{without}",
                      "value": value, "unit": "ratio of GB/s", "better": "more", "goal": 0.9, "met": value >= 0.9,
                      "rounds": rounds, "spread": spread(ratios), "reference": best,
                      "reference_value": gb / times[best], "reference_unit": "GB/s"}))
    mine = [cpu / gb for cpu in goes[ours][1]]
    for name in goes:
        if name != ours:
            print(json.dumps({"id": ID + ".cpu", "what": "processor time of the uploading process", "better": "less",
                              "value": statistics.median(mine), "unit": "CPU s/GB", "rounds": rounds,
                              "spread": spread(mine), "reference": name, "reference_unit": "CPU s/GB",
                              "reference_value": round(statistics.median(goes[name][1]) / gb, 4)}))


def measure(directory, rounds):
    import boto3
    from servers import SeaweedFS
    with (tempfile.TemporaryDirectory(dir=directory) as work, tempfile.NamedTemporaryFile(dir="/dev/shm") as source,
          contextlib.closing(SeaweedFS(f"{work}/server")) as server, contextlib.ExitStack() as opened):
        for _ in range(64):
            source.write(os.urandom(GIB // 64))
        source.flush()
        use_server(server)
        boto3.client("s3").create_bucket(Bucket="bench")
        ours = opened.enter_context(contextlib.closing(Drain(work)))
        others, missing = peers(server, source.name, opened)
        print_rows(take_turns([ours, *others], rounds), Drain.name, missing)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("ids", nargs="*")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--dir", required=True)
    args = parser.parse_args()
    use_servers()
    measure(args.dir, max(2, min(args.rounds, 7)))


if __name__ == "__main__":
    main()

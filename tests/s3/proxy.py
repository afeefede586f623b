"""A proxy in front of a server of S3 that does to chosen requests what networks and busy servers do.

Each fault is for one request: the first one, once the fault is set, whose method and path match. It lets the first
`after` of these pass. A "pause" is a short delay that excuses no error: it is not counted as done."""

import http.client
import re
import socket
import socketserver
import ssl
import threading
import time


def read_head(stream):
    """The bytes of a request's first line and headers; b"" at the end of the connection."""
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        line = stream.readline()
        if not line:
            return b""
        head += line
    return head


def header(head, name):
    found = re.search(rb"\r\n" + name.encode() + rb":[ \t]*([^\r\n]*)", head, re.IGNORECASE)
    return found.group(1).decode() if found else None


class Fault:
    def __init__(self, kind, method=".*", path=".*", times=1, after=0, **details):
        self.kind, self.method, self.path, self.details = kind, method, path, details
        self.left, self.after = times, after

    def hits(self, method, path):
        """Whether it is for this request, which counts."""
        if self.left == 0 or not re.fullmatch(self.method, method) or not re.search(self.path, path):
            return False
        if self.after > 0:
            self.after -= 1
            return False
        self.left -= 1
        return True


class Proxy:
    def __init__(self, port, certificate=None):
        """certificate: a file with one and its key, for TLS."""
        self.upstream, self.faults, self.seen, self.done, self.lock = port, [], [], [], threading.Lock()
        self.handshakes, self.resumed, self.refused = 0, 0, 0
        self.held = 0  # requests with a fault that are not answered yet, and may outlive their senders
        proxy, context = self, None
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)

        class Handler(socketserver.StreamRequestHandler):
            def setup(self):
                if context:
                    self.request = proxy.shake_hands(context, self.request)
                super().setup()

            def handle(self):
                try:
                    while proxy.serve(self.rfile, self.request):
                        pass
                except OSError:
                    pass

        class Server(socketserver.ThreadingTCPServer):
            daemon_threads = allow_reuse_address = True

            def handle_error(self, request, client_address):
                pass  # the test judges the client's error

        self.server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http{'s' if certificate else ''}://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def shake_hands(self, context, sock):
        try:
            wrapped = context.wrap_socket(sock, server_side=True)
        except OSError:
            self.refused += 1
            raise
        with self.lock:
            self.handshakes += 1
            self.resumed += wrapped.session_reused
        return wrapped

    def fault(self, *args, **kwargs):
        with self.lock:
            self.faults.append(Fault(*args, **kwargs))

    def clear(self):
        with self.lock:
            self.faults, self.seen = [], []

    def take_fault(self, method, path):
        """The fault for this request, or None. `release` has to follow a fault."""
        with self.lock:
            self.seen.append((method, path))
            for fault in self.faults:
                if fault.hits(method, path):
                    self.held += 1
                    if fault.kind != "pause":
                        self.done.append(fault.kind)
                    return fault
        return None

    def count(self, method, path=".*"):
        return sum(1 for m, p in self.seen if m == method and re.search(path, p))

    def forward(self, method, head, body):
        """(status line and headers, body) of the server's answer."""
        with socket.create_connection(("127.0.0.1", self.upstream)) as sock:
            sock.sendall(head + body)
            answer = http.client.HTTPResponse(sock, method=method)
            answer.begin()
            lines = [f"HTTP/1.1 {answer.status} {answer.reason}"]
            content = answer.read()
            for name, value in answer.getheaders():
                if name.lower() not in ("transfer-encoding", "connection", "content-length"):
                    lines.append(f"{name}: {value}")
            length = answer.getheader("content-length") if method == "HEAD" else len(content)
            if length is not None:
                lines.append(f"Content-Length: {length}")
            return ("\r\n".join(lines) + "\r\n\r\n").encode(), content

    def release(self):
        with self.lock:
            self.held -= 1

    def serve(self, stream, sock):
        """One request; whether the connection stays."""
        head = read_head(stream)
        if not head:
            return False
        method, path = head.split(b" ", 2)[:2]
        method, path = method.decode(), path.decode()
        length = int(header(head, "content-length") or 0)
        body = stream.read(length)
        if len(body) < length:  # its sender has ended: the server would wait for the rest, and this for the server
            return False
        fault = self.take_fault(method, path)
        if fault is None:
            sock.sendall(b"".join(self.forward(method, head, body)))
            return True
        try:
            return self.serve_badly(fault, sock, method, head, body)
        finally:
            self.release()

    def serve_badly(self, fault, sock, method, head, body):
        """Whether the connection stays."""
        kind, details = fault.kind, fault.details
        if kind == "cut":  # before the server has seen anything
            return False
        if kind == "hang":
            time.sleep(details["seconds"])
            return False
        if kind == "answer":
            time.sleep(details.get("seconds", 0))
            text = details.get("body", "").encode()
            lines = [f"HTTP/1.1 {details['status']} x", f"Content-Length: {len(text)}", *details.get("headers", [])]
            sock.sendall("\r\n".join(lines).encode() + b"\r\n\r\n" + text)
            return True
        if kind in ("delay", "pause"):
            time.sleep(details["seconds"])
        if kind == "corrupt" and body:
            body = bytes([body[0] ^ 1]) + body[1:]
        if kind == "duplicate":
            self.forward(method, head, body)
        answer, content = self.forward(method, head, body)
        if kind == "lose":  # the server has done it, and its answer is lost
            return False
        if kind == "corrupt_answer" and content:
            content = content[:-1] + bytes([content[-1] ^ 1])
        if kind == "cut_answer":
            sock.sendall(answer + content[: len(content) // 2])
            return False
        sock.sendall(answer + content)
        return True

    def close(self):
        self.server.shutdown()
        self.server.server_close()

#!/usr/bin/env bash
# Everything that one agent sends to another on a connection, from the first byte on, is recorded on the wire and sent
# again from the same address, at once, byte by byte, and truncated: none of that opens a session, and training
# continues.
. "$(dirname "$0")/lib.sh" "$1"
make_net a b
settings="$settings"',"heartbeat_ms":200'

recorders=()
cat >"$bin/replay" <<'PY'
#!/usr/bin/env python3
"""replay record FILE: what connections from elsewhere say over net0, until it is ended. replay say FILE HOST HOW: the
beginning of each of them again, to the port that it was said to. (UCX has two, one for meeting and one for the rest.)"""
import pickle, signal, socket, struct, sys, time

MOST = 1 << 16  # of a connection: bulk data comes later


def record(path):
    raw = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0800))
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 << 20)
    raw.bind(("net0", 0))
    open(path, "wb").close()
    begun, parts = {}, {}
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        while True:
            packet, where = raw.recvfrom(1 << 17)
            ip = packet[14:]
            length, head = struct.unpack_from(">H", ip, 2)[0] or len(ip), (ip[0] & 15) * 4
            if where[2] == socket.PACKET_OUTGOING or ip[9] != socket.IPPROTO_TCP:
                continue
            source, port, number = struct.unpack_from(">HHI", ip, head)
            data = ip[head + (ip[head + 12] >> 4) * 4:length]
            key = (ip[12:16], source, port)
            if ip[head + 13] & 0x12 == 2:
                begun[key], parts[key] = number + 1, {}
            elif key in begun and data and (number - begun[key]) % (1 << 32) < MOST:
                parts[key][(number - begun[key]) % (1 << 32)] = data
    finally:
        streams = []
        for key, pieces in parts.items():
            said = b""
            while len(said) in pieces:
                said += pieces[len(said)]
            if said:
                streams.append((key[2], said))
        with open(path, "wb") as file:
            pickle.dump(streams, file)


def say(path, host, how):
    with open(path, "rb") as file:
        streams = pickle.load(file)
    held = []
    for port, said in streams:
        try:
            connection = socket.create_connection((host, port), 5)
            connection.settimeout(5)
            held.append(connection)
            if how == "slowly":
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                for at in range(min(300, len(said))):
                    connection.sendall(said[at:at + 1])
                    time.sleep(0.005)
            else:
                connection.sendall(said[:len(said) * 2 // 3] if how == "cut" else said)
        except OSError as error:
            print("cut off:", error)
    time.sleep(2)
    print(f"to {host}, {how}: {len(held)} connections, {sum(len(said) for _, said in streams)} bytes", flush=True)


{"record": record, "say": say}[sys.argv[1]](*sys.argv[2:])
PY
chmod +x "$bin/replay"
for node in a b; do
    (enter $node "$bin/replay" record "$work/heard.$node") &
    recorders+=($!)
done
for node in a b; do wait_for 60 test -e "$work/heard.$node" || skip "nothing can be recorded here"; done

begin 2
run_on a "0" --steps 100000 --step-ms 20 --lockstep
run_on b "1" --steps 100000 --step-ms 20 --lockstep
wait_for 60 has_commits a 3 || die "no commit: $(out 0 | tail -3)"
cut_link b # so that there is a second handshake
log_must_say a 60 'node b is down'
heal_link b
more_commits a 3 60 || die "no commits after the link was cut"
for recorder in "${recorders[@]}"; do builtin kill -TERM "$recorder"; done
wait "${recorders[@]}"

ups() { cat "$(agent_log a)" "$(agent_log b)" | grep -c 'node . is up'; }
for how in whole slowly cut; do
    moment
    agents="$(agent_pid a) $(agent_pid b)" before=$(ups)
    fault "a handshake said again"
    (enter a "$bin/replay" say "$work/heard.b" 10.77.0.2 $how) >>"$work/said" || die "$how: to b"
    (enter b "$bin/replay" say "$work/heard.a" 10.77.0.1 $how) >>"$work/said" || die "$how: to a"
    for node in a b; do
        more_commits $node 5 60 || die "$how: commits do not go on on $node: $(tail -5 "$(agent_log $node)")"
    done
    # UCX may end its process over what strangers send; then there is a new agent with sessions of its own.
    [ "$agents" != "$(agent_pid a) $(agent_pid b)" ] || [ "$(ups)" = "$before" ] || die "$how: a session came up by it"
done
cat "$work/said"
grep -qE 'whole: [1-9][0-9]* connections, [0-9]{4,} bytes' "$work/said" || die "no handshake was recorded"
[ "$(grep -c 'claimed term' "$(agent_log a)")" = 1 ] || die "a new term was formed"
restores_all

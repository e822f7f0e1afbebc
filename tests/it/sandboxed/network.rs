//! The network: all of it, none of it, or some ports.

use std::net::TcpListener;

use super::support::{Cell, assert_lines, has, landlock};

/// Prints what each attempt came to; `PORT` listens, `OTHER` listens too.
fn attempts(port: u16, other: u16) -> String {
    format!(
        "cat > t.py <<'EOF'
import socket, sys
def attempt(name, what):
    try:
        what(); print(name, 'done')
    except OSError as e:
        print(name, 'refused' if e.errno in (1, 13) else e.errno)
def tcp(port): return lambda: socket.create_connection(('127.0.0.1', port), 5)
def sock(*a): return lambda: socket.socket(*a)
def served():
    s = socket.socket(); s.bind(('127.0.0.1', 0)); s.listen()
def fastopen():
    s = socket.socket(); s.sendto(b'x', 0x20000000, ('127.0.0.1', {other}))
def udp():
    socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', 9))
attempt('port', tcp({port})); attempt('other', tcp({other})); attempt('fastopen', fastopen)
attempt('bind', served); attempt('udp', udp)
attempt('udp6', sock(socket.AF_INET6, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC))
attempt('mptcp', sock(socket.AF_INET, socket.SOCK_STREAM, 262))
attempt('pair', socket.socketpair); attempt('unix', sock(socket.AF_UNIX))
EOF
python3 t.py"
    )
}

fn listeners() -> (TcpListener, u16, TcpListener, u16) {
    let listen = || {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
        let port = listener.local_addr().expect("bound").port();
        (listener, port)
    };
    let ((one, port), (two, other)) = (listen(), listen());
    (one, port, two, other)
}

#[test]
fn none_is_none_on_any_kernel_and_sockets_between_processes_stay() {
    if !has("python3") {
        return;
    }
    let (_one, port, _two, other) = listeners();
    let cell = Cell::new();
    for goal in ["sandbox: {network: none}\n", "sandbox: {network: none, files: off}\n"] {
        let told = cell.told(goal, &attempts(port, other));
        let refused =
            ["port", "other", "fastopen", "bind", "udp", "udp6", "mptcp"].map(|name| format!("{name} refused"));
        let mut lines: Vec<&str> = refused.iter().map(String::as_str).collect();
        lines.extend(["pair done", "unix done"]);
        assert_lines(&told, &lines);
    }
}

#[test]
fn of_listed_ports_tcp_is_open_and_nothing_else() {
    if !landlock(4) || !has("python3") {
        return;
    }
    let (_one, port, _two, other) = listeners();
    let cell = Cell::new();
    let told = cell.told(&format!("sandbox: {{network: [{port}]}}\n"), &attempts(port, other));
    assert_lines(
        &told,
        &[
            "port done",
            "other refused",
            "fastopen refused",
            "bind refused",
            "udp refused",
            "udp6 refused",
            "mptcp refused",
            "pair done",
            "unix done",
        ],
    );
}

#[test]
fn by_default_the_network_is_open() {
    if !has("python3") {
        return;
    }
    let (_one, port, _two, other) = listeners();
    let told = Cell::new().told("", &attempts(port, other));
    for name in ["port", "other", "bind", "udp"] {
        assert!(told.contains(&format!("{name} done\n")), "{told}");
    }
}

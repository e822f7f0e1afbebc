//! A scripted provider for the `anthropic` wire that does next to nothing, so that it is not what is measured.
//!
//! A session asks for so many steps, each one `bash` call with another text; then the goal is claimed complete, and
//! the judge finds it met. Two sessions beside each other are served in turns of some steps: while one works, the
//! reply of the other is held back, so that both meet the same weather and neither disturbs the other.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::Result;

/// What stands before and behind the text that a step echoes.
pub const BEFORE_TEXT: &str = "echo step-";
/// Length of that text.
pub const TEXT_LENGTH: usize = 24;
/// The end of a chunked body.
pub const END: &[u8] = b"\r\n0\r\n\r\n";

/// Steps of one session before it is the other one's turn.
const BLOCK: usize = 20;

/// Whose turn it is.
#[derive(Default)]
struct Turns {
    state: Mutex<Turn>,
    changed: Condvar,
}

#[derive(Default)]
struct Turn {
    whose: usize,
    /// Which sessions are under way.
    there: [bool; 2],
}

impl Turns {
    fn change(&self, change: impl FnOnce(&mut Turn)) {
        change(&mut lock(&self.state));
        self.changed.notify_all();
    }

    /// Waits until it is the turn of `me`, or nobody else is there.
    fn wait(&self, me: usize) {
        let others = |turn: &mut Turn| turn.whose != me && turn.there[1 - me];
        drop(self.changed.wait_while(lock(&self.state), others).unwrap_or_else(PoisonError::into_inner));
    }
}

#[derive(Default)]
struct Session {
    steps: usize,
    asked: usize,
    first_request: Option<Instant>,
    replied: Option<Instant>,
    /// From each reply's last byte to the next request's first one.
    gaps: Vec<Duration>,
}

/// Runs when the request of a certain step has arrived, while its reply is awaited.
type Hook = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct Shared {
    session: Session,
    hook: Option<(usize, Hook)>,
    fixed_head: Option<usize>,
}

pub struct Provider {
    me: usize,
    address: SocketAddr,
    shared: Arc<Mutex<Shared>>,
    turns: Arc<Turns>,
}

impl Provider {
    /// Two that take turns.
    pub fn pair() -> Result<[Provider; 2]> {
        let turns = Arc::new(Turns::default());
        Ok([Provider::start(0, Arc::clone(&turns))?, Provider::start(1, turns)?])
    }

    fn start(me: usize, turns: Arc<Turns>) -> Result<Provider> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Mutex::new(Shared::default()));
        let (for_thread, for_turns) = (Arc::clone(&shared), Arc::clone(&turns));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (shared, turns) = (Arc::clone(&for_thread), Arc::clone(&for_turns));
                // A client that goes away ends its connection with an error, and that is no news.
                std::thread::spawn(move || serve(&shared, &turns, me, stream));
            }
        });
        Ok(Provider { me, address, shared, turns })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Begins a session of so many steps.
    pub fn expect(&self, steps: usize) {
        let mut shared = lock(&self.shared);
        shared.session = Session { steps, ..Session::default() };
        shared.hook = None;
        self.turns.change(|turn| turn.there[self.me] = true);
    }

    /// Runs `hook` when the `step`-th request (from 1) has arrived.
    pub fn at_step(&self, step: usize, hook: impl FnOnce() + Send + 'static) {
        lock(&self.shared).hook = Some((step, Box::new(hook)));
    }

    /// When the session's first request came, and the gaps between its steps. The reply that claims the goal starts
    /// no step any more, so what follows it is left out.
    pub fn ended(&self) -> (Option<Instant>, Vec<Duration>) {
        self.turns.change(|turn| turn.there[self.me] = false);
        let shared = lock(&self.shared);
        let gaps = shared.session.gaps.iter().take(shared.session.steps).copied().collect();
        (shared.session.first_request, gaps)
    }

    /// Bytes of the first request with tools before its first message.
    pub fn fixed_head(&self) -> Option<usize> {
        lock(&self.shared).fixed_head
    }
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

fn serve(shared: &Mutex<Shared>, turns: &Turns, me: usize, mut stream: TcpStream) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut buffer = vec![0; 256 << 10];
    loop {
        let mut filled = stream.read(&mut buffer)?;
        let arrived = Instant::now();
        if filled == 0 {
            return Ok(());
        }
        let head_end = loop {
            if let Some(at) = find(&buffer[..filled], b"\r\n\r\n") {
                break at + 4;
            }
            match stream.read(&mut buffer[filled..])? {
                0 => return Err(ErrorKind::UnexpectedEof.into()),
                more => filled += more,
            }
        };
        let length = content_length(&buffer[..head_end]).ok_or(ErrorKind::InvalidData)?;
        // Only the start of a body is looked at: enough for the first request's head.
        let mut left = (head_end + length).saturating_sub(filled);
        while left > 0 {
            let room = if filled < buffer.len() { &mut buffer[filled..] } else { &mut buffer[head_end..] };
            let most = room.len().min(left);
            match stream.read(&mut room[..most])? {
                0 => return Err(ErrorKind::UnexpectedEof.into()),
                more => {
                    left -= more;
                    filled = (filled + more).min(buffer.len());
                }
            }
        }
        let (step, reply) = reply(shared, &buffer[head_end..filled], length, arrived);
        if step > 0 && step.is_multiple_of(BLOCK) {
            turns.change(|turn| turn.whose = 1 - me);
        }
        turns.wait(me);
        stream.write_all(&reply)?;
        // The answer arrives at this thread, so it cannot be noted before this.
        lock(shared).session.replied = Some(Instant::now());
    }
}

/// The number of the step and its reply.
fn reply(shared: &Mutex<Shared>, body: &[u8], length: usize, arrived: Instant) -> (usize, Vec<u8>) {
    let mut shared = lock(shared);
    let session = &mut shared.session;
    session.first_request.get_or_insert(arrived);
    if let Some(replied) = session.replied.take() {
        session.gaps.push(arrived.saturating_duration_since(replied));
    }
    let step = session.asked;
    session.asked += 1;
    let steps = session.steps;
    if step == 0 && shared.fixed_head.is_none() && find(body, br#""tools":"#).is_some() {
        shared.fixed_head = find(body, br#""messages":["#);
    }
    let hook = shared.hook.take_if(|(at, _)| *at == step + 1);
    drop(shared);
    if let Some((_, hook)) = hook {
        hook();
    }
    let (tool, arguments) = if step < steps {
        ("bash", format!(r#"{{"command":"{BEFORE_TEXT}{:0>width$}"}}"#, step, width = TEXT_LENGTH))
    } else if step == steps {
        ("goal-complete", r#"{"summary":"all steps are done"}"#.to_owned())
    } else {
        ("verdict", r#"{"verdict":"met","reason":"every step was run","next_step":"","criteria":[]}"#.to_owned())
    };
    (step, response(step, tool, &arguments, length / 4))
}

/// A reply with one call, as the vendor streams it: one chunk an event.
fn response(step: usize, tool: &str, arguments: &str, input_tokens: usize) -> Vec<u8> {
    let escaped = arguments.replace('"', "\\\"");
    let start = format!(
        r#"{{"type":"message_start","message":{{"id":"msg_{step}","type":"message","role":"assistant","model":"bench","content":[],"stop_reason":null,"usage":{{"input_tokens":{input_tokens},"output_tokens":1}}}}}}"#
    );
    let block = format!(
        r#"{{"type":"content_block_start","index":0,"content_block":{{"type":"tool_use","id":"toolu_{step:08}","name":"{tool}","input":{{}}}}}}"#
    );
    let delta = format!(
        r#"{{"type":"content_block_delta","index":0,"delta":{{"type":"input_json_delta","partial_json":"{escaped}"}}}}"#
    );
    let end = r#"{"type":"message_delta","delta":{"stop_reason":"tool_use"},"usage":{"output_tokens":24}}"#;
    let events = [
        ("message_start", start.as_str()),
        ("content_block_start", &block),
        ("content_block_delta", &delta),
        ("content_block_stop", r#"{"type":"content_block_stop","index":0}"#),
        ("message_delta", end),
        ("message_stop", r#"{"type":"message_stop"}"#),
    ];
    let mut out = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n".to_vec();
    for (name, data) in events {
        let event = format!("event: {name}\ndata: {data}\n\n");
        out.extend_from_slice(format!("{:x}\r\n{event}\r\n", event.len()).as_bytes());
    }
    out.extend_from_slice(b"0\r\n\r\n");
    out
}

fn content_length(head: &[u8]) -> Option<usize> {
    let head = std::str::from_utf8(head).ok()?;
    head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse().ok())?
    })
}

pub fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|window| window == wanted)
}
